"""Create, fork and the end of a stream. PROTOCOL §4.2, §5.1, §5.4."""

from __future__ import annotations

import pytest

from headwater.core import limits, provisioning
from headwater.core.commands import Create
from headwater.core.errors import (
    ContentTypeMismatch,
    ForkRefused,
    HeadwaterError,
    ProducerFenced,
    ProducerGap,
    SequenceRegression,
    StreamExists,
    StreamNotFound,
)
from headwater.core.lifecycle import (
    ForkPoint,
    forked_stream,
    judge_existing,
    judge_source,
    new_stream,
)
from headwater.core.producer import ProducerMark
from headwater.core.stream import Extent, StreamState, decode_state, encode_state
from headwater.core.types import BatchSeq, Epoch, SeqNum, StreamId, TimestampMs
from tests.support.builders import JSON, TEXT, append, claim, create, fork_of, position
from tests.support.clock import START_MS

OCTETS = "application/octet-stream"


def existing(command: Create, stream_id: int = 1) -> StreamState:
    state = new_stream(command, StreamId(stream_id))
    state.closed = command.closed
    return state


# -- repeated creates


@pytest.mark.parametrize(
    ("first", "again"),
    [
        pytest.param(create(), create(), id="the very same"),
        pytest.param(create(), create(content_type="TEXT/plain"), id="type in another case"),
        pytest.param(create(), create(content_type="text/plain;charset=utf-8"), id="a parameter"),
        pytest.param(
            create(content_type="text/plain; charset=a"),
            create(content_type="text/plain; charset=b"),
            id="another parameter",
        ),
        pytest.param(create(content_type=None), create(content_type=None), id="default type"),
        pytest.param(create(content_type=None), create(content_type=OCTETS), id="default, named"),
        pytest.param(create(content_type=OCTETS), create(content_type=None), id="named, default"),
        pytest.param(create(ttl_s=60), create(ttl_s=60), id="TTL"),
        pytest.param(
            create(expires_at_ms=START_MS + 60_000),
            create(expires_at_ms=START_MS + 60_000),
            id="deadline",
        ),
        pytest.param(create(body=b"x"), create(body=b"y"), id="the body is not compared"),
        pytest.param(create(attributes=b"a"), create(), id="attributes not given"),
        pytest.param(create(attributes=b"a"), create(attributes=b"a"), id="same attributes"),
    ],
)
def test_a_create_with_the_same_configuration_is_confirmed(first: Create, again: Create) -> None:
    assert judge_existing(existing(first), again) is False


@pytest.mark.parametrize(
    ("first", "again"),
    [
        pytest.param(create(), create(content_type="text/html"), id="another type"),
        pytest.param(create(), create(content_type=None), id="the default type"),
        pytest.param(create(), create(ttl_s=60), id="a TTL more"),
        pytest.param(create(ttl_s=60), create(), id="a TTL less"),
        pytest.param(create(ttl_s=60), create(ttl_s=61), id="another TTL"),
        pytest.param(
            create(ttl_s=60), create(expires_at_ms=START_MS + 60_000), id="TTL and deadline"
        ),
        pytest.param(
            create(expires_at_ms=START_MS + 60_000),
            create(expires_at_ms=START_MS + 60_001),
            id="another deadline",
        ),
        pytest.param(
            create(ttl_s=60), create(ttl_s=60, ttl_from_access=False), id="another anchor"
        ),
        pytest.param(create(), create(fork=fork_of("a")), id="a fork instead"),
        pytest.param(create(), create(attributes=b"a"), id="other attributes"),
    ],
)
def test_a_create_with_another_configuration_is_a_conflict(first: Create, again: Create) -> None:
    with pytest.raises(StreamExists):
        judge_existing(existing(first), again)


@pytest.mark.parametrize("stream_closed", [False, True], ids=["open", "closed"])
@pytest.mark.parametrize("asked_closed", [False, True], ids=["asked open", "asked closed"])
def test_a_repeated_create_must_ask_for_the_state_the_stream_is_in(
    stream_closed: bool, asked_closed: bool
) -> None:
    state = existing(create(closed=stream_closed))
    if stream_closed == asked_closed:
        assert judge_existing(state, create(closed=asked_closed)) is False
    else:
        with pytest.raises(StreamExists):
            judge_existing(state, create(closed=asked_closed))


