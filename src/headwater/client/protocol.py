"""Requests of the native API and what their answers mean, without any I/O. docs/api/log.md.

Making and closing streams is not the native API's business: those two go to the bucket's own
address (docs/api/ursula.md).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode, urlsplit

from headwater.client.errors import ClientError, Refused, refusal

ROOT = "/v1/log"
ARROW_TYPE = "application/vnd.apache.arrow.stream"
PAGE_STREAMS_MAX = 10_000
"""Most streams that one answer lists."""

RETRY_FIRST_S = 0.05
RETRY_LONGEST_S = 5.0
_RETRIED = frozenset((429, 502, 503, 504))
_TEXT_MAX = 300
_TEXT_SHOWN = 60


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a server is, and what every request to it carries."""

    host: str
    port: int
    secure: bool
    path: str
    headers: Mapping[str, str] = field(repr=False)

    @classmethod
    def parse(
        cls, url: str, *, token: str | None = None, encryption_key: str | None = None
    ) -> Endpoint:
        """Raises ClientError when `url` is not one, or a secret cannot be sent."""
        parts = urlsplit(url)
        try:
            port = parts.port
        except ValueError:
            port = -1
        if parts.scheme not in ("http", "https") or not parts.hostname or port == -1:
            raise ClientError(
                f"the endpoint is a URL such as http://127.0.0.1:4437. received={url!r}"
            )
        if parts.query or parts.fragment or parts.username:
            raise ClientError(f"the endpoint has no user, query or fragment. received={url!r}")
        for what, secret in (("token", token), ("encryption key", encryption_key)):
            if secret and not fits_header(secret):
                raise ClientError(f"the {what} has characters that a header of HTTP cannot carry")
        headers = {}
        if token:
            headers["Authorization"] = f"Bearer {token}"
        if encryption_key:
            headers["s2-encryption-key"] = encryption_key
        secure = parts.scheme == "https"
        default = 443 if secure else 80
        return cls(parts.hostname, port or default, secure, parts.path.rstrip("/"), headers)

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.secure else 'http'}://{host}:{self.port}{self.path}"


def fits_header(text: str) -> bool:
    """Can a header of HTTP have this value?"""
    return text.isprintable() and all(ord(character) < 256 for character in text)


class Request(NamedTuple):
    """One request, without what the endpoint adds."""

    method: str
    path: str
    headers: Mapping[str, str] = {}
    body: Any = None
    """Bytes, or anything with their buffer."""
    repeatable: bool = True
    """Doing it twice is the same as doing it once."""


class Producer(NamedTuple):
    """Who appends, so that a repeat is told from a new append."""

    id: str
    epoch: int
    seq: int


class StreamSummary(NamedTuple):
    """What a list tells about a stream."""

    id: str
    """Of this stream and of no other, not even of a later one with the same name."""
    bucket: str
    name: str
    content_type: str
    closed: bool
    first: int
    tail: int
    bytes: int
    """Retained."""
    created_at_ms: int
    last_record_at_ms: int | None
    bytes_ever: int
    """With those that are no longer retained."""
    seqs_at: tuple[int, ...] = ()
    """For each time that was asked for, the first record that is not older; the tail if all
    are."""


class Page(NamedTuple):
    """A part of a list."""

    streams: list[StreamSummary]
    after: str | None
    """For the next page; None when this is the last."""


class Appended(NamedTuple):
    """The answer to an append."""

    repeat: bool
    """It had been accepted before, so nothing was added."""
    tail: int


def list_streams(
    *,
    bucket: str | None = None,
    prefix: str | None = None,
    pattern: str | None = None,
    after: str | None = None,
    limit: int = PAGE_STREAMS_MAX,
    times_ms: Sequence[int] = (),
) -> Request:
    """With `times_ms`, up to eight, tell which records those times are at."""
    given = {
        "bucket": bucket,
        "prefix": prefix,
        "pattern": pattern,
        "after": after,
        "limit": limit,
        "at_time": ",".join(map(str, times_ms)) or None,
    }
    query = {name: value for name, value in given.items() if value is not None}
    return Request("GET", f"{ROOT}/streams?{urlencode(query)}", {"Accept-Encoding": "identity"})


