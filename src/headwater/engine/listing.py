"""Lists of streams and buckets, page by page: streams of all buckets or one, by prefix or pattern.

The names are those of one moment at which everything was durable. What is told of each stream is
of the moment it is looked at. Cold streams are looked at without taking a place in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from heapq import merge
from typing import NamedTuple

from headwater.core.buckets import BucketConfig, decode_bucket, encode_bucket
from headwater.core.globs import Glob
from headwater.core.names import DURABLE_STREAMS_BUCKET
from headwater.core.pending import Pending
from headwater.core.types import StreamId, TimestampMs
from headwater.engine.buckets import COLLECTION
from headwater.engine.engine import Engine
from headwater.engine.steps import begin, drive, follow
from headwater.engine.streams import Stream
from headwater.storage import keys

STREAMS_PER_STEP = 200
NAMES_PER_STEP = 2000
"""How much is looked at between two turns of the loop."""

Entry = tuple[bytes, bytes]
Name = tuple[str, str]
"""Bucket and stream."""


class BucketPage(NamedTuple):
    """Some buckets, and whether there are more."""

    buckets: list[tuple[str, BucketConfig]]
    has_more: bool


class Selection(NamedTuple):
    """Which streams, in the order of bucket and name, compared bytewise."""

    bucket: str | None = None
    prefix: str = ""
    glob: Glob | None = None
    after: Name | None = None
    limit: int = 1000
    sees: Callable[[str, str], bool] | None = None
    """Which streams, by bucket and name, whoever asks may know of; None is all."""

    def admits(self, bucket: str, name: str) -> bool:
        if not name.startswith(self.prefix):
            return False
        if self.sees is not None and not self.sees(bucket, name):
            return False
        return self.glob is None or self.glob.matches(name)


def list_streams(
    engine: Engine,
    selection: Selection,
    show: Callable[[Stream], None],
    per_step: int | None = None,
) -> Name | Pending[Name | None] | None:
    """Call `show` with each stream; it must not keep it. Resolves to the last one shown if there
    are more, else to None. Streams that have ended are left out. `per_step` is for a `show` that
    takes longer than usual."""
    names = engine.at_rest(lambda: begin(engine.store.scan(*_bounds(selection))))
    return follow(
        names,
        lambda entries: drive(
            engine.loop,
            _select(engine, entries, selection, show, per_step or STREAMS_PER_STEP),
        ),
    )


def _bounds(selection: Selection) -> tuple[bytes, bytes]:
    """The keys between which the names are. Without a bucket, that is all of them."""
    start, end = keys.NAME_PREFIX, keys.prefix_end(keys.NAME_PREFIX)
    if selection.bucket is not None:
        prefix = selection.prefix
        if selection.glob is not None:
            prefix = max(prefix, selection.glob.prefix, key=len)
        start = keys.name(selection.bucket, prefix)
        end = start + b"\xff"
    if selection.after is not None:
        start = max(start, keys.name(*selection.after) + b"\0")
    return start, max(start, end)


def _select(
    engine: Engine,
    entries: Iterator[Entry],
    selection: Selection,
    show: Callable[[Stream], None],
    per_step: int,
) -> Generator[None, None, Name | None]:
    now_ms = engine.clock.now_ms()
    last: Name | None = None
    shown = 0
    for count, (key, value) in enumerate(entries, 1):
        if count % NAMES_PER_STEP == 0:
            yield
        found = keys.split_name(key)
        if not selection.admits(*found):
            continue
        stream = _look(engine, StreamId(keys.unpack_id(value)), now_ms)
        if stream is None:
            continue
        if shown == selection.limit:
            return last
        show(stream)
        last = found
        shown += 1
        if shown % per_step == 0:
            yield
    return None


def _look(engine: Engine, stream_id: StreamId, now_ms: TimestampMs) -> Stream | None:
    stream = engine.shard.peek(stream_id)
    if stream is None or stream.deleted or stream.gone:
        return None
    deadline = engine.deadline_of(stream)
    return None if deadline is not None and deadline <= now_ms else stream


def list_buckets(
    engine: Engine,
    *,
    prefix: str,
    after: str,
    limit: int,
    admits: Callable[[str], bool],
) -> BucketPage | Pending[BucketPage]:
    """Buckets in the order of their names, those that are being deleted included."""

    def scan() -> Iterator[Entry]:
        first = keys.document(COLLECTION, prefix)
        start, end = max(first, keys.document(COLLECTION, after) + b"\0"), first + b"\xff"
        entries = begin(engine.store.scan(start, max(start, end)))
        always = keys.document(COLLECTION, DURABLE_STREAMS_BUCKET)
        if not start <= always < end or engine.store.get(always) is not None:
            return entries
        return merge(entries, [(always, encode_bucket(BucketConfig()))])

    def pick(entries: Iterator[Entry]) -> Generator[None, None, BucketPage]:
        found: list[tuple[str, BucketConfig]] = []
        for count, (key, value) in enumerate(entries, 1):
            if count % NAMES_PER_STEP == 0:
                yield
            name = keys.split_document(key)[1]
            if not admits(name):
                continue
            if len(found) == limit:
                return BucketPage(found, True)
            found.append((name, decode_bucket(value)))
        return BucketPage(found, False)

    return follow(engine.at_rest(scan), lambda entries: drive(engine.loop, pick(entries)))
