"""PUT /{bucket}/{stream}: every row, header and sentence of the create page. Ursula: create."""

from __future__ import annotations

import json

import pytest

from headwater.dialects.durable.rules import ROOT
from headwater.wire.http import Request
from tests.support.durable import BYTES, JSON, ORIGIN, START, TEXT, producer, token
from tests.support.ursula import NUMBERED, UrsulaServer

TITLED = '{"title":"Support session","metadata":{"purpose":"customer-support"}}'


# -- names


@pytest.mark.parametrize("bucket", ["demo", "a", "A.b-c_9", "x" * 64, "durable-streams", "streams"])
def test_bucket_names_are_lenient(server: UrsulaServer, bucket: str) -> None:
    assert server.put(f"{bucket}/s").status == 201


@pytest.mark.parametrize("bucket", ["x" * 65, "a%20b", "%C3%A4", "a%2Fb", "..", "a:b"])
def test_bucket_that_is_no_name_is_400_and_says_the_rule(server: UrsulaServer, bucket: str) -> None:
    reply = server.put(f"{bucket}/s")
    assert reply.status == 400
    assert "[A-Za-z0-9._-]" in reply.body.decode()


@pytest.mark.parametrize(
    ("path", "rule"),
    [
        ("abc/s", "4 to 64 characters of [a-z0-9_-]"),
        ("Demo/s", "4 to 64 characters of [a-z0-9_-]"),
        ("demo/" + "s" * 123, "122 bytes"),
    ],
)
def test_names_strict_enforces_the_protocol_and_says_which_rule(path: str, rule: str) -> None:
    from headwater.core.names import NameRules

    with UrsulaServer(names=NameRules.STRICT) as server:
        reply = server.put(path)
        assert reply.status == 400
        assert rule in reply.body.decode()
        assert server.put("demo/" + "s" * 122).status == 201


@pytest.mark.parametrize("name", ["a%00b", "..", "a/../b", ".", "a/%2E%2E", ""])
def test_stream_cannot_contain_nul_or_dot_segments(server: UrsulaServer, name: str) -> None:
    reply = server.put(f"demo/{name}")
    assert (reply.status, reply.error) == (400, "invalid_request")


def test_stream_may_have_slashes_and_be_longer_than_the_protocol_has_it(
    server: UrsulaServer,
) -> None:
    assert server.put("demo/a/b/c").status == 201
    assert server.put("demo/" + "s" * 512).status == 201
    assert server.put("demo/" + "s" * 513).status == 400


def test_stream_an_encoded_slash_is_part_of_the_name(server: UrsulaServer) -> None:
    server.make("demo/a%2Fb", b"x")
    assert server.content("demo/a/b") == b"x"
    assert server.put("demo/x%2Fattrs").status == 201


# -- headers


def test_content_type_becomes_the_streams(server: UrsulaServer) -> None:
    reply = server.put("demo/s", b'{"a":1}', content_type=JSON)
    assert reply.headers["content-type"] == JSON
    assert server.head("demo/s").headers["content-type"] == JSON
    assert server.get("demo/s").body == b'[{"a":1}]'


def test_content_type_is_bytes_when_absent(server: UrsulaServer) -> None:
    assert server.put("demo/s").headers["content-type"] == BYTES


def test_content_type_that_is_none_is_400(server: UrsulaServer) -> None:
    assert server.put("demo/s", content_type="text").status == 400


@pytest.mark.parametrize("value", ["true", "True", "TRUE"])
def test_stream_closed_closes_at_once(server: UrsulaServer, value: str) -> None:
    reply = server.put("demo/s", b"all", content_type=TEXT, stream_closed=value)
    assert reply.status == 201
    assert reply.closed
    assert server.head("demo/s").closed
    assert server.content("demo/s") == b"all"
    assert server.post("demo/s", b"x", content_type=TEXT).error == "stream_closed"


def test_stream_closed_other_values_are_ignored(server: UrsulaServer) -> None:
    assert not server.put("demo/s", stream_closed="yes").closed


