"""`Stream-Append: incremental`: one POST whose body is appended piece by piece, as it arrives.

A piece is a line, or for types that have none what one read brought; each is a sub-append with
an answer of its own from the engine. Plain callbacks, no task: the body feeds, acknowledgements
make room. How a body is cut is in pieces.py.

Sub-appends are many in flight, and nothing behind a refused one may take effect. Why that holds:

- What the headers claim (producer, Stream-Seq, If-Match) is judged with the first sub-append,
  and nothing is submitted behind it until it was accepted.
- A closed, deleted or expired stream stays so for the ones behind: they name it by its id, not
  only by its name (`Append.part_of`).
- With a producer, a refused sub-append leaves a gap, and those behind it do not fit.
- A line that is not valid, and a command that the engine does not take, end the submitting.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

import msgspec

from headwater.core import jsonmode, limits
from headwater.core.append import Appended, led_to_close
from headwater.core.commands import Append
from headwater.core.errors import (
    ContentTypeMismatch,
    HeadwaterError,
    InvalidRequest,
    Overloaded,
    StreamClosed,
    Unauthenticated,
)
from headwater.core.limits import KIB
from headwater.core.pending import Pending
from headwater.core.producer import ProducerClaim
from headwater.core.types import BatchSeq, Position
from headwater.dialects.access import require_live
from headwater.dialects.common import SECURITY_HEADERS, error_response
from headwater.dialects.durable import requests, responses
from headwater.dialects.durable.pieces import Chunks, JsonLines, Lines, Piece, Pieces, PieceTooLong
from headwater.engine.engine import Engine
from headwater.engine.streams import Stream
from headwater.wire import headers
from headwater.wire.http import Answer, Header, Request, Response

MODE = b"incremental"
NDJSON_MEDIA_TYPE = "application/x-ndjson"

RenderError = Callable[[HeadwaterError], Response]

WINDOW_COMMANDS_MAX = 256
WINDOW_BYTES_MAX = 256 * KIB
"""Submitted and not yet acknowledged, per request. A commit takes about 4 MiB, so a few requests
fill it; a thousand with full windows just fit the engine's queue."""


class Claims(NamedTuple):
    """What the headers of the request say."""

    content_type: str
    close: bool
    producer: ProducerClaim | None
    stream_seq: str | None
    expect: Position | None


def parse_claims(request: Request) -> Claims:
    """The headers of an incremental append. Raises InvalidRequest."""
    given = request.headers
    if given[b"stream-append"].strip().lower() != MODE:
        raise InvalidRequest("Stream-Append is incremental, or absent")
    content_type = requests.parse_content_type(request)
    if content_type is None:
        raise InvalidRequest("Content-Type is required")
    return Claims(
        content_type,
        headers.parse_flag(given, b"stream-closed"),
        headers.parse_producer(given),
        headers.parse_text(given, b"stream-seq", bytes_max=limits.STREAM_SEQ_BYTES_MAX),
        requests.parse_if_match(given[b"if-match"]) if b"if-match" in given else None,
    )


class IncrementalAppends:
    """The incremental appends of one dialect, while they last."""

    def __init__(
        self,
        engine: Engine,
        *,
        piece_bytes_max: int,
        render_appended: Callable[[Appended], Response],
        render_error: RenderError,
    ) -> None:
        """`render_appended` and `render_error` are those of an ordinary append."""
        self.engine = engine
        self.piece_bytes_max = piece_bytes_max
        self.render_appended = render_appended
        self.render_error = render_error
        self.open: set[IncrementalAppend] = set()

    def append(self, request: Request, bucket: str, name: str) -> Answer:
        """POST {stream} with `Stream-Append: incremental`. Answered when the body has ended."""
        try:
            claims = parse_claims(request)
        except HeadwaterError as error:
            return render_refusal(error, self.render_error, count=0, tail=None)
        return IncrementalAppend(self, request, bucket, name, claims).answer

    def stop(self) -> None:
        """The server stops: say how far each one got, so that its client can go on elsewhere."""
        for unfinished in tuple(self.open):
            unfinished.stop(Overloaded("the server is shutting down; go on after what it took"))


