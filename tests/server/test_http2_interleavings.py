"""Any order of what clients do on their streams, with `h2` to say whether the rules are kept."""

from __future__ import annotations

from h2.settings import SettingCodes
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.server.http2_connection import CONNECTION_WINDOW_BYTES
from headwater.wire.http import Answer, BodyWriter, Request, StreamedResponse
from tests.server.http2_harness import Client, Http2Harness

STREAMS = 4


def echo(request: Request) -> Answer:
    """Sends the body back as it comes, and reads no faster than that goes."""
    reader = request.body_reader
    assert reader is not None

    def start(writer: BodyWriter) -> None:
        def on_data(data: bytes) -> None:
            if not writer.write(data):
                reader.pause()

        reader.on_data, reader.on_end = on_data, writer.finish
        writer.on_drain = reader.resume

    return StreamedResponse(200, (), start)


class Session:
    """Four echoing streams of one client that gives window only when it is told to."""

    def __init__(self, window: int) -> None:
        self.harness = Http2Harness()
        self.harness.application.streams_body = True
        self.harness.application.body_bytes_max = 1 << 30
        self.harness.application.answer = echo
        self.client: Client = self.harness.client(
            settings={SettingCodes.INITIAL_WINDOW_SIZE: window}, credits=False
        )
        self.window = window
        self.ids = [self.client.open("POST", f"/{n}", ends=False) for n in range(STREAMS)]
        self.sent = dict.fromkeys(self.ids, b"")
        self.reset: set[int] = set()
        self.ended: set[int] = set()

    def act(self, kind: str, stream: int, size: int) -> None:
        if kind == "send" and stream not in self.ended | self.reset:
            data = bytes(
                n % 251 for n in range(len(self.sent[stream]), len(self.sent[stream]) + size)
            )
            self.client.send_data(stream, data)
            self.sent[stream] += data
        elif kind == "end" and stream not in self.ended | self.reset:
            self.client.send_data(stream, b"", ends=True)
            self.ended.add(stream)
        elif kind == "reset" and stream not in self.reset and not self.client.got(stream).ended:
            self.client.h2.reset_stream(stream)
            self.reset.add(stream)
        elif kind == "credit" and stream not in self.reset and not self.client.got(stream).ended:
            self.client.h2.increment_flow_control_window(size + 1, stream)
        elif kind == "credit all":
            self.client.h2.increment_flow_control_window(size + 1)
        elif kind == "window":
            # Never smaller: a window below zero may still see an empty DATA frame that ends the
            # stream (RFC 9113 §6.9), but h2 takes that for an error.
            self.window = max(size, self.window)
            self.client.h2.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: self.window})
        elif kind == "stall":
            self.client.peer.transport.stalled = True
        elif kind == "release":
            self.release()
        self.client.exchange()

    def release(self) -> None:
        self.client.peer.transport.stalled = False
        self.client.peer.transport.flush()

    def finish(self) -> None:
        self.release()
        for stream in self.ids:
            self.act("end", stream, 0)
        self.act("credit all", 0, 1 << 20)
        for stream in self.ids:
            self.act("credit", stream, 1 << 20)


KINDS = ["send", "send", "end", "reset", "credit", "credit all", "window", "stall", "release"]


@settings(max_examples=150, deadline=None)
@given(
    window=st.sampled_from([0, 1, 100, 20_000]),
    actions=st.lists(
        st.tuples(
            st.sampled_from(KINDS),
            st.integers(0, STREAMS - 1),
            st.sampled_from([0, 1, 50, 3000, 16_384]),
        ),
        max_size=30,
    ),
)
def test_every_stream_gets_back_what_it_sent(
    window: int, actions: list[tuple[str, int, int]]
) -> None:
    session = Session(window)
    for kind, number, size in actions:
        session.act(kind, session.ids[number], size)
    session.finish()
    client = session.client
    for stream in session.ids:
        got = client.got(stream)
        assert session.sent[stream].startswith(got.body)
        if stream not in session.reset:
            assert (got.body, got.ended, got.reset) == (session.sent[stream], True, None)
    assert client.goaway is None
    [connection] = session.harness.server.serving.connections
    output = getattr(connection, "output")  # noqa: B009 - the set holds two kinds
    assert (output.unsent_bytes, output.waiting) == (0, {})
    # All that was consumed is given back, or will be with the next quarter of the window.
    lent = CONNECTION_WINDOW_BYTES - client.h2.outbound_flow_control_window
    assert 0 <= lent <= CONNECTION_WINDOW_BYTES // 4
