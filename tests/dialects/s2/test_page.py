"""docs/api/s2.md says what the code does, and its examples work."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from headwater.core.limits import RECORD_BODY_BYTES_MAX
from headwater.dialects.common import ALLOWED_HEADERS
from headwater.dialects.s2 import metrics, requests
from headwater.dialects.s2.errors import STATUSES
from headwater.dialects.s2.routes import OPERATIONS, ROOT
from headwater.wire.s2 import frames
from tests.support.inprocess import ServingThread, serving

PAGE = (Path(__file__).parents[3] / "docs/api/s2.md").read_text()
EXAMPLES = re.findall(r"^```sh\n(curl .*?)^```\n```(\w*)\n(.*?)^```$", PAGE, re.M | re.S)


def section(title: str) -> str:
    found = re.search(rf"^(#+) {re.escape(title)}$(.*?)(?=^#{{1,3}} |\Z)", PAGE, re.M | re.S)
    assert found is not None, title
    return found[2]


def rows(text: str) -> list[list[str]]:
    lines = [line.strip("|") for line in text.splitlines() if line.startswith("| `")]
    return [[cell.strip().strip("`") for cell in line.split("|")] for line in lines]


def test_every_route_is_listed_with_its_operation() -> None:
    listed = [row[:2] for row in rows(PAGE) if re.match(r"[A-Z]+ /", row[0])]

    assert listed == [
        [f"{operation.method} {ROOT}/{operation.path}", operation.name] for operation in OPERATIONS
    ]


def test_every_code_is_listed_with_its_status() -> None:
    listed = {row[0]: int(row[1]) for row in rows(section("Errors"))}

    assert listed == STATUSES


def test_every_parameter_of_a_read_is_explained() -> None:
    listed = [row[0] for row in rows(section("Read records"))]

    assert sorted(listed) == sorted([*requests.READ_PARAMETERS, "clamp"])


def test_a_page_in_a_browser_may_send_every_header_of_a_request() -> None:
    listed = PAGE.partition("| Header of a request |")[2].partition("\n\n")[0]
    names = {name.lower() for row in rows(listed) for name in re.findall(r"[\w-]+", row[0])}

    allowed = {name.decode().lower() for name in ALLOWED_HEADERS}

    assert len(names) > 9
    assert names <= allowed | {"accept-encoding"}, "browsers set that one themselves"
    assert len(allowed) == len(ALLOWED_HEADERS), "each is named once"


def test_every_set_of_metrics_is_named() -> None:
    lines = [line for line in section("Metrics").splitlines() if line.startswith("| `/v1")]
    named = [tuple(re.findall(r"`([a-z-]+)`", line)) for line in lines]

    assert named == [metrics.ACCOUNT_SETS, metrics.BASIN_SETS, metrics.STREAM_SETS]


def test_the_limits_are_those_of_the_code() -> None:
    assert f"{RECORD_BODY_BYTES_MAX:,} bytes" in PAGE
    assert (requests.BATCH_RECORDS_MAX, requests.BATCH_BYTES_MAX) == (1000, 1 << 20)
    assert (requests.WAIT_S_MAX, frames.FRAME_BYTES_MAX) == (60, 2 << 20)


@pytest.fixture(scope="module")
def server() -> Iterator[ServingThread]:
    with serving() as server:
        yield server


def run(server: ServingThread, command: str) -> str:
    """As curl would, against this server."""
    words = iter(shlex.split(command.replace("\\\n", " "))[1:])
    method, url, headers, body = "GET", "", {}, None
    for word in words:
        if word == "-X":
            method = next(words)
        elif word == "-H":
            name, _, value = next(words).partition(": ")
            headers[name] = value
        elif word == "-d":
            body = next(words)
        elif word != "-N":
            url = word
    parts = urlsplit(url)
    assert parts.netloc == "127.0.0.1:4437"
    connection = HTTPConnection(urlsplit(server.url).netloc, timeout=10)
    path = parts.path + (f"?{parts.query}" if parts.query else "")
    connection.request(method, path, body, headers)
    response = connection.getresponse()
    text = response.read().decode()
    connection.close()
    assert response.status < 300, text
    return text


def plain(text: str) -> str:
    """Times differ."""
    text = re.sub(r"\d{4}-\d\d-\d\dT[\d:.]+Z", "TIME", text)
    return re.sub(r"\d{13}", "0", text).strip()


def test_the_examples_answer_as_they_are_shown(server: ServingThread) -> None:
    assert len(EXAMPLES) == 7
    for command, kind, shown in EXAMPLES:
        found = plain(run(server, command))
        if kind == "json":
            assert json.loads(found) == json.loads(plain(shown)), command
        else:
            assert found == plain(shown), command
