"""Sending webhooks: a bounded number at once, only to addresses that were judged. PROTOCOL §7.1.

Nothing here is on the path of an append. The client is ours because it must connect to exactly
the address that was judged: general ones resolve the name again, and follow redirects.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections import Counter, deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import NamedTuple
from urllib.parse import urlsplit

import httptools

from headwater.core.limits import KIB
from headwater.core.webhook_urls import Target, UrlRejected, WebhookPolicy, judge_address, judge_url
from headwater.engine.clock import Clock
from headwater.version import VERSION

log = logging.getLogger("headwater.webhooks")

CONCURRENT_MAX = 16
CONCURRENT_PER_HOST_MAX = 4
"""One host that hangs must not hold up the webhooks of the others."""
REPLY_BODY_BYTES_MAX = 64 * KIB
REPLY_BYTES_MAX = 2 * REPLY_BODY_BYTES_MAX
"""With headers and chunk sizes."""
READ_BYTES = 16 * KIB

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Resolve = Callable[[str, int], Awaitable[list[str]]]
Dial = Callable[[str, Target, ssl.SSLContext | None], Awaitable[Connection]]


class Letter(NamedTuple):
    """One request to send."""

    body: bytes
    headers: dict[str, str]
    timeout_s: float


class Reply(NamedTuple):
    """What came back. The body is empty when it was too long to be read."""

    status: int
    body: bytes


class DeliveryFailed(Exception):
    """There was no answer. The message says why, for people."""


@dataclass(slots=True)
class Errand:
    """A webhook to send when its turn has come."""

    url: str
    prepare: Callable[[], Letter | None]
    """Called when the turn has come; None drops the errand."""
    done: Callable[[Reply | DeliveryFailed], None]
    host: str = field(init=False)

    def __post_init__(self) -> None:
        self.host = urlsplit(self.url).netloc


class Courier:
    """Runs errands, in order as far as hosts allow. Each subscription has one at most."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        policy: WebhookPolicy,
        *,
        resolve: Resolve | None = None,
        dial: Dial | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._loop = loop
        self._clock = clock
        self._policy = policy
        self._resolve = resolve or self._ask_resolver
        self._dial = dial or _open
        self._tls = tls
        self._queue: deque[Errand] = deque()
        self._active: set[asyncio.Task[None]] = set()
        self._per_host: Counter[str] = Counter()
        self._closed = False

    @property
    def queued(self) -> int:
        return len(self._queue)

    @property
    def active(self) -> int:
        return len(self._active)

    def send(self, errand: Errand) -> None:
        self._queue.append(errand)
        self._loop.call_soon(self._begin)

    def close(self) -> None:
        """Drop everything. Whoever must know keeps it on disk."""
        self._closed = True
        self._queue.clear()
        for task in self._active:
            task.cancel()

    def _begin(self) -> None:
        while not self._closed and len(self._active) < CONCURRENT_MAX:
            errand = self._next()
            if errand is None:
                return
            letter = errand.prepare()
            if letter is not None:
                self._per_host[errand.host] += 1
                task = self._loop.create_task(self._run(errand, letter))
                self._active.add(task)
                task.add_done_callback(self._active.discard)

    def _next(self) -> Errand | None:
        for index, errand in enumerate(self._queue):
            if self._per_host[errand.host] < CONCURRENT_PER_HOST_MAX:
                del self._queue[index]
                return errand
        return None

    async def _run(self, errand: Errand, letter: Letter) -> None:
        task = asyncio.current_task()
        assert task is not None
        # A timer of the clock, not asyncio's: tests move time by hand.
        timer = self._clock.call_later(letter.timeout_s, lambda: _cancel(task))
        outcome: Reply | DeliveryFailed
        try:
            outcome = await self._post(judge_url(errand.url, self._policy), letter)
        except asyncio.CancelledError:
            if self._closed:
                raise
            outcome = DeliveryFailed(f"no answer within {letter.timeout_s:g} s")
        except OSError as error:
            outcome = DeliveryFailed(error.strerror or str(error) or type(error).__name__)
        except UrlRejected as error:
            outcome = DeliveryFailed(str(error))
        except DeliveryFailed as error:
            outcome = error
        except Exception as error:
            # Whoever sent it must hear of it, else it would never be sent again.
            log.exception("a webhook failed unexpectedly")
            outcome = DeliveryFailed(type(error).__name__)
        finally:
            timer.cancel()
            self._leave(errand.host)
        errand.done(outcome)

    def _leave(self, host: str) -> None:
        self._per_host[host] -= 1
        if not self._per_host[host]:
            del self._per_host[host]
        self._loop.call_soon(self._begin)

    async def _post(self, target: Target, letter: Letter) -> Reply:
        addresses = list(dict.fromkeys(await self._resolve(target.host, target.port)))
        if not addresses:
            raise DeliveryFailed("the host of the webhook URL has no address")
        for address in addresses:
            judge_address(target, address)
        reader, writer = await self._connect(target, addresses)
        try:
            writer.write(_render(target, letter))
            await writer.drain()
            return await _read_reply(reader)
        finally:
            writer.close()

    async def _connect(self, target: Target, addresses: list[str]) -> Connection:
        """To one of the judged addresses. TLS still asks for the name."""
        failure: OSError | None = None
        for address in addresses:
            try:
                return await self._dial(address, target, self._context() if target.tls else None)
            except OSError as error:
                failure = error
        assert failure is not None
        raise failure

    def _context(self) -> ssl.SSLContext:
        if self._tls is None:
            self._tls = ssl.create_default_context()
        return self._tls

    async def _ask_resolver(self, host: str, port: int) -> list[str]:
        found = await self._loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        return [str(address[4][0]) for address in found]


def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()


async def _open(address: str, target: Target, tls: ssl.SSLContext | None) -> Connection:
    return await asyncio.open_connection(
        address, target.port, ssl=tls, server_hostname=target.host if tls else None
    )


def _render(target: Target, letter: Letter) -> bytes:
    headers = {
        "Host": target.authority,
        "User-Agent": f"headwater/{VERSION}",
        "Accept": "application/json",
        "Content-Length": str(len(letter.body)),
        "Connection": "close",
        **letter.headers,
    }
    lines = [f"POST {target.path} HTTP/1.1", *(f"{name}: {headers[name]}" for name in headers)]
    return "\r\n".join([*lines, "", ""]).encode("ascii") + letter.body


class _Collected:
    """Callbacks of the parser: the final response, without the informational ones before it."""

    def __init__(self) -> None:
        self.parser = httptools.HttpResponseParser(self)
        self.status = 0
        self.body = b""
        self.complete = False

    def on_headers_complete(self) -> None:
        self.status = self.parser.get_status_code()

    def on_body(self, data: bytes) -> None:
        self.body += data

    def on_message_complete(self) -> None:
        self.complete = self.status >= 200
        if not self.complete:
            self.status = 0


async def _read_reply(reader: asyncio.StreamReader) -> Reply:
    found = _Collected()
    received = 0
    while not found.complete and received <= REPLY_BYTES_MAX:
        data = await reader.read(READ_BYTES)
        if not data:
            break
        received += len(data)
        try:
            found.parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            raise DeliveryFailed("the answer is not HTTP as we know it") from error
    if not found.status:
        raise DeliveryFailed("the connection ended without an answer")
    too_long = received > REPLY_BYTES_MAX or len(found.body) > REPLY_BODY_BYTES_MAX
    return Reply(found.status, b"" if too_long else found.body)
