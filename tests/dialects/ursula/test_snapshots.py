"""Snapshots, retention by hand, bootstrap. Ursula: snapshots."""

from __future__ import annotations

import email.policy
import hashlib
from collections.abc import Iterator
from email.parser import BytesParser
from pathlib import Path

import pytest
from blake3 import blake3

from headwater.core.limits import RECORD_BODY_BYTES_MAX
from headwater.dialects.ursula.snapshots import BUSY_RETRY_S
from headwater.engine.snapshots import PIECE_BYTES
from headwater.server.http1_request import Upload
from headwater.storage.memory import MemoryStore
from headwater.storage.rocks import RocksStore
from headwater.wire.http import Request, Route, StreamedResponse
from tests.support.durable import BYTES, JSON, START, TEXT, Poll, Reply, Writer, token
from tests.support.stores import DiskError, FaultyStore
from tests.support.ursula import NUMBERED, UrsulaServer

STATE = "application/x-state"


@pytest.fixture
def filled(server: UrsulaServer) -> UrsulaServer:
    """demo/s holds ab, cde and f."""
    server.make("demo/s", b"ab", b"cde", b"f")
    return server


def save(server: UrsulaServer, at: str, body: bytes = b"state", **headers: str) -> Reply:
    given = {"content_type": STATE, **headers}
    return server.request("PUT", f"demo/s/snapshot/{at}", "", body, **given)


def download(server: UrsulaServer, path: str, query: str = "") -> tuple[Reply, bytes]:
    reply = server.request("GET", path, query)
    assert reply.status == 200, reply
    assert isinstance(reply.response, StreamedResponse)
    writer = Writer()
    server.writers.append(writer)
    reply.response.start(writer)
    while not writer.finished:
        server.runner.turn()
    body = b"".join(map(bytes, writer.writes))
    if "content-length" in reply.headers:
        assert int(reply.headers["content-length"]) == len(body)
    return reply, body


def parts_of(reply: Reply, body: bytes) -> list[tuple[str, bytes]]:
    head = f"Content-Type: {reply.headers['content-type']}\r\n\r\n".encode()
    parsed = BytesParser(policy=email.policy.HTTP).parsebytes(head + body)
    found = []
    for part in parsed.iter_parts():
        content = part.get_payload(decode=True)
        assert isinstance(content, bytes)
        found.append((part.get_content_type(), content))
    return found


def digest_of(kind: str, body: bytes) -> str:
    return blake3(len(kind).to_bytes(8, "little") + kind.encode() + body).hexdigest()


@pytest.mark.parametrize("at", ["5", token(2, 5), "00000000000000000005"])
def test_a_snapshot_is_stored_and_read(filled: UrsulaServer, at: str) -> None:
    reply = save(filled, at)
    assert reply.status == 204
    assert reply.headers["stream-snapshot-offset"] == token(2, 5)
    assert reply.headers["stream-snapshot-digest"] == digest_of(STATE, b"state")
    latest = filled.request("GET", "demo/s/snapshot")
    assert latest.status == 307
    assert latest.headers["location"] == f"http://test/demo/s/snapshot/{token(2, 5)}"
    found, body = download(filled, f"demo/s/snapshot/{token(2, 5)}")
    assert (body, found.headers["content-type"]) == (b"state", STATE)
    assert found.next == token(2, 5)
    assert not found.up_to_date
    head = filled.head("demo/s").headers
    assert head["stream-snapshot-offset"] == token(2, 5)
    assert head["stream-snapshot-digest"] == digest_of(STATE, b"state")


def test_a_snapshot_of_the_tail_and_of_nothing(filled: UrsulaServer) -> None:
    assert save(filled, "0", b"").status == 204
    assert download(filled, "demo/s/snapshot/0")[1] == b""
    assert save(filled, "6").status == 204
    assert download(filled, "demo/s/snapshot/6")[0].up_to_date


