"""Which streams a subscription has: those that exist when it is created or loaded, and later ones.

Looking at every stream of a bucket takes a while, so it goes in steps; between two of them the
documents written so far become durable and everybody else has a turn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from headwater.core.errors import HeadwaterError, StreamGone, StreamNotFound
from headwater.core.subscription_links import NO_STREAM, Link
from headwater.core.types import START, Position
from headwater.engine.documents import Documents
from headwater.engine.engine import Engine
from headwater.engine.streams import Stream
from headwater.engine.subscription_entry import Entry, SubscriptionDocuments

STEP_STREAMS = 64
"""A few milliseconds of looking, when nothing is in memory."""

Done = Callable[[Exception | None], None]


class Linker:
    """Links streams to subscriptions. PROTOCOL §6.2, §6.4."""

    def __init__(self, engine: Engine, documents: Documents, stored: SubscriptionDocuments) -> None:
        self._engine = engine
        self._documents = documents
        self._stored = stored
        self._closed = False

    def close(self) -> None:
        """Leave off: what is not finished is done again after a restart."""
        self._closed = True

    # -- the steps

    def run(self, steps: Iterator[None], done: Done) -> None:
        """Take one step after the other, each when the one before is on disk."""
        if self._closed:
            return
        try:
            next(steps)
        except StopIteration:
            done(None)
        except HeadwaterError as error:
            done(error)
        else:
            self._documents.after(lambda failure: self._go_on(steps, done, failure))

    def _go_on(self, steps: Iterator[None], done: Done, failure: Exception | None) -> None:
        if failure is None:
            self._engine.loop.call_soon(self.run, steps, done)
        else:
            done(failure)

    def link_existing(self, entry: Entry, explicit: Iterable[str]) -> Iterator[None]:
        """A new subscription: link what is there at its tail, so that no history is replayed."""
        for name in explicit:
            self.link_explicit(entry, name)
        yield
        yield from self._discover_all(entry)

    def link_again(self, entry: Entry) -> Iterator[None]:
        """A loaded subscription: see what has become of its streams, and which are new."""
        for number, name in enumerate([name for name, _ in entry.links.items()], 1):
            if number % STEP_STREAMS == 0:
                yield
            if entry.removed:
                return
            link = entry.links.get(name)
            if link is not None:  # else an append was faster
                self._revisit(entry, name, link)
        yield from self._discover_all(entry)

    def _discover_all(self, entry: Entry) -> Iterator[None]:
        """Link the streams that the pattern matches and that are not linked yet."""
        if entry.glob is None:
            return
        names = self._engine.shard.names(entry.subscription.bucket, entry.glob.prefix)
        for number, name in enumerate(names, 1):
            if number % STEP_STREAMS == 0:
                yield
            if entry.removed:
                return
            if name in entry.links or not entry.watches(name):
                continue
            stream = self._look(entry, name)
            if stream is not None:
                link = self.discover(entry, name, stream)
                entry.links.advance(name, link, stream.tail)

    def _revisit(self, entry: Entry, name: str, link: Link) -> None:
        stream = self._look(entry, name)
        if stream is None:
            self.stream_is_gone(entry, name, link)
            return
        if stream.state.id != link.stream_id:
            link = self.discover(entry, name, stream)
        entry.links.advance(name, link, stream.tail)

    def drop_documents(self, names: list[str]) -> Iterator[None]:
        """Drop link documents that belong to no subscription any more."""
        for number, name in enumerate(names, 1):
            if number % STEP_STREAMS == 0:
                yield
            self._stored.drop_stored(name)

    # -- single streams

    def discover(self, entry: Entry, name: str, stream: Stream) -> Link:
        """Link a stream that the subscription did not know, or knew another by its name.

        While the subscription is being created that is at the tail. Later it is before anything
        the stream was given: it came after the subscription.
        """
        link = entry.links.get(name) or Link()
        position = self._origin(stream) if entry.created else stream.tail
        entry.links.reset(name, link, to=position, stream_id=stream.state.id)
        if not entry.created:
            self._stored.save_link(entry, name, link)
        return link

    def link_explicit(self, entry: Entry, name: str) -> None:
        """Link a stream by name, at its tail; it need not exist. PROTOCOL §6.4."""
        link = entry.links.get(name)
        if link is None:
            link = Link()
            stream = self._look(entry, name)
            if stream is None:
                entry.links.reset(name, link, to=START, stream_id=NO_STREAM)
            else:
                entry.links.reset(name, link, to=stream.tail, stream_id=stream.state.id)
        link.explicit = True
        self._stored.save_link(entry, name, link)

    def unlink_explicit(self, entry: Entry, name: str) -> None:
        """Take an explicit link back; the pattern may still hold the stream. PROTOCOL §6.4."""
        link = entry.links.get(name)
        if link is None or not link.explicit:
            return
        link.explicit = False
        if link.stream_id != NO_STREAM and entry.watches(name):
            self._stored.save_link(entry, name, link)
        else:
            entry.links.remove(name)
            self._stored.drop_link(entry, name, link)

    def stream_is_gone(self, entry: Entry, name: str, link: Link) -> None:
        """A name that was asked for stays linked, for the next stream to bear it."""
        if link.explicit:
            entry.links.reset(name, link, to=START, stream_id=NO_STREAM)
        else:
            entry.links.remove(name)
            self._stored.drop_link(entry, name, link)

    def _look(self, entry: Entry, name: str) -> Stream | None:
        try:
            return self._engine.open(entry.subscription.bucket, name)
        except (StreamNotFound, StreamGone):
            return None

    def _origin(self, stream: Stream) -> Position:
        """Before the first record of its own: a fork begins after what it inherits."""
        state = stream.state
        first = max(state.own_first_seq, state.first_seq)
        if first == 0:
            return START
        if first >= stream.tail.seq:
            return stream.tail
        if first == state.first_seq:
            return state.first
        return self._engine.shard.read_run(state.id, first).position(first)
