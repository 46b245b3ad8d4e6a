"""One subscription in memory, and its documents.

Two collections: a subscription by bucket and id, and its links by uid and stream name. They are
apart so that an ack writes the cursors it moves, however many streams a pattern matches.

A stream that a pattern matches and that has no link document was created after the subscription:
what existed then was linked, and saved, when the subscription was created. So its cursor is where
its own records begin, and discovering it writes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from headwater.core.errors import Corruption
from headwater.core.globs import Glob
from headwater.core.subscription_links import Link, LinkSet, decode_link, encode_link
from headwater.core.subscriptions import Subscription, decode, encode
from headwater.core.types import Position
from headwater.engine.clock import Timer
from headwater.engine.documents import Documents

SUBSCRIPTIONS = "subscriptions"
LINKS = "subscription-links"
SEPARATOR = "\0"


class Entry:
    """A subscription, its links, and what is going on with it."""

    __slots__ = (
        "created",
        "delivering",
        "failure",
        "glob",
        "links",
        "ready",
        "removed",
        "subscription",
        "timer",
        "waiting",
    )

    def __init__(self, subscription: Subscription, *, created: bool) -> None:
        self.subscription = subscription
        self.links = LinkSet()
        self.glob = Glob(subscription.pattern) if subscription.pattern is not None else None
        self.created = created
        """It was there before: what it does not know yet came later. Else it is being created."""
        self.ready = False
        """Its links are complete. Until then nothing is asked of it and it wakes nobody."""
        self.removed = False
        self.failure: Exception | None = None
        """Why it was removed before it was created."""
        self.delivering = False
        """A delivery is under way: one at a time."""
        self.timer: Timer | None = None
        self.waiting: list[Callable[[], None]] = []
        """To be called when it is ready, or removed."""

    def watches(self, name: str) -> bool:
        """Does the pattern match? Never its own wake stream: that would wake it for ever."""
        if self.glob is None or not self.glob.matches(name):
            return False
        subscription = self.subscription
        return subscription.type != "pull-wake" or name != subscription.wake_stream

    def release_waiting(self) -> None:
        waiting, self.waiting = self.waiting, []
        for call in waiting:
            call()


class SubscriptionDocuments:
    """What of a subscription is on disk."""

    def __init__(self, documents: Documents) -> None:
        self._documents = documents

    def save(self, entry: Entry) -> None:
        subscription = entry.subscription
        self._documents.save(SUBSCRIPTIONS, subscription.key, encode(subscription))

    def drop(self, entry: Entry) -> None:
        self._documents.save(SUBSCRIPTIONS, entry.subscription.key, None)

    def save_link(self, entry: Entry, name: str, link: Link) -> None:
        link.stored = True
        self._documents.save(LINKS, _link_name(entry.subscription.uid, name), encode_link(link))

    def drop_link(self, entry: Entry, name: str, link: Link) -> None:
        if link.stored:
            link.stored = False
            self._documents.save(LINKS, _link_name(entry.subscription.uid, name), None)

    def drop_stored(self, document: str) -> None:
        """Drop the document of a link by its own name."""
        self._documents.save(LINKS, document, None)

    def move(self, entry: Entry, moves: dict[str, Position]) -> None:
        """Move cursors, in memory and on disk."""
        entry.links.move(moves)
        for name in moves:
            link = entry.links.get(name)
            assert link is not None
            self.save_link(entry, name, link)

    def stored_links(self, entry: Entry) -> list[str]:
        """The names of the documents of its links."""
        uid = entry.subscription.uid
        return [_link_name(uid, name) for name, link in entry.links.items() if link.stored]

    def load(self) -> tuple[list[Entry], list[str]]:
        """Every subscription with its links as saved, and link documents that nobody owns."""
        try:
            heads = [decode(value) for _, value in self._documents.read_all(SUBSCRIPTIONS)]
            entries = {head.uid: Entry(head, created=True) for head in heads}
            ownerless = _load_links(self._documents.read_all(LINKS), entries)
        except msgspec.DecodeError as error:
            raise Corruption(f"a subscription cannot be read from disk: {error}") from error
        return list(entries.values()), ownerless


def _load_links(stored: Iterable[tuple[str, bytes]], entries: dict[str, Entry]) -> list[str]:
    ownerless = []
    for document, value in stored:
        uid, _, name = document.partition(SEPARATOR)
        entry = entries.get(uid)
        if entry is None:
            ownerless.append(document)
        else:
            entry.links.put(name, decode_link(value))
    return ownerless


def _link_name(uid: str, name: str) -> str:
    return f"{uid}{SEPARATOR}{name}"
