"""The official Python SDK while the server is killed, or stopped, and started again under it.

Nothing is submitted in the moment a connection dies, since the SDK may forget it then: it cancels
its sender between taking a batch and noting that it is in flight. What is in flight when the server
goes away are a few large batches, submitted before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from s2_sdk import (
    AppendInput,
    AppendRetryPolicy,
    BasinConfig,
    Batching,
    CommandRecord,
    FencingTokenMismatchError,
    Record,
    Retry,
    S2Stream,
    SeqNum,
    StreamConfig,
    Timeout,
)

from tests.support.s2_sdk import (
    bodies,
    connect,
    drives,
    fresh_basin,
    fresh_stream,
    read_all,
    records,
)
from tests.support.server import ServerProcess

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(120)]

PERSISTENT = Retry(max_attempts=500, min_base_delay=timedelta(milliseconds=20))
"""Goes on for as long as a restart takes."""
BATCH = 100
HALF = 5 * BATCH
"""Records before the server goes away; as many come after."""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    """One of its own for each test, since it does not stay."""
    with ServerProcess(tmp_path / "data") as server:
        yield server


def kill(server: ServerProcess) -> None:
    server.kill9()
    server.start()


def stop(server: ServerProcess) -> None:
    server.restart()


ways_to_go = pytest.mark.parametrize("interrupt", [kill, stop])


def record(number: int) -> Record:
    return Record(b"%d" % number, [(b"padding", b"." * 8000)])


def batches(first: int, last: int) -> Iterator[AppendInput]:
    for start in range(first, last, BATCH):
        yield AppendInput([record(number) for number in range(start, start + BATCH)])


@ways_to_go
@drives(S2Stream.append_session)
async def test_an_append_session_goes_on_after_a_restart(
    server: ServerProcess, interrupt: Callable[[ServerProcess], None]
) -> None:
    async with fresh_stream(server.url, retry=PERSISTENT) as stream:
        async with stream.append_session() as session:
            tickets = [await session.submit(batch) for batch in batches(0, HALF)]
            await tickets[0]
            await asyncio.to_thread(interrupt, server)
            tickets += [await session.submit(batch) for batch in batches(HALF, 2 * HALF)]
            acks = [await ticket for ticket in tickets]
        found = bodies(await read_all(stream))
        _assert_all_there_in_order(found)
        assert [int(found[ack.start.seq_num]) for ack in acks] == list(range(0, 2 * HALF, BATCH))


@ways_to_go
@drives(S2Stream.producer)
async def test_a_producer_goes_on_after_a_restart(
    server: ServerProcess, interrupt: Callable[[ServerProcess], None]
) -> None:
    async with fresh_stream(server.url, retry=PERSISTENT) as stream:
        batching = Batching(max_records=BATCH, linger=timedelta(0))
        async with stream.producer(batching=batching) as producer:
            tickets = [await producer.submit(record(number)) for number in range(HALF)]
            await tickets[0]
            await asyncio.to_thread(interrupt, server)
            tickets += [await producer.submit(record(number)) for number in range(HALF, 2 * HALF)]
            acks = [await ticket for ticket in tickets]
        found = bodies(await read_all(stream))
        _assert_all_there_in_order(found)
        assert [int(found[ack.seq_num]) for ack in acks] == list(range(2 * HALF))


def _assert_all_there_in_order(found: list[bytes]) -> None:
    """What was sent again may be there twice, after everything before it and before the rest."""
    expected = 0
    for number in map(int, found):
        assert number <= expected, f"{number} before {expected}"
        expected = max(expected, number + 1)
    assert expected == 2 * HALF


@ways_to_go
@drives(S2Stream.read_session)
async def test_a_read_session_goes_on_after_a_restart(
    server: ServerProcess, interrupt: Callable[[ServerProcess], None]
) -> None:
    async with fresh_stream(server.url, retry=PERSISTENT) as stream:
        for batch in batches(0, HALF):
            await stream.append(batch)
        found: list[bytes] = []
        async with stream.read_session(start=SeqNum(0)) as session:
            while len(found) < HALF:
                found += bodies((await anext(session)).records)
            await asyncio.to_thread(interrupt, server)
            for batch in batches(HALF, 2 * HALF):
                await stream.append(batch)
            while len(found) < 2 * HALF:
                found += bodies((await anext(session)).records)
        assert found == [b"%d" % n for n in range(2 * HALF)]


@drives(S2Stream.append)
async def test_an_append_that_never_arrived_may_be_sent_again_safely(server: ServerProcess) -> None:
    retry = Retry(
        max_attempts=500,
        min_base_delay=timedelta(milliseconds=20),
        append_retry_policy=AppendRetryPolicy.NO_SIDE_EFFECTS,
    )
    timeout = Timeout(connection=timedelta(seconds=1))
    async with fresh_basin(server.url) as basin:
        await basin.create_stream("stream")
        await basin["stream"].append(AppendInput(records("a")))
    server.kill9()
    async with connect(server.url, retry=retry, timeout=timeout) as s2:
        appending = asyncio.create_task(s2[basin.name]["stream"].append(AppendInput(records("b"))))
        await asyncio.to_thread(server.start)
        assert (await appending).start.seq_num == 1


@drives(S2Stream.append)
async def test_configurations_fences_and_tails_outlive_a_kill(server: ServerProcess) -> None:
    kept = BasinConfig(create_stream_on_append=True)
    async with fresh_basin(server.url, kept, retry=PERSISTENT) as basin:
        await basin.create_stream("stream", config=StreamConfig(retention_policy="infinite"))
        await basin["stream"].append(AppendInput([CommandRecord.fence("mine"), *records("a")]))
        before = await basin["stream"].check_tail()
        created = [info async for info in basin.list_all_streams()]
        await asyncio.to_thread(kill, server)
        assert await basin["stream"].check_tail() == before
        assert [info async for info in basin.list_all_streams()] == created
        assert (await basin.get_stream_config("stream")).retention_policy == "infinite"
        with pytest.raises(FencingTokenMismatchError):
            await basin["stream"].append(AppendInput(records("b"), fencing_token="other"))
        await basin["new"].append(AppendInput(records("created by itself")))
