"""HTTP/2 on real sockets: the whole server, both protocols on one port, TLS, shutdown."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from pathlib import Path

import h2.config
import h2.connection
import h2.events
import httpx
import pytest
import uvloop

from headwater.engine.clock import SystemClock
from headwater.server.http1 import Http1Server
from headwater.server.http2 import serve_http2
from headwater.wire.http import BodyWriter, Request, Response, StreamedResponse
from tests.server.http1_harness import EchoApplication, get
from tests.server.test_server import make_certificate
from tests.support.inprocess import serving

TEXT = {"content-type": "text/plain"}


@contextmanager
def http2(url: str) -> Iterator[httpx.Client]:
    """A client with prior knowledge."""
    with httpx.Client(base_url=url, http1=False, http2=True, trust_env=False, timeout=10) as client:
        yield client


def test_a_stream_is_created_appended_read_and_followed() -> None:
    with serving() as server, http2(server.url) as http:
        created = http.put("/v1/stream/a", headers=TEXT)
        assert (created.status_code, created.http_version) == (201, "HTTP/2")
        appended = http.post("/v1/stream/a", headers=TEXT, content=b"hello")
        assert appended.status_code == 204
        read = http.get("/v1/stream/a", params={"offset": "-1"})
        assert read.content == b"hello"
        assert http.head("/v1/stream/a").headers["stream-next-offset"]
        offset = read.headers["stream-next-offset"]
        follow = {"offset": offset, "live": "sse"}
        with http.stream("GET", "/v1/stream/a", params=follow) as events:
            assert events.headers["content-type"].startswith("text/event-stream")
            http.post("/v1/stream/a", headers=TEXT, content=b"world")
            seen = ""
            for text in events.iter_text():
                seen += text
                if "world" in seen:
                    break
        with httpx.Client(base_url=server.url, trust_env=False) as old:
            answer = old.get("/v1/stream/a", params={"offset": "-1"})
            assert (answer.http_version, answer.content) == ("HTTP/1.1", b"helloworld")


def test_a_long_poll_waits_while_other_streams_of_its_connection_run() -> None:
    with serving() as server, http2(server.url) as http, ThreadPoolExecutor(1) as pool:
        http.put("/v1/stream/a", headers=TEXT)
        offset = http.head("/v1/stream/a").headers["stream-next-offset"]
        wait = {"offset": offset, "live": "long-poll"}
        polled = pool.submit(http.get, "/v1/stream/a", params=wait)
        with http2(server.url) as other:
            while not polled.done():
                other.post("/v1/stream/a", headers=TEXT, content=b"news")
        assert b"news" in polled.result().content


def test_a_shutdown_answers_a_long_poll() -> None:
    with serving() as server, http2(server.url) as http, ThreadPoolExecutor(1) as pool:
        http.put("/v1/stream/a", headers=TEXT)
        polled = pool.submit(http.get, "/v1/stream/a?offset=now&live=long-poll")
        while not server.call(lambda: server.server.engine.followers):
            pass
        assert server.stop_soon(grace_s=5).result(10)
        assert polled.result().status_code == 204


def test_tls_negotiates_http2_and_still_speaks_http1(tmp_path: Path) -> None:
    cert, key = make_certificate(tmp_path)
    trust = ssl.create_default_context(cafile=str(cert))
    with serving(tls_cert=str(cert), tls_key=str(key)) as server:
        for wanted, version in ((True, "HTTP/2"), (False, "HTTP/1.1")):
            with httpx.Client(
                base_url=server.url, verify=trust, trust_env=False, http2=wanted
            ) as http:
                answer = http.get("/health")
                assert (answer.status_code, answer.http_version) == (200, version)


@pytest.mark.parametrize(
    ("cipher", "accepted"),
    [
        ("ECDHE-ECDSA-AES128-GCM-SHA256", True),
        ("ECDHE-ECDSA-CHACHA20-POLY1305", True),
        ("ECDHE-ECDSA-AES128-SHA256", False),
    ],
)
def test_tls_1_2_is_spoken_with_the_ciphers_that_http2_allows(
    tmp_path: Path, cipher: str, accepted: bool
) -> None:
    cert, key = make_certificate(tmp_path)
    trust = ssl.create_default_context(cafile=str(cert))
    trust.maximum_version = ssl.TLSVersion.TLSv1_2
    trust.set_ciphers(cipher)
    trust.set_alpn_protocols(["h2"])
    with serving(tls_cert=str(cert), tls_key=str(key)) as server:
        address = ("127.0.0.1", httpx.URL(server.url).port or 0)
        with (
            socket.create_connection(address, timeout=10) as plain,
            nullcontext() if accepted else pytest.raises(ssl.SSLError),
            trust.wrap_socket(plain, server_hostname="127.0.0.1") as secure,
        ):
            assert secure.selected_alpn_protocol() == "h2"


async def exchange_megabytes(port: int, size: int) -> int:
    """Send `size` bytes in one stream of an `h2` client, count what comes back."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    client = h2.connection.H2Connection(h2.config.H2Configuration(header_encoding="utf-8"))
    client.initiate_connection()
    client.increment_flow_control_window(2**24)
    head = [(":method", "POST"), (":scheme", "http"), (":authority", "a"), (":path", "/")]
    client.send_headers(1, head)
    left, received, ended = size, 0, False
    while not ended:
        while left:
            room = min(client.local_flow_control_window(1), client.max_outbound_frame_size, left)
            if not room:
                break
            client.send_data(1, bytes(room), end_stream=room == left)
            left -= room
        writer.write(client.data_to_send())
        await writer.drain()
        data = await reader.read(1 << 20)
        assert data
        for event in client.receive_data(data):
            if isinstance(event, h2.events.DataReceived):
                received += len(event.data or b"")
                client.acknowledge_received_data(event.flow_controlled_length or 0, 1)
            ended = ended or isinstance(event, h2.events.StreamEnded)
    writer.close()
    return received


def echo_streamed(request: Request) -> Response:
    """Full duplex with back-pressure: the reader waits for the writer."""
    reader = request.body_reader
    assert reader is not None

    def start(writer: BodyWriter) -> None:
        def on_data(data: bytes) -> None:
            if not writer.write(data):
                reader.pause()

        reader.on_data, reader.on_end = on_data, writer.finish
        writer.on_drain = reader.resume

    return StreamedResponse(200, (), start)


def test_megabytes_pass_both_ways_through_small_windows() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        application = EchoApplication()
        application.streams_body = True
        application.body_bytes_max = 1 << 30
        application.answer = echo_streamed
        server = Http1Server(application, clock=SystemClock(loop), loop=loop)
        serve_http2(server.serving, loop.call_soon)
        listener = await server.listen(host="127.0.0.1", port=0)
        port = listener.sockets[0].getsockname()[1]
        size = 12_000_000
        async with asyncio.timeout(15):
            assert await exchange_megabytes(port, size) == size
            application.streams_body = False
            application.answer = application.echo
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(get("/old", "connection: close"))
            assert (await reader.read()).endswith(b"GET /old ")
            writer.close()
        listener.close()
        await server.shut_down(grace_s=0)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())
