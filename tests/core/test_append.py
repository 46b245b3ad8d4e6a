"""May this append happen: the order of the checks, and what each of them says. PROTOCOL §5.2."""

from __future__ import annotations

import msgspec
import pytest

from headwater.core import append as rules
from headwater.core.commands import Append
from headwater.core.errors import (
    ContentTypeMismatch,
    HeadwaterError,
    InvalidRequest,
    ProducerFenced,
    ProducerGap,
    SequenceRegression,
    StreamClosed,
)
from headwater.core.producer import ProducerClaim
from headwater.core.stream import StreamState, WriterChanges
from headwater.core.types import TimestampMs
from tests.support.builders import (
    JSON,
    TEXT,
    append,
    append_records,
    claim,
    position,
    stream_state,
)
from tests.support.clock import START_MS


def written_state(*, content_type: str = JSON, closed: bool = False) -> StreamState:
    """A stream that knows a producer (epoch 3, sequence 4) and a Stream-Seq ("m")."""
    state = stream_state(content_type)
    state.tail_seq, state.tail_byte = position(7, 70)
    note(state, claim("p", 3, 4), stream_seq="m")
    if closed:
        note(state, claim("closer", 0, 9), close=True)
    return state


def note(
    state: StreamState,
    producer: ProducerClaim | None,
    *,
    stream_seq: str | None = None,
    close: bool = False,
) -> WriterChanges:
    changes = WriterChanges()
    rules.note_writer(
        state,
        changes,
        TimestampMs(START_MS),
        claim=producer,
        stream_seq=stream_seq,
        close=close,
    )
    return changes


BAD_TYPE, BAD_SEQ, BAD_BODY = "image/png", "a", b"{"


@pytest.mark.parametrize(
    ("command", "error"),
    [
        pytest.param(
            append(body=BAD_BODY, content_type=BAD_TYPE, producer=claim("p", 1), stream_seq="a"),
            ContentTypeMismatch,
            id="type before producer",
        ),
        pytest.param(
            append(body=BAD_BODY, content_type=JSON, producer=claim("p", 1), stream_seq="a"),
            ProducerFenced,
            id="producer before Stream-Seq",
        ),
        pytest.param(
            append(body=BAD_BODY, content_type=JSON, producer=claim("p", 3, 9), stream_seq="a"),
            ProducerGap,
            id="gap before Stream-Seq",
        ),
        pytest.param(
            append(body=BAD_BODY, content_type=JSON, producer=claim("p", 3, 5), stream_seq="a"),
            SequenceRegression,
            id="Stream-Seq before the body",
        ),
        pytest.param(
            append(body=BAD_BODY, content_type=JSON, producer=claim("p", 3, 5), stream_seq="z"),
            InvalidRequest,
            id="the body last",
        ),
    ],
)
def test_checks_come_in_the_order_type_producer_sequence_body(
    command: Append, error: type[HeadwaterError]
) -> None:
    with pytest.raises(error):
        rules.judge_append(written_state(), command)


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(append(body=BAD_BODY, content_type=BAD_TYPE), id="another type"),
        pytest.param(append(body=b"1", producer=claim("p", 1)), id="a fenced producer"),
        pytest.param(append(body=b"1", producer=claim("p", 3, 4)), id="a repeat of an open batch"),
        pytest.param(append(body=b"1", producer=claim("p", 3, 9)), id="a gap"),
        pytest.param(append(body=b"1", stream_seq=BAD_SEQ), id="an old Stream-Seq"),
        pytest.param(append(body=b"1", close=True), id="append and close"),
        pytest.param(append(close=True, producer=claim("p", 3, 5)), id="a close by someone else"),
        pytest.param(append(close=True, producer=claim("closer", 0, 8)), id="another batch of it"),
    ],
)
def test_a_closed_stream_answers_closed_before_anything_else(command: Append) -> None:
    state = written_state(closed=True)
    with pytest.raises(StreamClosed) as caught:
        rules.judge_append(state, command)
    assert caught.value.tail == state.tail


@pytest.mark.parametrize(
    "command",
    [
        pytest.param(append(close=True), id="a plain close again"),
        pytest.param(append(close=True, content_type=BAD_TYPE), id="whatever its type"),
        pytest.param(append(close=True, producer=claim("closer", 0, 9)), id="what closed it"),
        pytest.param(
            append(body=b"1", close=True, producer=claim("closer", 0, 9)),
            id="what closed it, with its body",
        ),
    ],
)
def test_a_repeat_of_what_closed_the_stream_is_a_repeat(command: Append) -> None:
    assert rules.judge_append(written_state(closed=True), command) is None


def test_the_answer_to_a_repeated_close_names_the_batch_that_closed() -> None:
    state = written_state(closed=True)
    answer = rules.acknowledge(state, claim("closer", 0, 9), repeat=True, added=False)
    assert answer.closed
    assert answer.producer is not None
    assert (answer.producer.epoch, answer.producer.seq) == (0, 9)


