"""The documents say what the code does: links, commands, and every table that repeats the code."""

from __future__ import annotations

import asyncio
import inspect
import json
import re
from pathlib import Path

import msgspec
import pytest

from headwater.core import errors, records
from headwater.core.errors import HeadwaterError
from headwater.core.stream import StreamState
from headwater.core.types import START, BatchSeq, ByteOffset, Epoch, SeqNum, StreamId
from headwater.dialects.durable import errors as rendering
from headwater.dialects.durable import requests, responses, routes, subscriptions
from headwater.dialects.durable.errors import RENDERERS, render_error
from headwater.engine import sealing
from headwater.server.app import App, Server
from headwater.server.settings import Settings
from headwater.storage import keys, runs
from headwater.storage.runs import RunBuilder
from headwater.wire import headers

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = [*sorted(ROOT.glob("*.md")), *sorted(DOCS.rglob("*.md"))]

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def read(name: str) -> str:
    return (DOCS / name).read_text()


def prose(text: str) -> str:
    return _FENCE.sub("", text)


def section(text: str, title: str) -> str:
    """What stands under a heading, up to the next one of the same level."""
    found = re.search(rf"^(#+) {re.escape(title)}$", text, re.MULTILINE)
    assert found is not None, f"no section {title!r}"
    rest = text[found.end() :]
    end = re.search(rf"^#{{1,{len(found[1])}}} ", rest, re.MULTILINE)
    return rest[: end.start()] if end else rest


def rows(text: str) -> list[list[str]]:
    """The cells of every table row, without heads and rules."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    ruled = [number for number, row in enumerate(cells) if set(row[0]) <= {"-", ":"} and row[0]]
    skipped = {*ruled, *(number - 1 for number in ruled)}
    return [row for number, row in enumerate(cells) if number not in skipped]


def quoted(text: str) -> list[str]:
    return re.findall(r"`([^`]+)`", text)


# -- links and commands


def anchors(text: str) -> set[str]:
    """As GitHub makes them."""
    plain = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in _HEADING.findall(prose(text)))
    return {heading.strip().replace(" ", "-") for heading in plain}


def leads_somewhere(page: Path, target: str) -> bool:
    path, _, anchor = target.partition("#")
    found = (page.parent / path).resolve() if path else page
    if not found.exists() or not found.is_relative_to(ROOT):
        return False
    return not anchor or anchor in anchors(found.read_text())


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_relative_link_leads_somewhere(page: Path) -> None:
    targets = _LINK.findall(prose(page.read_text()))
    relative = [target for target in targets if not re.match(r"[a-z]+:", target)]
    assert [target for target in relative if not leads_somewhere(page, target)] == []


def test_every_page_can_be_reached_from_the_readme() -> None:
    reached, todo = set[Path](), [ROOT / "README.md"]
    while todo:
        page = todo.pop()
        if page in reached or page.suffix != ".md" or not page.is_file():
            continue
        reached.add(page)
        targets = _LINK.findall(prose(page.read_text()))
        todo += [(page.parent / target.split("#")[0]).resolve() for target in targets]
    assert set(PAGES) <= reached


def test_make_commands_in_the_documents_are_targets() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for page in PAGES:
        text = page.read_text()
        shell = "\n".join(body for kind, body in _FENCE.findall(text) if kind == "sh")
        inline = "\n".join(quoted(prose(text)))
        used = set(re.findall(r"^make ([a-z]+)", f"{shell}\n{inline}", re.MULTILINE))
        assert used <= targets, page.name
    assert {"run", "test"} <= set(re.findall(r"^make ([a-z]+)", read("../README.md"), re.MULTILINE))


def test_decisions_that_the_code_cites_exist() -> None:
    sources = (path.read_text() for path in (ROOT / "src").rglob("*.py"))
    cited = {number for text in sources for number in re.findall(r"ADR (\d{4})", text)}
    written = {path.name[:4] for path in (DOCS / "decisions").glob("*.md")}
    assert cited <= written


def test_source_files_that_the_documents_name_exist() -> None:
    layers = r"(?:core|wire|storage|engine|dialects|server|cli|tests)/[\w/*]+\.py"
    for page in PAGES:
        named = [text for text in quoted(prose(page.read_text())) if re.fullmatch(layers, text)]
        missing = [
            path
            for path in named
            if not any(
                found for folder in ("src/headwater", ".") for found in (ROOT / folder).glob(path)
            )
        ]
        assert missing == [], page.name


# -- errors

SAMPLES: list[HeadwaterError] = [
    errors.StreamClosed(START),
    errors.ContentTypeMismatch(expected="text/plain", received="text/html"),
    errors.PreconditionFailed(START, message_next=0),
    errors.InvalidRecord(0, ""),
    errors.FencingTokenMismatch("a"),
    errors.KeyRequired("aes-256-gcm"),
    errors.DecryptionFailed("aes-256-gcm"),
    errors.CipherExhausted("aes-256-gcm", 2**32),
    errors.SequenceRegression(last="b", received="a"),
    errors.ProducerFenced(Epoch(1)),
    errors.ProducerGap(expected=BatchSeq(1), received=BatchSeq(2)),
    errors.InvalidRequest(""),
    errors.InvalidOffset("", tail=START),
    errors.OffsetTrimmed(START),
    errors.StreamNotFound("a"),
    errors.NotFound(""),
    errors.Conflict(""),
    errors.BucketNotFound("b"),
    errors.BucketExists("b"),
    errors.BucketDeleting("b"),
    errors.StreamGone("a"),
    errors.StreamExists(""),
    errors.ForkRefused(""),
    errors.Unauthenticated(""),
    errors.PermissionDenied("", stream="a"),
    errors.TooManyRequests(""),
    errors.Overloaded(""),
    errors.ReadOnly(),
    errors.DiskFull(),
    errors.StorageFailed(),
    errors.Corruption(""),
]


def rendered(error: HeadwaterError) -> tuple[str, str]:
    response = render_error(error)
    assert isinstance(response.body, bytes)
    return json.loads(response.body)["error"]["code"], str(response.status)


def test_there_is_a_sample_of_every_error() -> None:
    assert [type(sample) for sample in SAMPLES] == list(RENDERERS)


def test_the_table_of_errors_is_the_one_of_the_dialect() -> None:
    expected = [
        [f"`{code}`", status, f"`{type(sample).__name__}`", sample.effect.value]
        for sample in SAMPLES
        for code, status in [rendered(sample)]
    ]
    found = rows(section(read("errors.md"), "Streams"))
    assert [[*row[:3], row[5]] for row in found] == expected


def test_headers_that_come_with_an_error_are_named() -> None:
    table = rows(section(read("errors.md"), "Streams"))
    texts = {quoted(row[0])[0]: " ".join(row) for row in table}
    for sample in SAMPLES:
        for name, _ in render_error(sample).headers:
            if name.startswith((b"stream-", b"producer-", b"retry-")):
                code, _ = rendered(sample)
                assert f"`{name.decode()}" in texts[code].lower(), code


def test_the_table_of_http_errors_is_the_one_of_the_server() -> None:
    app = App()
    other = {"not_found", "method_not_allowed", "rate_limited"}
    for code, status, _ in rows(section(read("errors.md"), "HTTP")):
        if quoted(code)[0] not in other:
            body = app.refuse(int(status), "").body
            assert isinstance(body, bytes)
            assert json.loads(body)["error"]["code"] == quoted(code)[0]


def test_the_table_of_subscription_errors_is_the_one_of_the_dialect() -> None:
    expected = [[f"`{code.value}`", str(status)] for code, status in subscriptions.STATUS.items()]
    found = rows(section(read("errors.md"), "Subscriptions"))
    assert [row[:2] for row in found] == expected


# -- storage format


def drawing(module: object) -> str:
    """The indented drawing in a module's docstring."""
    doc = inspect.getdoc(module) or ""
    lines = [line[4:] for line in doc.splitlines() if line.startswith("    ")]
    assert len(lines) > 3
    return "\n".join(lines)