@pytest.mark.parametrize("gone", ["deleted", "expired"])
def test_a_name_kept_for_forks_cannot_be_taken(gone: str) -> None:
    state = existing(create(ttl_s=60))
    state.references = 1
    at_ms = START_MS
    if gone == "deleted":
        state.deleted = True
    else:
        at_ms += 60_000
    with pytest.raises(StreamExists, match="forks"):
        judge_existing(state, create(ttl_s=60, at_ms=at_ms))


def test_a_repeated_create_may_move_stream_seq_on_but_not_back() -> None:
    state = existing(create())
    state.stream_seq = "b"
    assert judge_existing(state, create(stream_seq="c")) is True
    assert state.stream_seq == "c"
    state.tail_seq = SeqNum(1)
    with pytest.raises(SequenceRegression):
        judge_existing(state, create(stream_seq="c"))


def test_the_same_create_with_a_stream_seq_can_be_repeated_until_something_is_appended() -> None:
    state = existing(create())
    state.stream_seq = "b"
    assert judge_existing(state, create(stream_seq="b")) is False
    state.tail_seq = SeqNum(1)
    with pytest.raises(SequenceRegression):
        judge_existing(state, create(stream_seq="b"))


@pytest.mark.parametrize(
    ("epoch", "seq", "error"),
    [
        pytest.param(3, 4, None, id="the last batch"),
        pytest.param(3, 0, None, id="an old batch"),
        pytest.param(2, 0, ProducerFenced, id="an old epoch"),
        pytest.param(3, 6, ProducerGap, id="a gap"),
    ],
)
def test_a_repeated_create_is_judged_by_its_producer_too(
    epoch: int, seq: int, error: type[HeadwaterError] | None
) -> None:
    state = existing(create())
    state.producers["p"] = ProducerMark(Epoch(3), BatchSeq(4), TimestampMs(START_MS))
    command = create(producer=claim("p", epoch, seq))
    if error is None:
        assert judge_existing(state, command) is False
    else:
        with pytest.raises(error):
            judge_existing(state, command)


def test_a_new_stream_knows_no_producer_so_its_first_batch_is_number_0() -> None:
    assert new_stream(create(producer=claim(seq=0, epoch=9)), StreamId(1))
    with pytest.raises(ProducerGap) as caught:
        new_stream(create(producer=claim(seq=1)), StreamId(1))
    assert caught.value.expected == 0


@pytest.mark.parametrize(
    ("content_type", "json"),
    [
        (JSON, True),
        ("Application/JSON; charset=utf-8", True),
        ("application/ld+json", False),
        (TEXT, False),
        (None, False),
    ],
)
def test_only_the_json_media_type_makes_a_json_stream(content_type: str | None, json: bool) -> None:
    state = new_stream(create(content_type=content_type), StreamId(1))
    assert state.json is json
    assert state.content_type == (content_type or OCTETS)


# -- lifetimes


@pytest.mark.parametrize(
    ("command", "expires_after_ms"),
    [
        pytest.param(create(), None, id="for ever"),
        pytest.param(create(ttl_s=0), 0, id="TTL 0"),
        pytest.param(create(ttl_s=60), 60_000, id="TTL"),
        pytest.param(create(ttl_s=60, ttl_from_access=False), 60_000, id="TTL from creation"),
        pytest.param(create(expires_at_ms=START_MS + 5), 5, id="deadline"),
        pytest.param(create(expires_at_ms=START_MS), 0, id="deadline now"),
        pytest.param(create(expires_at_ms=0), -START_MS, id="deadline in 1970"),
    ],
)
def test_a_stream_expires_at_its_deadline(command: Create, expires_after_ms: int | None) -> None:
    state = new_stream(command, StreamId(1))
    if expires_after_ms is None:
        assert state.deadline_ms is None
        assert not state.is_expired(TimestampMs(limits.LIFETIME_MS_MAX))
    else:
        assert not state.is_expired(TimestampMs(START_MS + expires_after_ms - 1))
        assert state.is_expired(TimestampMs(START_MS + expires_after_ms))


def test_a_touch_moves_a_sliding_ttl_only_and_never_back() -> None:
    sliding = new_stream(create(ttl_s=60), StreamId(1))
    fixed = new_stream(create(ttl_s=60, ttl_from_access=False), StreamId(2))
    dated = new_stream(create(expires_at_ms=START_MS + 60_000), StreamId(3))
    for state in (sliding, fixed, dated):
        state.touch(TimestampMs(START_MS + 30_000))
        state.touch(TimestampMs(START_MS + 10_000))
    assert sliding.deadline_ms == START_MS + 90_000
    assert fixed.deadline_ms == START_MS + 60_000
    assert dated.deadline_ms == START_MS + 60_000


