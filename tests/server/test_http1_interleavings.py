"""Everything at once: requests in pieces, answers late, readers slow, drains and disconnects.

Whatever the order of events, each answer is whole, belongs to its request, and comes in its turn.
"""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import example, given, settings
from hypothesis import strategies as st

from headwater.core.pending import Pending
from headwater.server.serving import ServerLimits
from headwater.wire.http import BodyWriter, Request, Response, Route, StreamedResponse
from tests.server.http1_harness import Harness, chunked, parse_replies, request

LIMITS = ServerLimits(
    write_buffer_bytes_high=500,
    write_buffer_bytes_low=100,
    pipeline_requests_max=2,
    pipeline_bytes_max=50,
)
KINDS = ["plain", "large", "pending", "live", "late", "upload", "duplex"]


class Busy:
    """Answers by the kind of request that its path names; what it owes is kept in `owed`."""

    def __init__(self) -> None:
        self.owed: list[Callable[[], None]] = []
        self.handled: list[str] = []

    def begin(self, asked: Request) -> Route | Response:
        streams = asked.path.startswith(("/upload", "/duplex"))
        return Route(self.handle, body_bytes_max=1000, streams_body=streams)

    def refuse(self, status: int, message: str, request: Request | None = None) -> Response:
        return Response(status, (), message.encode())

    def handle(self, asked: Request) -> Response | Pending[Response]:
        self.handled.append(asked.path)
        kind = asked.path.split("-")[0]
        text = asked.path.encode()
        if kind == "/plain":
            return Response(200, (), text)
        if kind == "/large":
            return Response(200, (), text + b"x" * 2000)
        if kind == "/live":
            return StreamedResponse(200, (), lambda writer: self._owe_pieces(writer, text))
        if kind == "/upload":
            return self._answer_upload(asked)
        if kind == "/duplex":
            return StreamedResponse(200, (), lambda writer: self._echo(asked, writer))
        pending = Pending[Response]()
        late = Response(200, (), text)
        if kind == "/late":
            late = StreamedResponse(200, (), lambda writer: self._owe_pieces(writer, text))
        self.owed.append(lambda: pending.resolve(late))
        return pending

    def _owe_pieces(self, writer: BodyWriter, text: bytes) -> None:
        self.owed.append(lambda: (writer.write(text), None)[1])
        self.owed.append(writer.finish)

    def _answer_upload(self, asked: Request) -> Pending[Response]:
        pending = Pending[Response]()
        reader = asked.body_reader
        text = asked.path.encode()
        if reader is None:
            pending.resolve(Response(200, (), text))
            return pending
        reader.on_data = lambda data: None
        reader.on_end = lambda: pending.resolve(Response(200, (), text))
        reader.pause()
        self.owed.append(reader.resume)
        return pending

    def _echo(self, asked: Request, writer: BodyWriter) -> None:
        writer.write(asked.path.encode())
        reader = asked.body_reader
        if reader is None:
            writer.finish()
            return
        reader.on_data = lambda data: (writer.write(data), None)[1]
        reader.on_end = writer.finish


ACTIONS = st.one_of(
    st.tuples(st.just("send"), st.integers(1, 300)),
    st.tuples(st.just("settle"), st.integers(0, 3)),
    st.tuples(st.sampled_from(["stall", "flow"]), st.just(0)),
    st.tuples(st.just("flush"), st.integers(1, 1000)),
    st.tuples(st.just("sweep"), st.just(0)),
)
ENDINGS = st.sampled_from(["none", "none", "eof", "vanish", "drain"])


def build(number: int, kind: str, size: int, in_chunks: bool) -> bytes:
    body = b"b" * size
    path = f"/{kind}-{number}"
    if in_chunks:
        return request("POST", path, "transfer-encoding: chunked") + chunked(*[body] * bool(body))
    return request("POST", path, body=body)


class Run:
    """One connection, and the events that happen to it."""

    def __init__(self, kinds: list[tuple[str, int, bool]]) -> None:
        self.harness = Harness(limits=LIMITS)
        self.busy = Busy()
        self.harness.server.serving.application = self.busy
        self.peer = self.harness.connect()
        self.transport = self.peer.transport
        self.paths = [f"/{kind}-{number}" for number, (kind, _, _) in enumerate(kinds)]
        self.unsent = b"".join(build(number, *kind) for number, kind in enumerate(kinds))

    def act(self, action: str, amount: int) -> None:
        if action == "send":
            self.send(amount)
        elif action == "settle":
            self.settle()
        elif action == "flush":
            self.transport.flush(amount)
        elif action == "sweep":
            self.harness.wait(1)
        else:
            self.transport.stalled = action == "stall"
        self.harness.loop.run()

    def send(self, amount: int) -> None:
        piece, self.unsent = self.unsent[:amount], self.unsent[amount:]
        if piece:
            self.peer.send(piece)

    def settle(self) -> None:
        if self.busy.owed:
            self.busy.owed.pop(0)()
        self.harness.loop.run()

    def end(self, ending: str) -> None:
        if ending == "eof":
            self.peer.end_input()
        elif ending == "vanish":
            self.peer.vanish()
        elif ending == "drain":
            self.harness.drain()
        else:
            self.send(len(self.unsent))
        self.transport.stalled = False
        while self.busy.owed or self.transport.unsent:
            self.transport.flush()
            self.settle()


@given(
    kinds=st.lists(
        st.tuples(st.sampled_from(KINDS), st.integers(0, 200), st.booleans()),
        min_size=1,
        max_size=6,
    ),
    actions=st.lists(ACTIONS, max_size=40),
    ending=ENDINGS,
)
@settings(max_examples=300, deadline=None)
@example(kinds=[("late", 0, False), ("upload", 1, False)], actions=[("send", 89)], ending="eof")
@example(
    kinds=[("large", 1, False), ("upload", 1, False)],
    actions=[("stall", 0), ("send", 110)],
    ending="eof",
)
def test_every_order_of_events(
    kinds: list[tuple[str, int, bool]], actions: list[tuple[str, int]], ending: str
) -> None:
    run = Run(kinds)
    for action, amount in actions:
        run.act(action, amount)
    run.end(ending)

    assert run.busy.handled == run.paths[: len(run.busy.handled)]
    if ending == "vanish":
        return
    replies = parse_replies(bytes(run.transport.sent))
    for path, reply in zip(run.paths, replies, strict=False):
        assert reply.status == 200
        assert reply.body.startswith(path.encode()) or not reply.whole or ending == "drain"
    assert all(reply.whole for reply in replies[:-1])
    if ending == "none":
        assert [reply.whole for reply in replies] == [True] * len(run.paths)
        assert run.transport.reading
    else:
        run.harness.wait(100)
        assert run.transport.lost
        assert run.harness.server.serving.connections == set()
