"""The streams that a query reads, found with as few requests as there can be."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from os.path import commonprefix

from headwater.client import Client, StreamSummary
from headwater.core.globs import Glob
from headwater.lake.archive import ArchiveReader
from headwater.spark.offsets import key_of
from headwater.spark.options import EARLIEST, LATEST, Bound, Selection, SourceOptions

NAMES_ASKED_MAX = 100
"""So many streams are asked for one by one; more are picked from a list."""

Found = dict[str, StreamSummary]
"""By `bucket/name`."""

SeqAt = Callable[[StreamSummary, int], int]
"""The first record of a stream that is not older than a time."""

OWN_BUCKET = "headwater-pipelines"
"""Where pipelines write their progress. Left out unless it is named: a pipeline that read it would
never come to rest."""


def find(client: Client, selection: Selection, times_ms: Sequence[int] = ()) -> Found:
    """What of the selection is there now, and which records the times are at."""
    if selection.names:
        streams = _named(client, selection.names, times_ms)
    else:
        streams = client.streams(
            bucket=selection.bucket,
            prefix=selection.prefix,
            pattern=selection.pattern,
            times_ms=times_ms,
        )
    left_out = _left_out(selection)
    return {
        key_of(stream.bucket, stream.name): stream
        for stream in streams
        if stream.bucket != left_out
    }


def missing(selection: Selection, found: Found) -> list[str]:
    """What there is to say about names that no stream has."""
    return [
        f"there is no stream {name} in the bucket {bucket}. Names without the option bucket are "
        "bucket/name"
        for bucket, name in selection.names
        if key_of(bucket, name) not in found
    ]


def selects(selection: Selection, bucket: str, name: str) -> bool:
    """Is a stream of this name read, once it is there?"""
    if selection.names:
        return (bucket, name) in selection.names
    if bucket == _left_out(selection) or selection.bucket not in (None, bucket):
        return False
    if selection.pattern is not None:
        return Glob(selection.pattern).matches(name)
    return name.startswith(selection.prefix or "")


def _left_out(selection: Selection) -> str | None:
    return None if selection.bucket or selection.names else OWN_BUCKET


def _named(
    client: Client, names: tuple[tuple[str, str], ...], times_ms: Sequence[int]
) -> Iterable[StreamSummary]:
    if len(names) <= NAMES_ASKED_MAX:
        asked = (client.stream(bucket, name, times_ms=times_ms) for bucket, name in names)
        return [stream for stream in asked if stream is not None]
    wanted = set(names)
    found: list[StreamSummary] = []
    for bucket in sorted({bucket for bucket, _ in names}):
        prefix = commonprefix([name for of, name in names if of == bucket])
        listed = client.streams(bucket=bucket, prefix=prefix, times_ms=times_ms)
        found += [stream for stream in listed if (bucket, stream.name) in wanted]
    return found


class Finder:
    """The streams as they are with what an archive has of them, and times in them."""

    def __init__(self, client: Client, options: SourceOptions, *times_ms: int | None) -> None:
        """The times are those to be asked for besides those of the options."""
        asked = (options.start.at_ms, options.end.at_ms, *times_ms)
        self._times_ms = sorted({max(0, at_ms) for at_ms in asked if at_ms is not None})
        self._client = client
        self._selection = options.selection
        self._archive = None if options.archive is None else ArchiveReader(options.archive)
        self._retained: dict[str, int] = {}
        """By its id, the first record that the server has of a stream that begins in the
        archive."""

    def find(self, *, timed: bool = True) -> Found:
        """Without times it is less work for the server, and `seq_at` cannot be asked."""
        found = find(self._client, self._selection, self._times_ms if timed else ())
        if self._archive is None:
            return found
        retained = {stream.id: stream.first for stream in found.values()}
        firsts = self._archive.firsts_of(retained)
        self._retained = {id: first for id, first in retained.items() if firsts[id] < first}
        return {key: _from_archive(stream, firsts[stream.id]) for key, stream in found.items()}

    def seq_at(self, stream: StreamSummary, at_ms: int) -> int:
        """The first record that is not older than a time; the tail if all are."""
        last = stream.last_record_at_ms
        if last is None or last < at_ms:
            return stream.tail
        retained = self._retained.get(stream.id)
        if retained is not None and self._archive is not None:
            where = (stream.bucket, stream.name, stream.id)
            archived = self._archive.seq_at(*where, stream.first, retained, at_ms)
            if archived is not None:
                return archived
        return stream.seqs_at[self._times_ms.index(max(0, at_ms))]


def _from_archive(stream: StreamSummary, first: int) -> StreamSummary:
    """A stream that begins in the archive. How much that is follows from what was trimmed."""
    if first >= stream.first:
        return stream
    archived = (stream.bytes_ever - stream.bytes) * (stream.first - first) // stream.first
    return stream._replace(first=first, bytes=stream.bytes + archived)


def resolve(bound: Bound, stream: StreamSummary, seq_at: SeqAt) -> int:
    """The record number a bound means in a stream. It may be outside of what is retained."""
    if bound.at_ms is not None:
        return seq_at(stream, bound.at_ms)
    place = bound.each.get((stream.bucket, stream.name), bound.default)
    if place == EARLIEST:
        return stream.first
    if place == LATEST:
        return stream.tail
    assert isinstance(place, int)
    return place
