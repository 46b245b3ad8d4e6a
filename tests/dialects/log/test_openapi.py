"""The OpenAPI document is true: every route, method and parameter, and the bodies of answers."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest

from headwater.dialects.log import requests
from headwater.dialects.log.errors import RENDERERS, render_error
from headwater.dialects.log.requests import ARROW_TYPE, NDJSON_TYPE
from headwater.dialects.log.routes import ROOT
from tests.dialects.log.test_errors import EXAMPLES
from tests.support.durable import JSON, producer
from tests.support.log import LogReply, LogServer, encode_records


@pytest.fixture
def document(server: LogServer) -> dict[str, Any]:
    found: dict[str, Any] = server.fetch("openapi.json").json
    return found


def operations(document: dict[str, Any]) -> dict[tuple[str, str], dict[str, Any]]:
    return {
        (path, method.upper()): operation
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    }


def parameters(operation: dict[str, Any], place: str) -> list[str]:
    return [each["name"] for each in operation["parameters"] if each["in"] == place]


def check(document: dict[str, Any], name: str, value: object) -> None:
    """Does a body have the form that the document gives?"""
    schema = {"$ref": f"#/components/schemas/{name}", "components": document["components"]}
    jsonschema.Draft202012Validator(schema).validate(value)


def strict(document: dict[str, Any]) -> dict[str, Any]:
    """The same, but nothing may be there that it does not name."""
    closed: dict[str, Any] = json.loads(json.dumps(document))
    for schema in closed["components"]["schemas"].values():
        schema.setdefault("additionalProperties", False)
    return closed


def test_every_schema_is_one(document: dict[str, Any]) -> None:
    assert document["openapi"].startswith("3.1")
    for schema in document["components"]["schemas"].values():
        jsonschema.Draft202012Validator.check_schema(schema)
    for reference in set(_references(document)):
        assert reference.removeprefix("#/components/schemas/") in document["components"]["schemas"]


def _references(part: Any) -> list[str]:
    if isinstance(part, dict):
        own = [part["$ref"]] if "$ref" in part else []
        return own + [found for value in part.values() for found in _references(value)]
    if isinstance(part, list):
        return [found for value in part for found in _references(value)]
    return []


def test_every_route_and_method_is_in_it_and_no_other(
    server: LogServer, document: dict[str, Any]
) -> None:
    served = {
        (path, method)
        for path in document["paths"]
        for method in ("GET", "POST", "PUT", "DELETE", "PATCH")
        if server.fetch(_fill(path), method=method).status != 405
    }
    assert served == operations(document).keys()
    resources = {path.removeprefix(f"{ROOT}/").partition("/")[0] for path in document["paths"]}
    assert resources == set(server.log._routes)  # noqa: SLF001


def _fill(path: str) -> str:
    return path.removeprefix(f"{ROOT}/").replace("{bucket}", "b").replace("{name}", "s")


def test_every_parameter_is_in_it_and_is_taken(server: LogServer, document: dict[str, Any]) -> None:
    found = operations(document)
    listing = found[f"{ROOT}/streams", "GET"]
    reading = found[f"{ROOT}/records/{{bucket}}/{{name}}", "GET"]
    assert parameters(listing, "query") == list(requests.STREAMS_QUERY)
    assert parameters(reading, "query") == list(requests.RECORDS_QUERY)
    for (path, method), operation in found.items():
        names = parameters(operation, "query")
        if method == "GET":
            refused = server.fetch(_fill(path), "no_such=1")
            assert "'no_such'" in refused.message
        for name in names:
            reply = server.fetch(_fill(path), f"{name}=%FF", method=method)
            assert reply.status == 400 and name in reply.message
        assert parameters(operation, "path") == (["bucket", "name"] if "{" in path else [])


def test_limits_and_defaults_are_those_of_the_code(
    server: LogServer, document: dict[str, Any]
) -> None:
    (limit,) = [
        each["schema"]
        for each in operations(document)[f"{ROOT}/streams", "GET"]["parameters"]
        if each["name"] == "limit"
    ]
    assert server.fetch("streams", f"limit={limit['maximum']}").status == 200
    assert server.fetch("streams", f"limit={limit['maximum'] + 1}").status == 400
    assert server.fetch("streams", f"limit={limit['minimum'] - 1}").status == 400


def test_real_answers_have_the_form_it_gives(server: LogServer, document: dict[str, Any]) -> None:
    closed = strict(document)
    server.make("s", b'[1,{"a":2}]', content_type=JSON, stream_ttl="60")
    server.fork("f", "s", stream_retention="bytes=1000")
    server.post("f", b"3", content_type=JSON, **producer())
    server.make("t", b"text", b"\xff")
    server.advance(3)
    check(closed, "StreamList", server.fetch("streams").json)
    check(closed, "StreamList", server.fetch("streams", "limit=1").json)
    for name in ("s", "f", "t"):
        check(closed, "StreamInfo", server.info(name))
        for line in server.records(name).lines:
            check(closed, "RecordLine", line)
    check(closed, "ServerStats", server.fetch("stats").json)
    headers = [[(b"k", b"v"), (b"\xff", b"\xff")]]
    check(closed, "AppendResult", server.add("t", [b"x"], headers, **producer()).json)
    check(closed, "AppendResult", server.add("t", [b"x"], headers, **producer()).json)
    trimmed = server.fetch("trim/durable-streams/t", "to=1", method="POST")
    check(closed, "TrimResult", trimmed.json)
    for line in server.records("t").lines:
        check(closed, "RecordLine", line)
    check(closed, "Error", server.fetch("records/b/none").json)


def test_content_types_and_headers_are_those_of_answers(
    server: LogServer, document: dict[str, Any]
) -> None:
    server.make("s", b"x")
    answer = operations(document)[f"{ROOT}/records/{{bucket}}/{{name}}", "GET"]["responses"]["200"]
    assert answer["content"].keys() == {NDJSON_TYPE, ARROW_TYPE}
    for kind in answer["content"]:
        reply = server.fetch("records/durable-streams/s", accept=kind)
        assert reply.headers["content-type"] == kind
        assert {name.lower() for name in answer["headers"]} <= reply.headers.keys()
    post = operations(document)[f"{ROOT}/records/{{bucket}}/{{name}}", "POST"]
    (kind,) = post["requestBody"]["content"]
    assert server.send("s", encode_records([b"x"]), content_type=kind).status == 200


def test_every_status_of_a_refused_request_is_listed(document: dict[str, Any]) -> None:
    """Those that any request may meet (the server is full, or fails) are left to the page."""
    anywhere = {401, 429, 500, 503, 507}
    elsewhere = {"ContentTypeMismatch", "SequenceRegression", "StreamExists", "ForkRefused"}
    listed = {
        int(status)
        for operation in operations(document).values()
        for status in operation["responses"]
    }
    possible = {
        LogReply(render_error(error)).status
        for error, *_ in EXAMPLES
        if type(error).__name__ not in elsewhere
    }
    assert possible - anywhere == listed - {200}
    assert len(RENDERERS) > len(elsewhere)
