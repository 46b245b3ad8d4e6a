"""The official Python SDK: append sessions, producers and read sessions."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
from s2_sdk import (
    AppendInput,
    AppendSession,
    BasinConfig,
    Batching,
    BatchSubmitTicket,
    CommandRecord,
    Compression,
    Encryption,
    FencingTokenMismatchError,
    Producer,
    ReadLimit,
    ReadSession,
    ReadUnwrittenError,
    Record,
    RecordSubmitTicket,
    S2ServerError,
    S2Stream,
    SeqNum,
    SeqNumMismatchError,
    StreamConfig,
    TailOffset,
    Timestamp,
    append_inputs,
    append_record_batches,
)
from s2_sdk._types import ONE_MIB

from tests.support.s2_sdk import (
    bodies,
    drives,
    fresh_basin,
    fresh_stream,
    read_all,
    records,
)

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(60)]


# Append sessions


@drives(S2Stream.append_session, AppendSession.submit, BatchSubmitTicket.__await__)
async def test_a_session_acknowledges_in_order(url: str) -> None:
    async with fresh_stream(url) as stream:
        async with stream.append_session() as session:
            tickets = [
                await session.submit(AppendInput(records(*(f"{batch}.{n}" for n in range(3)))))
                for batch in range(100)
            ]
            acks = [await ticket for ticket in tickets]
        assert [ack.start.seq_num for ack in acks] == list(range(0, 300, 3))
        assert all(ack.end.seq_num - ack.start.seq_num == 3 for ack in acks)
        assert all(ack.tail.seq_num >= ack.end.seq_num for ack in acks)
        expected = [f"{batch}.{n}".encode() for batch in range(100) for n in range(3)]
        assert bodies(await read_all(stream)) == expected


@drives(S2Stream.append_session, AppendSession.close)
async def test_closing_a_session_waits_for_everything_submitted(url: str) -> None:
    async with fresh_stream(url) as stream:
        session = stream.append_session(max_unacked_batches=2)
        for number in range(20):
            await session.submit(AppendInput(records(str(number))))
        await session.close()
        assert (await stream.check_tail()).seq_num == 20


@drives(S2Stream.append_session)
async def test_an_idle_session_may_be_opened_and_closed(url: str) -> None:
    async with fresh_stream(url) as stream:
        async with stream.append_session():
            pass
        assert (await stream.check_tail()).seq_num == 0


@drives(S2Stream.append_session)
async def test_large_batches_go_through_a_session(url: str) -> None:
    async with fresh_stream(url) as stream:
        sent = [os.urandom(ONE_MIB - 8) for _ in range(12)]
        async with stream.append_session() as session:
            for body in sent:
                await session.submit(AppendInput([Record(body)]))
        assert bodies(await read_all(stream)) == sent


@drives(S2Stream.append_session, AppendSession.submit)
async def test_the_first_failure_ends_a_session(url: str) -> None:
    async with fresh_stream(url) as stream:
        with pytest.raises(SeqNumMismatchError) as error:
            async with stream.append_session() as session:
                good = await session.submit(AppendInput(records("a"), match_seq_num=0))
                bad = await session.submit(AppendInput(records("b"), match_seq_num=9))
                late = await session.submit(AppendInput(records("c")))
                assert (await good).end.seq_num == 1
                for ticket in (bad, late):
                    with pytest.raises(SeqNumMismatchError):
                        await ticket
        assert error.value.expected_seq_num == 1
        assert bodies(await read_all(stream)) == [b"a"]


@drives(S2Stream.append_session)
async def test_a_session_is_fenced(url: str) -> None:
    async with fresh_stream(url) as stream:
        with pytest.raises(FencingTokenMismatchError) as error:
            async with stream.append_session() as session:
                await session.submit(AppendInput([CommandRecord.fence("mine")]))
                await session.submit(AppendInput(records("a"), fencing_token="mine"))
                await session.submit(AppendInput(records("b"), fencing_token="other"))
        assert error.value.expected_fencing_token == "mine"
        assert (await stream.check_tail()).seq_num == 2


@drives(S2Stream.append_session, S2Stream.producer, S2Stream.read_session)
async def test_a_session_of_a_stream_that_never_was_is_refused(url: str) -> None:
    async with fresh_basin(url) as basin:
        stream = basin["missing"]
        with pytest.raises(S2ServerError) as appending:
            async with stream.append_session() as session:
                await (await session.submit(AppendInput(records("a"))))
        with pytest.raises(S2ServerError) as producing:
            async with stream.producer() as producer:
                await (await producer.submit(Record(b"a")))
        with pytest.raises(S2ServerError) as reading:
            async with stream.read_session(start=SeqNum(0)) as reads:
                await anext(reads)
        for error in (appending, producing, reading):
            assert (error.value.status_code, error.value.code) == (404, "stream_not_found")


@drives(S2Stream.append_session, S2Stream.producer, S2Stream.read_session)
async def test_sessions_may_create_their_stream(url: str) -> None:
    config = BasinConfig(create_stream_on_append=True, create_stream_on_read=True)
    async with fresh_basin(url, config) as basin:
        chosen = StreamConfig(retention_policy=60)
        async with basin["appended"].append_session(stream_config=chosen) as session:
            await session.submit(AppendInput(records("a")))
        async with basin["produced"].producer(stream_config=chosen) as producer:
            await producer.submit(Record(b"a"))
        async with basin["read"].read_session(
            start=SeqNum(0), wait=0, clamp_to_tail=True, stream_config=chosen
        ) as reads:
            with pytest.raises((StopAsyncIteration, ReadUnwrittenError)):
                await anext(reads)
        names = [info.name async for info in basin.list_all_streams()]
        assert names == ["appended", "produced", "read"]
        for name in names:
            assert (await basin.get_stream_config(name)).retention_policy == 60


@pytest.mark.parametrize("compression", [Compression.GZIP, Compression.ZSTD])
@drives(S2Stream.append_session, S2Stream.read_session)
async def test_frames_may_be_compressed(url: str, compression: Compression) -> None:
    async with fresh_stream(url, compression=compression) as stream:
        sent = [b"s2" * 10_240, b"small", os.urandom(300_000), b"x" * (ONE_MIB - 8)]
        async with stream.append_session() as session:
            for body in sent:
                await session.submit(AppendInput([Record(body)]))
        assert bodies(await read_all(stream)) == sent


@pytest.mark.parametrize("cipher", Encryption)
@drives(S2Stream.append_session, S2Stream.read_session)
async def test_sessions_may_be_encrypted(url: str, cipher: Encryption) -> None:
    async with fresh_basin(url, BasinConfig(stream_cipher=cipher)) as basin:
        await basin.create_stream("stream")
        stream = basin.stream("stream", encryption_key=os.urandom(32))
        sent = [b"secret", b"x" * 500_000]
        async with stream.append_session() as session:
            for body in sent:
                await session.submit(AppendInput([Record(body)]))
        assert bodies(await read_all(stream)) == sent
        for key, code in ((None, "bad_header"), (os.urandom(32), "decryption_failed")):
            other = basin.stream("stream", encryption_key=key)
            with pytest.raises(S2ServerError) as refused:
                await read_all(other)
            assert refused.value.code == code
        with pytest.raises(S2ServerError) as missing:
            async with basin["stream"].append_session() as session:
                await (await session.submit(AppendInput(records("a"))))
        assert missing.value.code == "bad_header"


# Producers


@drives(S2Stream.producer, Producer.submit, RecordSubmitTicket.__await__)
async def test_a_producer_numbers_each_record(url: str) -> None:
    async with fresh_stream(url) as stream:
        async with stream.producer(batching=Batching(max_records=7), match_seq_num=0) as producer:
            tickets = [await producer.submit(Record(b"%d" % n)) for n in range(100)]
            acks = [await ticket for ticket in tickets]
        assert [ack.seq_num for ack in acks] == list(range(100))
        assert len({id(ack.batch) for ack in acks}) >= 100 // 7
        assert bodies(await read_all(stream)) == [b"%d" % n for n in range(100)]


@drives(S2Stream.producer, Producer.flush, Producer.close)
async def test_a_producer_sends_what_is_left_when_asked(url: str) -> None:
    async with fresh_stream(url) as stream:
        producer = stream.producer(batching=Batching(linger=timedelta(0)))
        await producer.submit(Record(b"a"))
        await producer.flush()
        assert (await stream.check_tail()).seq_num == 1
        await producer.submit(Record(b"b"))
        await producer.close()
        assert (await stream.check_tail()).seq_num == 2


@drives(S2Stream.producer)
async def test_a_producer_is_fenced(url: str) -> None:
    async with fresh_stream(url) as stream:
        await stream.append(AppendInput([CommandRecord.fence("mine")]))
        async with stream.producer(fencing_token="mine") as producer:
            assert (await (await producer.submit(Record(b"a")))).seq_num == 1
        with pytest.raises(FencingTokenMismatchError):
            async with stream.producer(fencing_token="other") as producer:
                await producer.submit(Record(b"b"))
        assert (await stream.check_tail()).seq_num == 2


@drives(append_inputs, append_record_batches)
async def test_records_can_be_batched_by_the_sdk(url: str) -> None:
    async def source() -> AsyncIterator[Record]:
        for number in range(10):
            yield Record(b"%d" % number)

    async with fresh_stream(url) as stream:
        async for batch in append_inputs(
            source(), match_seq_num=0, batching=Batching(max_records=4)
        ):
            await stream.append(batch)
        async for found in append_record_batches(source(), batching=Batching(max_records=4)):
            await stream.append(AppendInput(found))
        assert bodies(await read_all(stream)) == [b"%d" % n for n in range(10)] * 2


# Read sessions


@drives(S2Stream.read_session)
async def test_a_session_with_a_limit_ends_there(url: str) -> None:
    async with fresh_stream(url) as stream:
        base = 1_000_000
        sent = [Record(b"x" * 92, timestamp=base + n) for n in range(2500)]
        for first in range(0, 2500, 1000):
            await stream.append(AppendInput(sent[first : first + 1000]))
        for limit, until, count in (
            (ReadLimit(count=1500), None, 1500),
            (ReadLimit(bytes=150_050), None, 1500),
            (ReadLimit(count=9999), None, 2500),
            (None, base + 1200, 1200),
        ):
            found = []
            async with stream.read_session(
                start=SeqNum(0), limit=limit, until_timestamp=until
            ) as session:
                async for batch in session:
                    assert len(batch.records) <= 1000
                    found += batch.records
            assert [record.seq_num for record in found] == list(range(count)), (limit, until)


@drives(S2Stream.read_session, ReadSession.__aiter__, ReadSession.__anext__, ReadSession.close)
async def test_a_session_without_a_limit_follows(url: str) -> None:
    async with fresh_stream(url) as stream:
        await stream.append(AppendInput(records("a")))
        session = stream.read_session(start=SeqNum(0))
        assert bodies((await anext(aiter(session))).records) == [b"a"]
        for body in (b"b", b"c", b"d"):
            following = asyncio.ensure_future(anext(session))
            await stream.append(AppendInput([Record(body)]))
            assert bodies((await following).records) == [body]
        await session.close()
        with pytest.raises(StopAsyncIteration):
            await anext(session)


@drives(S2Stream.read_session)
async def test_a_session_starts_where_it_is_told(url: str) -> None:
    async with fresh_stream(url) as stream:
        sent = [Record(b"%d" % n, timestamp=1000 + n) for n in range(5)]
        await stream.append(AppendInput(sent))
        for start, first in ((SeqNum(3), 3), (TailOffset(1), 4), (Timestamp(1002), 2)):
            async with stream.read_session(start=start) as session:
                batch = await anext(session)
                assert [r.seq_num for r in batch.records] == list(range(first, 5)), start


@drives(S2Stream.read_session)
async def test_a_session_beyond_the_tail_is_refused_or_clamped(url: str) -> None:
    async with fresh_stream(url) as stream:
        await stream.append(AppendInput(records("a")))
        with pytest.raises(ReadUnwrittenError) as beyond:
            async with stream.read_session(start=SeqNum(9)) as session:
                await anext(session)
        assert beyond.value.tail.seq_num == 1
        async with stream.read_session(start=SeqNum(9), clamp_to_tail=True) as session:
            assert (await session.caught_up()).seq_num == 1
            await stream.append(AppendInput(records("b")))
            assert bodies((await anext(session)).records) == [b"b"]


@drives(S2Stream.read_session)
async def test_a_session_that_waits_ends_after_that(url: str) -> None:
    async with fresh_stream(url) as stream:
        await stream.append(AppendInput(records("a")))
        found = []
        async with stream.read_session(start=SeqNum(0), wait=1) as session:
            async for batch in session:
                found += batch.records
        assert bodies(found) == [b"a"]


@drives(S2Stream.read_session)
async def test_command_records_can_be_left_out_of_a_session(url: str) -> None:
    async with fresh_stream(url) as stream:
        await stream.append(
            AppendInput([*records("a"), CommandRecord.fence("token"), *records("b")])
        )
        async with stream.read_session(start=SeqNum(0), ignore_command_records=True) as session:
            assert bodies((await anext(session)).records) == [b"a", b"b"]


@drives(S2Stream.read_session, CommandRecord.trim)
async def test_a_follower_still_gets_what_is_trimmed_in_the_same_breath(url: str) -> None:
    async with fresh_stream(url) as stream, stream.read_session(start=SeqNum(0)) as session:
        await session.caught_up()
        last_words = [*records("a", "b"), CommandRecord.fence("over"), CommandRecord.trim(2**63)]
        await stream.append(AppendInput(last_words))
        found = (await anext(session)).records
        while len(found) < 4:
            found += (await anext(session)).records
        assert [record.seq_num for record in found] == [0, 1, 2, 3]
        late = await stream.read(start=SeqNum(0))
        assert bodies(late.records)[:2] == [b"a", b"b"], "a reader who is a moment late gets it too"


@drives(ReadSession.caught_up, ReadSession.is_caught_up)
async def test_a_session_knows_when_it_has_caught_up(url: str) -> None:
    async with fresh_stream(url) as stream:
        await stream.append(AppendInput(records("a", "b")))
        async with stream.read_session(start=TailOffset(2)) as session:
            caught_up = session.caught_up()
            assert not session.is_caught_up()
            found = []
            while not session.is_caught_up():
                found += (await anext(session)).records
            assert bodies(found) == [b"a", b"b"]
            assert (await caught_up).seq_num == 2


@drives(ReadSession.caught_up)
async def test_a_session_of_an_empty_stream_is_told_so_at_once(url: str) -> None:
    async with fresh_stream(url) as stream, stream.read_session(start=SeqNum(0)) as session:
        assert (await session.caught_up()).seq_num == 0


@drives(S2Stream.producer, S2Stream.read_session)
async def test_followers_see_every_record_once_and_in_order(url: str) -> None:
    async with fresh_stream(url) as stream:
        count = 3000

        async def follow() -> list[int]:
            found: list[int] = []
            async with stream.read_session(start=SeqNum(0)) as session:
                async for batch in session:
                    found += [record.seq_num for record in batch.records]
                    if len(found) == count:
                        break
            return found

        async def produce() -> None:
            async with stream.producer(batching=Batching(max_records=16)) as producer:
                for number in range(count):
                    await producer.submit(Record(b"%d" % number))

        *followed, _ = await asyncio.gather(follow(), follow(), follow(), produce())
        assert followed == [list(range(count))] * 3
