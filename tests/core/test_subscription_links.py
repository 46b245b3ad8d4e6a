"""The streams of one subscription."""

from __future__ import annotations

from headwater.core.subscription_links import NO_STREAM, Link, LinkSet, decode_link, encode_link
from headwater.core.types import START, StreamId
from tests.support.builders import position


def linked(*names: str) -> LinkSet:
    links = LinkSet()
    for number, name in enumerate(names, 1):
        links.put(name, Link(stream_id=StreamId(number)))
    return links


def advance(links: LinkSet, name: str, seq: int) -> bool:
    link = links.get(name)
    assert link is not None
    return links.advance(name, link, position(seq, seq))


def pending(links: LinkSet) -> tuple[int, str]:
    return links.pending, links.first_pending


def test_a_stream_is_pending_from_its_first_news_until_they_are_acked() -> None:
    links = linked("a", "b")
    assert pending(links) == (0, "")
    assert advance(links, "b", 1) is True
    assert advance(links, "b", 2) is False  # it was pending before
    assert pending(links) == (1, "b")
    links.move({"b": position(1, 1)})
    assert pending(links) == (1, "b")
    links.move({"b": position(2, 2)})
    assert pending(links) == (0, "")
    assert advance(links, "b", 2) is False


def test_a_sample_begins_with_what_is_pending_for_longest() -> None:
    links = linked("a", "b", "c")
    advance(links, "c", 1)
    advance(links, "b", 1)
    assert [name for name, _ in links.sample(10)] == ["c", "b", "a"]
    assert [name for name, _ in links.sample(2)] == ["c", "b"]


def test_a_name_that_means_another_stream_starts_anew() -> None:
    links = linked("a")
    advance(links, "a", 5)
    link = links.get("a")
    assert link is not None
    links.reset("a", link, to=START, stream_id=NO_STREAM)
    assert (link.acked, link.tail, link.stream_id, links.pending) == (START, START, NO_STREAM, 0)


def test_a_removed_stream_is_pending_no_more() -> None:
    links = linked("a", "b")
    advance(links, "a", 1)
    links.remove("a")
    assert "a" not in links and len(links) == 1 and not links.pending
    links.remove("a")


def test_explicit_links_are_told_apart() -> None:
    links = linked("a")
    links.put("b", Link(explicit=True))
    assert links.explicit_names() == {"b"}
    assert [link.link_type for _, link in links.items()] == ["glob", "explicit"]


def test_a_link_is_on_disk_what_it_was_in_memory() -> None:
    link = Link(acked=position(3, 30), tail=position(9, 90), stream_id=StreamId(7), explicit=True)
    found = decode_link(encode_link(link))
    assert (found.acked, found.stream_id, found.explicit) == (position(3, 30), 7, True)
    assert found.stored
    assert not found.pending  # until the stream has been looked at
