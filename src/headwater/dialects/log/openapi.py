"""The OpenAPI document of the native API, made from the structs that its answers are made of."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import msgspec

from headwater.core import limits
from headwater.dialects.log import requests
from headwater.dialects.log.requests import ARROW_TYPE, NDJSON_TYPE
from headwater.dialects.log.responses import (
    AppendResult,
    ServerStats,
    StreamInfo,
    StreamList,
    TrimResult,
)
from headwater.version import VERSION

_JSON = "application/json"
_TAR = "application/x-tar"
_Schema = dict[str, Any]


class HeaderLine(msgspec.Struct, frozen=True):
    """A header of a record. What is not UTF-8 is in the field with _base64."""

    name: str | msgspec.UnsetType = msgspec.UNSET
    name_base64: str | msgspec.UnsetType = msgspec.UNSET
    value: str | msgspec.UnsetType = msgspec.UNSET
    value_base64: str | msgspec.UnsetType = msgspec.UNSET


class RecordLine(msgspec.Struct, frozen=True):
    """One line of NDJSON: exactly one of value, body and body_base64 is there."""

    seq_num: int
    timestamp: int
    headers: list[HeaderLine]
    flags: int
    value: Any = msgspec.UNSET
    body: str | msgspec.UnsetType = msgspec.UNSET
    body_base64: str | msgspec.UnsetType = msgspec.UNSET


class ErrorFacts(msgspec.Struct, frozen=True):
    """What went wrong: a code to act on, a message for people."""

    code: str
    message: str


class Error(msgspec.Struct, frozen=True):
    """The body of every error."""

    error: ErrorFacts


_BODIES = (StreamList, StreamInfo, ServerStats, AppendResult, TrimResult, RecordLine, Error)

_TIME = "RFC 3339, or milliseconds since 1970."

PARAMETERS: dict[str, tuple[_Schema, str]] = {
    "bucket": ({"type": "string"}, "Streams of this bucket only."),
    "prefix": ({"type": "string"}, "Streams whose names begin with this."),
    "pattern": (
        {"type": "string"},
        "Streams whose names match: * is one segment, ** any number of them.",
    ),
    "after": ({"type": "string"}, "The `next` of the page before."),
    "at_time": (
        {"type": "string"},
        f"Times, up to {requests.TIMES_MAX} with commas between them: tell in seq_nums_at where "
        f"each is in a stream. Each is {_TIME}",
    ),
    "from": ({"type": "integer", "minimum": 0}, "First record; the first retained if absent."),
    "to": (
        {"type": "integer", "minimum": 0},
        "One past the last record; the tail at the time of the request if absent or past it.",
    ),
    "from_time": ({"type": "string"}, f"First record that is not older. {_TIME}"),
    "to_time": ({"type": "string"}, f"Only records that are older. {_TIME}"),
    "view": (
        {"type": "string", "enum": list(requests.VIEWS), "default": requests.VIEWS[0]},
        "Records as they are stored, or messages: parts joined, commands left out.",
    ),
}
"""What each parameter means. `limit` differs between the requests."""

_LIST_LIMIT: tuple[_Schema, str] = (
    {
        "type": "integer",
        "minimum": 1,
        "maximum": requests.STREAMS_LIMIT_MAX,
        "default": requests.STREAMS_LIMIT,
    },
    "Streams on a page.",
)
_ROWS_LIMIT: tuple[_Schema, str] = ({"type": "integer", "minimum": 1}, "Rows at most.")

_TRIM_PARAMETERS: dict[str, tuple[_Schema, str]] = {
    "to": ({"type": "integer", "minimum": 0}, "The first record to keep. Required."),
    "id": ({"type": "string"}, "Only if the stream has this id."),
}

_READ_HEADERS = {
    "Log-Stream-Id": "Whose records these are: the id of a list.",
    "Log-From-Seq": "The first record of the range.",
    "Log-To-Seq": "One past its last record.",
    "Log-First-Seq": "The first record retained.",
    "Log-Tail-Seq": "The tail.",
}

_ERRORS = {
    400: "A parameter, a header or the body is not allowed; the message names it.",
    403: "Producer-Epoch is stale.",
    404: "No such stream.",
    405: "The server is read-only.",
    409: "The stream is closed, or batches of this producer are missing.",
    410: "The records are no longer retained (see Log-First-Seq), or the stream was deleted.",
    412: "The tail is not the one in If-Match; Log-Tail-Seq has it.",
    413: "The body, or what it decompresses to, is too large.",
    416: "from, or to of a trim, is past the tail; Log-Tail-Seq has it.",
    422: "A record breaks a rule; none was added.",
}


def document() -> dict[str, Any]:
    _, components = msgspec.json.schema_components(
        _BODIES, ref_template="#/components/schemas/{name}"
    )
    stream = [_in_path("bucket"), _in_path("name")]
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Headwater native API",
            "version": VERSION,
            "description": "Records by number and many streams at once, for programs. "
            "Every answer carries Log-Version: 1.",
        },
        "paths": {
            "/v1/log/streams": {
                "get": _operation(
                    "List streams of all buckets, with their tails.",
                    _query(requests.STREAMS_QUERY, _LIST_LIMIT),
                    {200: _answer(_JSON, "StreamList")},
                    400,
                )
            },
            "/v1/log/records/{bucket}/{name}": {
                "get": _operation(
                    "Read records by number or time, to the end of the range.",
                    [*stream, *_query(requests.RECORDS_QUERY, _ROWS_LIMIT), _KEY],
                    {200: _records()},
                    *(400, 404, 410, 416),
                ),
                "post": _append(stream),
            },
            "/v1/log/trim/{bucket}/{name}": {
                "post": _operation(
                    "Forget the records before a number, for good.",
                    [*stream, *_query(requests.TRIM_QUERY, _ROWS_LIMIT, _TRIM_PARAMETERS)],
                    {200: _answer(_JSON, "TrimResult")},
                    *(400, 404, 405, 410, 416),
                )
            },
            "/v1/log/info/{bucket}/{name}": {
                "get": _operation(
                    "Everything about one stream.",
                    stream,
                    {200: _answer(_JSON, "StreamInfo")},
                    *(400, 404, 410),
                )
            },
            "/v1/log/stats": {
                "get": _operation(
                    "How busy the server was in the last ten minutes.",
                    [],
                    {200: _answer(_JSON, "ServerStats")},
                )
            },
            "/v1/log/backup": {
                "get": _operation(
                    "The whole data folder as a tar file. Needs a token that permits everything.",
                    [],
                    {200: {"content": {_TAR: {"schema": {"type": "string"}}}}},
                    *(404, 409),
                )
            },
            "/v1/log/openapi.json": {
                "get": _operation("This document.", [], {200: {"content": {_JSON: {"schema": {}}}}})
            },
        },
        "security": [{}, {"token": []}],  # none, unless the server asks for tokens
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


@lru_cache(maxsize=1)
def render() -> bytes:
    return msgspec.json.encode(document())


def _in_path(name: str) -> dict[str, Any]:
    return {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}


def _in_header(name: str, about: str, schema: _Schema) -> dict[str, Any]:
    return {"name": name, "in": "header", "description": about, "schema": schema}


_KEY = _in_header("S2-Encryption-Key", "Of an encrypted stream: 32 bytes in base64.", {})


def _query(
    names: tuple[str, ...],
    limit: tuple[_Schema, str],
    known: dict[str, tuple[_Schema, str]] = PARAMETERS,
) -> list[dict[str, Any]]:
    found = []
    for name in names:
        schema, about = limit if name == "limit" else known[name]
        found.append({"name": name, "in": "query", "description": about, "schema": schema})
    return found


def _operation(
    summary: str,
    parameters: list[dict[str, Any]],
    answers: dict[int, dict[str, Any]],
    *errors: int,
) -> dict[str, Any]:
    found = {str(status): {"description": "Done.", **answer} for status, answer in answers.items()}
    for status in errors:
        found[str(status)] = {"description": _ERRORS[status], **_answer(_JSON, "Error")}
    return {"summary": summary, "parameters": parameters, "responses": found}


def _answer(content_type: str, schema: str) -> dict[str, Any]:
    return {"content": {content_type: {"schema": {"$ref": f"#/components/schemas/{schema}"}}}}


def _records() -> dict[str, Any]:
    lines = {"description": "RecordLine, one a line."}
    return {
        "description": "The records, streamed.",
        "headers": {
            name: {"description": about, "schema": {"type": "integer"}}
            for name, about in _READ_HEADERS.items()
        },
        "content": {NDJSON_TYPE: {"schema": lines}, ARROW_TYPE: {"schema": _binary()}},
    }


def _append(stream: list[dict[str, Any]]) -> dict[str, Any]:
    number = {"type": "integer", "minimum": 0}
    operation = _operation(
        f"Append records, all or none: at most {limits.APPEND_RECORDS_MAX:,}.",
        [
            *stream,
            _in_header("Producer-Id", "With the two others, makes a repeat harmless.", {}),
            _in_header("Producer-Epoch", "Of this producer.", number),
            _in_header("Producer-Seq", "Number of this append, from 0 in each epoch.", number),
            _in_header("If-Match", "The seq_num that the tail must have, or *.", {}),
            _KEY,
        ],
        {200: _answer(_JSON, "AppendResult")},
        *(400, 403, 404, 405, 409, 410, 412, 413, 422),
    )
    operation["requestBody"] = {
        "required": True,
        "description": "Columns: body (binary or string), and perhaps headers "
        "(list of structs name, value).",
        "content": {ARROW_TYPE: {"schema": _binary()}},
    }
    return operation


def _binary() -> _Schema:
    return {"type": "string", "format": "binary"}
