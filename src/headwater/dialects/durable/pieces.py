"""How the body of an incremental append is cut into what is appended. No I/O.

Lines are cut as they are asked for, so that what waits is the body as it came and nothing larger.
A line ends with LF; a CR before it belongs to the line.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from headwater.core import jsonmode
from headwater.core.errors import InvalidRequest
from headwater.core.limits import KIB

GROUP_BYTES = 64 * KIB
"""Lines that arrived together are appended together, up to about this much."""

_WHITESPACE = b" \t\r\n"


class PieceTooLong(Exception):
    """A line is longer than a body may be."""

    def __init__(self, bytes_max: int) -> None:
        super().__init__(f"a line is longer than a request body may be. bytes_max={bytes_max}")


class Piece(NamedTuple):
    """One append: its body, and the number of lines or chunks in it."""

    body: bytes
    parts: int


class Pieces(Protocol):
    """A body that arrives bit by bit, and leaves piece by piece."""

    @property
    def ready(self) -> bool:
        """There is something to take, if only an error."""

    def feed(self, data: bytes) -> None:
        """More of the body."""

    def finish(self) -> None:
        """The body is whole: what is left is a piece too. Never called if it broke off."""

    def take(self) -> Piece | None:
        """The next piece, or None when more must come first.

        Raises InvalidRequest or PieceTooLong in place of the piece that is not acceptable.
        """


class Chunks:
    """Bytes without lines: a piece is what came at once. How HTTP framed it means nothing."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: list[bytes] = []

    @property
    def ready(self) -> bool:
        return bool(self._waiting)

    def feed(self, data: bytes) -> None:
        if data:
            self._waiting.append(data)

    def finish(self) -> None:
        """Nothing is ever left over."""

    def take(self) -> Piece | None:
        if not self._waiting:
            return None
        piece = Piece(b"".join(self._waiting), 1)
        self._waiting.clear()
        return piece


class _Buffer:
    """What arrived and was not taken. Never searched twice for the end of the same line."""

    __slots__ = ("_bytes_max", "_found", "_rest", "_searched", "_whole")

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._rest = bytearray()
        self._searched = 0
        """No line ends before this."""
        self._found = 0
        """Where the first line ends, its LF included; 0 if that is not known."""
        self._whole = False

    @property
    def ready(self) -> bool:
        return self._find() > 0 or len(self._rest) > self._bytes_max

    def feed(self, data: bytes) -> None:
        self._rest += data

    def finish(self) -> None:
        self._whole = True

    def _find(self) -> int:
        if not self._found:
            rest = self._rest
            self._found = rest.find(b"\n", self._searched) + 1
            self._searched = len(rest)
            if not self._found and self._whole:
                self._found = len(rest)
        return self._found

    def _cut(self, *, up_to: int = 0) -> bytes | None:
        """The next line; or as many lines as fit into `up_to` bytes, if that is more than one."""
        end = self._find()
        if (end or len(self._rest)) > self._bytes_max:
            raise PieceTooLong(self._bytes_max)
        if not end:
            return None
        if end < up_to:
            end = max(end, self._rest.rfind(b"\n", end, up_to) + 1)
        line = bytes(self._rest[:end])
        del self._rest[:end]  # cheap: a bytearray only moves its start
        self._found = self._searched = 0
        return line


class Lines(_Buffer):
    """Text: a piece is one line with its end."""

    __slots__ = ()

    def take(self) -> Piece | None:
        line = self._cut()
        return None if line is None else Piece(line, 1)


class JsonLines(_Buffer):
    """One JSON value on each line that is not blank. Each is one message, an array too.

    A piece is a JSON array, which the append flattens into its messages: with `single` of one
    line, otherwise of all that arrived together.
    """

    __slots__ = ("_group_bytes", "_invalid", "_taken")

    def __init__(self, bytes_max: int, *, single: bool) -> None:
        super().__init__(bytes_max)
        self._group_bytes = 0 if single else GROUP_BYTES
        self._invalid: InvalidRequest | None = None
        self._taken = 0

    @property
    def ready(self) -> bool:
        return self._invalid is not None or super().ready

    def take(self) -> Piece | None:
        if self._invalid is not None:
            raise self._invalid
        while (block := self._cut(up_to=self._group_bytes)) is not None:
            lines = [line for part in block.split(b"\n") if (line := part.strip(_WHITESPACE))]
            if lines:
                return self._checked(lines)
        return None

    def _checked(self, lines: list[bytes]) -> Piece:
        """The lines as one append: all of them, or those before the first that is not valid."""
        body = b"[%b]" % b",".join(lines)
        try:
            valid = jsonmode.flatten(body) == lines
            _check_depth(body)
        except InvalidRequest:
            valid = False
        if not valid:
            del lines[self._find_invalid(lines) :]
            if not lines:
                assert self._invalid is not None
                raise self._invalid
            body = b"[%b]" % b",".join(lines)
        self._taken += len(lines)
        return Piece(body, len(lines))

    def _find_invalid(self, lines: list[bytes]) -> int:
        for number, line in enumerate(lines):
            try:
                jsonmode.check_value(line)
                _check_depth(b"[%b]" % line)
            except InvalidRequest as error:
                self._invalid = InvalidRequest(f"{error}. line={self._taken + number + 1}")
                return number
        raise AssertionError("lines that are valid one by one are valid together")


def _check_depth(value: bytes) -> None:
    """Raises InvalidRequest if a valid value is nested so deeply that it may be refused later.

    It is appended in deeper calls than this one, see `jsonmode.DEPTH_SPARE`.
    """
    spare = jsonmode.DEPTH_SPARE
    jsonmode.check_value(b"%b%b%b" % (b"[" * spare, value, b"]" * spare))
