"""Text over SSE when appends do not end between characters. PROTOCOL §5.8."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.dialects.durable import live
from headwater.engine.engine import Engine
from headwater.engine.reader import Slice
from tests.support.durable import DurableServer, Follower, token

EURO = "€".encode()
EMOJI = "😀".encode()
BROKEN = "\ufffd"


def last_offset(follower: Follower) -> str:
    return str(follower.controls[-1]["streamNextOffset"])


@pytest.mark.parametrize(
    "appends",
    [
        pytest.param([b"a" + EURO[:1], EURO[1:] + b"b"], id="two appends"),
        pytest.param([EURO[:1], EURO[1:2], EURO[2:]], id="three appends"),
        pytest.param([EMOJI[:1], EMOJI[1:2], EMOJI[2:3], EMOJI[3:]], id="four appends"),
        pytest.param([EMOJI[:2], EMOJI[2:] + EURO[:2], EURO[2:] + b"."], id="one after the other"),
        pytest.param([b"x", EURO[:2], EURO[2:] + EMOJI[:3], EMOJI[3:]], id="after whole text"),
    ],
)
@pytest.mark.parametrize("mode", ["live", "caught up", "half and half"])
def test_a_character_split_over_appends_is_never_broken(
    server: DurableServer, appends: list[bytes], mode: str
) -> None:
    whole = b"".join(appends).decode()
    server.make("s")
    before = {"live": 0, "caught up": len(appends), "half and half": 1}[mode]
    if before:
        server.append("s", *appends[:before])
    follower = server.follow("s", "-1")
    for body in appends[before:]:
        server.append("s", body)
        assert whole.startswith(follower.text)
    assert follower.text == whole
    assert last_offset(follower) == server.head().next
    assert follower.controls[-1]["upToDate"]


def test_half_a_character_waits_and_the_offset_with_it(server: DurableServer) -> None:
    server.make("s")
    follower = server.follow("s", "-1")
    whole = server.append("s", b"price: ")
    server.append("s", b"5 " + EURO[:2])
    assert (follower.text, last_offset(follower)) == ("price: ", whole)
    tail = server.append("s", EURO[2:])
    assert (follower.text, last_offset(follower)) == ("price: 5 €", tail)


def test_a_reader_that_has_not_got_everything_is_not_told_it_is_up_to_date(
    server: DurableServer,
) -> None:
    server.make("s", b"whole", EURO[:1])
    follower = server.follow("s", "-1")
    assert (follower.text, last_offset(follower)) == ("whole", token(1, 5))
    assert "upToDate" not in follower.controls[-1]


def test_the_end_of_the_stream_brings_what_was_held_back(server: DurableServer) -> None:
    server.make("s", b"half: " + EURO[:2])
    follower = server.follow("s", "-1")
    assert follower.events == []
    server.close()
    assert follower.text == "half: " + BROKEN
    assert follower.controls[-1]["streamClosed"] and follower.ended


@pytest.mark.parametrize(
    ("body", "shown"),
    [
        pytest.param(b"a\xffb", f"a{BROKEN}b", id="a byte that is never UTF-8"),
        pytest.param(b"a\xff", f"a{BROKEN}", id="such a byte last is not waited for"),
        pytest.param(b"\xc0\xaf", BROKEN * 2, id="overlong"),
        pytest.param(b"\xed\xa0\x80", BROKEN * 3, id="a surrogate"),
        pytest.param(b"\xe2\x82x", f"{BROKEN}x", id="a character that breaks off"),
        pytest.param(b"\x82\xac", BROKEN * 2, id="the rest of a character"),
    ],
)
def test_what_is_not_utf_8_is_replaced(server: DurableServer, body: bytes, shown: str) -> None:
    tail = server.make("s", body)
    follower = server.follow("s", "-1")
    assert (follower.text, last_offset(follower)) == (shown, tail)


TEXTS = st.text(alphabet="a é€😀\n", min_size=1, max_size=40)


@settings(max_examples=150, deadline=None)
@given(data=st.data(), text=TEXTS, event_bytes=st.integers(1, 24), joins=st.integers(0, 3))
def test_any_text_cut_anywhere_arrives_whole_and_can_be_resumed_anywhere(
    data: st.DataObject, text: str, event_bytes: int, joins: int
) -> None:
    payload = text.encode()
    cuts = data.draw(st.lists(st.integers(0, len(payload)), max_size=12), label="cuts")
    edges = sorted({0, len(payload), *cuts})
    appends = [payload[low:high] for low, high in zip(edges, edges[1:], strict=False)]
    with pytest.MonkeyPatch.context() as patch, DurableServer() as server:
        patch.setattr(live, "EVENT_BYTES", event_bytes)
        server.make("s")
        follower = server.follow("s", "-1")
        for number, body in enumerate(appends):
            if number == joins:
                follower.disconnect()
                resumed = server.follow("s", follower.controls[-1]["streamNextOffset"])
                before, follower = follower, resumed
                text = text.removeprefix(before.text)
            server.append("s", body)
            assert text.startswith(follower.text)
        assert follower.text == text
        seen = ""
        for shown, told in follower.pairs:
            seen += shown
            rest = server.follow("s", told["streamNextOffset"])
            assert seen + rest.text == text
            rest.disconnect()


def test_a_long_message_that_ends_inside_a_character_is_sent_with_what_follows(
    server: DurableServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "EVENT_BYTES", 8)
    appends = [
        b"x" * 20 + EURO[:1],
        EURO[1:] + b"y" * 60 + EMOJI[:2],
        EMOJI[2:] + b"z",
    ]
    server.make("s", *appends)
    follower = server.follow("s", "-1")
    assert follower.text == b"".join(appends).decode()
    assert last_offset(follower) == server.head().next


def test_text_without_any_whole_place_is_sent_at_last(
    server: DurableServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory is bounded first: beyond the limit a character may break, but nothing stalls."""
    monkeypatch.setattr(live, "EVENT_BYTES", 8)
    monkeypatch.setattr(live, "TEXT_EVENT_BYTES_MAX", 32)
    split = EURO[2:] + EURO[:2]
    server.make("s", b"x" + EURO[:2], *[split] * 40, EURO[2:])
    follower = server.follow("s", "-1")
    assert follower.text.startswith("x€€")
    assert follower.text.count("€") > 30
    assert last_offset(follower) == server.head().next
    assert max(len(data) for data in follower.data) <= 32


def test_the_search_for_a_whole_place_is_bounded(
    server: DurableServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it does not find waits for the next append, or for the end; nothing is lost."""
    monkeypatch.setattr(live, "STEPS_BACK_MAX", 2)
    appends = [b"x", EURO[:1], EURO[1:2], EURO[2:] + EURO[:2]]
    server.make("s", *appends)
    follower = server.follow("s", "-1")
    assert follower.events == []
    tail = server.append("s", EURO[2:])
    assert (follower.text, last_offset(follower)) == ("x€€", tail)


def test_stepping_back_costs_a_few_reads_however_small_the_appends(
    server: DurableServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A token stream of an AI model: thousands of tiny appends, characters split among them."""
    monkeypatch.setattr(live, "EVENT_BYTES", 1000)
    payload = EURO * 1000
    server.make("s", *(bytes([byte]) for byte in payload))
    reads = []
    read_now = Engine.read_now

    def counted(engine: Engine, *args: object) -> Slice:
        reads.append(args)
        return read_now(engine, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(Engine, "read_now", counted)
    follower = server.follow("s", "-1")
    assert follower.text == payload.decode()
    assert len(follower.data) == 4
    assert len(reads) <= 1 + 3 * len(follower.data)