def test_a_ttl_beyond_all_measure_means_never() -> None:
    state = new_stream(create(ttl_s=10**18 - 1), StreamId(1))
    assert state.deadline_ms == limits.LIFETIME_MS_MAX
    assert decode_state(encode_state(state)) == state


# -- forks


def source_state(stream_id: int = 1, tail: tuple[int, int] = (10, 100)) -> StreamState:
    state = existing(create("source", content_type=JSON), stream_id)
    state.tail_seq, state.tail_byte = position(*tail)
    state.tail_message = tail[0]
    return state


@pytest.mark.parametrize(
    ("again", "same"),
    [
        pytest.param(create(fork=fork_of("source", position(4, 40))), True, id="the very same"),
        pytest.param(create(fork=fork_of("source")), True, id="offset omitted"),
        pytest.param(create(fork=fork_of("source"), content_type=None), True, id="type omitted"),
        pytest.param(create(fork=fork_of("source", position(5, 50))), False, id="another offset"),
        pytest.param(create(fork=fork_of("source", position(4, 40), 1)), False, id="a sub-offset"),
        pytest.param(create(fork=fork_of("other", position(4, 40))), False, id="another source"),
        pytest.param(create(), False, id="no fork"),
    ],
)
def test_a_repeated_fork_is_compared_by_source_offset_and_sub_offset(
    again: Create, same: bool
) -> None:
    first = create(fork=fork_of("source", position(4, 40)), content_type=None)
    state = forked_stream(first, StreamId(2), source_state(), ForkPoint(position(4, 40), 4))
    command = create(fork=again.fork, content_type=None if again.fork else JSON)
    if same:
        assert judge_existing(state, command) is False
    else:
        with pytest.raises(StreamExists):
            judge_existing(state, command)


def test_a_fork_made_at_the_tail_is_the_same_fork_when_asked_for_by_that_offset() -> None:
    source = source_state()
    state = forked_stream(
        create(fork=fork_of("source"), content_type=None),
        StreamId(2),
        source,
        ForkPoint(source.tail, 10),
    )
    again = create(fork=fork_of("source", position(10, 100)), content_type=None)
    assert judge_existing(state, again) is False


@pytest.mark.parametrize(
    ("asked", "ttl_s", "expires_at_ms"),
    [
        pytest.param(create(), 60, None, id="inherited"),
        pytest.param(create(ttl_s=5), 5, None, id="own TTL"),
        pytest.param(create(expires_at_ms=START_MS + 9), None, START_MS + 9, id="own deadline"),
    ],
)
def test_a_fork_inherits_the_lifetime_unless_it_has_its_own(
    asked: Create, ttl_s: int | None, expires_at_ms: int | None
) -> None:
    source = source_state()
    source.ttl_s = 60
    command = create(
        "fork",
        fork=fork_of("source"),
        content_type=None,
        ttl_s=asked.ttl_s,
        expires_at_ms=asked.expires_at_ms,
        at_ms=START_MS + 1000,
    )
    state = forked_stream(command, StreamId(2), source, ForkPoint(source.tail, 10))
    assert (state.ttl_s, state.expires_at_ms) == (ttl_s, expires_at_ms)
    assert state.touched_at_ms == START_MS + 1000


def test_a_fork_inherits_type_and_data_but_no_writer_state_and_starts_open() -> None:
    source = source_state()
    source.closed = True
    source.closed_by = claim("p")
    source.stream_seq = "z"
    source.producers["p"] = ProducerMark(Epoch(0), BatchSeq(0), TimestampMs(START_MS))
    source.attributes = b"a"
    state = forked_stream(
        create("fork", fork=fork_of("source"), content_type=None),
        StreamId(2),
        source,
        ForkPoint(source.tail, 10),
    )
    assert (state.content_type, state.json, state.attributes) == (JSON, True, b"a")
    assert (state.tail, state.tail_message) == (source.tail, 10)
    assert (state.closed, state.closed_by, state.stream_seq, state.producers) == (
        False,
        None,
        None,
        {},
    )


