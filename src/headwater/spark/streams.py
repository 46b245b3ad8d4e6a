"""The streams that a query reads, found with as few requests as there can be."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from os.path import commonprefix

from headwater.client import Client, StreamSummary
from headwater.lake.archive import ArchiveReader
from headwater.spark.offsets import key_of
from headwater.spark.options import EARLIEST, LATEST, Bound, Selection

NAMES_ASKED_MAX = 100
"""So many streams are asked for one by one; more are picked from a list."""

Found = dict[str, StreamSummary]
"""By `bucket/name`."""

SeqAt = Callable[[StreamSummary, int], int]
"""The first record of a stream that is not older than a time."""


OWN_BUCKET = "headwater-pipelines"
"""Where pipelines write their progress. Left out unless it is named: a pipeline that read it would
never come to rest."""


def find(client: Client, selection: Selection) -> Found:
    """What of the selection is there now."""
    if selection.names:
        streams = _named(client, selection.names)
    else:
        streams = client.streams(
            bucket=selection.bucket, prefix=selection.prefix, pattern=selection.pattern
        )
    left_out = None if selection.bucket or selection.names else OWN_BUCKET
    return {
        key_of(stream.bucket, stream.name): stream
        for stream in streams
        if stream.bucket != left_out
    }


def with_archive(found: Found, archive: ArchiveReader | None) -> Found:
    """The streams as they are with what an archive has of them."""
    if archive is None:
        return found
    return {
        key: stream._replace(first=archive.first_of(stream.id, stream.first))
        for key, stream in found.items()
    }


def _named(client: Client, names: tuple[tuple[str, str], ...]) -> Iterable[StreamSummary]:
    if len(names) <= NAMES_ASKED_MAX:
        asked = (client.stream(bucket, name) for bucket, name in names)
        return [stream for stream in asked if stream is not None]
    wanted = set(names)
    found: list[StreamSummary] = []
    for bucket in sorted({bucket for bucket, _ in names}):
        prefix = commonprefix([name for of, name in names if of == bucket])
        listed = client.streams(bucket=bucket, prefix=prefix)
        found += [stream for stream in listed if (bucket, stream.name) in wanted]
    return found


def locate(client: Client, stream: StreamSummary, at_ms: int) -> int:
    """The first record that is not older than a time. Asks only where the list does not tell."""
    last = stream.last_record_at_ms
    if last is None or last < at_ms:
        return stream.tail
    return min(client.seq_at(stream.bucket, stream.name, at_ms), stream.tail)


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
