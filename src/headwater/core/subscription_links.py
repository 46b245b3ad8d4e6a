"""The streams of one subscription, and which of them have news. PROTOCOL §6.1, §7."""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, Mapping

import msgspec

from headwater.core.types import START, Position, StreamId

NO_STREAM = StreamId(0)
"""A stream that is linked by name and does not exist (yet)."""


class Link(msgspec.Struct):
    """One stream of a subscription, and how far it has been processed."""

    acked: Position = START
    """Everything before it is processed."""
    tail: Position = START
    """The durable tail of the stream, as last seen."""
    stream_id: StreamId = NO_STREAM
    """Which stream of that name: one that was deleted and created again is another."""
    explicit: bool = False
    stored: bool = False
    """There is a document of this link."""

    @property
    def pending(self) -> bool:
        return self.tail > self.acked

    @property
    def link_type(self) -> str:
        return "explicit" if self.explicit else "glob"


class _StoredLink(msgspec.Struct, frozen=True, array_like=True):
    """The document of a link. Frozen: fields are only ever added at the end, with a default."""

    acked: Position
    stream_id: StreamId
    explicit: bool


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(_StoredLink)


def encode_link(link: Link) -> bytes:
    return _encoder.encode(_StoredLink(link.acked, link.stream_id, link.explicit))


def decode_link(data: bytes) -> Link:
    stored = _decoder.decode(data)
    return Link(
        acked=stored.acked,
        tail=stored.acked,
        stream_id=stored.stream_id,
        explicit=stored.explicit,
        stored=True,
    )


class LinkSet:
    """Links by stream name. The pending ones are kept apart, the longest pending first."""

    __slots__ = ("_links", "_pending")

    def __init__(self) -> None:
        self._links: dict[str, Link] = {}
        self._pending: dict[str, Link] = {}

    def __len__(self) -> int:
        return len(self._links)

    def __contains__(self, name: str) -> bool:
        return name in self._links

    @property
    def pending(self) -> int:
        """How many streams have something to process."""
        return len(self._pending)

    @property
    def first_pending(self) -> str:
        return next(iter(self._pending), "")

    def get(self, name: str) -> Link | None:
        return self._links.get(name)

    def items(self) -> ItemsView[str, Link]:
        return self._links.items()

    def explicit_names(self) -> set[str]:
        return {name for name, link in self._links.items() if link.explicit}

    def put(self, name: str, link: Link) -> None:
        self._links[name] = link
        self._note(name, link)

    def remove(self, name: str) -> None:
        self._links.pop(name, None)
        self._pending.pop(name, None)

    def reset(self, name: str, link: Link, *, to: Position, stream_id: StreamId) -> None:
        """The name means another stream now, or none."""
        link.acked = link.tail = to
        link.stream_id = stream_id
        self.put(name, link)

    def advance(self, name: str, link: Link, tail: Position) -> bool:
        """The stream's tail is there now. True when that gave it something to process."""
        link.tail = tail
        if name in self._pending or not link.pending:
            return False
        self._pending[name] = link
        return True

    def move(self, moves: Mapping[str, Position]) -> None:
        """Take over acks that were judged."""
        for name, position in moves.items():
            link = self._links[name]
            link.acked = position
            self._note(name, link)

    def sample(self, count_max: int) -> list[tuple[str, Link]]:
        """Links to tell somebody about: the pending ones first."""
        found: list[tuple[str, Link]] = []
        for name, link in self._in_order_of_need():
            if len(found) >= count_max:
                break
            found.append((name, link))
        return found

    def _in_order_of_need(self) -> Iterator[tuple[str, Link]]:
        yield from self._pending.items()
        for name, link in self._links.items():
            if name not in self._pending:
                yield name, link

    def _note(self, name: str, link: Link) -> None:
        if not link.pending:
            self._pending.pop(name, None)
        elif name not in self._pending:
            self._pending[name] = link
