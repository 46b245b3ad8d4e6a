"""The records of a JSON stream by their numbers: in headers, in lines, in events. Ursula: records.

A record is one message; it has a number whichever dialect wrote it.
"""

from __future__ import annotations

import re

import msgspec

from headwater.core.types import Position, SeqNum
from headwater.engine import seek
from headwater.engine.engine import Engine
from headwater.engine.reader import Slice
from headwater.engine.streams import Stream
from headwater.wire import sse
from headwater.wire.http import Buffer, Header

NUMBERED: Header = (b"stream-extensions", b"json-record-coordinates-v1")
"""On answers of JSON streams: their records have numbers."""

_LINE_ENDS = re.compile(rb"[\r\n]")
_messages = msgspec.json.Decoder(list[msgspec.Raw])


def record_first(number: int) -> Header:
    return (b"stream-record-first", b"%d" % number)


def record_start(number: int) -> Header:
    return (b"stream-record-start", b"%d" % number)


def record_next(number: int) -> Header:
    return (b"stream-record-next", b"%d" % number)


def split(found: Slice) -> list[msgspec.Raw]:
    """The messages of a JSON stream, one by one."""
    return _messages.decode(b"".join(found.body()))


def one_line(message: bytes) -> bytes:
    """Line ends in JSON text are between its tokens: inside a string they would be escaped."""
    return _LINE_ENDS.sub(b" ", message)


def render_lines(found: Slice) -> list[Buffer]:
    """Each message on a line of its own."""
    return [one_line(bytes(message)) + b"\n" for message in split(found)]


class Numbering:
    """What a read by record number shows of its stream."""

    def __init__(self, engine: Engine, stream: Stream) -> None:
        self._shard = engine.shard
        self._stream = stream

    def headers(self, found: Slice) -> list[Header]:
        """Which records an answer has."""
        return [
            NUMBERED,
            record_first(seek.first_message(self._shard, self._stream)),
            record_start(self._number(found.start.seq)),
            record_next(self._number(found.end.seq)),
        ]

    def lines(self, found: Slice) -> list[Buffer]:
        """Each record with its number on a line."""
        return [envelope + b"\n" for envelope in self._envelopes(found)]

    def events(self, _: Stream, found: Slice) -> bytes:
        """Each record with its number in an event."""
        return b"".join(map(sse.data_event, self._envelopes(found)))

    def control(self, stream: Stream, end: Position) -> bytes:
        """What a control event says of the records there are, and of the next one."""
        return b',"streamFirstRecord":%d,"streamNextRecord":%d' % (
            seek.first_message(self._shard, stream),
            self._number(end.seq),
        )

    def _envelopes(self, found: Slice) -> list[bytes]:
        return [
            b'{"record":%d,"value":%b}' % (number, one_line(bytes(message)))
            for number, message in enumerate(split(found), self._number(found.start.seq))
        ]

    def _number(self, seq: SeqNum) -> int:
        return seek.message_number(self._shard, self._stream, seq)
