"""The courier: how many at once, to which address, and what counts as an answer."""

from __future__ import annotations

import asyncio
import datetime
import ssl
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from headwater.core.webhook_urls import Target, WebhookPolicy
from headwater.engine.webhooks import (
    CONCURRENT_MAX,
    CONCURRENT_PER_HOST_MAX,
    REPLY_BODY_BYTES_MAX,
    Connection,
    Courier,
    DeliveryFailed,
    Errand,
    Letter,
    Reply,
)
from tests.support.clock import FakeClock
from tests.support.engines import WAIT_S
from tests.support.webhooks import Receiver, reply

PUBLIC = "93.184.216.34"
LETTER = Letter(b'{"a": 1}', {"Content-Type": "application/json"}, 10.0)


class Post:
    """A courier, the loop it runs on, and a receiver."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.clock = FakeClock()
        self.receiver = Receiver(self.loop)
        self.outcomes: list[Reply | DeliveryFailed] = []
        self.courier = self.open(WebhookPolicy(allow_local=True))

    def open(
        self,
        policy: WebhookPolicy,
        *,
        addresses: dict[str, list[str]] | None = None,
        dial: Callable[[str, Target, ssl.SSLContext | None], Awaitable[Connection]] | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> Courier:
        async def resolve(host: str, port: int) -> list[str]:
            return (addresses or {}).get(host, [])

        self.courier = Courier(
            self.loop,
            self.clock,
            policy,
            resolve=None if addresses is None else resolve,
            dial=dial,
            tls=tls,
        )
        return self.courier

    def send(self, url: str, letter: Letter | None = LETTER) -> None:
        self.courier.send(Errand(url, lambda: letter, self.outcomes.append))

    def outcome(self, url: str) -> Reply | DeliveryFailed:
        """Send one webhook and wait for what becomes of it."""
        self.send(url)
        self.until(lambda: self.outcomes)
        return self.outcomes.pop()

    def failure(self, url: str) -> str:
        outcome = self.outcome(url)
        assert isinstance(outcome, DeliveryFailed)
        return str(outcome)

    def until(self, condition: Callable[[], object]) -> None:
        deadline = self.loop.time() + WAIT_S
        while not condition():
            assert self.loop.time() < deadline, "it did not come about"
            self.turn()

    def turn(self, count: int = 1) -> None:
        for _ in range(count):
            self.loop.run_until_complete(asyncio.sleep(0))

    def close(self) -> None:
        self.courier.close()
        self.until(lambda: not self.courier.active)
        self.receiver.close()
        self.loop.run_until_complete(self.loop.shutdown_default_executor())
        self.turn(5)
        self.loop.close()


@pytest.fixture
def post() -> Iterator[Post]:
    found = Post()
    yield found
    found.close()


def test_a_letter_arrives_as_it_was_written(post: Post) -> None:
    assert post.outcome(f"{post.receiver.url}?a=b#c") == Reply(200, b"{}")
    [request] = post.receiver.requests
    assert request.line == "POST /hook?a=b HTTP/1.1"
    assert request.body == LETTER.body
    assert request.headers["content-type"] == "application/json"
    assert request.headers["connection"] == "close"
    assert request.headers["user-agent"].startswith("headwater/")
    assert post.clock.timers == 0


def test_a_local_name_is_resolved(post: Post) -> None:
    assert post.outcome(f"http://localhost:{post.receiver.port}/") == Reply(200, b"{}")


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        pytest.param(reply(204, b""), Reply(204, b""), id="nothing"),
        pytest.param(
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\n",
            Reply(200, b"abc"),
            id="chunked",
        ),
        pytest.param(b"HTTP/1.0 200 OK\r\n\r\nabc", Reply(200, b"abc"), id="until the end"),
        pytest.param(
            b"HTTP/1.1 103 Early Hints\r\n\r\n" + reply(201, b"abc"), Reply(201, b"abc"), id="hints"
        ),
        pytest.param(
            b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc", Reply(200, b"abc"), id="cut off"
        ),
        pytest.param(reply(404, b"no"), Reply(404, b"no"), id="an error"),
        pytest.param(
            reply(200, b"x" * REPLY_BODY_BYTES_MAX),
            Reply(200, b"x" * REPLY_BODY_BYTES_MAX),
            id="long",
        ),
        pytest.param(
            reply(200, b"x" * (REPLY_BODY_BYTES_MAX + 1)), Reply(200, b""), id="a little too long"
        ),
        pytest.param(reply(200, b"x" * 10_000_000), Reply(200, b""), id="far too long"),
    ],
)
def test_an_answer_is_read_up_to_a_bound(post: Post, raw: bytes, expected: Reply) -> None:
    post.receiver.always = raw
    assert post.outcome(post.receiver.url) == expected


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"HTTP/1.1 200", id="half a line"),
        pytest.param(b"HTTP/1.1 103 Early Hints\r\n\r\n", id="only hints"),
        pytest.param(b"220 smtp.example ESMTP\r\n", id="another protocol"),
        pytest.param(
            b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n",
            id="another protocol from here on",
        ),
        pytest.param(b"HTTP/1.1 200 OK\r\nX: " + b"x" * 200_000, id="endless headers"),
    ],
)
def test_what_is_no_answer_is_a_failure(post: Post, raw: bytes) -> None:
    post.receiver.always = raw
    assert post.failure(post.receiver.url)


def test_a_receiver_that_hangs_is_given_up(post: Post) -> None:
    post.receiver.always = None
    post.send(post.receiver.url)
    post.until(lambda: post.receiver.open)
    post.clock.advance(9.9)
    post.turn(5)
    assert not post.outcomes
    post.clock.advance(0.1)
    post.until(lambda: post.outcomes)
    assert "10 s" in str(post.outcomes[0])


def test_nobody_listens(post: Post) -> None:
    assert "connect" in post.failure("http://127.0.0.1:1/").lower()


# -- how many


def test_one_host_does_not_hold_up_the_others(post: Post) -> None:
    post.receiver.always = None
    for _ in range(CONCURRENT_PER_HOST_MAX + 3):
        post.send(post.receiver.url)
    post.send(f"http://localhost:{post.receiver.port}/")
    post.until(lambda: post.receiver.open == CONCURRENT_PER_HOST_MAX + 1)
    post.turn(20)
    assert (post.courier.active, post.courier.queued) == (CONCURRENT_PER_HOST_MAX + 1, 3)
    post.receiver.always = reply()
    post.receiver.release()
    post.until(lambda: len(post.outcomes) == CONCURRENT_PER_HOST_MAX + 4)


def test_there_is_a_bound_to_all_of_them(post: Post) -> None:
    post.open(WebhookPolicy(allow_local=True), dial=Dialled(post.receiver.port))
    post.receiver.always = None
    for number in range(CONCURRENT_MAX + 5):
        post.send(f"http://127.0.0.{number + 1}/")
    post.until(lambda: post.receiver.open == CONCURRENT_MAX)
    post.turn(20)
    assert (post.courier.active, post.courier.queued) == (CONCURRENT_MAX, 5)
    post.receiver.always = reply()
    post.receiver.release()
    post.until(lambda: len(post.outcomes) == CONCURRENT_MAX + 5)
    assert post.receiver.open_max == CONCURRENT_MAX


def test_a_bug_is_told_to_the_sender_as_well(post: Post, caplog: pytest.LogCaptureFixture) -> None:
    async def dial(*given: object) -> Connection:
        raise ZeroDivisionError

    post.open(WebhookPolicy(allow_local=True), dial=dial)
    assert post.failure(post.receiver.url) == "ZeroDivisionError"
    assert "unexpectedly" in caplog.text


def test_an_errand_may_turn_out_to_be_moot(post: Post) -> None:
    post.send(post.receiver.url, None)
    assert post.outcome(post.receiver.url) == Reply(200, b"{}")
    assert len(post.receiver.requests) == 1


def test_closing_drops_everything(post: Post) -> None:
    post.receiver.always = None
    for _ in range(CONCURRENT_PER_HOST_MAX + 1):
        post.send(post.receiver.url)
    post.until(lambda: post.receiver.open == CONCURRENT_PER_HOST_MAX)
    post.courier.close()
    post.until(lambda: not post.courier.active)
    post.turn(5)
    assert post.outcomes == [] and post.courier.queued == 0


# -- where to


class Dialled:
    """Connects to the test's receiver, whatever the address, and remembers the address."""

    def __init__(self, port: int) -> None:
        self.addresses: list[str] = []
        self.refuse: set[str] = set()
        self._port = port

    async def __call__(
        self, address: str, target: Target, tls: ssl.SSLContext | None
    ) -> Connection:
        self.addresses.append(address)
        if address in self.refuse:
            raise ConnectionRefusedError("refused")
        return await asyncio.open_connection(
            "127.0.0.1", self._port, ssl=tls, server_hostname=target.host if tls else None
        )


