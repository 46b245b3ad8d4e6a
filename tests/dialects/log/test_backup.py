"""GET backup: the whole store as a tar file, while the server goes on."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from headwater.core.access import EVERYTHING, Grant, Scope
from headwater.core.pending import Pending
from headwater.dialects.log.routes import ROOT
from headwater.storage.check import check_store
from headwater.storage.rocks import RocksStore
from headwater.storage.store import SHARD_FOLDER
from headwater.wire.http import Request, Response, Route, StreamedResponse
from tests.support.durable import Writer
from tests.support.engines import EngineRunner
from tests.support.log import LogServer


@pytest.fixture
def server(tmp_path: Path) -> Iterator[LogServer]:
    """A server on disk, with one stream."""
    store = RocksStore(tmp_path / SHARD_FOLDER)
    with LogServer(store) as server:
        server.make("s", b"before")
        yield server
    store.close()


def ask(server: LogServer, method: str = "GET", grant: Grant | None = None) -> Response:
    request = Request(method, f"{ROOT}/backup", "", {})
    request.grant = grant
    route = server.log.begin(request)
    assert isinstance(route, Route)
    answer = route.handle(request)
    return server.runner.result(answer)


def begin(server: LogServer) -> tuple[StreamedResponse, Writer]:
    response = ask(server)
    assert isinstance(response, StreamedResponse)
    writer = Writer()
    response.start(writer)
    return response, writer


def copies(folder: Path) -> list[Path]:
    return list(folder.glob(f".{SHARD_FOLDER}-copy-*"))


def wait_for(server: LogServer, condition: object) -> None:
    assert callable(condition)
    deadline = server.runner.loop.time() + 10
    while not condition():
        assert server.runner.loop.time() < deadline
        server.runner.turn()


def test_it_is_of_one_moment_and_the_server_goes_on(server: LogServer, tmp_path: Path) -> None:
    response, writer = begin(server)
    server.append("s", b"after")
    wait_for(server, lambda: writer.finished)
    sent = b"".join(map(bytes, writer.writes))
    assert dict(response.headers)[b"content-length"] == b"%d" % len(sent)
    with tarfile.open(fileobj=io.BytesIO(sent)) as archive:
        archive.extractall(tmp_path / "restored", filter="data")
    store = RocksStore(tmp_path / "restored" / SHARD_FOLDER)
    assert check_store(store).problems == []
    with EngineRunner(store) as runner:
        stream = runner.engine.open("durable-streams", "s")
        found = runner.engine.read_now(stream, stream.state.first, 1000)
        assert b"".join(map(bytes, found.buffers)) == b"before"
    store.close()
    wait_for(server, lambda: not copies(tmp_path))


def test_a_slow_client_is_waited_for_and_one_that_leaves_is_cleaned_up_after(
    server: LogServer, tmp_path: Path
) -> None:
    writer = Writer()
    writer.slow = True
    response = ask(server)
    assert isinstance(response, StreamedResponse)
    response.start(writer)
    wait_for(server, lambda: writer.writes)
    server.runner.turn(20)
    assert len(writer.writes) == 1
    assert copies(tmp_path)
    assert writer.on_close is not None
    writer.on_close()
    wait_for(server, lambda: not copies(tmp_path))


def test_a_copy_that_cannot_be_read_is_cut_off(
    server: LogServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    response = ask(server)
    assert isinstance(response, StreamedResponse)
    (copy,) = copies(tmp_path)
    for file in copy.iterdir():
        file.unlink()
    writer = Writer()
    response.start(writer)
    wait_for(server, lambda: writer.aborted)
    assert not writer.finished
    assert "could not be read to its end" in caplog.text
    wait_for(server, lambda: not copies(tmp_path))


def test_a_client_that_leaves_before_it_begins_leaves_nothing(
    server: LogServer, tmp_path: Path
) -> None:
    request = Request("GET", f"{ROOT}/backup", "", {})
    route = server.log.begin(request)
    assert isinstance(route, Route)
    answer = route.handle(request)
    assert isinstance(answer, Pending)
    answer.cancel()
    wait_for(server, lambda: copies(tmp_path))
    wait_for(server, lambda: not copies(tmp_path))


def test_head_makes_no_copy(server: LogServer, tmp_path: Path) -> None:
    assert ask(server, "HEAD").status == 200
    assert copies(tmp_path) == []


def test_what_a_crash_left_is_removed_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "copy-of-mine").mkdir()
    left_over = tmp_path / f".{SHARD_FOLDER}-copy-1"
    left_over.mkdir()
    (left_over / "file").touch()
    RocksStore(tmp_path / SHARD_FOLDER).close()
    assert {path.name for path in tmp_path.iterdir()} == {SHARD_FOLDER, "copy-of-mine"}


def test_it_takes_a_token_for_everything(server: LogServer) -> None:
    assert ask(server, grant=Grant("root", EVERYTHING)).status == 200
    narrow = Scope(*(EVERYTHING.basins, EVERYTHING.streams, None, EVERYTHING.op_groups))
    assert ask(server, grant=Grant("other", narrow)).status == 404
    server.runner.turn(50)


def test_in_memory_there_is_nothing_to_copy() -> None:
    with LogServer() as server:
        assert ask(server).status == 409