def test_stream_ttl_counts_from_creation(server: UrsulaServer) -> None:
    server.make("demo/s", stream_ttl="10")
    for _ in range(3):
        server.advance(3)
        server.append("demo/s", b"x")
        assert server.get("demo/s").status == 200
    server.advance(1)
    assert server.get("demo/s").status == 404
    assert server.put("demo/s").status == 201


def test_stream_ttl_head_gives_what_remains(server: UrsulaServer) -> None:
    assert server.put("demo/s", stream_ttl="3600").headers["stream-ttl"] == "3600"
    assert server.head("demo/s").headers["stream-ttl"] == "3600"
    server.advance(100)
    assert server.get("demo/s").status == 200
    assert server.head("demo/s").headers["stream-ttl"] == "3500"
    assert server.head("demo/s").headers["stream-ttl-anchor"] == "creation"


def test_stream_ttl_anchor_access_makes_it_slide(server: UrsulaServer) -> None:
    server.make("demo/s", stream_ttl="10", stream_ttl_anchor="access")
    server.advance(8)
    assert server.get("demo/s").status == 200
    server.advance(8)
    assert server.get("demo/s").status == 200


@pytest.mark.parametrize("value", ["", "-1", "+1", "01", "1.5", "1s", "soon"])
def test_stream_ttl_is_a_whole_number_of_seconds(server: UrsulaServer, value: str) -> None:
    assert server.put("demo/s", stream_ttl=value).status == 400


def test_stream_expires_at_is_an_absolute_time(server: UrsulaServer) -> None:
    reply = server.put("demo/s", stream_expires_at="2027-01-15T08:00:05Z")
    assert reply.headers["stream-expires-at"] == "2027-01-15T08:00:05.000Z"
    assert server.head("demo/s").headers["stream-expires-at"] == "2027-01-15T08:00:05.000Z"
    server.advance(4)
    assert server.head("demo/s").status == 200
    server.advance(1)
    assert server.head("demo/s").status == 404


def test_stream_expires_at_that_is_not_rfc_3339_is_400(server: UrsulaServer) -> None:
    assert server.put("demo/s", stream_expires_at="tomorrow").status == 400


def test_stream_expires_at_excludes_stream_ttl(server: UrsulaServer) -> None:
    reply = server.put("demo/s", stream_ttl="5", stream_expires_at="2030-01-01T00:00:00Z")
    assert reply.status == 400


def test_stream_seq_a_retry_with_nothing_appended_since_is_200(server: UrsulaServer) -> None:
    assert server.put("demo/s", stream_seq="5").status == 201
    assert server.put("demo/s", stream_seq="5").status == 200


def test_stream_seq_must_be_lexicographically_greater(server: UrsulaServer) -> None:
    server.put("demo/s", stream_seq="5")
    lower = server.put("demo/s", stream_seq="10")
    assert (lower.status, lower.error) == (409, "sequence_regression")
    assert server.put("demo/s", stream_seq="6").status == 200
    assert server.put("demo/s", stream_seq="5").status == 409
    assert server.put("demo/s", stream_seq="6").status == 200


def test_stream_seq_the_same_after_an_append_is_409(server: UrsulaServer) -> None:
    server.put("demo/s", content_type=TEXT, stream_seq="5")
    server.post("demo/s", b"x", content_type=TEXT)
    assert server.put("demo/s", content_type=TEXT, stream_seq="5").status == 409
    assert server.put("demo/s", content_type=TEXT, stream_seq="6").status == 200


def test_stream_attrs_are_stored(server: UrsulaServer) -> None:
    assert server.put("demo/s", stream_attrs=TITLED).status == 201
    assert json.loads(server.get("demo/s/attrs").body) == json.loads(TITLED)


def test_stream_attrs_must_match_on_a_repeat(server: UrsulaServer) -> None:
    server.put("demo/s", stream_attrs=TITLED)
    same = '{ "metadata" : {"purpose":"customer-support"}, "title": "Support session" }'
    assert server.put("demo/s", stream_attrs=same).status == 200
    other = server.put("demo/s", stream_attrs='{"title":"Another"}')
    assert (other.status, other.error) == (409, "stream_exists")
    assert server.put("demo/s").status == 409