@pytest.mark.parametrize(
    "addresses",
    [
        pytest.param(["10.0.0.1"], id="private"),
        pytest.param(["127.0.0.1"], id="this machine"),
        pytest.param(["169.254.169.254"], id="cloud metadata"),
        pytest.param(["100.64.0.1"], id="carrier-grade NAT"),
        pytest.param(["::1"], id="this machine, IPv6"),
        pytest.param(["fd00::1"], id="unique local"),
        pytest.param(["fe80::1%2"], id="link local"),
        pytest.param(["::ffff:10.0.0.1"], id="mapped"),
        pytest.param(["64:ff9b::a00:1"], id="NAT64"),
        pytest.param([PUBLIC, "10.0.0.1"], id="one of several"),
        pytest.param([], id="none"),
    ],
)
def test_a_name_that_leads_inside_is_not_connected_to(post: Post, addresses: list[str]) -> None:
    dialled = Dialled(post.receiver.port)
    post.open(WebhookPolicy(), addresses={"worker.example": addresses}, dial=dialled)
    assert "address" in post.failure("https://worker.example/")
    assert dialled.addresses == [] and post.receiver.requests == []


def test_a_local_name_that_leads_elsewhere_is_not_connected_to(post: Post) -> None:
    dialled = Dialled(post.receiver.port)
    post.open(WebhookPolicy(allow_local=True), addresses={"localhost": [PUBLIC]}, dial=dialled)
    assert "address" in post.failure(f"http://localhost:{post.receiver.port}/")
    assert dialled.addresses == []


