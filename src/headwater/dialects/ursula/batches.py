"""POST {stream}/append-batch: many appends in one request. Ursula: append-batch.

The body is a row of frames, each a length (u32, big-endian) and that many bytes:

    00 00 00 02  68 69   00 00 00 01  21

Without a producer each frame is an append of its own, with an answer of its own. With one the
whole request is one batch of that producer: all of it or nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import msgspec

from headwater.core import jsonmode
from headwater.core.append import Appended
from headwater.core.commands import Append, AppendRecords
from headwater.core.errors import ContentTypeMismatch, HeadwaterError, InvalidRequest
from headwater.core.pending import Pending
from headwater.core.producer import ProducerClaim
from headwater.dialects.common import SECURITY_HEADERS, error_response
from headwater.dialects.durable.requests import parse_content_type
from headwater.dialects.durable.responses import next_offset
from headwater.dialects.durable.rules import Address
from headwater.dialects.ursula.responses import JSON_HEADERS
from headwater.engine.engine import Engine
from headwater.engine.steps import follow
from headwater.engine.streams import Stream
from headwater.wire import headers
from headwater.wire.http import Answer, Header, Request, Response

FRAMES_MAX = 512
LENGTH_BYTES = 4

_encode = msgspec.json.Encoder().encode
RenderError = Callable[[HeadwaterError], Response]


class TooManyFrames(Exception):
    """More frames than one request may have."""


class Batch(NamedTuple):
    """What one request says."""

    content_type: str
    frames: list[bytes]
    producer: ProducerClaim | None
    minimal: bool
    """Nothing needs to be told of frames that were all accepted."""


def parse_batch(request: Request) -> Batch:
    """Raises InvalidRequest and TooManyFrames."""
    given = request.headers
    return Batch(
        parse_content_type(request) or jsonmode.DEFAULT_CONTENT_TYPE,
        split_frames(request.body),
        headers.parse_producer(given),
        b"return=minimal" in given.get(b"prefer", b"").lower().replace(b" ", b""),
    )


def split_frames(body: bytes) -> list[bytes]:
    frames: list[bytes] = []
    at = 0
    while at < len(body):
        start = at + LENGTH_BYTES
        end = start + int.from_bytes(body[at:start], "big")
        if start > len(body) or end > len(body):
            raise InvalidRequest(f"a frame is cut short. frame={len(frames)}")
        if len(frames) == FRAMES_MAX:
            raise TooManyFrames
        frames.append(body[start:end])
        at = end
    if not frames:
        raise InvalidRequest("the batch is empty: send frames, each after its length (u32)")
    return frames


def append_batch(
    engine: Engine, request: Request, address: Address, render_error: RenderError
) -> Answer:
    """Answered when every frame is durable or refused."""
    try:
        batch = parse_batch(request)
    except TooManyFrames:
        message = f"a batch has at most {FRAMES_MAX} frames"
        return error_response(413, "too_many_frames", message)
    if jsonmode.media_type(batch.content_type) == jsonmode.JSON_MEDIA_TYPE:
        for frame in filter(None, batch.frames):
            jsonmode.flatten(frame)  # one that is not JSON refuses them all
    key = request.headers.get(headers.ENCRYPTION_KEY)
    if batch.producer is not None:
        return _append_whole(engine, batch, batch.producer, address, key)
    return _Each(engine, batch, address, key, render_error).answer


def _append_whole(
    engine: Engine, batch: Batch, claim: ProducerClaim, address: Address, key: bytes | None
) -> Answer:
    """One batch of a producer."""

    def submit(stream: Stream) -> Pending[Appended]:
        expected = jsonmode.media_type(stream.state.content_type)
        received = jsonmode.media_type(batch.content_type)
        if received != expected:
            raise ContentTypeMismatch(expected=expected, received=received)
        bodies, counts = [], []
        for frame in batch.frames:
            messages = jsonmode.flatten(frame) if stream.state.json else [frame]
            if not frame or not messages:
                raise InvalidRequest("a frame is empty")
            bodies += messages
            counts.append(len(messages))
        sizes.extend(counts)
        command = AppendRecords(*address, engine.clock.now_ms(), bodies, producer=claim)
        return engine.append(command, key)

    def render(appended: Appended) -> Response:
        mark = appended.producer
        assert mark is not None
        found = [
            next_offset(appended.tail),
            (b"producer-epoch", b"%d" % mark.epoch),
            (b"producer-seq", b"%d" % mark.seq),
        ]
        if batch.minimal and appended.message_next is None:
            return Response(204, found, base=SECURITY_HEADERS)
        items = []
        start = appended.message_start
        for count in sizes:
            items.append(_accepted(start, None if start is None else start + count))
            start = None if start is None else start + count
        return Response(200, found, _encode(items), base=JSON_HEADERS)

    sizes: list[int] = []
    opened = engine.when_settled(*address, lambda: engine.open(*address))
    return follow(follow(opened, submit), render)


def _accepted(start: int | None, following: int | None) -> dict[str, object]:
    if start is None or following is None:
        return {"status": 204}
    return {"status": 204, "stream_record_start": start, "stream_record_next": following}


class _Each:
    """Frames on their way, each an append of its own; they are applied in their order."""

    def __init__(
        self,
        engine: Engine,
        batch: Batch,
        address: Address,
        key: bytes | None,
        render_error: RenderError,
    ) -> None:
        self.answer: Pending[Response] = Pending()
        self._render_error = render_error
        self._batch = batch
        self._items: list[dict[str, object] | None] = [None] * len(batch.frames)
        self._left = len(batch.frames)
        self._last: Appended | None = None
        self._failure: Exception | None = None
        at_ms = engine.clock.now_ms()
        for index, frame in enumerate(batch.frames):
            if frame:
                command = Append(*address, at_ms, batch.content_type, frame)
                engine.append(command, key).deliver(self._sink(index))
            else:
                self._settle(index, InvalidRequest("a frame is empty"))

    def _sink(self, index: int) -> Callable[[Appended | Exception], None]:
        return lambda outcome: self._settle(index, outcome)

    def _settle(self, index: int, outcome: Appended | Exception) -> None:
        if isinstance(outcome, Appended):
            self._last = outcome
            self._items[index] = _accepted(outcome.message_start, outcome.message_next)
        elif isinstance(outcome, HeadwaterError):
            refusal = self._render_error(outcome)
            self._items[index] = {"status": refusal.status}
        else:
            self._failure = outcome
        self._left -= 1
        if not self._left:
            self._finish()

    def _finish(self) -> None:
        if self._failure is not None:
            self.answer.fail(self._failure)
            return
        found: list[Header] = []
        last = self._last
        if last is not None:
            found.append(next_offset(last.tail))
        whole = all(item is not None and item["status"] == 204 for item in self._items)
        if self._batch.minimal and whole and last is not None and last.message_next is None:
            self.answer.resolve(Response(204, found, base=SECURITY_HEADERS))
        else:
            self.answer.resolve(Response(200, found, _encode(self._items), base=JSON_HEADERS))