class IncrementalAppend:
    """One request. What arrived is submitted in order, and stays when the connection is cut."""

    __slots__ = (
        "_accepted",
        "_added",
        "_appends",
        "_bucket",
        "_claims",
        "_close_due",
        "_ended",
        "_failure",
        "_flights",
        "_flying_bytes",
        "_key",
        "_last",
        "_message_start",
        "_name",
        "_paused",
        "_pieces",
        "_pump_scheduled",
        "_refusal",
        "_request",
        "_stream",
        "_submitted",
        "answer",
    )

    def __init__(
        self,
        appends: IncrementalAppends,
        request: Request,
        bucket: str,
        name: str,
        claims: Claims,
    ) -> None:
        self.answer: Pending[Response] = Pending()
        self._appends = appends
        self._request = request
        self._bucket = bucket
        self._name = name
        self._claims = claims
        self._key = request.headers.get(headers.ENCRYPTION_KEY)
        self._stream: Stream | None = None
        self._pieces: Pieces = Chunks()

        self._submitted = 0
        """Commands given to the engine: the producer's sequence counts them."""
        self._flights: deque[tuple[int, int]] = deque()
        """Lines or chunks, and bytes, of each command without an answer, oldest first."""
        self._flying_bytes = 0
        self._accepted = 0
        """Lines or chunks known to be in the stream, repeats included."""
        self._added = False
        self._last: Appended | None = None
        self._message_start: int | None = None
        """The number of the first message added, where they are numbered."""

        self._refusal: Exception | None = None
        """What the engine said to a command. It came before any failure of ours in the body."""
        self._failure: Exception | None = None
        """What went wrong on our side of it. A bug too ends the request, not the loop's turn."""
        self._ended = False
        self._close_due = False
        self._paused = False
        self._pump_scheduled = False

        appends.open.add(self)
        reader = request.body_reader
        if reader is not None:
            reader.on_abort = self._cut
        self._look_up()

    def stop(self, error: Exception) -> None:
        """Submit nothing more; answer when what was submitted is settled."""
        if self._failure is None:
            self._failure = error
        self._pump()

    # -- the stream

    def _look_up(self) -> None:
        engine, bucket, name = self._appends.engine, self._bucket, self._name
        try:
            found = engine.when_settled(bucket, name, lambda: engine.open(bucket, name))
        except Exception as error:
            self.stop(error)
            return
        if isinstance(found, Pending):
            found.deliver(self._begin)
        else:
            self._begin(found)

    def _begin(self, found: Stream | Exception) -> None:
        """The stream is known: refuse what cannot work, before any of the body is read."""
        if self._ended or self._failure is not None:
            return  # the client, or the server, did not wait
        try:
            if isinstance(found, Exception):
                raise found
            self._pieces = choose_pieces(found, self._claims, self._appends.piece_bytes_max)
            self._appends.engine.opener(found, self._key)  # is there one, if there has to be?
        except Exception as error:
            self.stop(error)
            return
        self._stream = found
        reader = self._request.body_reader
        if reader is None:
            if self._request.body:
                self._receive(self._request.body)
            self._end()
            return
        reader.on_data = self._receive
        reader.on_end = self._end
        reader.resume()

    # -- the body

    def _receive(self, data: bytes) -> None:
        if self._stopped:
            return
        try:
            require_live(self._request, self._appends.engine.clock.now_ms())
        except Unauthenticated as error:
            self.stop(error)
            return
        self._pieces.feed(data)
        if not self._pump_scheduled:
            # Not at once: one read may bring many chunks, and what came together goes together.
            self._pump_scheduled = True
            self._appends.engine.loop.call_soon(self._pump_read)

    def _pump_read(self) -> None:
        self._pump_scheduled = False
        self._pump()

    def _end(self) -> None:
        """The body is whole: a last line without a line end counts, and so does the close."""
        self._pieces.finish()
        self._ended = True
        self._close_due = self._claims.close
        self._pump()

    def _cut(self) -> None:
        """The client is gone. What is complete is still appended; a begun line is not."""
        self._ended = True
        self._pump()

    # -- submitting

    def _pump(self) -> None:
        """Submit what there is room for, then wait for acknowledgements, for more, or answer."""
        try:
            self._submit_pieces()
        except Exception as error:
            self._failure = error
        drained = self._ended and not self._pieces.ready and not self._close_due
        if not self._stopped and not drained:
            self._steer()
        elif not self._flights:
            self._finish()

    @property
    def _stopped(self) -> bool:
        return self._refusal is not None or self._failure is not None

    def _submit_pieces(self) -> None:
        while not self._stopped and self._has_room():
            piece = self._pieces.take()
            if piece is not None:
                self._submit(piece)
            elif self._ended and self._close_due:
                self._close_due = False
                self._submit(Piece(b"", 0), close=True)
            else:
                return

    def _has_room(self) -> bool:
        if self._stream is None:
            return False
        if self._last is None:
            return not self._flights  # the first goes alone: see the top of this file
        return len(self._flights) < WINDOW_COMMANDS_MAX and self._flying_bytes < WINDOW_BYTES_MAX

    def _submit(self, piece: Piece, *, close: bool = False) -> None:
        stream, claims = self._stream, self._claims
        assert stream is not None
        first = self._submitted == 0
        engine = self._appends.engine
        pending = engine.append(
            Append(
                self._bucket,
                self._name,
                engine.clock.now_ms(),
                stream.state.content_type,
                piece.body,
                close,
                self._next_claim(),
                claims.stream_seq if first else None,
                claims.expect if first else None,
                stream.state.id,
            ),
            self._key,
        )
        self._submitted += 1
        if not pending.done:
            self._flights.append((piece.parts, len(piece.body)))
            self._flying_bytes += len(piece.body)
            pending.deliver(self._acknowledged)
        else:
            pending.deliver(self._refused)  # the engine took no more: it never was in flight

    def _next_claim(self) -> ProducerClaim | None:
        claim = self._claims.producer
        if claim is None or not self._submitted:
            return claim
        seq = claim.seq + self._submitted
        if seq > limits.PRODUCER_NUMBER_MAX:
            raise InvalidRequest("Producer-Seq would pass 2^53-1; begin a new Producer-Epoch")
        return ProducerClaim(claim.id, claim.epoch, BatchSeq(seq))

    def _acknowledged(self, outcome: Appended | Exception) -> None:
        """The oldest command in flight is settled: answers come in the order of submission."""
        parts, size = self._flights.popleft()
        self._flying_bytes -= size
        if isinstance(outcome, Appended):
            self._accepted += parts
            self._added = self._added or outcome.added
            self._last = outcome
            if self._message_start is None:
                self._message_start = outcome.message_start
        else:
            self._refused(outcome)
        self._pump()

    def _refused(self, outcome: Appended | Exception) -> None:
        assert isinstance(outcome, Exception)
        if self._refusal is None:
            self._refusal = outcome

    def _steer(self) -> None:
        """Read on, or not: what waits for room here is at most one read and a begun line."""
        reader = self._request.body_reader
        if reader is None or self._ended:
            return
        if self._pieces.ready:
            if not self._paused:
                self._paused = True
                reader.pause()
        elif self._paused and self._has_slack():
            self._paused = False
            reader.resume()  # last: it may bring the next piece at once

    def _has_slack(self) -> bool:
        """Half the window is free, so that reading is not turned on and off for every line."""
        few = len(self._flights) <= WINDOW_COMMANDS_MAX // 2
        return few and self._flying_bytes <= WINDOW_BYTES_MAX // 2

    # -- the answer

    def _finish(self) -> None:
        self._appends.open.discard(self)
        error = self._refusal or self._failure
        tail = self._last.tail if self._last is not None else None
        if error is None:
            self.answer.resolve(self._render())
        elif isinstance(error, (HeadwaterError, PieceTooLong)):
            render_error = self._appends.render_error
            self.answer.resolve(
                render_refusal(error, render_error, count=self._accepted, tail=tail)
            )
        else:
            self.answer.fail(error)

    def _render(self) -> Response:
        """204; with a producer 200 if anything was new. As an ordinary append has it."""
        count = (b"stream-append-count", b"%d" % self._accepted)
        if self._last is not None:
            whole = msgspec.structs.replace(self._last, message_start=self._message_start)
            answer = self._appends.render_appended(whole)
            status = 200 if self._added and self._claims.producer is not None else 204
            return Response(status, (*answer.headers, count), base=answer.base)
        assert self._stream is not None
        tail = responses.next_offset(self._stream.tail)
        return Response(204, (tail, count), base=SECURITY_HEADERS)


