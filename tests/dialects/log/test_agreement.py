"""One stream, many ways to read it: Arrow, lines of JSON, Durable Streams, S2. They agree, whatever
was written, by whichever API, forked, packed, or opened again.
"""

from __future__ import annotations

import base64
import json
from contextlib import ExitStack
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from headwater.core.names import DURABLE_STREAMS_BUCKET
from headwater.core.records import COMMAND, CONTINUES
from headwater.dialects.s2.data import DataPlane
from headwater.dialects.s2.routes import ROOT as S2_ROOT
from headwater.dialects.s2.routes import S2Dialect, S2Options
from headwater.wire.http import Request, Response, Route
from tests.support.clock import FakeClock
from tests.support.durable import BYTES, JSON, NOW_MS, producer
from tests.support.engines import small_sizes
from tests.support.log import LogServer, Pairs

STREAMS_MAX = 6

texts = st.integers(0, 40).flatmap(
    lambda size: st.sampled_from([b"a", b"b", b"\xff", "é".encode()]).map(
        lambda letter: (letter * size)[:size]
    )
)
values = st.one_of(
    st.integers(0, 99).map(lambda number: b"%d" % number),
    st.integers(1, 40).map(lambda size: b'"%b"' % (b"x" * size)),
    st.just(b'{"a": [1,\n 2]}'),
)
pairs = st.lists(st.tuples(st.sampled_from([b"k", b"\xff"]), st.binary(max_size=3)), max_size=2)


class S2View:
    """The S2 API over the engine of a server, for the streams of `/v1/stream/`."""

    def __init__(self, server: LogServer) -> None:
        self._server = server
        self._s2 = S2Dialect(server.engine, S2Options())
        self._s2.serve(DataPlane(server.engine, self._s2.options).handlers())

    def send(self, method: str, name: str, query: str = "", body: bytes = b"") -> Response:
        given = {
            b"s2-basin": DURABLE_STREAMS_BUCKET.encode(),
            b"s2-format": b"base64",
            b"content-type": b"application/json",
        }
        request = Request(method, f"{S2_ROOT}/streams/{name}/records", query, given, body=body)
        route = self._s2.begin(request)
        assert isinstance(route, Route), route
        return self._server.runner.result(route.handle(request))

    def append(self, name: str, rows: list[tuple[bytes, Pairs]]) -> None:
        records = [
            {"body": encode(body), "headers": [[encode(one), encode(two)] for one, two in pairs]}
            for body, pairs in rows
        ]
        reply = self.send("POST", name, body=json.dumps({"records": records}).encode())
        assert reply.status == 200, (reply.status, reply.body)
        self._server.settle()

    def rows(self, name: str) -> list[dict[str, Any]]:
        """Every record, as Arrow has it but for the flags."""
        found: list[dict[str, Any]] = []
        while True:
            reply = self.send("GET", name, f"seq_num={len(found)}&count=7")
            if reply.status == 416:
                return found
            assert reply.status == 200, (reply.status, reply.body)
            body = reply.body if isinstance(reply.body, bytes) else b"".join(reply.body)
            found += map(as_row, json.loads(body)["records"])


def as_row(record: dict[str, Any]) -> dict[str, Any]:
    headers = record.get("headers", [])
    return {
        "seq_num": record["seq_num"],
        "timestamp": record["timestamp"],
        "body": decode(record.get("body", "")),
        "headers": [{"name": decode(name), "value": decode(value)} for name, value in headers],
    }


def encode(data: bytes) -> str:
    return base64.b64encode(data).decode()


def decode(text: str) -> bytes:
    return base64.b64decode(text)


