"""Ranges on their way: slow clients, clients that go, streams that end, a server that stops."""

from __future__ import annotations

import os
import tracemalloc

import pytest

from headwater.core.commands import Trim
from headwater.core.limits import KIB, MIB
from headwater.core.types import ByteOffset, Position, SeqNum
from headwater.engine import records
from headwater.storage import keys
from tests.support.durable import BYTES
from tests.support.log import LogServer, decode_table

FORMS = pytest.mark.parametrize("arrow", [False, True], ids=["ndjson", "arrow"])
PATH = "records/durable-streams/s"


def fill(server: LogServer, count: int, size: int) -> list[bytes]:
    server.make("s", content_type=BYTES)
    bodies = [os.urandom(size) for _ in range(count)]
    server.add("s", bodies)
    return bodies


@FORMS
def test_a_slow_client_is_waited_for_and_gets_everything(server: LogServer, arrow: bool) -> None:
    bodies = fill(server, 80, 64 * KIB)
    whole = server.records("s", arrow=arrow).body
    download = server.download("s", slow=True, arrow=arrow)
    steps = 1
    while not download.writer.finished:
        before = len(download.writer.writes)
        server.settle()
        assert len(download.writer.writes) == before, "written to a client that is slow"
        download.drain()
        steps += 1
    assert download.received == whole
    assert steps > 3
    if arrow:
        assert decode_table(whole).column("body").to_pylist() == bodies


@FORMS
def test_what_a_slow_client_costs_is_bounded(server: LogServer, arrow: bool) -> None:
    """Other than the whole range, which is 20 MiB here."""
    fill(server, 320, 64 * KIB)
    server.records("s", "limit=1", arrow=arrow)
    tracemalloc.start()
    try:
        downloads = [server.download("s", slow=True, arrow=arrow) for _ in range(3)]
        largest = 0
        for download in downloads:
            for _ in range(5):
                largest = max(largest, max(len(part) for part in download.writer.writes))
                download.writer.writes.clear()  # sent
                download.drain()
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert largest < 4 * MIB
    assert held < 3 * 8 * MIB


@FORMS
def test_others_have_their_turn_between_steps(
    server: LogServer, arrow: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "STEP_BYTES", KIB)
    server.engine.packer.enabled = False
    server.make("s", *[b"x" * KIB] * 100)
    turns = 0

    def count() -> None:
        nonlocal turns
        turns += 1
        server.runner.loop.call_soon(count)

    server.runner.loop.call_soon(count)
    assert server.download("s", arrow=arrow).writer.finished
    assert turns >= 90


@FORMS
def test_a_client_that_goes_away_ends_the_reading(server: LogServer, arrow: bool) -> None:
    fill(server, 80, 64 * KIB)
    download = server.download("s", slow=True, arrow=arrow)
    on_close, on_drain = download.writer.on_close, download.writer.on_drain
    assert on_close is not None and on_drain is not None
    on_close()
    on_drain()
    server.runner.turn(10)
    assert len(download.writer.writes) == 1
    assert not download.writer.finished and not download.writer.aborted


@FORMS
def test_a_server_that_stops_lets_a_range_reach_its_end(server: LogServer, arrow: bool) -> None:
    fill(server, 80, 64 * KIB)
    download = server.download("s", slow=True, arrow=arrow)
    assert download.writer.on_shutdown is not None
    download.writer.on_shutdown()
    assert not download.writer.finished
    while not download.writer.finished:
        download.drain()
    assert download.received == server.records("s", arrow=arrow).body


@FORMS
def test_a_stream_that_is_deleted_meanwhile_cuts_the_answer_off(
    server: LogServer, arrow: bool
) -> None:
    fill(server, 80, 64 * KIB)
    download = server.download("s", slow=True, arrow=arrow)
    server.delete("s")
    server.make("s", b"another of the same name")
    server.advance(3)  # its records are removed
    while not download.writer.aborted:
        download.drain()
    assert not download.writer.finished


@FORMS
def test_records_that_are_trimmed_meanwhile_cut_the_answer_off(
    server: LogServer, arrow: bool
) -> None:
    fill(server, 80, 64 * KIB)
    download = server.download("s", slow=True, arrow=arrow)
    to = Position(SeqNum(79), ByteOffset(79 * 64 * KIB))
    server.submit(Trim("durable-streams", "s", server.clock.now_ms(), to))
    while not download.writer.aborted:
        download.drain()
    assert not download.writer.finished


@FORMS
def test_packing_meanwhile_does_not_disturb(
    server: LogServer, arrow: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs that were read from are joined with those before them."""
    monkeypatch.setattr(records, "STEP_BYTES", KIB)
    server.engine.packer.enabled = False
    server.make("s", content_type=BYTES)
    server.append("s", *[b"%d" % number * 300 for number in range(60)])
    whole = server.records("s", arrow=arrow).body
    download = server.download("s", slow=True, arrow=arrow)
    server.engine.packer.enabled = True
    server.append("s", *[b"x" * 300] * 20)
    assert server.info()["storage"]["runs"] < 60
    while not download.writer.finished:
        download.drain()
    assert download.received == whole


@FORMS
def test_corruption_cuts_the_answer_off_and_is_reported(
    server: LogServer, arrow: bool, caplog: pytest.LogCaptureFixture
) -> None:
    fill(server, 80, 64 * KIB)
    download = server.download("s", slow=True, arrow=arrow)
    stream = server.engine.open("durable-streams", "s")
    start, end = keys.run(stream.state.id, SeqNum(20)), keys.run_end(stream.state.id)
    batch = server.engine.store.batch()
    for key, value in server.engine.store.scan(start, end):
        batch.put(key, value[:-5] + b"oops!")
    server.engine.store.write(batch)
    while not download.writer.aborted:
        download.drain()
    assert not download.writer.finished
    assert "fails its checksum" in caplog.text


def test_a_stream_that_left_memory_meanwhile_is_read_on(server: LogServer) -> None:
    fill(server, 80, 64 * KIB)
    whole = server.records("s").body
    download = server.download("s", slow=True)
    server.engine.shard.hot_streams_max = 1
    server.make("other")
    while not download.writer.finished:
        download.drain()
    assert download.received == whole
