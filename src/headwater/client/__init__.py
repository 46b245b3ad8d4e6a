"""A small client of the native API, for programs that have little but Python. docs/api/log.md."""

from headwater.client.errors import (
    ClientError,
    OffsetTrimmed,
    PastTail,
    ProducerFenced,
    Refused,
    StreamClosed,
    StreamNotFound,
    Unreachable,
)
from headwater.client.protocol import Appended, Producer, StreamSummary
from headwater.client.sync import Client

__all__ = [
    "Appended",
    "Client",
    "ClientError",
    "OffsetTrimmed",
    "PastTail",
    "Producer",
    "ProducerFenced",
    "Refused",
    "StreamClosed",
    "StreamNotFound",
    "StreamSummary",
    "Unreachable",
]
