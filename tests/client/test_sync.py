"""The blocking client against a real server: what it asks, what it raises, when it tries again."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from headwater import client as api
from headwater.client import Client, Producer, protocol, sync
from headwater.client.errors import refusal
from headwater.client.protocol import Endpoint
from headwater.client.records import read_batches
from headwater.client.sync import Retries
from tests.support.inprocess import serving
from tests.support.log import encode_records
from tests.support.server import ServerProcess


@pytest.fixture
def client() -> Iterator[Client]:
    with serving() as server, Client(server.url) as found:
        yield found


def test_streams_are_listed_page_by_page(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    pages = {**(protocol.list_streams.__kwdefaults__ or {}), "limit": 2}
    monkeypatch.setattr(protocol.list_streams, "__kwdefaults__", pages)
    for name in ("a", "ab", "b/c", "b/d", "ä, ö"):
        client.create("things", name, "text/plain")
    assert [stream.name for stream in client.streams()] == ["a", "ab", "b/c", "b/d", "ä, ö"]
    assert [stream.name for stream in client.streams(bucket="things", pattern="b/*")] == [
        "b/c",
        "b/d",
    ]
    assert [stream.name for stream in client.streams(bucket="things", prefix="a")] == ["a", "ab"]
    found = client.stream("things", "a")
    assert found is not None and found.name == "a"
    assert client.stream("things", "b") is None


@pytest.mark.parametrize("name", ["streams", "__ds", "x/attrs", "attrs", "a?b#c%2Fd", "/", "*"])
def test_a_stream_may_have_any_name(client: Client, name: str) -> None:
    for bucket in ("things", "durable-streams"):
        client.create(bucket, name, "text/plain")
        client.append(bucket, name, encode_records([b"1"]))
        client.close_stream(bucket, name)
        found = client.stream(bucket, name)
        assert found is not None and (found.tail, found.closed) == (1, True)


def test_appends_are_told_from_their_repeats(client: Client) -> None:
    client.create("things", "a/b c", "text/plain")
    body = encode_records([b"1", b"2"])
    first = client.append("things", "a/b c", body, Producer("p", 0, 0))
    again = client.append("things", "a/b c", body, Producer("p", 0, 0))
    assert (first.repeat, first.tail, again.repeat, again.tail) == (False, 2, True, 2)


def test_errors_are_of_the_class_that_a_caller_acts_on(client: Client) -> None:
    body = encode_records([b"1"])
    with pytest.raises(api.StreamNotFound, match="no such stream"):
        client.append("things", "s", body)
    client.create("things", "s", "text/plain")
    client.append("things", "s", body, Producer("p", 3, 0))
    with pytest.raises(api.ProducerFenced):
        client.append("things", "s", body, Producer("p", 2, 0))
    with pytest.raises(api.Refused) as refused:
        client.append("things", "s", body, Producer("p", 3, 5))
    assert (refused.value.status, refused.value.code) == (409, "producer_gap")
    stream = client.stream("things", "s")
    assert stream is not None
    with pytest.raises(api.PastTail):
        read(client, "s", 5, 9, stream.id)
    with pytest.raises(api.StreamNotFound, match="another stream has the name"):
        read(client, "s", 0, 1, "0000000000009999")
    batches = read_batches(client, "things", "s", first=0, end=9, stream_id=stream.id)
    assert next(batches).num_rows == 1  # what there is comes first
    with pytest.raises(api.PastTail, match="s ends at 1, before 9"):
        next(batches)
    client.append("things", "s", encode_records([b"2", b"3"]))
    client.trim("things", "s", 2, stream.id)
    with pytest.raises(api.OffsetTrimmed) as trimmed:
        read(client, "s", 0, 2, stream.id)
    assert trimmed.value.first_seq == 2
    client.close_stream("things", "s")
    client.close_stream("things", "s")
    with pytest.raises(api.StreamClosed):
        client.append("things", "s", body)


def read(client: Client, name: str, first: int, end: int, stream_id: str) -> list[bytes]:
    found: list[bytes] = []
    for batch in read_batches(client, "things", name, first=first, end=end, stream_id=stream_id):
        found += batch.column("body").to_pylist()
    return found


def test_a_body_that_is_too_large_is_refused_and_not_sent_again(client: Client) -> None:
    client.create("things", "s", "text/plain")
    body = encode_records([bytes(1_000_000)] * 40)
    with pytest.raises(api.Refused) as refused:
        client.append("things", "s", body, Producer("p", 0, 0))
    assert refused.value.status == 413


def test_a_record_is_found_by_its_time(client: Client) -> None:
    client.create("things", "s", "text/plain")
    client.append("things", "s", encode_records([b"1"]))
    times_ms = (0, 2**45)
    found = client.stream("things", "s", times_ms=times_ms)
    assert found is not None and found.seqs_at == (0, 1)
    assert [stream.seqs_at for stream in client.streams(times_ms=times_ms)] == [(0, 1)]
    assert [stream.seqs_at for stream in client.streams()] == [()]


def test_a_token_that_is_not_known_is_refused() -> None:
    with (
        serving(auth=True, root_token="0123456789abcdef") as server,
        Client(server.url, token="another") as client,
        pytest.raises(api.Refused, match="token") as refused,
    ):
        client.stream("things", "s")
    assert (refused.value.status, refused.value.code) == (401, "unauthenticated")


def test_a_connection_that_ended_while_it_was_idle_is_not_used(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data") as server, Client(server.url) as client:
        client.create("things", "s", "text/plain")
        server.restart()
        # Without a producer it is sent once only.
        assert client.append("things", "s", encode_records([b"1"])).tail == 1


def test_requests_outlive_a_server_that_is_killed(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data") as server, Client(server.url) as client:
        client.create("things", "s", "text/plain")
        bodies = [b"%d" % number * 200 for number in range(20_000)]
        client.append("things", "s", encode_records(bodies), Producer("p", 0, 0))
        stream = client.stream("things", "s")
        assert stream is not None
        batches = read_batches(client, "things", "s", first=0, end=stream.tail, stream_id=stream.id)
        found = next(batches).column("body").to_pylist()
        server.kill9()
        restart = threading.Timer(0.3, server.start)
        restart.start()
        for batch in batches:
            found += batch.column("body").to_pylist()
        assert found == bodies
        again = client.append("things", "s", encode_records(bodies), Producer("p", 0, 0))
        assert again.repeat
        restart.join()


class CutClient(Client):
    """Its connection can break in the middle of an answer."""

    def cut(self) -> None:
        assert self._connection is not None and self._connection.sock is not None
        sock = self._connection.sock
        sock.shutdown(socket.SHUT_RDWR)
        # What had arrived before could still be read, a whole batch perhaps.
        with contextlib.suppress(ConnectionResetError):
            while sock.recv(1 << 16):
                pass


@pytest.fixture
def cut_client() -> Iterator[CutClient]:
    with serving(shutdown_grace_s=0.0) as server, CutClient(server.url) as found:
        yield found


class Patience:
    """In the place of `time`: moves when it is told to, and waits for nobody."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


