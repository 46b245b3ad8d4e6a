"""The same server on real sockets, where the kernel has a say: uvloop, resets, TLS, shutdown."""

from __future__ import annotations

import asyncio
import datetime
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import uvloop
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from headwater.engine.clock import SystemClock
from headwater.server.http1 import Http1Server
from headwater.wire.http import BodyWriter, Request, Response, StreamedResponse
from tests.server.http1_harness import Deferred, EchoApplication, get, parse_replies, request

Reader = asyncio.StreamReader
Writer = asyncio.StreamWriter


def run(main: Awaitable[None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(10):
            await main

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(bounded())


@asynccontextmanager
async def serving(
    application: EchoApplication, tls: ssl.SSLContext | None = None
) -> AsyncIterator[tuple[Http1Server, int]]:
    loop = asyncio.get_running_loop()
    server = Http1Server(application, clock=SystemClock(loop), loop=loop)
    listener = await server.listen(host="127.0.0.1", port=0, tls=tls)
    try:
        yield server, listener.sockets[0].getsockname()[1]
    finally:
        listener.close()
        await server.shut_down(grace_s=0)
        await eventually(lambda: not server.serving.connections)


async def eventually(condition: Callable[[], object]) -> None:
    """Let the loop turn until `condition` holds; the test's timeout ends a wait in vain."""
    while not condition():  # noqa: ASYNC110 - what is waited for is not ours to signal
        await asyncio.sleep(0)


async def read_reply(reader: Reader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    [reply] = parse_replies(head)
    return head + await reader.readexactly(int(reply.headers.get("content-length", 0)))


def test_requests_on_one_connection() -> None:
    async def main() -> None:
        application = EchoApplication()
        async with serving(application) as (server, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            for number in range(3):
                writer.write(request("POST", f"/{number}", body=b"x" * number))
                [reply] = parse_replies(await read_reply(reader))
                assert reply.body == f"POST /{number} ".encode() + b"x" * number
            writer.write(get("/last", "connection: close"))
            assert (await reader.read()).endswith(b"GET /last ")
            writer.close()
            assert server.serving.requests_total == 4
            assert server.serving.connections_total == 1
            assert application.requests[0].peer == "127.0.0.1"

    run(main())


def test_a_client_still_sending_can_read_why_it_was_refused() -> None:
    async def main() -> None:
        async with serving(EchoApplication()) as (_, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(request("POST", "/", "content-length: 10000000"))
            [reply] = parse_replies(await read_reply(reader))
            assert (reply.status, reply["connection"]) == (413, "close")
            writer.write(b"x" * 100_000)
            await writer.drain()
            assert await reader.read() == b""
            writer.close()

    run(main())


def test_a_reset_cancels_what_is_pending() -> None:
    async def main() -> None:
        application = EchoApplication()
        answers = Deferred()
        application.answer = answers
        async with serving(application) as (server, port):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(get("/a"))
            await eventually(lambda: answers.waiting)
            # Zero seconds of linger: closing sends a reset instead of waiting.
            connected: socket.socket = writer.get_extra_info("socket")
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()
            await eventually(lambda: answers.cancelled)
            assert answers.cancelled == ["/a"]
            await eventually(lambda: not server.serving.connections)

    run(main())


def test_a_slow_reader_pushes_back_through_the_kernel() -> None:
    async def main() -> None:
        application = EchoApplication()
        written = 0
        drained = 0

        def start(writer: BodyWriter) -> None:
            piece = b"x" * 100_000

            def fill() -> None:
                nonlocal written, drained
                drained += 1
                while written < 30_000_000:
                    written += len(piece)
                    if not writer.write(piece):
                        return
                writer.finish()

            writer.on_drain = fill
            fill()

        application.answer = lambda request: StreamedResponse(200, (), start)
        async with serving(application) as (_, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(get("/", "connection: close"))
            await eventually(lambda: drained)
            assert written < 30_000_000
            [reply] = parse_replies(await reader.read())
            assert len(reply.body) == written == 30_000_000
            assert drained > 1
            writer.close()

    run(main())


def test_a_unix_socket_has_no_peer(tmp_path: Path) -> None:
    async def main() -> None:
        application = EchoApplication()
        loop = asyncio.get_running_loop()
        server = Http1Server(application, clock=SystemClock(loop), loop=loop)
        path = str(tmp_path / "s")
        listener = await loop.create_unix_server(server.protocol, path)
        reader, writer = await asyncio.open_unix_connection(path)
        writer.write(get())
        await read_reply(reader)
        assert application.requests[0].peer == ""
        writer.close()
        listener.close()
        await server.shut_down(grace_s=5)
        assert not server.serving.connections

    run(main())


def test_shutting_down_waits_for_what_runs() -> None:
    async def main() -> None:
        application = EchoApplication()
        answers = Deferred()
        application.answer = answers
        async with serving(application) as (server, port):
            idle_reader, idle_writer = await asyncio.open_connection("127.0.0.1", port)
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(get("/a"))
            await eventually(lambda: answers.waiting)
            shutdown = asyncio.create_task(server.shut_down(grace_s=5))
            assert await idle_reader.read() == b""
            assert not shutdown.done()
            answers.resolve("/a")
            [reply] = parse_replies(await reader.read())
            assert (reply.body, reply["connection"]) == (b"/a", "close")
            writer.close()
            idle_writer.close()
            await shutdown
            assert not server.serving.connections

    run(main())


def test_shutting_down_cuts_what_does_not_end() -> None:
    async def main() -> None:
        application = EchoApplication()
        answers = Deferred()
        application.answer = answers
        async with serving(application) as (server, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(get("/a"))
            await eventually(lambda: answers.waiting)
            await server.shut_down(grace_s=0)
            assert await reader.read() == b""
            assert answers.cancelled == ["/a"]
            writer.close()

    run(main())


def test_many_followers_get_the_same_message() -> None:
    async def main() -> None:
        application = EchoApplication()
        writers: list[BodyWriter] = []
        application.answer = lambda request: StreamedResponse(200, (), writers.append)
        async with serving(application) as (_, port):
            clients = [await asyncio.open_connection("127.0.0.1", port) for _ in range(20)]
            for _, writer in clients:
                writer.write(get())
            await eventually(lambda: len(writers) == 20)
            message = b"data: hello\n\n"
            for follower in writers:
                follower.write(message)
                follower.finish()
            for reader, writer in clients:
                data = await reader.readuntil(b"0\r\n\r\n")
                [reply] = parse_replies(data)
                assert reply.body == message
                writer.close()

    run(main())


@pytest.mark.parametrize("pieces", [1, 3])
def test_a_half_closing_client_gets_its_answer(pieces: int) -> None:
    async def main() -> None:
        application = EchoApplication()
        answers = Deferred()

        def answer(asked: Request) -> object:
            return answers(asked) if asked.path == "/0" else Response(200, (), b"later")

        application.answer = answer  # type: ignore[assignment]
        async with serving(application) as (_, port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"".join(get(f"/{number}") for number in range(pieces)))
            writer.write_eof()
            await eventually(lambda: answers.waiting)
            answers.resolve("/0")
            replies = parse_replies(await reader.read())
            assert [reply.body for reply in replies] == [b"/0", *[b"later"] * (pieces - 1)]
            writer.close()

    run(main())


def server_tls(folder: Path) -> ssl.SSLContext:
    """A certificate nobody trusts, which is enough to encrypt."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "test")])
    start = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(start)
        .not_valid_after(start + datetime.timedelta(days=36500))
        .sign(key, hashes.SHA256())
    )
    pem = folder / "pem"
    pem.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        + certificate.public_bytes(serialization.Encoding.PEM)
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem)
    return context


def test_tls(tmp_path: Path) -> None:
    async def main() -> None:
        application = EchoApplication()
        writers: list[BodyWriter] = []
        closed: list[str] = []
        async with serving(application, server_tls(tmp_path)) as (_, port):
            trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            trusting.check_hostname = False
            trusting.verify_mode = ssl.CERT_NONE
            reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trusting)
            writer.write(request("POST", "/a", body=b"x" * 900))
            assert (await read_reply(reader)).endswith(b"x" * 900)
            writer.write(get("/b"))
            await read_reply(reader)
            assert [asked.secure for asked in application.requests] == [True, True]

            def start(follower: BodyWriter) -> None:
                follower.on_close = lambda: closed.append("follower")
                writers.append(follower)

            application.answer = lambda request: StreamedResponse(200, (), start)
            writer.write(get("/c"))
            await eventually(lambda: writers)
            writers[0].write(b"z" * 40_000)
            await reader.readuntil(b"z\r\n")
            writer.close()
            await eventually(lambda: closed)

            reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trusting)
            writer.write(request("POST", "/", "content-length: 10000000"))
            [reply] = parse_replies(await read_reply(reader))
            assert reply.status == 413
            writer.close()

    run(main())