class Readers(RuleBasedStateMachine):
    """Writes through all dialects; looks at everything in every form now and then."""

    @initialize()
    def begin(self) -> None:
        self.cleanup = ExitStack()
        self.cleanup.enter_context(small_sizes())
        self.clock = FakeClock(NOW_MS)
        self.server = LogServer(clock=self.clock)
        self.s2 = S2View(self.server)
        self.kinds = {"bytes": BYTES, "json": JSON}
        self.offsets = {
            name: [self.server.make(name, content_type=kind)] for name, kind in self.kinds.items()
        }
        self.batches = 0

    def messages(self, data: st.DataObject, name: str) -> list[bytes]:
        kind = values if self.kinds[name] == JSON else texts
        return data.draw(st.lists(kind, min_size=1, max_size=4))

    @rule(data=st.data())
    def append_messages(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.kinds)))
        found = self.messages(data, name)
        bodies = [b"[%b]" % b",".join(found)] if self.kinds[name] == JSON else found
        for body in bodies:
            if body:
                self.offsets[name].append(self.server.append(name, body))

    @rule(data=st.data(), with_headers=st.booleans(), with_producer=st.booleans())
    def append_records(self, data: st.DataObject, with_headers: bool, with_producer: bool) -> None:
        name = data.draw(st.sampled_from(sorted(self.kinds)))
        bodies = self.messages(data, name)
        headers: list[Pairs] | None = None
        if with_headers:
            headers = [data.draw(pairs) for _ in bodies]
        self.batches += 1
        claim = producer(f"p{self.batches}") if with_producer else {}
        reply = self.server.add(name, bodies, headers, **claim)
        assert reply.status == 200, reply
        self.offsets[name].append(reply.json["tail"]["offset"])

    @rule(data=st.data(), fenced=st.booleans())
    def append_by_s2(self, data: st.DataObject, fenced: bool) -> None:
        name = data.draw(st.sampled_from(sorted(self.kinds)))
        rows: list[tuple[bytes, Pairs]] = [
            (body, data.draw(pairs)) for body in self.messages(data, name)
        ]
        if fenced:
            rows.insert(data.draw(st.integers(0, len(rows))), (b"", [(b"", b"fence")]))
        self.s2.append(name, rows)
        tail = self.server.head(name).next
        if fenced:
            self.offsets[name].clear()  # a fork counts messages, which a command is not
        self.offsets[name].append(tail)

    @rule(data=st.data())
    def fork(self, data: st.DataObject) -> None:
        """Somewhere in a stream: between two appends, or inside the one that follows."""
        source = data.draw(st.sampled_from(sorted(self.kinds)))
        name = f"fork{len(self.kinds)}"
        if len(self.kinds) == STREAMS_MAX:
            return
        offsets = self.offsets[source]
        at = data.draw(st.integers(0, len(offsets) - 1))
        step = 0
        if at + 1 < len(offsets) and data.draw(st.booleans()):
            bytes_added = int(offsets[at + 1][17:]) - int(offsets[at][17:])
            step = 1 if self.kinds[source] == JSON else data.draw(st.integers(0, bytes_added))
        made = self.server.fork(
            name,
            source,
            stream_fork_offset=offsets[at],
            stream_fork_sub_offset=str(step),
        )
        self.kinds[name] = self.kinds[source]
        self.offsets[name] = [*offsets[:at], *sorted({offsets[at], made})]

    @rule(seconds=st.integers(1, 3))
    def wait(self, seconds: int) -> None:
        self.clock.advance(seconds)

    @rule()
    def reopen(self) -> None:
        before = {name: self.forms(name) for name in self.kinds}
        types = self.server._types  # noqa: SLF001
        self.server.settle()
        self.server.runner.abandon()
        self.server = LogServer(self.server.engine.store, self.clock)
        self.s2 = S2View(self.server)
        self.server._types = types  # noqa: SLF001
        assert {name: self.forms(name) for name in self.kinds} == before

    def forms(self, name: str) -> tuple[bytes, bytes]:
        return (self.server.records(name).body, self.server.content(name))

    @rule()
    def look(self) -> None:
        for name in self.kinds:
            self.look_at(name)

    def look_at(self, name: str) -> None:
        records = self.check_forms(name, "view=records")
        messages = self.check_forms(name, "view=messages")
        info = self.server.info(name)
        assert [row["seq_num"] for row in records] == list(range(info["tail"]["seq_num"]))
        assert self.s2.rows(name) == numbered_parts(records)
        assert joined(records) == [row["body"] for row in messages]
        assert len(messages) == info["tail"]["messages"]
        bodies = [row["body"] for row in messages]
        assert sum(map(len, bodies)) == info["bytes"]
        if self.kinds[name] == JSON:
            assert (
                json.loads(self.server.content(name).replace(b"][", b","))
                == [json.loads(body) for body in bodies]
                or not bodies
            )
        else:
            assert self.server.content(name) == b"".join(bodies)
        self.check_ranges(name, records, messages)

    def check_forms(self, name: str, query: str) -> list[dict[str, Any]]:
        """Arrow and lines of the same records."""
        lines = [plain(line) for line in self.server.records(name, query).lines]
        table = self.server.records(name, query, arrow=True).table.to_pylist()
        for row, line in zip(table, lines, strict=True):
            row["timestamp"] = round(row["timestamp"].timestamp() * 1000)
            if "value" in line:
                value = line.pop("value")
                line["body"] = row["body"]
                assert json.loads(row["body"]) == value
        assert table == lines
        return table  # type: ignore[no-any-return]

    def check_ranges(
        self, name: str, records: list[dict[str, Any]], messages: list[dict[str, Any]]
    ) -> None:
        end = len(records)
        for low, high in ((0, end // 2), (end // 2, end), (min(1, end), end), (end // 3, end // 2)):
            assert self.check_forms(name, f"from={low}&to={high}") == records[low:high]
            inside = [row for row in messages if low <= row["seq_num"] < high]
            assert self.check_forms(name, f"view=messages&from={low}&to={high}") == inside
            query = f"view=messages&from={low}&to={high}&limit=2"
            assert self.check_forms(name, query) == inside[:2]
        for at_ms in {row["timestamp"] for row in records[:: max(1, end // 2)]}:
            later = [row for row in records if row["timestamp"] >= at_ms]
            assert self.check_forms(name, f"from_time={at_ms}") == later
            assert self.check_forms(name, f"to_time={at_ms}") == records[: end - len(later)]

    def teardown(self) -> None:
        if hasattr(self, "cleanup"):
            with self.cleanup:
                try:
                    self.look()
                    self.reopen()
                finally:
                    self.server.runner.abandon()


def plain(line: dict[str, Any]) -> dict[str, Any]:
    """A line as Arrow has it."""
    found = {name: line[name] for name in ("seq_num", "timestamp", "flags")}
    if "value" in line:
        found["value"] = line["value"]
    else:
        found["body"] = text(line, "body")
    found["headers"] = [
        {"name": text(header, "name"), "value": text(header, "value")} for header in line["headers"]
    ]
    return found


def text(fields: dict[str, Any], name: str) -> bytes:
    encoded = fields.get(f"{name}_base64")
    if encoded is not None:
        return base64.b64decode(encoded)
    return str(fields[name]).encode()


def numbered_parts(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same records as S2 shows them: without flags, and parts of a message are numbered."""
    found: list[dict[str, Any]] = []
    parts: list[dict[str, Any]] = []
    for row in records:
        shown = {name: value for name, value in row.items() if name != "flags"}
        found.append(shown)
        parts.append(shown)
        if row["flags"] & CONTINUES:
            continue
        for number, part in enumerate(parts if len(parts) > 1 else (), 1):
            header = {"name": b"headwater-part", "value": b"%d/%d" % (number, len(parts))}
            part["headers"] = [*part["headers"], header]
        parts = []
    return found


def joined(records: list[dict[str, Any]]) -> list[bytes]:
    found, parts = [], []
    for row in records:
        if row["flags"] & COMMAND:
            continue
        parts.append(row["body"])
        if not row["flags"] & CONTINUES:
            found.append(b"".join(parts))
            parts = []
    assert not parts
    return found


TestReaders = Readers.TestCase
TestReaders.settings = settings(
    max_examples=30,
    stateful_step_count=20,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
