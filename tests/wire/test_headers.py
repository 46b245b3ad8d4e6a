"""Header values: what is accepted, what is refused, and times there and back."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.core.errors import InvalidRequest
from headwater.core.producer import ProducerClaim
from headwater.core.types import BatchSeq, Epoch, TimestampMs
from headwater.wire import headers
from tests.support.builders import claim

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LAST_MS = 253_402_300_799_999
"""9999-12-31T23:59:59.999Z."""


def moment_ms(year: int, month: int, day: int, hour: int = 0, minute: int = 0) -> int:
    moment = datetime(year, month, day, hour, minute, tzinfo=UTC)
    return (moment - EPOCH) // timedelta(milliseconds=1)


# -- times


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("2030-01-31T12:00:00Z", moment_ms(2030, 1, 31, 12), id="UTC"),
        pytest.param("2030-01-31t12:00:00z", moment_ms(2030, 1, 31, 12), id="small letters"),
        pytest.param("2030-01-31T12:00:00+00:00", moment_ms(2030, 1, 31, 12), id="zero zone"),
        pytest.param("2030-01-31T12:00:00-00:00", moment_ms(2030, 1, 31, 12), id="unknown zone"),
        pytest.param("2030-01-31T12:00:00+05:30", moment_ms(2030, 1, 31, 6, 30), id="east"),
        pytest.param("2030-01-31T20:00:00-08:00", moment_ms(2030, 2, 1, 4), id="west"),
        pytest.param("2030-01-31T12:00:00.5Z", moment_ms(2030, 1, 31, 12) + 500, id="tenths"),
        pytest.param("2030-01-31T12:00:00.0019Z", moment_ms(2030, 1, 31, 12) + 1, id="cut to ms"),
        pytest.param(
            "2030-01-31T12:00:00.123456789Z", moment_ms(2030, 1, 31, 12) + 123, id="nanoseconds"
        ),
        pytest.param("2028-02-29T00:00:00Z", moment_ms(2028, 2, 29), id="leap day"),
        pytest.param("2016-12-31T23:59:60Z", moment_ms(2017, 1, 1), id="leap second"),
        pytest.param("1990-12-31T15:59:60-08:00", moment_ms(1991, 1, 1), id="leap second, west"),
        pytest.param("9999-12-31T23:59:59.999Z", LAST_MS, id="the last moment"),
        pytest.param("1969-12-31T23:59:59Z", 0, id="before 1970 is as good as 1970"),
    ],
)
def test_rfc_3339_is_understood(text: str, expected: int) -> None:
    assert headers.parse_rfc3339(text, field="Field") == expected


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="empty"),
        pytest.param("2030", id="a year"),
        pytest.param("2099-01-01", id="a day"),
        pytest.param("2030-01-31T12:00Z", id="no seconds"),
        pytest.param("2030-01-31T12:00:00", id="no zone"),
        pytest.param("2030-01-31 12:00:00Z", id="a space for the T"),
        pytest.param("2030-1-31T12:00:00Z", id="one digit"),
        pytest.param("2030-13-01T12:00:00Z", id="month 13"),
        pytest.param("2030-02-29T12:00:00Z", id="no such leap day"),
        pytest.param("2030-01-00T12:00:00Z", id="day 0"),
        pytest.param("0000-01-01T00:00:00Z", id="year 0"),
        pytest.param("2030-01-31T24:00:00Z", id="hour 24"),
        pytest.param("2030-01-31T12:60:00Z", id="minute 60"),
        pytest.param("2030-01-31T12:00:61Z", id="second 61"),
        pytest.param("2030-01-31T12:30:60Z", id="leap second in the middle of a day"),
        pytest.param("2030-01-31T23:59:60+01:00", id="leap second an hour early"),
        pytest.param("2030-01-31T12:00:00+0100", id="zone without colon"),
        pytest.param("2030-01-31T12:00:00+01", id="zone without minutes"),
        pytest.param("2030-01-31T12:00:00+24:00", id="zone of a day"),
        pytest.param("2030-01-31T12:00:00+01:60", id="zone minute 60"),
        pytest.param("2030-01-31T12:00:00.Z", id="point without digits"),
        pytest.param("2030-01-31T12:00:00,5Z", id="comma"),
        pytest.param("2030-01-31T12:00:00Z\n", id="line end"),
        pytest.param("20300131T120000Z", id="the basic form"),
        pytest.param("Thu, 31 Jan 2030 12:00:00 GMT", id="an HTTP date"),
        pytest.param("1893499200", id="seconds"),
        pytest.param("9999-12-31T23:59:59-01:00", id="past the last moment by zone"),
        pytest.param("9999-12-31T23:59:60Z", id="past the last moment by leap second"),
        pytest.param("0001-01-01T00:00:00+01:00", id="before the first moment"),
        pytest.param("\u0662\u0660\u0663\u0660-01-31T12:00:00Z", id="digits of another script"),
    ],
)
def test_other_times_are_refused_by_name(text: str) -> None:
    with pytest.raises(InvalidRequest, match="Field is an RFC 3339 timestamp"):
        headers.parse_rfc3339(text, field="Field")


@given(at_ms=st.integers(0, LAST_MS))
def test_a_rendered_time_is_parsed_back(at_ms: int) -> None:
    text = headers.render_rfc3339(TimestampMs(at_ms)).decode()
    assert headers.parse_rfc3339(text, field="Field") == at_ms


@given(
    moment=st.datetimes(datetime(1971, 1, 1), datetime(9998, 12, 31)),
    zone_minutes=st.integers(-(23 * 60 + 59), 23 * 60 + 59),
)
def test_every_zone_names_the_same_moment(moment: datetime, zone_minutes: int) -> None:
    moment = moment.replace(microsecond=moment.microsecond // 1000 * 1000, tzinfo=UTC)
    local = moment.astimezone(timezone(timedelta(minutes=zone_minutes)))
    expected = (moment - EPOCH) // timedelta(milliseconds=1)
    assert headers.parse_rfc3339(local.isoformat(), field="Field") == expected


# -- lifetimes


@pytest.mark.parametrize(
    ("ttl", "expected"),
    [
        pytest.param(b"0", 0, id="zero"),
        pytest.param(b"3600", 3600, id="an hour"),
        pytest.param(b"999999999999999999", 10**18 - 1, id="for ever, nearly"),
    ],
)
def test_a_ttl_is_whole_seconds(ttl: bytes, expected: int) -> None:
    assert headers.parse_lifetime({b"stream-ttl": ttl}) == (expected, None)


@pytest.mark.parametrize(
    "ttl",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"+3600", id="plus sign"),
        pytest.param(b"-1", id="minus sign"),
        pytest.param(b"03600", id="leading zero"),
        pytest.param(b"00", id="two zeros"),
        pytest.param(b"3600.0", id="decimal point"),
        pytest.param(b"3.6e3", id="exponent"),
        pytest.param(b"1h", id="unit"),
        pytest.param(b" 3600", id="space"),
        pytest.param(b"3600\n", id="line end"),
        pytest.param(b"0x10", id="hexadecimal"),
        pytest.param(b"1_000", id="separator"),
        pytest.param(b"9" * 5000, id="absurdly long"),
        pytest.param("\u0661".encode(), id="digits of another script"),
    ],
)
def test_other_ttls_are_refused(ttl: bytes) -> None:
    with pytest.raises(InvalidRequest, match="Stream-TTL"):
        headers.parse_lifetime({b"stream-ttl": ttl})


def test_a_lifetime_may_be_absent_or_a_moment_but_not_both_kinds() -> None:
    expires = {b"stream-expires-at": b"2030-01-31T12:00:00Z"}
    assert headers.parse_lifetime({}) == (None, None)
    assert headers.parse_lifetime(expires) == (None, moment_ms(2030, 1, 31, 12))
    with pytest.raises(InvalidRequest, match="not both"):
        headers.parse_lifetime({b"stream-ttl": b"60", **expires})


# -- flags and text


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (b"true", True),
        (b"TRUE", True),
        (b"True", True),
        (b"tRuE", True),
        (b"false", False),
        (b"1", False),
        (b"yes", False),
        (b"", False),
        (b"true ", False),
        (b"true, true", False),
        (None, False),
    ],
)
def test_only_true_counts(value: bytes | None, expected: bool) -> None:
    given = {} if value is None else {b"stream-closed": value}
    assert headers.parse_flag(given, b"stream-closed") is expected


@given(one=st.binary(max_size=12), other=st.binary(max_size=12))
def test_text_keeps_the_order_and_identity_of_its_bytes(one: bytes, other: bytes) -> None:
    first = headers.parse_text({b"x": one}, b"x", bytes_max=12)
    second = headers.parse_text({b"x": other}, b"x", bytes_max=12)
    assert first is not None and second is not None
    assert (first < second, first == second) == (one < other, one == other)
    assert first.encode("latin-1") == one


def test_text_may_be_absent_and_must_not_be_too_long() -> None:
    assert headers.parse_text({}, b"stream-seq", bytes_max=3) is None
    assert headers.parse_text({b"stream-seq": b"abc"}, b"stream-seq", bytes_max=3) == "abc"
    with pytest.raises(InvalidRequest, match="Stream-Seq is longer than 3 bytes"):
        headers.parse_text({b"stream-seq": b"abcd"}, b"stream-seq", bytes_max=3)


# -- producers


def triple(
    producer_id: bytes | None = b"p", epoch: bytes | None = b"0", seq: bytes | None = b"0"
) -> headers.Headers:
    given = {b"producer-id": producer_id, b"producer-epoch": epoch, b"producer-seq": seq}
    return {name: value for name, value in given.items() if value is not None}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        pytest.param({}, None, id="none"),
        pytest.param(triple(), claim(), id="zeros"),
        pytest.param(triple(seq=b"7", epoch=b"3"), claim(epoch=3, seq=7), id="numbers"),
        pytest.param(
            triple(seq=b"9007199254740991"), claim(seq=2**53 - 1), id="the largest number"
        ),
        pytest.param(triple(seq=b"007"), claim(seq=7), id="leading zeros"),
        pytest.param(triple(b"x" * 1024), claim("x" * 1024), id="the longest id"),
        pytest.param(
            triple(b"\xc3\xa9"), ProducerClaim("\xc3\xa9", Epoch(0), BatchSeq(0)), id="any bytes"
        ),
    ],
)
def test_a_producer_names_itself_with_three_headers(
    given: headers.Headers, expected: ProducerClaim | None
) -> None:
    assert headers.parse_producer(given) == expected


@pytest.mark.parametrize(
    "given",
    [
        pytest.param(triple(None), id="no id"),
        pytest.param(triple(epoch=None), id="no epoch"),
        pytest.param(triple(seq=None), id="no sequence"),
        pytest.param(triple(None, None), id="only a sequence"),
        pytest.param(triple(b""), id="empty id"),
        pytest.param(triple(b"x" * 1025), id="id too long"),
        *(
            pytest.param(triple(**{field: value}), id=f"{field} {value.decode()!r}")
            for field in ("epoch", "seq")
            for value in (b"", b"-1", b"+1", b"1.0", b"1e3", b"abc", b" 1", b"1\n", b"0x1")
        ),
        pytest.param(triple(epoch=b"9007199254740992"), id="epoch too large"),
        pytest.param(triple(seq=b"9007199254740992"), id="sequence too large"),
        pytest.param(triple(seq=b"9" * 5000), id="sequence absurdly long"),
    ],
)
def test_other_producer_headers_are_refused(given: headers.Headers) -> None:
    with pytest.raises(InvalidRequest, match="Producer-"):
        headers.parse_producer(given)


# -- entity tags


@pytest.mark.parametrize(
    ("if_none_match", "expected"),
    [
        pytest.param(b'"a:1:2"', True, id="the tag"),
        pytest.param(b'W/"a:1:2"', True, id="weak"),
        pytest.param(b'"x", "a:1:2"', True, id="second of a list"),
        pytest.param(b'"x",W/"a:1:2" , "y"', True, id="weak in a list"),
        pytest.param(b'"a:1:2-gzip"', True, id="of the compressed answer"),
        pytest.param(b'"x", W/"a:1:2-zstd"', True, id="of the compressed answer, weak"),
        pytest.param(b'"a:1:2-br"', False, id="of a coding that is not ours"),
        pytest.param(b"*", True, id="star"),
        pytest.param(b" * ", True, id="star with spaces"),
        pytest.param(b"", False, id="empty"),
        pytest.param(b"a:1:2", False, id="without quotes"),
        pytest.param(b'"a:1:2:c"', False, id="the closed one"),
        pytest.param(b'"A:1:2"', False, id="another case"),
        pytest.param(b'"*"', False, id="a star in quotes"),
        pytest.param(b'w/"a:1:2"', False, id="a small w is no weak tag"),
    ],
)
def test_entity_tags_compare_weakly_in_lists(if_none_match: bytes, expected: bool) -> None:
    found = headers.matching_etag(if_none_match, b'"a:1:2"')
    assert (found is not None) is expected
    assert found is None or found in if_none_match or if_none_match.strip() == b"*"
