"""Requests of the Ursula dialect to values and commands, beyond the base protocol's."""

from __future__ import annotations

import msgspec

from headwater.core import attributes, jsonmode
from headwater.core.buckets import BucketConfig
from headwater.core.commands import SetAttributes
from headwater.core.errors import InvalidRequest
from headwater.core.retention import parse_retention
from headwater.core.types import TimestampMs
from headwater.dialects.access import narrow
from headwater.dialects.durable import requests as durable
from headwater.dialects.durable.rules import Address, ReadQuery
from headwater.engine.listing import Selection
from headwater.wire.http import Request
from headwater.wire.offsets import AtRecord

LIST_LIMIT_MAX = 1000
TIMEOUT_MS_MAX = 60_000
"""The longest a reader may ask a long-poll to wait."""
ENVELOPE = "envelope"
QUOTA_MAX = 2**53 - 1


class _BucketBody(msgspec.Struct, forbid_unknown_fields=True):
    retention: str | None = None
    content_type: str | None = None
    streams_max: int | None = None
    bytes_max: int | None = None


_bucket_decoder = msgspec.json.Decoder(_BucketBody)


def parse_bucket_config(request: Request) -> BucketConfig | None:
    """PUT {bucket}: what the body says; without one a bucket that is there stays as it is."""
    if not request.body:
        return None
    try:
        body = _bucket_decoder.decode(request.body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidRequest(f"the body describes no bucket: {error}") from None
    for name, value in (("streams_max", body.streams_max), ("bytes_max", body.bytes_max)):
        if value is not None and not 0 <= value <= QUOTA_MAX:
            raise InvalidRequest(f"{name} is a whole number from 0 to 2^53-1. received={value}")
    content_type = body.content_type
    return BucketConfig(
        retention=None if body.retention is None else parse_retention(body.retention),
        content_type=None if content_type is None else durable.check_content_type(content_type),
        streams_max=body.streams_max,
        bytes_max=body.bytes_max,
    )


def parse_selection(request: Request, bucket: str) -> Selection:
    """GET {bucket}/streams."""
    query = durable.parse_query(request.query)
    text = query.get("limit", str(LIST_LIMIT_MAX))
    is_number = text.isascii() and text.isdigit() and len(text) < 10
    if not (is_number and 1 <= int(text) <= LIST_LIMIT_MAX):
        raise InvalidRequest(f"limit is a whole number from 1 to {LIST_LIMIT_MAX}")
    after = query.get("after")
    selection = Selection(
        bucket=bucket,
        prefix=query.get("prefix", ""),
        after=None if after is None else (bucket, after),
        limit=int(text),
    )
    return narrow(selection, request.grant)


def parse_extras(query: dict[str, str], found: ReadQuery) -> ReadQuery:
    """GET {stream}: how long to wait, how much to get, and records by their number."""
    timeout_ms, size_max = _number(query, "timeout_ms"), _number(query, "max_bytes")
    if timeout_ms is not None:
        found = found._replace(timeout_s=min(timeout_ms, TIMEOUT_MS_MAX) / 1000)
    start = _parse_record(query)
    if start is None:
        for name in ("max_records", "record_view"):
            if name in query:
                raise InvalidRequest(f"{name} needs record or tail_records")
        return found._replace(size_max=size_max)
    if found.start is not None or size_max is not None:
        raise InvalidRequest("record and tail_records exclude offset, since and max_bytes")
    view = query.get("record_view")
    if view is not None and view != ENVELOPE:
        raise InvalidRequest(f"record_view is {ENVELOPE}. received={view!r}")
    return found._replace(start=start, records_max=_number(query, "max_records"), view=view)


def _parse_record(query: dict[str, str]) -> AtRecord | None:
    if "record" not in query:
        last = _number(query, "tail_records", low=0)
        return None if last is None else AtRecord(last, from_tail=True)
    if "tail_records" in query:
        raise InvalidRequest("send record or tail_records, not both")
    if query["record"] == "now":
        return AtRecord(0, from_tail=True)
    number = _number(query, "record", low=0)
    return None if number is None else AtRecord(number)


def _number(query: dict[str, str], name: str, *, low: int = 1) -> int | None:
    text = query.get(name)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= 16 and int(text) >= low):
        raise InvalidRequest(f"{name} is a whole number from {low}. received={text!r}")
    return int(text)


def parse_set_attributes(request: Request, address: Address, at_ms: TimestampMs) -> SetAttributes:
    """PUT {stream}/attrs."""
    content_type = durable.parse_content_type(request)
    if content_type is None or jsonmode.media_type(content_type) != jsonmode.JSON_MEDIA_TYPE:
        raise InvalidRequest(f"attributes are sent as {jsonmode.JSON_MEDIA_TYPE}")
    found = attributes.parse_attributes(request.body, field="the body")
    return SetAttributes(*address, at_ms, found)
