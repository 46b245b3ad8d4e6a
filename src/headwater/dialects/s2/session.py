"""What append and read sessions share: how they write, and how they end. S2 API: sessions.

A client that does not read gets nothing more until it does; the last words wait for it, too. When
the server stops, a session asks its client to move, goes on for a moment, and ends.
"""

from __future__ import annotations

from headwater.engine.clock import Timer
from headwater.engine.engine import Engine
from headwater.wire.http import BodyWriter

DRAIN_S = 1.0
"""A session that was asked to move is ended after this."""


class Session:
    """The outgoing half of one session. Its kinds fill in what has no body here."""

    __slots__ = ("_drain_timer", "_engine", "_last_words", "_slow", "_writer")

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._writer: BodyWriter | None = None
        """None before the start, and once the session is over."""
        self._slow = False
        """The client has not read what was written."""
        self._last_words: bytes | None = None
        """Ends the session as soon as the client reads again."""
        self._drain_timer: Timer | None = None

    def start(self, writer: BodyWriter) -> None:
        """The head has left."""
        self._writer = writer
        writer.on_drain = self._drained
        writer.on_close = self._stop
        writer.on_shutdown = self._shut_down
        self._begin()

    def _begin(self) -> None:
        """The first thing to do."""
        raise NotImplementedError

    def _resume(self) -> None:
        """The client reads again."""
        raise NotImplementedError

    def _advise(self) -> None:
        """From now on, ask the client to move."""
        raise NotImplementedError

    def _end_drained(self) -> None:
        """The client did not move in time."""
        raise NotImplementedError

    def _release(self) -> None:
        """Let go of whatever feeds the session: nothing more will be written. May come twice."""
        raise NotImplementedError

    def _write(self, data: bytes) -> None:
        if self._writer is not None and data and not self._writer.write(data):
            self._slow = True

    def _drained(self) -> None:
        self._slow = False
        if self._last_words is None:
            self._resume()
        else:
            self._end_with(self._last_words)

    def _shut_down(self) -> None:
        if self._writer is not None and self._drain_timer is None:
            self._drain_timer = self._engine.clock.call_later(DRAIN_S, self._end_drained)
            self._advise()

    def _end_with(self, words: bytes) -> None:
        """Write the last words, if any, and end; a slow client reads what it has first."""
        writer = self._writer
        if writer is None:
            return
        if words and self._slow:
            self._last_words = words
            self._let_go()
            return
        self._stop()
        if words:
            writer.write(words)
        writer.finish()

    def _stop(self) -> None:
        """The client is gone, or has everything."""
        self._writer = None
        self._let_go()

    def _let_go(self) -> None:
        if self._drain_timer is not None:
            self._drain_timer.cancel()
        self._release()
