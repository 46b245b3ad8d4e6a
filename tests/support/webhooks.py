"""A receiver of webhooks on a real socket, which answers what the test tells it to."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections import deque
from typing import Any, NamedTuple


def reply(status: int = 200, body: bytes = b"{}", *headers: str) -> bytes:
    """A whole HTTP response."""
    lines = [f"HTTP/1.1 {status} Whatever", f"Content-Length: {len(body)}", *headers, "", ""]
    return "\r\n".join(lines).encode() + body


DONE = reply(body=b'{"done": true}')


class Received(NamedTuple):
    """One request, as it came."""

    line: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.body)
        return found


class Receiver:
    """Listens on 127.0.0.1. Replies come from `replies`, then `always`; None hangs."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, *, tls: ssl.SSLContext | None = None
    ) -> None:
        self.requests: list[Received] = []
        self.replies: deque[bytes | None] = deque()
        self.always: bytes | None = reply()
        self.open = 0
        """Requests that wait for their reply."""
        self.open_max = 0
        self._loop = loop
        self._released = asyncio.Event()
        self._server = loop.run_until_complete(
            asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=tls)
        )
        self.port = self._server.sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}/hook"

    def release(self) -> None:
        """Let the requests that hang be answered with `always`, or cut off if that is None."""
        self._released.set()
        self._released = asyncio.Event()

    def close(self) -> None:
        self.always = None
        self.release()
        self._server.close()
        self._loop.run_until_complete(self._server.wait_closed())

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            self.requests.append(await _read(reader))
            self.open += 1
            self.open_max = max(self.open_max, self.open)
            answer = self.replies.popleft() if self.replies else self.always
            if answer is None:
                await self._released.wait()
                answer = self.always or b""
            self.open -= 1
            writer.write(answer)
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the sender lost patience
        finally:
            writer.close()


async def _read(reader: asyncio.StreamReader) -> Received:
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    line, *fields = head.rstrip("\r\n").split("\r\n")
    headers = {}
    for field in fields:
        name, _, value = field.partition(":")
        headers[name.lower()] = value.strip()
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Received(line, headers, body)
