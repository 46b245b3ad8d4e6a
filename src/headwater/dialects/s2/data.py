"""The data plane of the S2 API: append, read, check tail, and their sessions."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from headwater.core.errors import TooManyRequests
from headwater.core.pending import Pending
from headwater.dialects.access import require_live
from headwater.dialects.compression import Compressor
from headwater.dialects.s2 import requests, responses
from headwater.dialects.s2.append_session import SERIES_BYTES_MAX, AppendSessions
from headwater.dialects.s2.appends import make_ack, make_command, permit, tail_now
from headwater.dialects.s2.bounds import Bounds
from headwater.dialects.s2.forms import EventForm, Form, FrameForm
from headwater.dialects.s2.read import LongPoll, Reading, find_first, read_batch
from headwater.dialects.s2.read_session import ReadSession
from headwater.dialects.s2.requests import Read, parse_config_header
from headwater.dialects.s2.routes import Handler, S2Options
from headwater.dialects.s2.streams import find_basin, make_stream, or_make, use_stream
from headwater.dialects.s2.targets import Target
from headwater.engine.engine import Engine
from headwater.engine.streams import Stream
from headwater.wire.headers import ENCRYPTION_KEY
from headwater.wire.http import Answer, Request, Response
from headwater.wire.s2 import frames
from headwater.wire.s2.records import Place, Records


class DataPlane:
    """The records of streams, over one engine."""

    def __init__(self, engine: Engine, options: S2Options) -> None:
        self.engine = engine
        self.options = options
        self._compressor = Compressor(engine.loop)
        self._waiting: set[LongPoll] = set()
        # The queue has room for the largest body that there may be.
        series_bytes_max = min(SERIES_BYTES_MAX, options.body_bytes_max)
        self.sessions = AppendSessions(engine, series_bytes_max=series_bytes_max)

    def handlers(self) -> dict[tuple[str, str], Handler]:
        """The rows of the table of routes that are answered here."""
        return {
            ("POST", "streams/{stream}/records"): self.append,
            ("GET", "streams/{stream}/records"): self.read,
            ("GET", "streams/{stream}/records/tail"): self.check_tail,
        }

    def end_waits(self) -> None:
        """The server stops: answer the reads that wait."""
        for poll in tuple(self._waiting):
            poll.end()

    # -- appending

    def append(self, request: Request, target: Target) -> Answer:
        """POST records. S2 API: append."""
        engine = self.engine
        config = parse_config_header(request)
        sent = requests.parse_append(request, body_bytes_max=self.options.request_bytes_max)
        basin = find_basin(engine, target.basin)
        permit(request, target, sent)
        command = make_command(target, sent.batch, engine.clock.now_ms())
        key = request.headers.get(ENCRYPTION_KEY)
        answer = engine.append(command, key)
        if basin.create_on_append:
            answer = or_make(
                answer,
                make=lambda: make_stream(engine, target, basin, config),
                again=lambda: engine.append(command, key),
            )
        as_protobuf = requests.wants_protobuf(request)
        return answer.then(
            lambda appended: responses.render_ack(
                make_ack(appended, tail_now(engine, target)), as_protobuf=as_protobuf
            )
        )

    def append_session(self, request: Request, target: Target) -> Answer:
        """POST records with session frames. S2 API: sessions."""
        return self.sessions.open(request, target, parse_config_header(request))

    # -- reading

    def check_tail(self, request: Request, target: Target) -> Answer:
        """GET records/tail. S2 API: check tail."""
        return self._use(
            request,
            target,
            lambda stream: responses.render_tail(responses.tail_of(self.engine.shard, stream)),
        )

    def read(self, request: Request, target: Target) -> Answer:
        """GET records: one batch, or a session. S2 API: read."""
        read = requests.parse_read(request)
        if requests.is_session(request):
            compression = frames.choose_compression(request.headers.get(b"accept-encoding"))
            return self._open_session(request, target, read, FrameForm(compression))
        if requests.wants_events(request):
            last = requests.parse_last_event_id(request)
            form = EventForm(requests.parse_format(request), last)
            read = read if last is None else read.after(last)
            return self._open_session(request, target, read, form)
        return self._read_batch(request, target, read)

    def _read_batch(self, request: Request, target: Target, read: Read) -> Answer:
        requests.check_read(read)
        format_ = None if requests.wants_protobuf(request) else requests.parse_format(request)
        chosen = responses.choose_batch(format_)

        def render(parts: Sequence[Records], tail: Place | None) -> Response:
            require_live(request, self.engine.clock.now_ms())  # it may have waited
            return chosen(parts, tail)

        def use(stream: Stream) -> Answer:
            opener = self.engine.opener(stream, request.headers.get(ENCRYPTION_KEY))
            if read.wait_s:
                self._check_followers()
            reading = Reading(self.engine, stream, Bounds(read), render, opener)
            return read_batch(reading, read, self._waiting)

        return self._compressor.apply(request, self._use(request, target, use))

    def _open_session(self, request: Request, target: Target, read: Read, form: Form) -> Answer:
        requests.check_read(read)
        wait_s = read.wait_s
        if wait_s is None and read.is_bounded:
            wait_s = 0

        def use(stream: Stream) -> Response:
            opener = self.engine.opener(stream, request.headers.get(ENCRYPTION_KEY))
            self._check_followers()
            first = find_first(self.engine, stream, read, waits=wait_s != 0)
            session = ReadSession(self.engine, stream, first, Bounds(read), wait_s, form, opener)
            sealed = stream.state.cipher is not None
            return responses.render_session(session.start, form.headers, sealed=sealed)

        return self._use(request, target, use)

    def _use(
        self, request: Request, target: Target, use: Callable[[Stream], Answer]
    ) -> Response | Pending[Response]:
        config = parse_config_header(request)
        read_only = self.options.read_only
        return use_stream(self.engine, target, config, use, read_only=read_only)

    def _check_followers(self) -> None:
        if self.engine.followers >= self.options.followers_max:
            raise TooManyRequests("the server has as many live readers as it may; retry later")