def test_stream_attrs_that_are_empty_are_the_same_as_none(server: UrsulaServer) -> None:
    server.put("demo/s")
    assert server.put("demo/s", stream_attrs="{}").status == 200
    assert server.put("demo/s", stream_attrs='{"title":"x"}').status == 409


@pytest.mark.parametrize(
    "value",
    ["", "no", "[]", "1", '{"title":1}', '{"metadata":[]}', '{"title":"\\ud800"}', '{"a":NaN}']
    + ['{"title":"%s"}' % ("x" * 16_384)],
)
def test_stream_attrs_that_are_invalid_are_400(server: UrsulaServer, value: str) -> None:
    assert server.put("demo/s", stream_attrs=value).status == 400
    assert server.head("demo/s").status == 404


def test_stream_attrs_may_be_any_text(server: UrsulaServer) -> None:
    server.put("demo/s", stream_attrs='{"title":"Grüße \\u4f60","other":1}')
    assert json.loads(server.get("demo/s/attrs").body) == {"title": "Grüße 你"}


def test_producer_id_a_repeat_of_the_same_tuple_is_200_and_appends_nothing(
    server: UrsulaServer,
) -> None:
    first = server.put("demo/s", b"one", content_type=TEXT, **producer())
    assert first.status == 201
    assert (first.headers["producer-epoch"], first.headers["producer-seq"]) == ("0", "0")
    again = server.put("demo/s", b"one", content_type=TEXT, **producer())
    assert again.status == 200
    assert server.content("demo/s") == b"one"


def test_producer_id_goes_on_with_appends(server: UrsulaServer) -> None:
    server.put("demo/s", b"one", content_type=TEXT, **producer())
    assert server.post("demo/s", b"one", content_type=TEXT, **producer()).status == 204
    assert server.post("demo/s", b"two", content_type=TEXT, **producer(seq=1)).status == 200
    assert server.content("demo/s") == b"onetwo"


@pytest.mark.parametrize("missing", ["producer_id", "producer_epoch", "producer_seq"])
def test_producer_epoch_and_seq_must_accompany_the_id(server: UrsulaServer, missing: str) -> None:
    given = producer()
    del given[missing]
    assert server.put("demo/s", **given).status == 400


def test_producer_epoch_that_is_fenced_is_403(server: UrsulaServer) -> None:
    server.put("demo/s", content_type=TEXT, **producer(epoch=3))
    reply = server.put("demo/s", content_type=TEXT, **producer(epoch=2))
    assert (reply.status, reply.headers["producer-epoch"]) == (403, "3")


def test_producer_seq_with_a_gap_is_409(server: UrsulaServer) -> None:
    reply = server.put("demo/s", **producer(seq=2))
    assert reply.status == 409
    assert reply.headers["producer-expected-seq"] == "0"
    assert reply.headers["producer-received-seq"] == "2"
    server.put("demo/t", **producer())
    assert server.put("demo/t", **producer(seq=2)).headers["producer-expected-seq"] == "1"


# -- body


def test_body_becomes_the_first_entry(server: UrsulaServer) -> None:
    assert server.put("demo/s", b"first", content_type=TEXT).next == token(1, 5)
    assert server.content("demo/s") == b"first"


def test_body_is_optional(server: UrsulaServer) -> None:
    assert server.put("demo/s").next == START


def test_body_that_is_bad_json_is_400(server: UrsulaServer) -> None:
    assert server.put("demo/s", b"{", content_type=JSON).status == 400
    assert server.head("demo/s").status == 404


def test_body_may_be_an_empty_array(server: UrsulaServer) -> None:
    assert server.put("demo/s", b"[]", content_type=JSON).next == START


# -- answers