@pytest.mark.parametrize(
    ("source", "error"),
    [
        pytest.param(None, StreamNotFound, id="no source"),
        pytest.param("deleted", ForkRefused, id="deleted"),
        pytest.param("expired", ForkRefused, id="expired"),
        pytest.param("type", ContentTypeMismatch, id="another type"),
    ],
)
def test_some_sources_cannot_be_forked(source: str | None, error: type[HeadwaterError]) -> None:
    state = None if source is None else source_state()
    if state is not None:
        state.deleted = source == "deleted"
        state.ttl_s = 0 if source == "expired" else None
    with pytest.raises(error):
        judge_source(state, create(fork=fork_of("source"), content_type=TEXT))


def test_a_closed_source_can_be_forked_and_its_type_named_in_any_spelling() -> None:
    state = source_state()
    state.closed = True
    command = create(fork=fork_of("source"), content_type="APPLICATION/json; x=y")
    assert judge_source(state, command) is state


def extent(owner: int, first: int, end: int, cut: int | None = None) -> Extent:
    return Extent(StreamId(owner), SeqNum(first), SeqNum(end), cut)


@pytest.mark.parametrize(
    ("inherited", "own_first", "end", "cut", "expected"),
    [
        pytest.param((), 0, 0, None, (), id="nothing"),
        pytest.param((), 0, 10, None, (extent(9, 0, 10),), id="all"),
        pytest.param((), 0, 4, None, (extent(9, 0, 4),), id="part"),
        pytest.param((), 0, 4, 3, (extent(9, 0, 4, 3),), id="part with a cut"),
        pytest.param(
            (extent(1, 0, 5),), 5, 8, None, (extent(1, 0, 5), extent(9, 5, 8)), id="a chain"
        ),
        pytest.param((extent(1, 0, 5),), 5, 5, None, (extent(1, 0, 5),), id="none of its own"),
        pytest.param((extent(1, 0, 5),), 5, 3, None, (extent(1, 0, 3),), id="inside the inherited"),
        pytest.param(
            (extent(1, 0, 5, 7),), 5, 5, None, (extent(1, 0, 5, 7),), id="an inherited cut stays"
        ),
        pytest.param(
            (extent(1, 0, 5, 7),), 5, 5, 3, (extent(1, 0, 5, 3),), id="a deeper cut of the same"
        ),
        pytest.param((extent(1, 0, 5, 7),), 5, 3, 2, (extent(1, 0, 3, 2),), id="a cut before it"),
        pytest.param(
            (extent(1, 0, 3, 7), extent(2, 3, 5)),
            5,
            7,
            1,
            (extent(1, 0, 3, 7), extent(2, 3, 5), extent(9, 5, 7, 1)),
            id="three generations",
        ),
    ],
)
def test_the_extents_of_a_fork_are_flat_and_clipped(
    inherited: tuple[Extent, ...],
    own_first: int,
    end: int,
    cut: int | None,
    expected: tuple[Extent, ...],
) -> None:
    source = source_state(stream_id=9)
    source.extents, source.own_first_seq = inherited, SeqNum(own_first)
    point = ForkPoint(position(end, end * 10), end, cut)
    command = create("fork", fork=fork_of("source", position(end, end * 10)), content_type=None)
    state = forked_stream(command, StreamId(10), source, point)
    assert state.extents == expected
    assert state.own_first_seq == end
    assert state.owners() == {entry.owner for entry in expected} | {9}


def test_a_fork_inherits_what_s2_says_of_a_stream_and_when_its_records_were_written() -> None:
    source = source_state()
    source.storage_class, source.timestamping, source.uncapped = "standard", "arrival", True
    source.delete_on_empty_s, source.fencing_token = 60, "token"
    source.cipher = "aegis-256"
    source.note_written(SeqNum(3), (SeqNum(10), TimestampMs(START_MS)))
    point = ForkPoint(position(4, 40), 4)
    state = forked_stream(
        create("f", fork=fork_of("s"), content_type=None), StreamId(2), source, point
    )
    assert provisioning.config_of(state) == provisioning.config_of(source)
    assert (state.cipher, state.fencing_token) == ("aegis-256", "")
    assert (state.client_times_from, state.written) == (3, [(4, START_MS)])


def test_the_key_of_a_command_is_the_key_of_its_stream() -> None:
    assert append("a/b").key == existing(create("a/b")).key
