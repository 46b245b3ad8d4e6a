"""Which streams were forked from one: found by looking at the streams made after it.

There is no index of forks, because nothing but curiosity needs one: a stream counts its references
and each fork knows its sources. So this looks at a bounded number of streams, in steps.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import NamedTuple

import msgspec

from headwater.core.stream import Extent, Origin
from headwater.core.types import StreamId
from headwater.engine.steps import begin
from headwater.storage import keys
from headwater.storage.store import Store

LOOKS_MAX = 20_000
LOOKS_PER_STEP = 500


class Fork(msgspec.Struct, frozen=True):
    """As much of a stream's checkpoint as tells where its records come from."""

    id: StreamId
    bucket: str
    name: str
    extents: tuple[Extent, ...] = ()
    origin: Origin | None = None
    deleted: bool = False

    def reads(self, owner: StreamId) -> bool:
        if self.origin is not None and self.origin.source == owner:
            return True
        return any(extent.owner == owner for extent in self.extents)


class Forks(NamedTuple):
    """The forks found."""

    found: list[Fork]
    complete: bool
    """These are all of them."""


_decoder = msgspec.msgpack.Decoder(Fork)


def checkpoints_after(store: Store, stream_id: StreamId) -> Iterator[tuple[bytes, bytes]]:
    """The stored states of the streams made after one, as they are now: ids only ever grow."""
    start = keys.state(StreamId(stream_id + 1))
    return begin(store.scan(start, keys.prefix_end(keys.STATE_PREFIX)))


def find_forks(
    checkpoints: Iterator[tuple[bytes, bytes]], source: StreamId, references: int
) -> Generator[None, None, Forks]:
    """Look until as many were found as the source has references."""
    found: list[Fork] = []
    if references:
        for count, (_, stored) in enumerate(checkpoints, 1):
            fork = _decoder.decode(stored)
            if fork.reads(source):
                found.append(fork)
                if len(found) == references:
                    break
            if count >= LOOKS_MAX:
                break
            if count % LOOKS_PER_STEP == 0:
                yield
    return Forks(found, len(found) == references)
