"""Compression of answers that are made once and sent whole: catch-up reads, listings.

Never of live responses: they must leave as they come. Work is done in a few threads, because the
loop has others to serve; zlib and zstandard let it run meanwhile. RFC 9110 §8.4, §12.5.3.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

import zstandard

from headwater.core.pending import Pending
from headwater.wire.http import Answer, Buffer, Header, Request, Response

COMPRESS_BYTES_MIN = 1024
"""Smaller bodies gain nothing."""
THREADS_MAX = 2
GZIP_LEVEL = 1
ZSTD_LEVEL = 1
VARY: Header = (b"vary", b"accept-encoding")


def choose(accept_encoding: bytes | None) -> str | None:
    """zstd or gzip, whichever the client likes better; zstd when it likes both alike."""
    if not accept_encoding:
        return None
    wanted: dict[str, float] = {}
    for part in accept_encoding.decode("latin-1").lower().split(","):
        name, _, parameters = part.strip().partition(";")
        wanted[name.strip()] = _quality(parameters)
    rest = wanted.get("*", 0.0)
    best, quality = None, 0.0
    for name in ("zstd", "gzip"):
        value = wanted.get(name, rest)
        if value > quality:
            best, quality = name, value
    return best


def _quality(parameters: str) -> float:
    name, _, value = parameters.strip().partition("=")
    if name.strip() != "q":
        return 1.0
    try:
        return float(value)
    except ValueError:
        return 0.0


def compress(encoding: str, body: bytes | list[Buffer]) -> bytes:
    pieces = [body] if isinstance(body, bytes) else body
    if encoding == "gzip":
        packer = zlib.compressobj(GZIP_LEVEL, zlib.DEFLATED, 16 + zlib.MAX_WBITS)
        return b"".join([*(packer.compress(piece) for piece in pieces), packer.flush()])
    return zstandard.ZstdCompressor(level=ZSTD_LEVEL).compress(b"".join(pieces))


class Compressor:
    """Compresses answers for the clients that ask for it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._threads = ThreadPoolExecutor(THREADS_MAX, thread_name_prefix="headwater-compress")

    def apply(self, request: Request, answer: Answer) -> Answer:
        """The same answer, compressed when that is asked for and worth it.

        Answers vary by what the client accepts, and say so, compressed or not.
        """
        encoding = choose(request.headers.get(b"accept-encoding"))
        if isinstance(answer, Pending):
            done: Pending[Response] = Pending()
            answer.deliver(lambda outcome: self._settle(encoding, outcome, done))
            done.on_cancel(answer.cancel)
            done.on_hurry(answer.hurry)
            return done
        if not _is_worth(encoding, answer):
            answer.headers = _varying(answer.headers)
            return answer
        done = Pending()
        self._settle(encoding, answer, done)
        return done

    def _settle(
        self, encoding: str | None, outcome: Response | Exception, done: Pending[Response]
    ) -> None:
        if isinstance(outcome, Exception):
            done.fail(outcome)
            return
        if encoding is None or not _is_worth(encoding, outcome):
            outcome.headers = _varying(outcome.headers)
            done.resolve(outcome)
            return
        future = self._loop.run_in_executor(self._threads, compress, encoding, outcome.body)
        future.add_done_callback(lambda result: _finish(encoding, outcome, result, done))


def _varying(headers: Iterable[Header]) -> list[Header]:
    """The same, and that the answer depends on what the client accepts, in one header."""
    found = [pair for pair in headers if pair[0] != b"vary"]
    before = [value for name, value in headers if name == b"vary"]
    return [*found, (b"vary", b", ".join([*before, VARY[1]])) if before else VARY]


def _is_worth(encoding: str | None, response: Response) -> bool:
    if encoding is None or response.status != 200:
        return False
    body = response.body
    size = len(body) if isinstance(body, bytes) else sum(map(len, body))
    return size >= COMPRESS_BYTES_MIN


def _finish(
    encoding: str, response: Response, result: asyncio.Future[bytes], done: Pending[Response]
) -> None:
    error = result.exception()
    if error is not None:
        done.fail(error if isinstance(error, Exception) else RuntimeError(str(error)))
        return
    # Another representation has another tag (RFC 9110 §8.8.3); a reader that sends it back is
    # understood, see wire/headers.py.
    headers: list[Header] = [
        (name, value[:-1] + b"-" + encoding.encode() + b'"') if name == b"etag" else (name, value)
        for name, value in response.headers
    ]
    headers.append((b"content-encoding", encoding.encode()))
    done.resolve(Response(response.status, _varying(headers), result.result(), base=response.base))