def test_201_and_its_headers(server: UrsulaServer) -> None:
    reply = server.put("demo/s", content_type=TEXT, stream_ttl="60", stream_closed="true")
    assert reply.status == 201
    assert reply.headers["location"] == f"{ORIGIN}/demo/s"
    assert reply.headers["content-type"] == TEXT
    assert reply.next == START
    assert reply.headers["stream-ttl"] == "60"
    assert reply.closed
    assert "etag" not in reply.headers
    assert not reply.body


def test_201_of_a_json_stream_has_record_numbers(server: UrsulaServer) -> None:
    created = server.put("demo/s", b"[1,2]", content_type=JSON)
    assert created.headers["stream-extensions"] == NUMBERED
    assert created.headers["stream-record-start"] == "0"
    assert created.headers["stream-record-next"] == "2"
    again = server.put("demo/s", b"[1,2]", content_type=JSON)
    text = server.put("demo/t", b"1", content_type=TEXT)
    for reply in (again, text):
        assert not any(name.startswith("stream-record-") for name in reply.headers)


def test_201_of_a_fork_tells_the_records_it_begins_with(server: UrsulaServer) -> None:
    server.make("demo/s", b"[1,2,3]", content_type=JSON)
    forked = server.put("demo/f", stream_forked_from="demo/s", stream_fork_offset="2")
    assert forked.headers["stream-record-start"] == "0"
    assert forked.headers["stream-record-next"] == "2"
    server.request("PATCH", "demo/s", stream_retention="records=1")
    server.advance(3)
    late = server.put("demo/g", stream_forked_from="demo/s")
    assert late.headers["stream-record-start"] == "2"
    assert late.headers["stream-record-next"] == "3"


def test_lifetime_and_closed_headers_only_when_set(server: UrsulaServer) -> None:
    found = server.put("demo/s").headers
    assert found.keys().isdisjoint({"stream-ttl", "stream-expires-at", "stream-closed"})


def test_200_when_it_exists_with_identical_configuration(server: UrsulaServer) -> None:
    given = {
        "content_type": TEXT,
        "stream_ttl": "60",
        "stream_attrs": TITLED,
        "stream_retention": "records=5",
    }
    server.put("demo/s", b"one", **given)
    reply = server.put("demo/s", b"other", **given)
    assert reply.status == 200
    assert reply.headers["location"] == f"{ORIGIN}/demo/s"
    assert reply.headers["stream-ttl"] == "60"
    assert reply.next == token(1, 3)
    assert server.content("demo/s") == b"one"


@pytest.mark.parametrize(
    "other",
    [
        {"content_type": JSON},
        {"content_type": TEXT, "stream_closed": "true"},
        {"content_type": TEXT, "stream_ttl": "60"},
        {"content_type": TEXT, "stream_expires_at": "2030-01-01T00:00:00Z"},
        {"content_type": TEXT, "stream_retention": "records=5"},
        {"content_type": TEXT, "stream_forked_from": "demo/parent"},
        {"content_type": TEXT, "stream_attrs": TITLED},
    ],
    ids=["content type", "closed", "ttl", "expires at", "retention", "fork source", "attributes"],
)
def test_409_when_it_exists_and_differs(server: UrsulaServer, other: dict[str, str]) -> None:
    server.make("demo/parent")
    server.make("demo/s")
    reply = server.put("demo/s", **other)
    assert (reply.status, reply.error) == (409, "stream_exists")


def test_etag_is_set_on_reads_only(server: UrsulaServer) -> None:
    server.make("demo/s", b"x")
    assert "etag" in server.get("demo/s").headers
    assert "etag" not in server.put("demo/s", content_type=TEXT).headers
    assert "etag" not in server.head("demo/s").headers


# -- the bucket


def test_bucket_comes_into_being_on_first_use(server: UrsulaServer) -> None:
    assert server.request("GET", "demo").status == 404
    server.put("demo/s")
    assert server.request("GET", "demo").status == 200


def test_a_stream_is_the_same_in_every_dialect(server: UrsulaServer) -> None:
    server.make("durable-streams/s", b"x")
    answer = server.dialect.read(Request("GET", f"{ROOT}/s", "", {}))
    assert server.runner.result(answer).status == 200
