"""What can go wrong between a client and the server.

A caller catches a class only when it would act differently; everything else is a `Refused` whose
`code` is a row of docs/errors.md.
"""

from __future__ import annotations

from collections.abc import Mapping


class ClientError(Exception):
    """Base of everything the client raises."""


class Unreachable(ClientError):
    """No answer came, for as long as the client was willing to try.

    What was sent may have been done: repeat a write only with a producer.
    """


class Refused(ClientError):
    """The server answered, and the answer is no."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(f"{message} (status={status} code={code})")
        self.status = status
        self.code = code


class StreamNotFound(Refused):
    """No such stream, or it has expired or was deleted."""


class StreamClosed(Refused):
    """The stream has ended; nothing can be appended."""


class OffsetTrimmed(Refused):
    """The first records asked for are no longer retained."""

    first_seq = 0
    """The first record that is."""


class PastTail(Refused):
    """The records asked for are not there yet, or were in another stream of this name."""


class ProducerFenced(Refused):
    """A newer epoch of this producer has written."""


_CLASSES: Mapping[str, type[Refused]] = {
    "stream_not_found": StreamNotFound,
    "stream_gone": StreamNotFound,
    "stream_closed": StreamClosed,
    "offset_trimmed": OffsetTrimmed,
    "range_not_satisfiable": PastTail,
    "producer_fenced": ProducerFenced,
}


def refusal(status: int, code: str, message: str, headers: Mapping[str, str]) -> Refused:
    """The error for an answer. `headers` have lower-case names."""
    error = _CLASSES.get(code, Refused)(status, code, message)
    if isinstance(error, OffsetTrimmed):
        error.first_seq = int(headers.get("log-first-seq", "0"))
    return error