def read_records(bucket: str, name: str, query: Mapping[str, object]) -> Request:
    path = f"{ROOT}/records/{_address(bucket, name)}?{urlencode(query)}"
    return Request("GET", path, {"Accept": ARROW_TYPE})


def append_records(bucket: str, name: str, body: Any, producer: Producer | None) -> Request:
    """`body` is an Arrow IPC stream with the columns body, and perhaps headers."""
    headers = {"Content-Type": ARROW_TYPE}
    if producer is not None:
        headers["Producer-Id"] = producer.id
        headers["Producer-Epoch"] = str(producer.epoch)
        headers["Producer-Seq"] = str(producer.seq)
    path = f"{ROOT}/records/{_address(bucket, name)}"
    return Request("POST", path, headers, body, repeatable=producer is not None)


def trim_stream(bucket: str, name: str, to: int, stream_id: str) -> Request:
    query = urlencode({"to": to, "id": stream_id})
    return Request("POST", f"{ROOT}/trim/{_address(bucket, name)}?{query}")


def create_stream(
    bucket: str, name: str, content_type: str, headers: Mapping[str, str] | None = None
) -> Request:
    given = {"Content-Type": content_type, **(headers or {})}
    return Request("PUT", _own_path(bucket, name), given)


def close_stream(bucket: str, name: str) -> Request:
    return Request("POST", _own_path(bucket, name), {"Stream-Closed": "true"})


def _own_path(bucket: str, name: str) -> str:
    """The stream's own address. Two names are those of a bucket's resources, unless they are
    written differently."""
    if name in ("streams", "__ds"):
        return f"/{quote(bucket, safe='')}/%{ord(name[0]):02X}{name[1:]}"
    return f"/{_address(bucket, name)}"


def _address(bucket: str, name: str) -> str:
    return f"{quote(bucket, safe='')}/{quote(name, safe='')}"


# -- answers


def check(status: int, headers: Mapping[str, str], body: bytes) -> None:
    """Raises Refused, as the class that fits, unless the answer is a success."""
    if 200 <= status < 300:
        return
    raise _refusal(status, headers, body)


def _refusal(status: int, headers: Mapping[str, str], body: bytes) -> Refused:
    try:
        error = json.loads(body)["error"]
        return refusal(status, str(error["code"]), str(error["message"]), headers)
    except (ValueError, KeyError, TypeError):
        text = body[:_TEXT_MAX].decode("utf-8", "replace").strip()
        return refusal(status, "unknown", text or "the server gave no reason", headers)


def parse_page(body: bytes) -> Page:
    """Raises ClientError for the answer of something else, such as a web server."""
    try:
        found = json.loads(body)
        return Page([_summary(stream) for stream in found["streams"]], found["next"])
    except (ValueError, KeyError, TypeError):
        text = body[:_TEXT_SHOWN].decode("utf-8", "replace")
        raise ClientError(
            f"this is not a Headwater server; look at the endpoint. received={text!r}"
        ) from None


def _summary(found: dict[str, Any]) -> StreamSummary:
    return StreamSummary(
        found["id"],
        found["bucket"],
        found["name"],
        found["content_type"],
        found["state"] == "closed",
        found["first"]["seq_num"],
        found["tail"]["seq_num"],
        found["bytes"],
        found["created_at_ms"],
        found["last_record_at_ms"],
        found["tail"]["byte"],
        tuple(found.get("seq_nums_at", ())),
    )


def parse_appended(body: bytes) -> Appended:
    found = json.loads(body)
    return Appended(found["repeat"], found["tail"]["seq_num"])


# -- retries


def retry_delay_s(attempt: int, chance: float, retry_after: str | None = None) -> float:
    """How long to wait after failure number `attempt`, from 0. `chance` is from 0 to 1."""
    delay = min(RETRY_LONGEST_S, RETRY_FIRST_S * float(1 << min(attempt, 10))) * (0.5 + chance / 2)
    if retry_after is not None and retry_after.isdigit():
        delay = max(delay, min(float(retry_after), RETRY_LONGEST_S))
    return delay


def may_retry(request: Request, status: int) -> bool:
    """Is the answer one that another try may better?"""
    return request.repeatable and status in _RETRIED
