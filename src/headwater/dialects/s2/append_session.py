"""Append sessions: batches in, acknowledgements out, as fast as commits go. S2 API: sessions.

What arrives while a commit is under way goes to the engine as one series, as soon as the answer
to the series before is there. So many batches share a commit, order is kept, and nothing behind a
refused batch takes effect, since a series ends with its first refusal and no other is in flight.

A client that sends more than is taken is not read from: flow control is the back-pressure. What
all sessions together have in memory is bounded too. Frames are unpacked only as there is room for
what is in them.
"""

from __future__ import annotations

import logging
from collections import deque

from headwater.core.append import SeriesAppended
from headwater.core.buckets import BucketConfig
from headwater.core.commands import AppendRecords, AppendSeries
from headwater.core.errors import PermissionDenied, StreamNotFound, Unauthenticated
from headwater.core.limits import MIB
from headwater.core.pending import Pending
from headwater.core.stream_config import StreamConfig
from headwater.core.types import StreamId
from headwater.dialects.access import require_live
from headwater.dialects.s2.appends import make_ack, make_command, permit, tail_now
from headwater.dialects.s2.errors import Refused, explain
from headwater.dialects.s2.forms import encode_failure
from headwater.dialects.s2.requests import decode_input
from headwater.dialects.s2.responses import SESSION_HEADERS, render_session
from headwater.dialects.s2.session import Session
from headwater.dialects.s2.streams import after, find_basin, make_stream
from headwater.dialects.s2.targets import Target
from headwater.engine.engine import Engine
from headwater.engine.sealing import take_key
from headwater.engine.steps import follow
from headwater.engine.streams import Stream
from headwater.wire.headers import ENCRYPTION_KEY
from headwater.wire.http import Answer, BodyReader, Request, Response
from headwater.wire.s2 import frames, protobuf
from headwater.wire.s2.frames import FrameReader
from headwater.wire.s2.records import WireError

log = logging.getLogger("headwater.s2")

SERIES_BYTES_MAX = 4 * MIB
"""Of one series: about what a commit takes."""
WAITING_BYTES_MAX = 4 * MIB
WAITING_BATCHES_MAX = 10_000
"""Decoded and not submitted, per session. Beyond it the client is not read from."""
SESSIONS_BYTES_MAX = 128 * MIB
"""Submitted and not acknowledged, of all sessions: well within the engine's queue."""
SESSIONS_WAITING_BYTES_MAX = 128 * MIB
"""Decoded and not submitted, of all sessions. Beyond it each may have one batch."""


class AppendSessions:
    """The append sessions of one server, while they last."""

    def __init__(self, engine: Engine, *, series_bytes_max: int = SERIES_BYTES_MAX) -> None:
        """A series of `series_bytes_max` must fit the engine's queue."""
        self.engine = engine
        self.series_bytes_max = series_bytes_max
        self.submitted_bytes = 0
        self.waiting_bytes = 0
        self._waiting: deque[AppendSession] = deque()
        """Those that have something to submit, and no room to."""
        self._releasing = False

    def open(self, request: Request, target: Target, config: StreamConfig | None) -> Answer:
        """Answer a request with a session. Raises what an append would be refused with."""
        engine = self.engine
        basin = find_basin(engine, target.basin)

        def look() -> Stream | None:
            try:
                return engine.open(*target)
            except StreamNotFound:
                if not basin.create_on_append:
                    raise
                return None  # made with its first batch: what cannot be read makes no stream

        def begin(stream: Stream | None) -> Response:
            cipher = basin.stream_cipher if stream is None else stream.state.cipher
            if cipher is not None:
                take_key(cipher, request.headers.get(ENCRYPTION_KEY))
            session = AppendSession(self, request, target, basin, config, stream)
            return render_session(session.start, SESSION_HEADERS, sealed=False)

        return follow(engine.when_settled(*target, look), begin)

    def has_room(self) -> bool:
        return self.submitted_bytes < SESSIONS_BYTES_MAX

    def wait(self, session: AppendSession) -> None:
        self._waiting.append(session)

    def release(self, size: int) -> None:
        self.submitted_bytes -= size
        if self._releasing:  # by a session that was refused as soon as it had room
            return
        self._releasing = True
        try:
            while self._waiting and self.has_room():
                self._waiting.popleft().room()
        finally:
            self._releasing = False


