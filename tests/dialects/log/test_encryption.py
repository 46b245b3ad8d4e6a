"""Encrypted streams over the native API: records with headers, Arrow and lines."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headwater.core.names import DURABLE_STREAMS_BUCKET
from headwater.core.records import APPEND_START, CONTINUES
from headwater.dialects.log.requests import ARROW_TYPE
from tests.support.durable import JSON
from tests.support.engines import small_sizes
from tests.support.keys import CIPHERS, KEY, OTHER_KEY, WITH_KEY, WITH_OTHER, encrypt_bucket
from tests.support.log import LogDownload, LogReply, LogServer, Pairs

PATH = f"records/{DURABLE_STREAMS_BUCKET}/s"


@pytest.fixture(params=CIPHERS)
def server(request: pytest.FixtureRequest) -> Iterator[LogServer]:
    with LogServer() as server:
        encrypt_bucket(server.runner, DURABLE_STREAMS_BUCKET, request.param)
        yield server


def code(reply: LogReply) -> tuple[int, str]:
    return reply.status, reply.error


def fetch(server: LogServer, query: str = "", key: str = KEY, accept: str = "*/*") -> LogReply:
    return server.fetch(PATH, query, accept=accept, s2_encryption_key=key)


def test_records_come_back_with_their_headers(server: LogServer) -> None:
    headers: list[Pairs] = [[(b"a", b"1"), (b"a", b"2")], []]
    server.make("s")
    assert server.add("s", [b"one", b"two"], headers, **WITH_KEY).json["records"] == 2
    lines = fetch(server).lines
    assert [line["body"] for line in lines] == ["one", "two"]
    assert lines[0]["headers"] == [{"name": "a", "value": "1"}, {"name": "a", "value": "2"}]
    assert lines[1]["headers"] == []
    table = fetch(server, accept=ARROW_TYPE).table
    assert table["body"].to_pylist() == [b"one", b"two"]
    assert table["headers"].to_pylist()[0][1] == {"name": b"a", "value": b"2"}


def test_a_list_tells_which_streams_need_a_key(server: LogServer) -> None:
    server.make("s")
    encrypt_bucket(server.runner, DURABLE_STREAMS_BUCKET, None)
    server.make("t")
    sealed, plain = server.fetch("streams").json["streams"]
    assert sealed["cipher"] in CIPHERS and plain["cipher"] is None
    assert server.info("s")["cipher"] == sealed["cipher"]


def test_json_is_checked_before_it_is_sealed(server: LogServer) -> None:
    server.make("s", content_type=JSON)
    assert code(server.add("s", [b"1", b"x"], **WITH_KEY)) == (422, "invalid_record")
    server.add("s", [b' {"a": 1} '], **WITH_KEY)
    assert fetch(server).lines[0]["value"] == {"a": 1}
    assert server.get("s", "-1", **WITH_KEY).body == b'[{"a": 1}]'


@pytest.mark.parametrize("accept", [ARROW_TYPE, "*/*"])
def test_without_the_right_key_there_is_nothing(server: LogServer, accept: str) -> None:
    server.make("s")
    server.append("s", b"x", **WITH_KEY)
    assert code(server.fetch(PATH, accept=accept)) == (400, "key_required")
    wrong = fetch(server, key=OTHER_KEY, accept=accept)
    assert code(wrong) == (400, "decryption_failed")
    assert code(server.add("s", [b"x"])) == (400, "key_required")


def test_a_range_needs_the_keys_of_its_own_records_only(server: LogServer) -> None:
    server.make("s")
    server.append("s", b"one", **WITH_KEY)
    server.append("s", b"two", **WITH_OTHER)
    assert fetch(server, "to=1").lines[0]["body"] == "one"
    assert fetch(server, "limit=1").lines[0]["body"] == "one"
    assert fetch(server, "from=1", OTHER_KEY).lines[0]["body"] == "two"
    response = server.runner.result(server.ask("GET", PATH, **WITH_KEY))
    assert LogDownload(server, response).writer.aborted


@pytest.mark.parametrize("accept", [ARROW_TYPE, "*/*"])
def test_messages_and_their_parts(server: LogServer, accept: str) -> None:
    text = b"0123456789" * 4
    with small_sizes():
        server.make("s")
        server.append("s", text, b"end", **WITH_KEY)
        parts = fetch(server, accept=accept)
        whole = fetch(server, "view=messages", accept=accept)
    if accept == ARROW_TYPE:
        assert b"".join(parts.table["body"].to_pylist()) == text + b"end"
        assert whole.table["body"].to_pylist() == [text, b"end"]
        flags = parts.table["flags"].to_pylist()
        assert flags == [APPEND_START | CONTINUES, CONTINUES, 0, APPEND_START]
    else:
        assert "".join(line["body"] for line in parts.lines) == (text + b"end").decode()
        assert [line["body"] for line in whole.lines] == [text.decode(), "end"]
