"""The native API in process, beside the Durable Streams dialect over the same engine.

Streams are made and looked at through the other dialect where that shows more.
"""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pyarrow.ipc as ipc

from headwater.core.commands import Append, Command, Create, ForkClaim
from headwater.core.names import DURABLE_STREAMS_BUCKET
from headwater.core.pending import Pending
from headwater.core.types import Position
from headwater.dialects.log.requests import ARROW_TYPE
from headwater.dialects.log.routes import ROOT, LogDialect, LogOptions
from headwater.engine.stats import Stats
from headwater.storage.store import Store
from headwater.wire.http import Request, Response, Route, StreamedResponse
from tests.support.clock import FakeClock
from tests.support.durable import DurableServer, Headers, Reply, Writer

Pairs = list[tuple[bytes, bytes]]

TURNS_MAX = 100_000

HEADERS_TYPE = pa.list_(pa.struct([("name", pa.binary()), ("value", pa.binary())]))


def encode_table(table: pa.Table, **options: Any) -> bytes:
    """An Arrow IPC stream, as a client makes it."""
    sink = pa.BufferOutputStream()
    rows = options.pop("max_chunksize", None)
    with ipc.new_stream(sink, table.schema, options=ipc.IpcWriteOptions(**options)) as writer:
        writer.write_table(table, max_chunksize=rows)
    return bytes(sink.getvalue())


def encode_records(bodies: list[bytes], headers: list[Pairs] | None = None) -> bytes:
    columns = {"body": pa.array(bodies, pa.binary())}
    if headers is not None:
        rows = [[{"name": name, "value": value} for name, value in row] for row in headers]
        columns["headers"] = pa.array(rows, HEADERS_TYPE)
    return encode_table(pa.table(columns))


def decode_table(body: bytes) -> pa.Table:
    return ipc.open_stream(body).read_all()


class LogReply(Reply):
    """One answer of the native API."""

    def __init__(self, response: Response) -> None:
        super().__init__(response)
        if self.status != 204:
            assert self.headers["log-version"] == "1"
            assert self.headers["cache-control"] == "no-store"

    @property
    def json(self) -> Any:
        assert self.headers["content-type"] == "application/json"
        return json.loads(self.body)

    @property
    def message(self) -> str:
        text: str = self.json["error"]["message"]
        return text

    @property
    def lines(self) -> list[dict[str, Any]]:
        assert self.headers["content-type"] == "application/x-ndjson"
        return [json.loads(line) for line in self.body.splitlines()]

    @property
    def table(self) -> pa.Table:
        assert self.headers["content-type"] == ARROW_TYPE
        return decode_table(self.body)


class LogDownload:
    """A streamed answer under way, read as slowly as the test likes."""

    def __init__(self, server: LogServer, response: Response, *, slow: bool = False) -> None:
        assert isinstance(response, StreamedResponse), response
        self.writer = Writer()
        self.writer.slow = slow
        self._server = server
        response.start(self.writer)
        self._run()

    def _run(self) -> None:
        """Until the client is slow, or the answer has ended."""
        writer = self.writer
        for _ in range(TURNS_MAX):
            if writer.full or writer.finished or writer.aborted:
                return
            self._server.runner.turn()
        raise AssertionError("the download does not come to rest")

    @property
    def received(self) -> bytes:
        return b"".join(bytes(part) for part in self.writer.writes)

    def drain(self) -> None:
        """The client has caught up."""
        self.writer.full = False
        assert self.writer.on_drain is not None
        self.writer.on_drain()
        self._run()


class LogServer(DurableServer):
    """Both dialects. Names without a bucket are of the one that is always there."""

    def __init__(
        self,
        store: Store | None = None,
        clock: FakeClock | None = None,
        **options: Any,
    ) -> None:
        super().__init__(store, clock)
        self.stats = Stats(self.engine)
        self.stats.start()
        self.log = LogDialect(self.engine, LogOptions(**options), self.stats)

    def ask(
        self, method: str, path: str, query: str = "", body: bytes = b"", /, **headers: str
    ) -> Response | Pending[Response]:
        """Send a request; what comes back may still be pending."""
        given = {
            name.replace("_", "-").encode(): value.encode("latin-1")
            for name, value in headers.items()
        }
        request = Request(method, f"{ROOT}/{path}", query, given, body=body)
        route = self.log.begin(request)
        return route.handle(request) if isinstance(route, Route) else route

    def fetch(
        self,
        path: str,
        query: str = "",
        /,
        *,
        method: str = "GET",
        body: bytes = b"",
        **headers: str,
    ) -> LogReply:
        """A whole answer, a streamed one included."""
        response = self.runner.result(self.ask(method, path, query, body, **headers))
        if isinstance(response, StreamedResponse) and method != "HEAD":
            download = LogDownload(self, response)
            assert download.writer.finished and not download.writer.aborted
            response = Response(
                response.status, response.headers, download.received, base=response.base
            )
        return LogReply(response)

    def records(self, name: str = "s", query: str = "", /, *, arrow: bool = False) -> LogReply:
        accept = ARROW_TYPE if arrow else "*/*"
        return self.fetch(f"records/{DURABLE_STREAMS_BUCKET}/{name}", query, accept=accept)

    def download(
        self, name: str = "s", query: str = "", /, *, slow: bool = False, arrow: bool = False
    ) -> LogDownload:
        accept: Headers = {"accept": ARROW_TYPE} if arrow else {}
        path = f"records/{DURABLE_STREAMS_BUCKET}/{name}"
        return LogDownload(
            self, self.runner.result(self.ask("GET", path, query, **accept)), slow=slow
        )

    def add(
        self,
        name: str,
        bodies: list[bytes],
        headers: list[Pairs] | None = None,
        /,
        **http_headers: str,
    ) -> LogReply:
        """Append records."""
        return self.send(name, encode_records(bodies, headers), **http_headers)

    def send(self, name: str, body: bytes, /, **headers: str) -> LogReply:
        """POST a body that is said to be Arrow."""
        reply = self.fetch(
            f"records/{DURABLE_STREAMS_BUCKET}/{name}",
            method="POST",
            body=body,
            **{"content_type": ARROW_TYPE, **headers},
        )
        self.settle()
        return reply

    def info(self, name: str = "s") -> Any:
        reply = self.fetch(f"info/{DURABLE_STREAMS_BUCKET}/{name}")
        assert reply.status == 200, reply
        return reply.json

    def listed(self, query: str = "") -> list[str]:
        """The names of the streams on one page."""
        reply = self.fetch("streams", query)
        assert reply.status == 200, reply
        return [stream["name"] for stream in reply.json["streams"]]

    # -- what the other dialect cannot make

    def submit(self, command: Command) -> Any:
        outcome = self.runner.result(self.runner.submit(command))
        self.settle()
        return outcome

    def make_in(
        self,
        bucket: str,
        name: str,
        *bodies: bytes,
        content_type: str = "text/plain",
        fork: tuple[str, str, Position | None, int] | None = None,
    ) -> None:
        """A stream of any bucket."""
        now = self.clock.now_ms()
        claim = None if fork is None else ForkClaim(*fork)
        kind = None if fork is not None else content_type
        self.submit(Create(bucket, name, now, content_type=kind, fork=claim))
        for body in bodies:
            self.submit(Append(bucket, name, self.clock.now_ms(), body=body))