def test_a_snapshot_may_be_named_by_record(server: UrsulaServer) -> None:
    server.make("demo/s", b"[1,2,3]", content_type=JSON)
    reply = server.request("PUT", "demo/s/snapshot", "record=2", b"x")
    assert reply.headers["stream-snapshot-offset"] == token(2, 2)
    assert reply.headers["stream-record-next"] == "2"
    found, _ = download(server, "demo/s/snapshot/2")
    assert found.headers["stream-record-next"] == "2"
    assert server.request("PUT", "demo/s/snapshot", "record=9", b"x").status == 409
    assert server.request("PUT", "demo/s/snapshot", "", b"x").status == 400


@pytest.mark.parametrize(
    ("at", "status"),
    [("1", 400), (token(1, 1), 400), ("x", 400), ("-1", 400), ("now", 400), ("7", 409)],
)
def test_a_place_that_is_none_is_refused(filled: UrsulaServer, at: str, status: int) -> None:
    assert save(filled, at).status == status


def test_only_the_latest_is_kept(filled: UrsulaServer) -> None:
    save(filled, "2", b"old")
    save(filled, "5", b"new")
    assert filled.request("GET", "demo/s/snapshot/2").status == 404
    assert download(filled, "demo/s/snapshot/5")[1] == b"new"
    older = save(filled, "2", b"old")
    assert (older.status, older.error) == (409, "conflict")


def test_a_repeat_is_204_another_of_the_same_place_409(filled: UrsulaServer) -> None:
    save(filled, "2", b"one")
    assert save(filled, "2", b"one").status == 204
    assert save(filled, "2", b"two").status == 409
    assert save(filled, "2", b"one", content_type="text/plain").status == 409
    assert download(filled, "demo/s/snapshot/2")[1] == b"one"


def test_stream_snapshot_match(filled: UrsulaServer) -> None:
    assert save(filled, "2", b"a", stream_snapshot_match="f" * 64).status == 409
    first = save(filled, "2", b"a", stream_snapshot_match="none")
    assert first.status == 204
    assert save(filled, "5", b"b", stream_snapshot_match="none").status == 409
    current = first.headers["stream-snapshot-digest"]
    assert save(filled, "5", b"b", stream_snapshot_match=current).status == 204
    assert save(filled, "6", b"c", stream_snapshot_match=current).status == 409


def test_what_is_not_there_is_404(server: UrsulaServer) -> None:
    for path in ("demo/s/snapshot", "demo/s/snapshot/0", "demo/s/bootstrap"):
        assert server.request("GET", path).status == 404
    assert save(server, "0").status == 404
    server.make("demo/s")
    assert server.request("GET", "demo/s/snapshot").status == 404
    assert server.request("GET", "demo/s/snapshot/0").status == 404
    assert server.delete("demo/s/snapshot/0").status == 404
    assert server.delete("demo/s/snapshot").status == 404


def test_delete_never_succeeds(filled: UrsulaServer) -> None:
    save(filled, "5")
    for at in ("/5", f"/{token(2, 5)}", ""):
        refused = filled.delete(f"demo/s/snapshot{at}")
        assert (refused.status, refused.error) == (409, "conflict")
    assert filled.delete("demo/s/snapshot/2").status == 404
    assert filled.delete("demo/none/snapshot/2").status == 404
    assert download(filled, "demo/s/snapshot/5")[1] == b"state"


# -- storage


def stored(server: UrsulaServer) -> tuple[int, int]:
    """How many pieces there are, and how many uploads that are not published."""
    store = server.engine.store
    return len(list(store.scan(b"p", b"q"))), len(list(store.scan(b"u", b"v")))


