"""docs/api/log.md says what the code does."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa

from headwater.core import limits
from headwater.dialects.log import downloads, openapi, requests, responses
from headwater.dialects.log.errors import RENDERERS, render_error
from headwater.dialects.log.requests import ARROW_TYPE, NDJSON_TYPE
from headwater.engine import lineage, stats
from headwater.wire import arrow, arrow_check
from tests.dialects.log.test_errors import EXAMPLES
from tests.support.log import LogReply

PAGE = (Path(__file__).parents[3] / "docs/api/log.md").read_text()


def section(title: str) -> str:
    found = re.search(rf"^(#+) {re.escape(title)}$(.*?)(?=^#{{1,3}} |\Z)", PAGE, re.M | re.S)
    assert found is not None, title
    return found[2]


def first_cells(text: str) -> list[str]:
    """What is quoted in the first cell of each row."""
    cells = [line.split("|")[1] for line in text.splitlines() if line.startswith("| `")]
    return [name for cell in cells for name in re.findall(r"`([^`]+)`", cell)]


def test_every_path_is_listed() -> None:
    listed = {tuple(name.split()) for name in first_cells(PAGE) if name.startswith(("GET", "POST"))}
    document = openapi.document()
    served = {
        (method.upper(), path) for path, methods in document["paths"].items() for method in methods
    }
    assert listed == served


def test_every_parameter_is_explained() -> None:
    assert first_cells(section("List streams"))[: len(requests.STREAMS_QUERY)] == list(
        requests.STREAMS_QUERY
    )
    assert first_cells(section("Read records"))[: len(requests.RECORDS_QUERY)] == list(
        requests.RECORDS_QUERY
    )
    assert first_cells(section("Trim")) == list(requests.TRIM_QUERY)


def test_every_field_of_an_answer_is_explained() -> None:
    summary = list(responses.StreamSummary.__struct_fields__)
    listed = responses.ListedStream.__struct_fields__
    assert sorted(first_cells(section("List streams"))) == sorted(
        [*requests.STREAMS_QUERY, *listed]
    )
    info = [name for name in responses.StreamInfo.__struct_fields__ if name not in summary]
    assert first_cells(section("Everything about a stream")) == info
    assert first_cells(section("How busy the server was")) == list(
        responses.ServerStats.__struct_fields__
    )
    for name in responses.Rates.__struct_fields__:
        assert f"`{name}`" in section("How busy the server was")
    for name in responses.AppendResult.__struct_fields__:
        assert f'"{name}"' in section("Append records")
    lines = first_cells(section("Lines"))
    assert sorted(lines) == sorted(openapi.RecordLine.__struct_fields__)


def test_the_columns_are_those_of_the_code() -> None:
    assert first_cells(section("Arrow")) == arrow.SCHEMA.names
    types = re.findall(r"^\| `\w+` \| `([^`]+)`", section("Arrow"), re.M)
    plain = [
        str(kind).replace(" not null", "").replace("item: ", "") for kind in arrow.SCHEMA.types
    ]
    assert types == [kind.replace("tz=", "") for kind in plain]
    assert first_cells(section("Append records"))[:2] == ["body", "headers"]
    assert pa.types.is_binary(arrow.SCHEMA.field("body").type)


def test_limits_are_those_of_the_code() -> None:
    assert f"| records | {limits.APPEND_RECORDS_MAX:,} |" in PAGE
    assert f"| record batches | {arrow_check.BATCHES_MAX:,} |" in PAGE
    assert f"| {limits.RECORD_HEADERS_BYTES_MAX:,} bytes" in PAGE
    assert f"{limits.RECORD_BODY_BYTES_MAX // 1024} KiB" in PAGE
    assert f"1 to {requests.STREAMS_LIMIT_MAX:,}; {requests.STREAMS_LIMIT} unless given" in PAGE
    assert f"about {downloads.BATCH_ROWS:,} rows or {downloads.BATCH_BYTES >> 20} MiB" in PAGE
    assert f"{lineage.LOOKS_MAX:,} streams" in PAGE
    assert f"last {stats.SAMPLES_MAX} seconds" in PAGE
    assert f"of the {responses.PRODUCERS_SHOWN_MAX} heard of last" in PAGE
    assert ARROW_TYPE in PAGE and NDJSON_TYPE in PAGE


def test_the_table_of_errors_is_the_one_of_the_dialect() -> None:
    """Without those that no request here can meet."""
    elsewhere = {
        "content_type_mismatch",
        "sequence_regression",
        "stream_exists",
        "fork_refused",
        "not_found",
        "fencing_token_mismatch",
        "bucket_not_found",
        "bucket_exists",
        "bucket_deleting",
    }
    replies = [LogReply(render_error(error)) for error, *_ in EXAMPLES]
    expected = {(reply.error, str(reply.status)) for reply in replies}
    rows = re.findall(r"^\| `(\w+)` \| (\d+) \| (.*) \|$", section("Errors"), re.M)
    assert {(code, status) for code, status, _ in rows} == {
        (code, status) for code, status in expected if code not in elsewhere
    }
    hidden = 1  # PermissionDenied looks like a stream that is not there
    assert len(rows) + len(elsewhere) + hidden == len(RENDERERS)
    meanings = {code: meaning.lower() for code, _, meaning in rows}
    for reply in replies:
        for name in reply.headers:
            if name.startswith(("log-", "producer-", "retry-")) and name != "log-version":
                assert f"`{name}`" in meanings[reply.error], name