def choose_pieces(stream: Stream, claims: Claims, piece_bytes_max: int) -> Pieces:
    """How this body is cut. Raises what an append to this stream would be refused with."""
    state = stream.state
    repeats = claims.producer is not None and led_to_close(state, claims.producer)
    if stream.tail_closed and not repeats:
        raise StreamClosed(stream.tail)
    received = jsonmode.media_type(claims.content_type)
    expected = jsonmode.media_type(state.content_type)
    if received != expected and not (state.json and received == NDJSON_MEDIA_TYPE):
        raise ContentTypeMismatch(expected=expected, received=received)
    if state.json:
        return JsonLines(piece_bytes_max, single=claims.producer is not None)
    if expected.startswith("text/") or expected == NDJSON_MEDIA_TYPE:
        return Lines(piece_bytes_max)
    if claims.producer is not None:
        raise InvalidRequest(
            "an incremental append with Producer-* headers needs lines to count: "
            f"application/json, {NDJSON_MEDIA_TYPE} or text/*. received={received}"
        )
    return Chunks()


def render_refusal(
    error: HeadwaterError | PieceTooLong,
    render_error: RenderError,
    *,
    count: int,
    tail: Position | None,
) -> Response:
    """The ordinary error, and how far the request got before it."""
    if isinstance(error, PieceTooLong):
        response = error_response(413, "body_too_large", str(error))
    else:
        response = render_error(error)
    found: list[Header] = [*response.headers, (b"stream-append-count", b"%d" % count)]
    if tail is not None and not any(name == b"stream-next-offset" for name, _ in found):
        found.append(responses.next_offset(tail))
    response.headers = found
    return response