def test_a_long_one_is_stored_in_pieces(filled: UrsulaServer) -> None:
    body = bytes(range(256)) * (PIECE_BYTES // 100)
    assert save(filled, "6", body).status == 204
    assert stored(filled) == (3, 0)
    assert download(filled, "demo/s/snapshot/6")[1] == body


def test_what_is_replaced_or_refused_leaves_nothing(filled: UrsulaServer) -> None:
    save(filled, "2", b"one")
    save(filled, "5", b"two")
    save(filled, "5", b"other")
    save(filled, "5", b"two")
    assert stored(filled) == (1, 0)
    filled.delete("demo/s")
    assert stored(filled) == (0, 0)


def test_a_reader_of_one_that_is_replaced_gets_it_whole(filled: UrsulaServer) -> None:
    body = b"x" * (3 * PIECE_BYTES)
    save(filled, "2", body)
    reply = filled.request("GET", "demo/s/snapshot/2")
    assert isinstance(reply.response, StreamedResponse)
    writer = Writer()
    writer.slow = True
    reply.response.start(writer)
    save(filled, "5", b"new")
    writer.slow = writer.full = False
    assert writer.on_drain is not None
    writer.on_drain()
    while not writer.finished:
        filled.runner.turn()
    assert b"".join(map(bytes, writer.writes)) == body


class StreamedPut:
    """A PUT whose body comes bit by bit."""

    def __init__(self, server: UrsulaServer, path: str) -> None:
        self.outcome = Poll()
        self.upload = Upload(self)
        request = Request("PUT", f"/{path}", "", {b"content-type": STATE.encode()})
        request.body_reader = self.upload
        route = server.ursula.begin(request)
        assert isinstance(route, Route) and route.streams_body
        answer = route.handle(request)
        assert not isinstance(answer, StreamedResponse)
        answer.deliver(self.outcome.settled)  # type: ignore[union-attr]
        self.upload.begin()

    def upload_paused(self) -> None: ...

    def upload_failed(self, error: Exception) -> None:
        raise error


def test_it_is_taken_in_as_it_comes(filled: UrsulaServer) -> None:
    put = StreamedPut(filled, "demo/s/snapshot/5")
    for _ in range(5):
        put.upload.add_piece(b"y" * (PIECE_BYTES // 2))
    assert stored(filled) == (2, 1)
    assert filled.request("GET", "demo/s/snapshot").status == 404
    put.upload.end()
    filled.settle()
    assert put.outcome.reply.status == 204
    assert stored(filled) == (3, 0)
    assert len(download(filled, "demo/s/snapshot/5")[1]) == 5 * PIECE_BYTES // 2


def test_one_that_breaks_off_leaves_nothing(filled: UrsulaServer) -> None:
    put = StreamedPut(filled, "demo/s/snapshot/5")
    put.upload.add_piece(b"y" * PIECE_BYTES)
    assert stored(filled) == (1, 1)
    put.upload.abort()
    filled.settle()
    assert stored(filled) == (0, 0)
    assert filled.request("GET", "demo/s/snapshot").status == 404


@pytest.fixture
def stalling() -> Iterator[tuple[UrsulaServer, FaultyStore]]:
    """A server whose store can be busy; demo/s holds ab and cde."""
    store = FaultyStore()
    with UrsulaServer(store) as server:
        server.make("demo/s", b"ab", b"cde")
        yield server, store


def test_a_busy_store_stops_the_client_and_nothing_is_lost(
    stalling: tuple[UrsulaServer, FaultyStore],
) -> None:
    server, store = stalling
    put = StreamedPut(server, "demo/s/snapshot/5")
    store.busy_writes = 3
    put.upload.add_piece(b"x" * PIECE_BYTES)
    assert put.upload.paused
    assert stored(server) == (0, 0)
    for _ in range(3):
        server.clock.advance(BUSY_RETRY_S)
    assert not put.upload.paused
    assert stored(server) == (1, 1)
    store.busy_writes = 2
    put.upload.add_piece(b"y")
    put.upload.end()
    for _ in range(3):
        server.clock.advance(BUSY_RETRY_S)
        server.settle()
    assert put.outcome.reply.status == 204
    assert download(server, "demo/s/snapshot/5")[1] == b"x" * PIECE_BYTES + b"y"


def test_one_that_breaks_off_is_removed_when_the_store_is_not_busy_any_more(
    stalling: tuple[UrsulaServer, FaultyStore],
) -> None:
    server, store = stalling
    put = StreamedPut(server, "demo/s/snapshot/5")
    put.upload.add_piece(b"x" * PIECE_BYTES)
    store.busy_writes = 2
    put.upload.abort()
    assert stored(server) == (1, 1)
    for _ in range(2):
        server.clock.advance(BUSY_RETRY_S)
    assert stored(server) == (0, 0)


def test_one_that_cannot_be_stored_fails_and_is_removed_at_the_next_start(
    stalling: tuple[UrsulaServer, FaultyStore], caplog: pytest.LogCaptureFixture
) -> None:
    server, store = stalling
    put = StreamedPut(server, "demo/s/snapshot/5")
    put.upload.add_piece(b"x" * PIECE_BYTES)
    store.write_error = DiskError()
    put.upload.add_piece(b"x" * PIECE_BYTES)
    with pytest.raises(DiskError):
        assert put.outcome.reply
    assert "the next start does it" in caplog.text
    assert stored(server) == (1, 1)
    with UrsulaServer(store.inner) as again:
        assert stored(again) == (0, 0)


def test_one_that_may_be_published_or_not_is_not_removed(
    stalling: tuple[UrsulaServer, FaultyStore],
) -> None:
    server, store = stalling
    store.sync_error = DiskError()
    assert save(server, "5").status == 503
    with UrsulaServer(store.inner) as again:  # the write had reached the disk all the same
        assert download(again, "demo/s/snapshot/5")[1] == b"state"


def test_one_that_a_crash_cut_off_is_removed_at_the_start() -> None:
    store = MemoryStore()
    with UrsulaServer(store) as server:
        server.make("demo/s", b"ab")
        server.request("PUT", "demo/s/snapshot/2", "", b"kept")
        put = StreamedPut(server, "demo/s/snapshot/2")
        put.upload.add_piece(b"y" * PIECE_BYTES)
        assert stored(server) == (2, 1)
    with UrsulaServer(store) as server:
        assert stored(server) == (1, 0)
        assert download(server, "demo/s/snapshot/2")[1] == b"kept"


def test_one_for_a_stream_that_is_deleted_meanwhile_is_404(filled: UrsulaServer) -> None:
    put = StreamedPut(filled, "demo/s/snapshot/5")
    put.upload.add_piece(b"y" * PIECE_BYTES)
    filled.delete("demo/s")
    filled.make("demo/s", b"ab", b"cde")
    put.upload.end()
    filled.settle()
    assert put.outcome.reply.status == 404
    assert stored(filled) == (0, 0)


# -- retention


def test_retention_drops_what_a_snapshot_stands_for(filled: UrsulaServer) -> None:
    assert filled.request("PUT", "demo/s/retention/2").status == 409
    save(filled, "5")
    reply = filled.request("PUT", "demo/s/retention/5")
    assert (reply.status, reply.headers["stream-retained-offset"]) == (204, token(2, 5))
    assert filled.head("demo/s").headers["stream-retained-offset"] == token(2, 5)
    assert filled.content("demo/s") == b"f"
    assert filled.get("demo/s", "2").status == 410
    assert filled.request("PUT", "demo/s/retention/5").status == 204
    assert filled.request("PUT", "demo/s/retention/6").status == 409
    assert filled.request("PUT", "demo/s/retention/2").status == 409


@pytest.mark.parametrize(("at", "status"), [("1", 400), ("x", 400), ("9", 409)])
def test_retention_needs_a_message_boundary(filled: UrsulaServer, at: str, status: int) -> None:
    save(filled, "6")
    assert filled.request("PUT", f"demo/s/retention/{at}").status == status


@pytest.mark.parametrize("record", [0, 99])
def test_only_json_streams_have_record_numbers(filled: UrsulaServer, record: int) -> None:
    for resource in ("snapshot", "retention"):
        assert filled.request("PUT", f"demo/s/{resource}", f"record={record}").status == 400


def test_retention_never_touches_forks(filled: UrsulaServer) -> None:
    filled.fork("demo/f")
    save(filled, "6")
    filled.request("PUT", "demo/s/retention/6")
    assert filled.content("demo/f") == b"abcdef"
    assert filled.content("demo/s") == b""


def test_retention_frees_disk_space(tmp_path: Path) -> None:
    with UrsulaServer(RocksStore(tmp_path)) as server:
        store = server.engine.store
        body = hashlib.shake_256(b"noise").digest(500_000)
        server.make("demo/s", *[body] * 8, content_type=BYTES)
        server.request("PUT", "demo/s/snapshot/4000000", "", b"")
        store.compact()
        before = store.size_bytes()
        assert server.request("PUT", "demo/s/retention/4000000").status == 204
        store.compact()
        assert store.size_bytes() < before // 2
        store.close()


@pytest.mark.parametrize(("kept", "rest"), [("records=2", b"cdef"), ("records=1", b"f")])
def test_limits_up_to_the_snapshot_leave_it(filled: UrsulaServer, kept: str, rest: bytes) -> None:
    save(filled, "5", b"abcde")
    filled.request("PATCH", "demo/s", stream_retention=kept)
    filled.advance(3)
    assert filled.content("demo/s") == rest
    assert download(filled, "demo/s/snapshot/5")[1] == b"abcde"
    reply, body = download(filled, "demo/s/bootstrap")
    assert [content for _, content in parts_of(reply, body)] == [b"abcde", b"f"]


def test_limits_that_pass_a_snapshot_drop_it_so_that_bootstrap_has_no_gap(
    filled: UrsulaServer,
) -> None:
    save(filled, "2", b"ab")
    filled.request("PATCH", "demo/s", stream_retention="records=1")
    filled.advance(3)
    assert stored(filled) == (0, 0)
    assert filled.request("GET", "demo/s/snapshot").status == 404
    assert "stream-snapshot-offset" not in filled.head("demo/s").headers
    reply, body = download(filled, "demo/s/bootstrap")
    assert [content for _, content in parts_of(reply, body)] == [b"", b"f"]
    assert reply.headers["stream-snapshot-offset"] == "-1"
    assert reply.headers["stream-retained-offset"] == token(2, 5)
    assert save(filled, "5", b"abcde").status == 204


# -- bootstrap


def test_bootstrap_is_the_snapshot_and_what_follows(filled: UrsulaServer) -> None:
    save(filled, "2")
    reply, body = download(filled, "demo/s/bootstrap")
    assert parts_of(reply, body) == [(STATE, b"state"), (TEXT, b"cde"), (TEXT, b"f")]
    assert reply.headers["stream-snapshot-offset"] == token(1, 2)
    assert reply.next == token(3, 6)
    assert reply.up_to_date and not reply.closed
    again, _ = download(filled, "demo/s/bootstrap")
    assert again.headers["content-type"] != reply.headers["content-type"]


def test_bootstrap_without_a_snapshot_begins_with_an_empty_part(filled: UrsulaServer) -> None:
    filled.close("demo/s")
    reply, body = download(filled, "demo/s/bootstrap")
    assert parts_of(reply, body) == [(BYTES, b""), (TEXT, b"ab"), (TEXT, b"cde"), (TEXT, b"f")]
    assert reply.headers["stream-snapshot-offset"] == "-1"
    assert reply.closed


def test_bootstrap_of_json_and_of_long_messages(server: UrsulaServer) -> None:
    server.make("demo/s", b"[1,[2]]", content_type=JSON)
    reply, body = download(server, "demo/s/bootstrap")
    assert parts_of(reply, body)[1:] == [(JSON, b"1"), (JSON, b"[2]")]
    assert reply.headers["stream-extensions"] == NUMBERED
    numbers = [reply.headers[f"stream-record-{name}"] for name in ("first", "start", "next")]
    assert numbers == ["0", "0", "2"]
    long = b"x" * (RECORD_BODY_BYTES_MAX + 5)
    server.make("demo/t", long, b"y", content_type=BYTES)
    reply, body = download(server, "demo/t/bootstrap")
    assert parts_of(reply, body)[1:] == [(BYTES, long), (BYTES, b"y")]


def test_bootstrap_is_not_live(filled: UrsulaServer) -> None:
    assert filled.request("GET", "demo/s/bootstrap", "live=sse").status == 400


def test_a_client_that_fell_behind_recovers_with_one_request(filled: UrsulaServer) -> None:
    save(filled, "5", b"abcde")
    filled.request("PUT", "demo/s/retention/5")
    assert filled.get("demo/s", START).status == 410
    reply, body = download(filled, "demo/s/bootstrap")
    assert b"".join(content for _, content in parts_of(reply, body)) == b"abcdef"
    follower = filled.follow("demo/s", reply.next)
    filled.append("demo/s", b"!")
    assert follower.text == "!"
