"""An HTTP/2 client for the server without sockets: the `h2` library, which also judges us."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypeVar

import h2.config
import h2.connection
import h2.events
import h2.settings
from h2.settings import SettingCodes
from hyperframe.frame import Frame

from headwater.server.http2 import serve_http2
from headwater.server.serving import ResponseHook, ServerLimits
from tests.server.http1_harness import Harness, Peer

F = TypeVar("F", bound=Frame)


@dataclass
class Got:
    """What one stream received."""

    headers: dict[str, str] = field(default_factory=dict)
    informational: list[str] = field(default_factory=list)
    body: bytes = b""
    frames: int = 0
    ended: bool = False
    reset: int | None = None

    @property
    def status(self) -> int:
        return int(self.headers[":status"])


class Client:
    """The client's end of one connection. `h2` raises if the server breaks the protocol."""

    def __init__(
        self,
        peer: Peer,
        *,
        settings: dict[SettingCodes, int] | None = None,
        credits: bool = True,
        greets: bool = True,
    ) -> None:
        config = h2.config.H2Configuration(header_encoding="utf-8")
        config.validate_outbound_headers = False
        config.normalize_outbound_headers = False
        self.h2 = h2.connection.H2Connection(config)
        self.peer = peer
        self.streams: dict[int, Got] = {}
        self.events: list[h2.events.Event] = []
        self.goaway: tuple[int, int | None] | None = None
        self.pings = 0
        self._credits = credits
        self._seen = 0
        if settings:
            self.h2.local_settings = h2.settings.Settings(client=True, initial_values=settings)
        if greets:
            self.h2.initiate_connection()
            self.exchange()

    def exchange(self) -> None:
        """Move bytes both ways until nobody has more to say."""
        while True:
            out = self.h2.data_to_send()
            if out and not self.peer.transport.is_closing():
                self.peer.send(out)
            else:
                self.peer.send()
            new = bytes(self.peer.transport.sent[self._seen :])
            self._seen += len(new)
            if not new and not out:
                return
            if new:
                for event in self.h2.receive_data(new):
                    self._note(event)

    def _note(self, event: h2.events.Event) -> None:
        self.events.append(event)
        if isinstance(event, h2.events.ConnectionTerminated):
            self.goaway = (event.last_stream_id or 0, event.error_code)
        elif isinstance(event, h2.events.PingAckReceived):
            self.pings += 1
        stream_id = getattr(event, "stream_id", None)
        if not stream_id:
            return
        got = self.streams.setdefault(stream_id, Got())
        if isinstance(event, h2.events.ResponseReceived):
            assert not got.headers
            got.headers = {str(name): str(value) for name, value in event.headers or ()}
        elif isinstance(event, h2.events.InformationalResponseReceived):
            got.informational += [str(v) for n, v in event.headers or () if str(n) == ":status"]
        elif isinstance(event, h2.events.DataReceived):
            got.body += event.data or b""
            got.frames += 1
            if self._credits and event.flow_controlled_length:
                self.h2.acknowledge_received_data(event.flow_controlled_length, stream_id)
        elif isinstance(event, h2.events.StreamEnded):
            got.ended = True
        elif isinstance(event, h2.events.StreamReset):
            got.reset = int(event.error_code or 0)

    def open(
        self,
        method: str = "GET",
        path: str = "/",
        *headers: tuple[str, str],
        body: bytes | None = None,
        ends: bool = True,
    ) -> int:
        stream_id: int = self.h2.get_next_available_stream_id()
        fields = [(":method", method), (":scheme", "http"), (":authority", "a"), (":path", path)]
        self.h2.send_headers(stream_id, [*fields, *headers], end_stream=ends and body is None)
        if body is not None:
            self.h2.send_data(stream_id, body, end_stream=ends)
        self.exchange()
        return stream_id

    def send_data(self, stream_id: int, data: bytes, *, ends: bool = False) -> None:
        self.h2.send_data(stream_id, data, end_stream=ends)
        self.exchange()

    def got(self, stream_id: int) -> Got:
        self.exchange()
        return self.streams.setdefault(stream_id, Got())

    def ask(
        self, method: str, path: str, *headers: tuple[str, str], body: bytes | None = None
    ) -> Got:
        return self.got(self.open(method, path, *headers, body=body))

    def raw(self, *frames: bytes) -> list[Frame]:
        """Send what `h2` would not send; returns what came back, which `h2` does not see."""
        self.peer.send(*frames)
        new = bytes(self.peer.transport.sent[self._seen :])
        self._seen += len(new)
        return parse_frames(new)


def parse_frames(data: bytes) -> list[Frame]:
    frames: list[Frame] = []
    while data:
        frame, size = Frame.parse_frame_header(memoryview(data[:9]))
        frame.parse_body(memoryview(data[9 : 9 + size]))
        frames.append(frame)
        data = data[9 + size :]
    return frames


def find(frames: list[Frame], kind: type[F]) -> F:
    """The one frame of a kind."""
    [found] = [frame for frame in frames if isinstance(frame, kind)]
    return found


class Http2Harness(Harness):
    """A server that speaks HTTP/2."""

    def __init__(
        self, *, limits: ServerLimits | None = None, on_response: ResponseHook | None = None
    ) -> None:
        super().__init__(limits=limits, on_response=on_response)
        serve_http2(self.server.serving, self.loop.call_soon)

    def client(self, **options: Any) -> Client:
        return Client(self.connect(), **options)