def test_a_url_that_is_allowed_no_longer_is_not_connected_to(post: Post) -> None:
    post.open(WebhookPolicy())
    assert "this machine" in post.failure(post.receiver.url)
    assert post.receiver.requests == []


# -- TLS


def certificate(folder: Path, name: str) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """A server's context with a certificate for `name`, and a client's that trusts it."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    begin = datetime.datetime(2020, 1, 1)
    built = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(begin)
        .not_valid_after(begin + datetime.timedelta(days=365 * 100))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    public = built.public_bytes(serialization.Encoding.PEM)
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    (folder / "cert.pem").write_bytes(public)
    (folder / "key.pem").write_bytes(private)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    return server, ssl.create_default_context(cadata=public.decode())


@pytest.mark.parametrize(
    ("certified", "trusted", "arrives"),
    [
        pytest.param("worker.example", True, True, id="the right name"),
        pytest.param("other.example", True, False, id="another name"),
        pytest.param("worker.example", False, False, id="nobody we trust"),
    ],
)
def test_the_address_is_pinned_and_the_name_is_proved(
    post: Post, tmp_path: Path, certified: str, trusted: bool, arrives: bool
) -> None:
    server, client = certificate(tmp_path, certified)
    receiver = Receiver(post.loop, tls=server)
    dialled = Dialled(receiver.port)
    dialled.refuse.add("2606:2800::1")
    post.open(
        WebhookPolicy(),
        addresses={"worker.example": ["2606:2800::1", PUBLIC]},
        dial=dialled,
        tls=client if trusted else None,
    )
    outcome = post.outcome("https://worker.example/")
    if arrives:
        assert outcome == Reply(200, b"{}")
        assert receiver.requests[0].headers["host"] == "worker.example"
    else:
        assert isinstance(outcome, DeliveryFailed) and receiver.requests == []
        assert "certificate" in str(outcome).lower()
    assert dialled.addresses == ["2606:2800::1", PUBLIC]
    post.turn(10)
    receiver.close()