def test_every_cut_off_of_a_long_read_has_the_whole_time_for_retries(
    cut_client: CutClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, patience = cut_client, Patience()
    monkeypatch.setattr(sync, "time", patience)
    client.create("things", "s", "application/octet-stream")
    bodies = [b"%d" % number * 200 for number in range(20_000)]
    client.append("things", "s", encode_records(bodies))
    stream = client.stream("things", "s")
    assert stream is not None
    found, cuts = [], 0
    for batch in read_batches(
        client, "things", "s", first=0, end=stream.tail, stream_id=stream.id, retry_timeout_s=60.0
    ):
        found += batch.column("body").to_pylist()
        patience.now_s += 61.0
        if cuts < 2:
            client.cut()
            cuts += 1
    assert found == bodies


def test_an_answer_that_is_always_cut_off_is_given_up(
    cut_client: CutClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, patience = cut_client, Patience()
    monkeypatch.setattr(sync, "time", patience)
    client.create("things", "s", "application/octet-stream")
    client.append("things", "s", encode_records([bytes(20_000_000)]))  # more than a socket holds
    stream = client.stream("things", "s")
    assert stream is not None
    begin = client.open_records

    def cut_off(*given: Any) -> sync.Answer:
        answer = begin(*given)
        client.cut()
        patience.now_s += 25.0
        return answer

    monkeypatch.setattr(client, "open_records", cut_off)
    with pytest.raises(api.Unreachable, match="records of things/s are cut off"):
        read(client, "s", 0, stream.tail, stream.id)
    assert 75.0 < patience.now_s < 101.0


class Relay:
    """Between a client and a server: cuts off the first answer after some bytes of it."""

    def __init__(self, server: str, cut: int) -> None:
        self._server = Endpoint.parse(server)
        self._cuts = [cut]
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._socket.accept()
                far = socket.create_connection((self._server.host, self._server.port))
                left = self._cuts.pop() if self._cuts else 1 << 30
                for given in ((near, far, 1 << 30), (far, near, left)):
                    threading.Thread(target=self._pass_on, args=given, daemon=True).start()

    @staticmethod
    def _pass_on(source: socket.socket, target: socket.socket, left: int) -> None:
        with contextlib.suppress(OSError), target:
            while left and (data := source.recv(min(left, 1 << 16))):
                target.sendall(data)
                left -= len(data)
            target.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize("cut", range(0, 320, 29))
def test_a_head_that_is_cut_off_is_not_taken_for_a_shorter_one(client: Client, cut: int) -> None:
    client.create("things", "s", "text/plain")
    client.append("things", "s", encode_records([b"0", b"1"]))
    stream = client.stream("things", "s")
    assert stream is not None
    asked: list[Callable[[Client], object]] = [
        lambda near: read(near, "s", 0, 2, stream.id) == [b"0", b"1"],
        lambda near: near.stream("things", "s") == stream,
        lambda near: near.append("things", "s", encode_records([b"2"]), Producer("p", 0, 0)),
    ]
    for ask in asked:
        with (
            contextlib.closing(Relay(str(client.endpoint), cut)) as relay,
            Client(relay.url) as near,
        ):
            assert ask(near)
    assert read(client, "s", 0, 3, stream.id) == [b"0", b"1", b"2"]


def test_a_server_that_is_not_there_is_given_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with Client(f"http://127.0.0.1:{port}", retry_timeout_s=0.2) as client:
        with pytest.raises(api.Unreachable, match=r"no answer .* for 0\.2 s"):
            client.stream("things", "s")
        # It may have been done, so it is not done again.
        with pytest.raises(api.Unreachable, match="Connection refused"):
            client.append("things", "s", b"")


def test_a_server_without_tls_is_told_from_one_that_is_away() -> None:
    with serving() as server:
        url = server.url.replace("http:", "https:")
        with (
            Client(url, retry_timeout_s=600) as client,
            pytest.raises(api.Unreachable, match="(?i)wrong.version.number"),
        ):
            client.stream("things", "s")


def test_an_endpoint_may_have_a_path_and_carries_the_secrets() -> None:
    found = Endpoint.parse("https://example.org/streams/", token="t", encryption_key="k")
    assert str(found) == "https://example.org:443/streams"
    assert found.headers == {"Authorization": "Bearer t", "s2-encryption-key": "k"}
    assert "Bearer" not in repr(found)
    for wrong in ("ftp://x", "localhost", "http://x:port", "http://u:p@x", "http://x?a"):
        with pytest.raises(api.ClientError):
            Endpoint.parse(wrong)
    assert str(Endpoint.parse("http://[::1]:4437")) == "http://[::1]:4437"


@pytest.mark.parametrize("secret", ["a\nb", "a→b"])
def test_a_secret_that_cannot_be_sent_is_not_shown(secret: str) -> None:
    for given in ({"token": secret}, {"encryption_key": secret}):
        with pytest.raises(api.ClientError, match="a header of HTTP cannot carry") as refused:
            Endpoint.parse("http://x", **given)
        assert secret not in str(refused.value)


@pytest.mark.parametrize("content", [None, "no certificates"])
def test_certificates_that_cannot_be_read_are_an_error_at_once(
    tmp_path: Path, content: str | None
) -> None:
    file = tmp_path / "ca.pem"
    if content is not None:
        file.write_text(content)
    # With a time for retries that is longer than a test may take.
    with (
        Client("https://127.0.0.1:9", ca_file=str(file), retry_timeout_s=600) as client,
        pytest.raises(api.ClientError, match=f"cannot be read.*file={file}"),
    ):
        client.stream("things", "s")


def test_pauses_grow_up_to_a_limit_and_heed_the_server() -> None:
    pauses = [protocol.retry_delay_s(attempt, 1.0) for attempt in range(12)]
    assert pauses == sorted(pauses) and pauses[0] == 0.05 and pauses[-1] == 5.0
    assert protocol.retry_delay_s(0, 0.0) == 0.025
    assert protocol.retry_delay_s(0, 0.0, "2") == 2.0
    assert protocol.retry_delay_s(0, 0.0, "soon") == 0.025


def test_patience_is_over_at_once_when_there_is_no_time_left() -> None:
    assert not Retries(0.0).wait()


@pytest.mark.parametrize("body", [b"<html>", b"", b"[]", b'{"streams": [{}]}', b"\xff"])
def test_another_server_is_told_from_ours(body: bytes) -> None:
    with pytest.raises(api.ClientError, match="this is not a Headwater server"):
        protocol.parse_page(body)


def test_an_answer_that_is_not_ours_is_shown() -> None:
    with pytest.raises(api.Refused, match="Bad Gateway") as refused:
        protocol.check(400, {}, b"<h1>Bad Gateway</h1>")
    assert refused.value.code == "unknown"
    with pytest.raises(api.Refused, match="not found") as refused:
        protocol.check(404, {}, b"page not found")
    assert refused.value.code == "unknown"
    assert refusal(404, "stream_gone", "gone", {}).status == 404