class AppendSession(Session):
    """One session."""

    __slots__ = (
        "_advising",
        "_basin",
        "_config",
        "_ended",
        "_failure",
        "_frames",
        "_flying_bytes",
        "_paused",
        "_queued",
        "_reader",
        "_request",
        "_sessions",
        "_stream_id",
        "_target",
        "_waiting",
        "_waiting_bytes",
    )

    def __init__(
        self,
        sessions: AppendSessions,
        request: Request,
        target: Target,
        basin: BucketConfig,
        config: StreamConfig | None,
        stream: Stream | None,
    ) -> None:
        super().__init__(sessions.engine)
        self._sessions = sessions
        self._target = target
        self._basin = basin
        self._config = config
        self._stream_id: StreamId | None = None if stream is None else stream.state.id
        self._request = request
        self._reader: BodyReader | None = request.body_reader
        self._frames = FrameReader()
        self._waiting: deque[tuple[AppendRecords, int]] = deque()
        """Decoded, and not submitted; with their sizes."""
        self._waiting_bytes = 0
        self._flying_bytes: int | None = None
        """Of the series in flight, if one is."""
        self._failure: Exception | None = None
        """Why nothing more is taken; told once all before it is acknowledged."""
        self._ended = False
        """The client has sent everything."""
        self._paused = self._queued = self._advising = False

    def _begin(self) -> None:
        """Take what comes."""
        reader = self._reader
        if reader is None:  # the body came whole
            self._receive(self._request.body)
            self._end()
            return
        reader.on_data = self._receive
        reader.on_end = self._end
        reader.on_abort = self._stop

    # -- what arrives

    def _receive(self, data: bytes) -> None:
        if self._failure is None:
            self._frames.feed(data)
            self._go_on()

    def _end(self) -> None:
        self._ended = True
        self._go_on()

    def _unpack(self) -> None:
        """Take the batches that are there, as many as may wait."""
        try:
            while self._failure is None and not self._is_full:
                body = self._frames.next_body()
                if body is not None:
                    self._take(body)
                    continue
                if self._ended and not self._frames.is_empty:
                    self._failure = Refused("bad_frame", "the session ends inside a frame")
                return
        except WireError as error:
            self._failure = Refused("bad_frame", str(error))
        except (Refused, PermissionDenied, Unauthenticated) as error:
            self._failure = error

    def _take(self, body: bytes) -> None:
        sent = decode_input(body, "bad_frame")
        now_ms = self._engine.clock.now_ms()
        require_live(self._request, now_ms)
        permit(self._request, self._target, sent)
        self._waiting.append((make_command(self._target, sent.batch, now_ms), sent.size))
        self._count_waiting(sent.size)

    @property
    def _is_full(self) -> bool:
        """Does as much wait as may?"""
        if not self._waiting:
            return False
        return (
            self._waiting_bytes >= WAITING_BYTES_MAX
            or len(self._waiting) >= WAITING_BATCHES_MAX
            or self._sessions.waiting_bytes >= SESSIONS_WAITING_BYTES_MAX
        )

    def _count_waiting(self, size: int) -> None:
        self._waiting_bytes += size
        self._sessions.waiting_bytes += size

    def _drop_waiting(self) -> None:
        self._waiting.clear()
        self._count_waiting(-self._waiting_bytes)
        self._frames = FrameReader()

    # -- submitting

    def room(self) -> None:
        """There is room for another series."""
        self._queued = False
        self._go_on()

    def _go_on(self) -> None:
        """Submit what waits, or end; and read on, or not."""
        self._unpack()
        if self._flying_bytes is None:
            if self._waiting and not self._is_held():
                self._submit()
                self._unpack()
            elif not self._waiting and (self._ended or self._failure is not None):
                self._finish()
                return
        self._steer()

    def _is_held(self) -> bool:
        """Is there something in the way of submitting? Where that is room, it will be told."""
        if self._slow or self._queued:
            return True
        if not self._sessions.has_room():
            self._queued = True
            self._sessions.wait(self)
        return self._queued

    def _submit(self) -> None:
        parts, size = self._next_series()
        self._flying_bytes = size
        self._sessions.submitted_bytes += size
        if self._stream_id is None:
            made = make_stream(self._engine, self._target, self._basin, self._config)
            answer = after(made, lambda found: self._append(parts, found.id))
        else:
            answer = self._append(parts, self._stream_id)
        answer.deliver(self._settled)

    def _append(self, parts: list[AppendRecords], stream_id: StreamId) -> Pending[SeriesAppended]:
        self._stream_id = stream_id
        return self._engine.append_series(
            AppendSeries(*self._target, parts[0].at_ms, parts, stream_id),
            self._request.headers.get(ENCRYPTION_KEY),
        )

    def _next_series(self) -> tuple[list[AppendRecords], int]:
        parts: list[AppendRecords] = []
        size = 0
        size_max = self._sessions.series_bytes_max
        while self._waiting and (not parts or size + self._waiting[0][1] <= size_max):
            command, command_size = self._waiting.popleft()
            parts.append(command)
            size += command_size
        self._count_waiting(-size)
        return parts, size

    def _settled(self, outcome: SeriesAppended | Exception) -> None:
        size, self._flying_bytes = self._flying_bytes, None
        assert size is not None
        if isinstance(outcome, Exception):
            self._refuse(outcome)
        else:
            self._acknowledge(outcome)
        self._sessions.release(size)
        self._go_on()

    def _acknowledge(self, outcome: SeriesAppended) -> None:
        if outcome.appended:
            tail = tail_now(self._engine, self._target)
            acks = [
                frames.encode_frame(
                    (protobuf.encode_ack(make_ack(appended, tail)),), reconnect=self._advising
                )
                for appended in outcome.appended
            ]
            self._write(b"".join(acks))
        if outcome.refusal is not None:
            self._refuse(outcome.refusal)

    def _refuse(self, error: Exception) -> None:
        """Nothing behind it may take effect, and it came before any failure of ours."""
        self._failure = error
        self._drop_waiting()

    # -- flow

    def _steer(self) -> None:
        reader = self._reader
        if reader is None or self._ended:
            return
        if self._is_full:
            if not self._paused:
                self._paused = True
                reader.pause()
        elif self._paused and self._waiting_bytes <= WAITING_BYTES_MAX // 2:
            self._paused = False
            reader.resume()  # last: it may bring the next batch at once

    def _resume(self) -> None:
        self._go_on()

    # -- the end

    def _advise(self) -> None:
        self._advising = True

    def _end_drained(self) -> None:
        if self._failure is None:
            self._failure = Refused("server_draining", "the server is stopping; go on elsewhere")
        self._go_on()

    def _finish(self) -> None:
        """Everything that was taken is answered."""
        if self._failure is None:
            self._end_with(b"")
        else:
            self._end_with(encode_failure(explain(self._failure, log)))

    def _release(self) -> None:
        """What was submitted stays; what only waits is dropped."""
        self._drop_waiting()
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.on_data = reader.on_end = reader.on_abort = None
            if self._paused:
                reader.resume()