def test_keys_and_runs_are_drawn_as_in_the_code() -> None:
    page = read("storage-format.md")
    assert drawing(keys) in page
    assert drawing(runs) in page
    assert drawing(sealing) in page


def test_the_example_of_a_run_is_what_the_code_writes() -> None:
    example = section(read("storage-format.md"), "An example")
    key, value = (body for _, body in _FENCE.findall(example))
    builder = RunBuilder(SeqNum(1), ByteOffset(16), 1, json=True)
    builder.add(b'{"n":2}', records.APPEND_START, 1_750_000_000_000)
    pairs = "".join(re.match(r"(?:[0-9a-f]{2} ?)+", line)[0] for line in value.splitlines())  # type: ignore[index]
    assert bytes.fromhex(key) == keys.run(StreamId(5), SeqNum(1))
    assert bytes.fromhex(pairs) == builder.encode()


@pytest.mark.parametrize(
    ("title", "module", "names"),
    [
        ("Bit", runs, ("JSON", "PARTS", "COMMANDS", "HEADERS", "CHANGES")),
        ("Flag", records, ("APPEND_START", "CONTINUES", "COMMAND", "HAS_HEADERS")),
    ],
    ids=["bits", "flags"],
)
def test_bits_and_flags_are_those_of_the_code(
    title: str, module: object, names: tuple[str, ...]
) -> None:
    listed = {tuple(row[:2]) for row in rows(section(read("storage-format.md"), "Runs and chunks"))}
    assert {(str(getattr(module, name)), name) for name in names} <= listed, title


def test_every_field_of_a_checkpoint_is_explained() -> None:
    table = rows(section(read("storage-format.md"), "Checkpoints"))
    explained = [name for row in table for name in quoted(row[0])]
    assert explained == [field.name for field in msgspec.structs.fields(StreamState)]


# -- the API and the metrics


def test_every_header_of_the_protocol_is_documented() -> None:
    sources = "".join(map(inspect.getsource, (requests, responses, routes, rendering, headers)))
    used = set(re.findall(r'b"((?:stream|producer)-[a-z-]+)"', sources))
    page = read("api/durable.md").lower()
    assert len(used) > 10
    assert [name for name in sorted(used) if f"`{name}" not in page] == []


async def fetch_metrics(folder: Path) -> str:
    server = Server(Settings(port=0, data_dir=str(folder)))
    await server.start()
    try:
        host, port = server.url.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"GET /metrics HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        page = await reader.read()
        writer.close()
        return page.decode()
    finally:
        await server.stop()


def test_every_metric_is_documented(tmp_path: Path) -> None:
    page = asyncio.run(fetch_metrics(tmp_path))
    served = set(re.findall(r"^# TYPE (headwater_\w+)", page, re.MULTILINE))
    table = rows(section(read("operations.md"), "Metrics"))
    documented = {name for row in table for name in quoted(row[0])}
    assert documented == served
