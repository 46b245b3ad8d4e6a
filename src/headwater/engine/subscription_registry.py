"""Which subscriptions there are, and which of them a change of a stream concerns.

What an append costs here: nothing without subscriptions in its bucket, else one look-up per
changed stream, and one more per subscription that has the stream.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from headwater.core.subscription_links import Link
from headwater.core.types import StreamId
from headwater.engine.streams import Stream
from headwater.engine.subscription_entry import Entry
from headwater.engine.subscription_linker import Linker
from headwater.engine.subscription_wakes import Wakes

log = logging.getLogger("headwater.subscriptions")

TARGETS_MAX = 100_000
"""Streams whose subscriptions are remembered; beyond that the memory starts anew."""

Target = tuple[Entry, Link]


class Registry:
    """Subscriptions by bucket and id."""

    def __init__(self, linker: Linker, wakes: Wakes) -> None:
        self._linker = linker
        self._wakes = wakes
        self._buckets: dict[str, dict[str, Entry]] = {}
        self._count = 0
        self._targets: dict[StreamId, tuple[Target, ...]] = {}

    def __len__(self) -> int:
        return self._count

    def entries(self) -> list[Entry]:
        return [entry for bucket in self._buckets.values() for entry in bucket.values()]

    def of_bucket(self, bucket: str) -> Mapping[str, Entry]:
        return self._buckets.get(bucket, {})

    def find(self, bucket: str, subscription_id: str) -> Entry | None:
        return self.of_bucket(bucket).get(subscription_id)

    def add(self, entry: Entry) -> None:
        subscription = entry.subscription
        self._buckets.setdefault(subscription.bucket, {})[subscription.id] = entry
        self._count += 1
        self.forget_targets()

    def remove(self, entry: Entry) -> None:
        subscription = entry.subscription
        bucket = self._buckets[subscription.bucket]
        del bucket[subscription.id]
        if not bucket:
            del self._buckets[subscription.bucket]
        self._count -= 1
        self.forget_targets()

    def forget_targets(self) -> None:
        """Call when subscriptions or their links change other than by an append."""
        self._targets.clear()

    def observe(self, changed: list[Stream]) -> None:
        """Called after each commit with the streams it changed."""
        if not self._buckets:
            return
        for stream in changed:
            state = stream.state
            entries = self._buckets.get(state.bucket)
            if entries is None:
                continue
            targets = self._targets.get(state.id)
            if targets == ():
                continue
            try:
                self._update(stream, entries, targets)
            except Exception:
                # A stream that cannot be read must not stop the commit, nor hide the others.
                log.exception("a stream could not be followed. stream=%s", state.key)

    def _update(
        self, stream: Stream, entries: dict[str, Entry], targets: tuple[Target, ...] | None
    ) -> None:
        name = stream.state.name
        if stream.gone or stream.state.deleted:
            self._unlink(stream, entries)
            return
        if targets is None:
            targets = self._find_targets(stream, entries)
        for entry, link in targets:
            if entry.links.advance(name, link, stream.tail):
                self._wakes.proceed(entry)

    def _unlink(self, stream: Stream, entries: dict[str, Entry]) -> None:
        name, stream_id = stream.state.name, stream.state.id
        self._targets.pop(stream_id, None)
        for entry in entries.values():
            link = entry.links.get(name)
            if link is not None and link.stream_id == stream_id:
                self._linker.stream_is_gone(entry, name, link)

    def _find_targets(self, stream: Stream, entries: dict[str, Entry]) -> tuple[Target, ...]:
        """The subscriptions of a stream, found once and remembered."""
        state = stream.state
        targets = []
        for entry in entries.values():
            link = entry.links.get(state.name)
            if link is None and not entry.watches(state.name):
                continue
            if link is None or link.stream_id != state.id:
                link = self._linker.discover(entry, state.name, stream)
            targets.append((entry, link))
        if len(self._targets) >= TARGETS_MAX:
            self.forget_targets()
        self._targets[state.id] = tuple(targets)
        return self._targets[state.id]
