"""A range of records on its way to a client, a step a turn, no faster than the client reads.

What one download holds is bounded: a step of records, a batch of them, and what the connection
has not sent yet.
"""

from __future__ import annotations

import logging
from collections import deque
from itertools import islice
from typing import TYPE_CHECKING, Protocol

from headwater.core.errors import DecryptionFailed, OffsetTrimmed, StreamNotFound
from headwater.core.limits import MIB
from headwater.dialects.log import ndjson, views
from headwater.engine.engine import Engine
from headwater.engine.records import RecordCursor, Span
from headwater.wire.http import BodyWriter, Buffer

if TYPE_CHECKING:
    from headwater.wire.arrow import Columns

log = logging.getLogger("headwater.log")

BATCH_ROWS = 10_000
BATCH_BYTES = 2 * MIB
"""An Arrow batch is sent once it has this much. Small ones would cost the client, large ones us."""


class Form(Protocol):
    """How records are written."""

    full: bool
    """As many rows as asked for have been added."""

    def begin(self) -> Buffer: ...

    def add(self, spans: list[Span]) -> Buffer:
        """Take records. Returns what is ready to be sent, perhaps nothing."""

    def end(self) -> list[Buffer]: ...


class NdjsonForm:
    """Lines, as they come."""

    def __init__(self, *, json: bool, joined: bool, limit: int | None) -> None:
        self.full = False
        self._json = json
        self._joined = joined
        self._left = limit

    def begin(self) -> Buffer:
        return b""

    def add(self, spans: list[Span]) -> Buffer:
        found = (row for span in spans for row in views.rows(span, joined=self._joined))
        if self._left is None:
            return ndjson.render_lines(found, json=self._json)
        taken = list(islice(found, self._left))
        self._left -= len(taken)
        self.full = self._left == 0
        return ndjson.render_lines(taken, json=self._json)

    def end(self) -> list[Buffer]:
        return []


class ArrowForm:
    """Record batches of about BATCH_ROWS rows or BATCH_BYTES."""

    def __init__(self, *, joined: bool, limit: int | None) -> None:
        """Needs `headwater.wire.arrow`, which must have been brought in before."""
        from headwater.wire import arrow

        self.full = False
        self._arrow = arrow
        self._joined = joined
        self._left = limit
        self._parts: list[Columns] = []
        self._rows = 0
        self._bytes = 0

    def begin(self) -> Buffer:
        return self._arrow.encode_schema()

    def add(self, spans: list[Span]) -> Buffer:
        for span in spans:
            self._take(views.columns(span, joined=self._joined))
            self._bytes += span.run.body_bytes
        if self._rows >= BATCH_ROWS or self._bytes >= BATCH_BYTES:
            return self._flush()
        return b""

    def _take(self, part: Columns) -> None:
        count = part.rows
        if self._left is not None:
            count = min(count, self._left)
            part = part._replace(stop=part.start + count)
            self._left -= count
            self.full = self._left == 0
        if count:
            self._parts.append(part)
            self._rows += count

    def _flush(self) -> Buffer:
        parts, self._parts = self._parts, []
        self._rows = self._bytes = 0
        return self._arrow.encode_batch(parts) if parts else b""

    def end(self) -> list[Buffer]:
        return [self._flush(), self._arrow.encode_end()]


class Download:
    """The body of one answer."""

    def __init__(self, engine: Engine, cursor: RecordCursor, form: Form) -> None:
        self._engine = engine
        self._cursor = cursor
        self._form = form
        self._ready = deque[Buffer]()
        self._complete = False
        """Everything is read; what is ready is the rest."""
        self._writer: BodyWriter | None = None

    def start(self, writer: BodyWriter) -> None:
        self._engine.tally.read(self._cursor.bucket, 0, streaming=True)
        self._writer = writer
        writer.on_drain = self._go_on
        writer.on_close = self._stop
        # A range has an end: a server that stops lets us reach it, or cuts us off when its
        # patience is over. Ended politely, the client would take a part for the whole.
        writer.on_shutdown = _carry_on
        self._add(self._form.begin())
        self._go_on(first=True)

    def _stop(self) -> None:
        self._writer = None

    def _go_on(self, *, first: bool = False) -> None:
        writer = self._writer
        if writer is None:
            return
        try:
            if first or not self._ready:
                self._read()
            keeps_up = self._write(writer)
        except Exception as error:
            # The head has left, so all that can still be told is that the body is not whole.
            self._writer = None
            writer.abort()
            if isinstance(error, (StreamNotFound, OffsetTrimmed, DecryptionFailed)):
                log.info("a reader cannot have all it asked for: %s", error)
            else:
                log.exception("records could not be read to their end")
            return
        if keeps_up:
            self._engine.loop.call_soon(self._go_on)

    def _read(self) -> None:
        """One step."""
        if self._complete:
            return
        spans = self._cursor.step()
        size = sum(span.body_bytes for span in spans)
        self._engine.tally.read(self._cursor.bucket, size, streaming=True, requests=0)
        self._add(self._form.add(spans))
        if self._cursor.done or self._form.full:
            self._complete = True
            for rest in self._form.end():
                self._add(rest)

    def _add(self, data: Buffer) -> None:
        if len(data):
            self._ready.append(data)

    def _write(self, writer: BodyWriter) -> bool:
        """Send what is ready. False when the client is slow, or has everything."""
        while self._ready:
            if not writer.write(self._ready.popleft()):
                return False
        if not self._complete:
            return True
        self._writer = None
        writer.finish()
        return False


def _carry_on() -> None:
    """Nothing to do."""
