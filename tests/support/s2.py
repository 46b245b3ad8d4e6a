"""The S2 API in process, beside the Durable Streams dialect over the same engine.

A test names a stream and what it cares about; time moves only by `advance`. Every answer is
checked for what all answers must have. Streams of the basin `BASIN` unless a test says otherwise.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any, NamedTuple

import s2_sdk._generated.s2.v1.s2_pb2 as pb

from headwater.core.buckets import BucketConfig
from headwater.core.commands import Command, Provision, ProvisionBucket, ProvisionMode
from headwater.core.pending import Pending
from headwater.core.stream_config import StreamConfig, resolve
from headwater.dialects.s2.control import ControlPlane
from headwater.dialects.s2.data import DataPlane
from headwater.dialects.s2.routes import ROOT, S2Dialect, S2Options
from headwater.storage.store import Store
from headwater.wire.http import Request, Response, Route
from tests.support.clock import FakeClock
from tests.support.durable import DurableServer, LiveBody, Poll

BASIN = "basin-of-tests"
PROTOBUF = "application/protobuf"
SESSION = "s2s/proto"

TERMINAL, ZSTD, GZIP, RECONNECT = 0x80, 0x20, 0x40, 0x10
"""Bits of a frame's flag."""

CACHE_CONTROLS = ("no-cache, no-transform", "no-store, no-transform")
"""Of sessions over plain streams, and over encrypted ones."""

Pairs = list[tuple[bytes, bytes]]


def fence(token: str) -> dict[str, Any]:
    """A command record, for JSON in base64."""
    return {"headers": [["", encode("fence")]], "body": encode(token)}


def trim(seq: int) -> dict[str, Any]:
    point = base64.b64encode(seq.to_bytes(8, "big")).decode()
    return {"headers": [["", encode("trim")]], "body": point}


