"""The blocking client: moves the bytes of `protocol` over one kept-alive connection.

Nothing but the standard library, so that it runs wherever Spark sends it. One client belongs to
one thread. Safe requests, and appends that carry a producer, are tried again until the time for
that is over; other appends are sent once.
"""

from __future__ import annotations

import http.client
import os
import select
import ssl
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Self

from headwater.client import protocol
from headwater.client.answers import WholeResponse
from headwater.client.errors import ClientError, Unreachable
from headwater.client.protocol import Appended, Endpoint, Producer, Request, StreamSummary

RETRY_TIMEOUT_S = 60.0
SOCKET_TIMEOUT_S = 60.0

_BROKEN = (OSError, http.client.HTTPException)
"""What a connection fails with."""


class Answer(NamedTuple):
    """The head of an answer; the body is still to be read."""

    status: int
    headers: Mapping[str, str]
    """Lower-case names."""
    body: http.client.HTTPResponse


class Client:
    """Requests to one server."""

    def __init__(
        self,
        endpoint: str,
        *,
        token: str | None = None,
        encryption_key: str | None = None,
        ca_file: str | None = None,
        retry_timeout_s: float = RETRY_TIMEOUT_S,
    ) -> None:
        self.endpoint = Endpoint.parse(endpoint, token=token, encryption_key=encryption_key)
        self._ca_file = ca_file
        self._retry_timeout_s = retry_timeout_s
        self._connection: http.client.HTTPConnection | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the connection. The next request makes another."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    # -- streams

    def streams(
        self,
        *,
        bucket: str | None = None,
        prefix: str | None = None,
        pattern: str | None = None,
        times_ms: Sequence[int] = (),
    ) -> Iterator[StreamSummary]:
        """The streams that match, in the order of bucket and name; with times, also which records
        those are at."""
        after: str | None = None
        while True:
            wanted = protocol.list_streams(
                bucket=bucket, prefix=prefix, pattern=pattern, after=after, times_ms=times_ms
            )
            page = protocol.parse_page(self.fetch(wanted)[1])
            yield from page.streams
            after = page.after
            if after is None:
                return

    def stream(
        self, bucket: str, name: str, *, times_ms: Sequence[int] = ()
    ) -> StreamSummary | None:
        """One stream, or None when it is not there."""
        # Of all names that begin with this one, the name itself comes first.
        wanted = protocol.list_streams(bucket=bucket, prefix=name, limit=1, times_ms=times_ms)
        for found in protocol.parse_page(self.fetch(wanted)[1]).streams:
            if found.name == name:
                return found
        return None

    def create(
        self,
        bucket: str,
        name: str,
        content_type: str,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Make a stream. One that is there with the same type is as good."""
        self.fetch(protocol.create_stream(bucket, name, content_type, headers))

    def close_stream(self, bucket: str, name: str) -> None:
        """End a stream. One that has ended is as good."""
        self.fetch(protocol.close_stream(bucket, name))

    def trim(self, bucket: str, name: str, to: int, stream_id: str) -> None:
        """Forget the records before `to`, for good, if the stream is still the one with this id."""
        self.fetch(protocol.trim_stream(bucket, name, to, stream_id))

    # -- records

    def open_records(self, bucket: str, name: str, query: Mapping[str, object]) -> Answer:
        """Begin to read records as Arrow. Read the body to its end, or close the client."""
        return self._send(protocol.read_records(bucket, name, query))

    def append(
        self, bucket: str, name: str, body: Any, producer: Producer | None = None
    ) -> Appended:
        """Add records, given as an Arrow IPC stream. Returns when they are on disk."""
        wanted = protocol.append_records(bucket, name, body, producer)
        return protocol.parse_appended(self.fetch(wanted)[1])

    # -- bytes

    def fetch(self, request: Request) -> tuple[Mapping[str, str], bytes]:
        """A whole answer, which is a success."""
        tries = Retries(self._retry_timeout_s)
        while True:
            answer = self._send(request, tries)
            try:
                return answer.headers, answer.body.read()
            except _BROKEN as error:
                self.close()
                self._pause(tries, request, error)

    def _send(self, request: Request, tries: Retries | None = None) -> Answer:
        """The head of a successful answer. Raises Refused, or Unreachable when time is over."""
        tries = tries or Retries(self._retry_timeout_s)
        while True:
            try:
                answer = self._once(request)
                if 200 <= answer.status < 300:
                    return answer
                body = answer.body.read()
            except _BROKEN as error:
                self.close()
                self._pause(tries, request, error)
                continue
            again = protocol.may_retry(request, answer.status)
            if not again or not tries.wait(answer.headers.get("retry-after")):
                protocol.check(answer.status, answer.headers, body)

    def _once(self, request: Request) -> Answer:
        connection = self._connection
        if connection is None or _hung_up(connection):
            self.close()
            connection = self._connection = self._connect()
            connection.response_class = WholeResponse
        endpoint = self.endpoint
        headers = {**endpoint.headers, **request.headers}
        try:
            connection.request(request.method, endpoint.path + request.path, request.body, headers)
        except (BrokenPipeError, ConnectionResetError):
            # A server that refuses a body answers before it has all of it, then hangs up.
            if request.body is None:
                raise
        response = connection.getresponse()
        return Answer(
            response.status,
            {name.lower(): value for name, value in response.getheaders()},
            response,
        )

    def _connect(self) -> http.client.HTTPConnection:
        endpoint = self.endpoint
        if not endpoint.secure:
            return http.client.HTTPConnection(
                endpoint.host, endpoint.port, timeout=SOCKET_TIMEOUT_S
            )
        try:
            context = ssl.create_default_context(cafile=self._ca_file)
        except OSError as error:  # another try would not find it either
            raise ClientError(
                f"the certificates to trust cannot be read: {error}. file={self._ca_file}"
            ) from error
        return http.client.HTTPSConnection(
            endpoint.host, endpoint.port, timeout=SOCKET_TIMEOUT_S, context=context
        )

    def _pause(self, tries: Retries, request: Request, error: Exception) -> None:
        if _is_for_good(error) or not request.repeatable:
            raise Unreachable(f"no answer from {self.endpoint}: {error}") from error
        if not tries.wait():
            raise Unreachable(
                f"no answer from {self.endpoint} for {tries.timeout_s:g} s: {error}"
            ) from error


class Retries:
    """The patience of one request: longer and longer pauses until a time is over."""

    def __init__(self, timeout_s: float) -> None:
        self.timeout_s = timeout_s
        self._deadline = time.monotonic() + timeout_s
        self._attempt = 0

    def wait(self, retry_after: str | None = None) -> bool:
        """Pause before the next try. False, at once, when there is no time for another."""
        delay_s = protocol.retry_delay_s(self._attempt, _chance(), retry_after)
        if time.monotonic() + delay_s > self._deadline:
            return False
        self._attempt += 1
        time.sleep(delay_s)
        return True


def _is_for_good(error: Exception) -> bool:
    """Certificates that are not trusted, or a server without TLS: trying again does not help."""
    return isinstance(error, ssl.SSLCertVerificationError) or (
        isinstance(error, ssl.SSLError) and error.reason == "WRONG_VERSION_NUMBER"
    )


def _hung_up(connection: http.client.HTTPConnection) -> bool:
    """Has the server ended a connection while it was idle? Then there is something to read."""
    if connection.sock is None:
        return False
    poll = select.poll()
    poll.register(connection.sock, select.POLLIN)
    return bool(poll.poll(0))


def _chance() -> float:
    """So that many clients do not come back at the same moment."""
    return int.from_bytes(os.urandom(2)) / 65535