@pytest.mark.parametrize(
    ("content_type", "sent"),
    [
        pytest.param(TEXT, TEXT, id="the same"),
        pytest.param(TEXT, "TEXT/Plain", id="in another case"),
        pytest.param(TEXT, "text/plain; charset=utf-8", id="with a parameter"),
        pytest.param("text/plain;charset=latin-1", TEXT, id="without the stream's parameter"),
        pytest.param(TEXT, " text/plain ;x", id="with spaces around"),
        pytest.param(TEXT, None, id="none given"),
    ],
)
def test_content_types_are_compared_without_case_and_parameters(
    content_type: str, sent: str | None
) -> None:
    state = stream_state(content_type)
    assert rules.judge_append(state, append(body=b"x", content_type=sent)) == [b"x"]


def test_without_a_body_the_content_type_is_ignored() -> None:
    assert rules.judge_append(stream_state(), append(close=True, content_type=BAD_TYPE)) == []


def test_a_repeated_batch_is_a_repeat_even_if_its_sequence_and_body_would_be_refused() -> None:
    command = append(body=BAD_BODY, producer=claim("p", 3, 4), stream_seq="a")
    assert rules.judge_append(written_state(), command) is None


@pytest.mark.parametrize(
    ("last", "received", "accepted"),
    [
        pytest.param(None, "", True, id="the first may be empty"),
        pytest.param("", "", False, id="empty again"),
        pytest.param("", "0", True, id="longer than empty"),
        pytest.param("2", "10", False, id="bytes, not numbers"),
        pytest.param("a", "aa", True, id="a prefix is less"),
        pytest.param("Z", "a", True, id="capitals are less"),
        pytest.param("\uffff", "\U00010000", True, id="as UTF-8, not as UTF-16"),
        pytest.param("b", "b", False, id="equal"),
    ],
)
def test_stream_seq_must_increase_bytewise(last: str | None, received: str, accepted: bool) -> None:
    state = stream_state()
    state.stream_seq = last
    if accepted:
        rules.check_stream_seq(state, received)
    else:
        with pytest.raises(SequenceRegression):
            rules.check_stream_seq(state, received)


def test_an_empty_json_array_is_no_append() -> None:
    with pytest.raises(InvalidRequest, match="at least one message"):
        rules.judge_append(stream_state(JSON), append(body=b" [ ] "))


@pytest.mark.parametrize(
    ("producer", "repeat"),
    [
        (claim("closer", 0, 9), True),
        (claim("closer", 0, 8), True),
        (claim("closer", 0, 0), True),
        (claim("closer", 0, 10), False),
        (claim("closer", 1, 0), False),
        (claim("p", 3, 4), False),
        (None, False),
    ],
)
def test_a_request_of_many_appends_that_closed_the_stream_may_be_repeated(
    producer: ProducerClaim | None, repeat: bool
) -> None:
    state = written_state(closed=True)
    part = msgspec.structs.replace(append(body=b"1", producer=producer), part_of=state.id)
    if repeat:
        assert rules.judge_append(state, part) is None
    else:
        with pytest.raises(StreamClosed):
            rules.judge_append(state, part)


def test_nobody_led_to_the_close_of_a_stream_without_a_closer() -> None:
    state = stream_state()
    assert not rules.led_to_close(state, claim())
    note(state, None, close=True)
    assert not rules.led_to_close(state, claim())


def test_a_refused_append_changes_nothing() -> None:
    state = written_state()
    before = repr(state)
    for command in (
        append(body=b"1", content_type=BAD_TYPE),
        append(body=b"1", producer=claim("p", 1)),
        append(body=b"1", stream_seq="a"),
        append(body=BAD_BODY, producer=claim("new")),
    ):
        with pytest.raises(HeadwaterError):
            rules.judge_append(state, command)
    assert repr(state) == before


def test_what_a_writer_did_is_in_the_state_and_in_the_run() -> None:
    state = stream_state()
    changes = note(state, claim("p", 2, 0), stream_seq="s", close=True)
    assert changes.producers == state.producers
    assert changes.stream_seq == state.stream_seq == "s"
    assert changes.closed and state.closed
    assert changes.closed_by == state.closed_by == claim("p", 2, 0)


def test_replaying_the_changes_of_runs_gives_the_state_they_came_from() -> None:
    state, replayed = stream_state(), stream_state()
    for change in (
        note(state, claim("p", 2, 0)),
        note(state, claim("q", 0, 0), stream_seq="a"),
        note(state, claim("p", 2, 1)),
        note(state, None, stream_seq="b"),
        note(state, claim("q", 0, 1), close=True),
    ):
        replayed.replay(change)
    assert replayed == state
    assert list(replayed.producers) == list(state.producers)


def test_an_append_of_no_records_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="at least one record"):
        rules.judge_records(stream_state(), append_records("s", []))