def encode(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def encode_frame(body: bytes, flag: int = 0) -> bytes:
    return (len(body) + 1).to_bytes(3, "big") + bytes((flag,)) + body


class Frame(NamedTuple):
    """One frame as a client sees it."""

    flag: int
    body: bytes

    @property
    def batch(self) -> Any:
        assert not self.flag & TERMINAL, self
        return pb.ReadBatch.FromString(self.body)

    @property
    def ack(self) -> Any:
        assert not self.flag & TERMINAL, self
        return pb.AppendAck.FromString(self.body)

    @property
    def status(self) -> int:
        assert self.flag & TERMINAL, self
        return int.from_bytes(self.body[:2], "big")

    @property
    def error(self) -> dict[str, Any]:
        assert self.flag & TERMINAL, self
        found: dict[str, Any] = json.loads(self.body[2:])
        return found


def split_frames(data: bytes) -> list[Frame]:
    """Everything written so far; a part of a frame is a mistake."""
    found = []
    while data:
        size = int.from_bytes(data[:3], "big")
        assert len(data) >= 3 + size >= 4, "a part of a frame"
        found.append(Frame(data[3], data[4 : 3 + size]))
        data = data[3 + size :]
    return found


class S2Reply:
    """One answer, with what every answer of this API must have already checked."""

    def __init__(self, response: Response) -> None:
        pairs = [*response.base.pairs, *response.headers]
        self.response = response
        self.status = response.status
        self.headers = {name.decode(): value.decode("latin-1") for name, value in pairs}
        body = response.body
        self.body = body if isinstance(body, bytes) else b"".join(bytes(part) for part in body)
        assert len(pairs) == len(self.headers), f"a header is sent twice: {pairs}"
        assert all(name == name.lower() for name in self.headers)
        assert self.headers["x-content-type-options"] == "nosniff"
        assert self.headers["access-control-allow-origin"] == "*"
        if self.status >= 400:
            assert self.headers["content-type"] == "application/json"
            assert self.headers["cache-control"] == "no-store"
            if self.status not in (412, 416):
                assert self.json.keys() == {"code", "message"}
                assert self.json["message"]

    def __repr__(self) -> str:
        return f"S2Reply({self.status}, {self.headers}, {self.body[:200]!r})"

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> str:
        """Of an error, with its status."""
        return f"{self.status} {self.json['code']}"

    @property
    def records(self) -> list[dict[str, Any]]:
        assert self.status == 200, self
        found: list[dict[str, Any]] = self.json["records"]
        return found

    @property
    def numbers(self) -> list[int]:
        return [record["seq_num"] for record in self.records]

    @property
    def bodies(self) -> list[str]:
        return [record.get("body", "") for record in self.records]

    @property
    def tail(self) -> int | None:
        """The number of the next record, if the answer tells the tail."""
        tail = self.json.get("tail")
        return None if tail is None else int(tail["seq_num"])

    @property
    def batch(self) -> Any:
        assert self.headers["content-type"] == PROTOBUF
        return pb.ReadBatch.FromString(self.body)

    @property
    def ack(self) -> Any:
        assert self.headers["content-type"] == PROTOBUF
        return pb.AppendAck.FromString(self.body)


class Session(LiveBody):
    """A session, or events, read as fast as the test likes."""

    def __init__(self, server: S2Server, response: Response, *, slow: bool = False) -> None:
        self.reply = S2Reply(response)
        assert self.reply.status == 200, self.reply
        assert self.reply.headers["cache-control"] in CACHE_CONTROLS
        assert self.reply.headers["x-accel-buffering"] == "no"
        super().__init__(server, response, slow=slow)

    @property
    def frames(self) -> list[Frame]:
        return split_frames(self.received)

    @property
    def numbers(self) -> list[int]:
        """Of the records that have come in frames."""
        return [
            record.seq_num
            for frame in self.frames
            if not frame.flag & TERMINAL
            for record in frame.batch.records
        ]

    @property
    def heartbeats(self) -> int:
        batches = [frame.batch for frame in self.frames if not frame.flag & TERMINAL]
        return sum(1 for batch in batches if not batch.records)

    def shut_down(self) -> None:
        """The server begins to stop."""
        assert self.writer.on_shutdown is not None
        self.writer.on_shutdown()
        self._server.settle()


class Upload:
    """A BodyReader whose client is the test."""

    def __init__(self) -> None:
        self.on_data: Callable[[bytes], None] | None = None
        self.on_end: Callable[[], None] | None = None
        self.on_abort: Callable[[], None] | None = None
        self.paused = False

    def pause(self) -> None:
        self.paused = True

    def resume(self) -> None:
        self.paused = False


class AppendClient(Session):
    """An append session."""

    def __init__(
        self, server: S2Server, response: Response, upload: Upload, *, slow: bool = False
    ) -> None:
        self.upload = upload
        super().__init__(server, response, slow=slow)

    def send(self, *bodies: bytes, settle: bool = True, **conditions: Any) -> None:
        """One batch of records."""
        records = [pb.AppendRecord(body=body) for body in bodies]
        self.send_input(pb.AppendInput(records=records, **conditions), settle=settle)

    def send_input(self, sent: Any, *, settle: bool = True) -> None:
        self.send_bytes(encode_frame(sent.SerializeToString()), settle=settle)

    def send_bytes(self, data: bytes, *, settle: bool = True) -> None:
        if self.upload.on_data is not None:
            self.upload.on_data(data)
        if settle:
            self._server.settle()

    def end(self) -> None:
        """Half-close: everything has been sent."""
        if self.upload.on_end is not None:
            self.upload.on_end()
        self._server.settle()

    def abort(self) -> None:
        assert self.upload.on_abort is not None
        self.upload.on_abort()
        self._server.settle()

    @property
    def acks(self) -> list[tuple[int, int, int]]:
        """Start, end and tail of each acknowledgement."""
        acks = [frame.ack for frame in self.frames if not frame.flag & TERMINAL]
        return [(ack.start.seq_num, ack.end.seq_num, ack.tail.seq_num) for ack in acks]


class S2Server(DurableServer):
    """Both dialects."""

    def __init__(
        self, store: Store | None = None, clock: FakeClock | None = None, **options: Any
    ) -> None:
        super().__init__(store, clock)
        self.s2 = S2Dialect(self.engine, S2Options(**options))
        self.data = DataPlane(self.engine, self.s2.options)
        self.s2.serve(self.data.handlers())
        self.s2.serve(ControlPlane(self.engine, self.s2.options).handlers())
        self.s2.serve_sessions(self.data.append_session)
        self.make_basin(BASIN)

    def submit(self, command: Command) -> Any:
        outcome = self.runner.result(self.runner.submit(command))
        self.settle()
        return outcome

    def make_basin(self, name: str, **config: Any) -> None:
        """Make a basin, or give it another configuration."""
        command = ProvisionBucket(
            name, "", self.clock.now_ms(), ProvisionMode.ENSURE, BucketConfig(**config)
        )
        self.submit(command)

    def make_stream(self, name: str = "s", *, basin: str = BASIN, **config: Any) -> None:
        resolved = resolve(StreamConfig(**config))
        now = self.clock.now_ms()
        self.submit(Provision(basin, name, now, ProvisionMode.ENSURE, resolved))

    # -- requests as they are

    def ask(
        self,
        method: str,
        path: str,
        query: str = "",
        body: bytes = b"",
        upload: Upload | None = None,
        /,
        **headers: str,
    ) -> Response | Pending[Response]:
        """Send a request; what comes back may still be pending."""
        given = {
            name.replace("_", "-").encode(): value.encode("latin-1")
            for name, value in {"s2_basin": BASIN, **headers}.items()
            if value
        }
        request = Request(method, f"{ROOT}/{path}", query, given, body=body)
        route = self.s2.begin(request)
        if not isinstance(route, Route):
            return route
        request.body_reader = upload if route.streams_body else None
        return route.handle(request)

    def fetch(
        self, method: str, path: str, query: str = "", body: bytes = b"", /, **headers: str
    ) -> S2Reply:
        return S2Reply(self.runner.result(self.ask(method, path, query, body, **headers)))

    def send(self, method: str, path: str, value: Any = None, /, **headers: str) -> S2Reply:
        """A request of the control plane, with a JSON body if there is a value."""
        body = b""
        if value is not None:
            body = json.dumps(value).encode()
            headers = {"content_type": "application/json", **headers}
        reply = self.fetch(method, path, "", body, **headers)
        self.settle()
        return reply

    # -- appending

    def add(
        self,
        name: str,
        *records: dict[str, Any] | str,
        format: str = "raw",
        basin: str = BASIN,
        match_seq_num: int | None = None,
        fencing_token: str | None = None,
        **headers: str,
    ) -> S2Reply:
        """POST records as JSON; a string is a record with that body."""
        rows = [{"body": record} if isinstance(record, str) else record for record in records]
        sent: dict[str, Any] = {"records": rows}
        if match_seq_num is not None:
            sent["match_seq_num"] = match_seq_num
        if fencing_token is not None:
            sent["fencing_token"] = fencing_token
        return self.post_json(
            name, json.dumps(sent).encode(), s2_format=format, s2_basin=basin, **headers
        )

    def post_json(self, name: str, body: bytes, /, **headers: str) -> S2Reply:
        given = {"content_type": "application/json", **headers}
        reply = self.fetch("POST", f"streams/{name}/records", "", body, **given)
        self.settle()
        return reply

    def post_protobuf(self, name: str, body: bytes, /, **headers: str) -> S2Reply:
        given = {"content_type": PROTOBUF, "accept": PROTOBUF, **headers}
        reply = self.fetch("POST", f"streams/{name}/records", "", body, **given)
        self.settle()
        return reply

    def fill(self, name: str, *bodies: str, seconds: float = 0.0) -> None:
        """Append each body by itself, so long apart."""
        for body in bodies:
            reply = self.add(name, body)
            assert reply.status == 200, reply
            if seconds:
                self.advance(seconds)

    # -- reading

    def read(self, query: str = "", /, *, name: str = "s", **headers: str) -> S2Reply:
        return self.fetch("GET", f"streams/{name}/records", query, **headers)

    def wait(self, query: str = "", /, *, name: str = "s", **headers: str) -> S2Poll:
        """A read that may have to wait."""
        poll = S2Poll()
        answer = self.ask("GET", f"streams/{name}/records", query, **headers)
        if isinstance(answer, Pending):
            poll.answer = answer
            answer.deliver(poll.settled)
            self.settle()
        else:
            poll.settled(answer)
        return poll

    def check_tail(self, name: str = "s", /, **headers: str) -> S2Reply:
        return self.fetch("GET", f"streams/{name}/records/tail", **headers)

    def session(
        self, query: str = "", /, *, name: str = "s", slow: bool = False, **headers: str
    ) -> Session:
        answer = self.ask("GET", f"streams/{name}/records", query, content_type=SESSION, **headers)
        return Session(self, self.runner.result(answer), slow=slow)

    def events(
        self, query: str = "", /, *, name: str = "s", slow: bool = False, **headers: str
    ) -> Session:
        answer = self.ask(
            "GET", f"streams/{name}/records", query, accept="text/event-stream", **headers
        )
        return Session(self, self.runner.result(answer), slow=slow)

    def append_session(
        self, name: str = "s", /, *, slow: bool = False, **headers: str
    ) -> AppendClient:
        upload = Upload()
        answer = self.ask(
            "POST", f"streams/{name}/records", "", b"", upload, content_type=SESSION, **headers
        )
        return AppendClient(self, self.runner.result(answer), upload, slow=slow)


class S2Poll(Poll):
    """One read that waits."""

    @property
    def found(self) -> S2Reply:
        assert self._outcome is not None, "no answer yet"
        if isinstance(self._outcome, Exception):
            raise self._outcome
        return S2Reply(self._outcome)
