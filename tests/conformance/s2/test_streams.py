"""The official Python SDK: streams of a basin; appending, reading and the tail, one call each."""

from __future__ import annotations

import base64
import os
import time

import pytest
from s2_sdk import (
    AppendInput,
    BasinConfig,
    CommandRecord,
    Compression,
    Encryption,
    EnsureStatus,
    FencingTokenMismatchError,
    ReadLimit,
    ReadUnwrittenError,
    Record,
    S2Basin,
    S2ServerError,
    S2Stream,
    SeqNum,
    SeqNumMismatchError,
    StreamConfig,
    StreamPosition,
    TailOffset,
    Timestamp,
    Timestamping,
    TimestampingMode,
    metered_bytes,
)
from s2_sdk._types import ONE_MIB

from tests.support.s2_sdk import (
    bodies,
    drives,
    fresh_basin,
    fresh_stream,
    read_all,
    records,
    refused,
)

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(60)]

WEEK_S = 7 * 86_400
FULL_CONFIG = StreamConfig(
    storage_class="standard",
    retention_policy=86_400,
    timestamping=Timestamping(mode=TimestampingMode.ARRIVAL, uncapped=False),
    delete_on_empty_min_age=7200,
)
DEFAULT_CONFIG = StreamConfig(
    storage_class="express",
    retention_policy=WEEK_S,
    timestamping=Timestamping(mode=TimestampingMode.CLIENT_PREFER, uncapped=False),
    delete_on_empty_min_age=0,
)
NAMES = ["a", "a/b/c", "with space", "%2F", "..x", "ünï/çødé", "?q=1&x#y", "x" * 512, "+", "日本"]


# Streams of a basin


@drives(S2Basin.create_stream, S2Basin.get_stream_config)
async def test_a_stream_keeps_the_configuration_it_was_created_with(url: str) -> None:
    async with fresh_basin(url) as basin:
        info = await basin.create_stream("stream", config=FULL_CONFIG)
        assert (info.name, info.deleted_at, info.cipher) == ("stream", None, None)
        assert await basin.get_stream_config("stream") == FULL_CONFIG


@drives(S2Basin.create_stream, S2Basin.get_stream_config)
async def test_what_a_stream_leaves_open_comes_from_its_basin(url: str) -> None:
    default = StreamConfig(retention_policy="infinite", storage_class="standard")
    async with fresh_basin(url, BasinConfig(default_stream_config=default)) as basin:
        await basin.create_stream("stream", config=StreamConfig(storage_class="express"))
        config = await basin.get_stream_config("stream")
        assert config.retention_policy == "infinite"
        assert config.storage_class == "express"
        assert config.timestamping == DEFAULT_CONFIG.timestamping


@drives(S2Basin.create_stream, S2Basin.get_stream_config)
async def test_a_stream_without_a_configuration_has_the_defaults(url: str) -> None:
    async with fresh_basin(url) as basin:
        await basin.create_stream("stream")
        config = await basin.get_stream_config("stream")
        config.delete_on_empty_min_age = config.delete_on_empty_min_age or 0
        assert config == DEFAULT_CONFIG


@pytest.mark.parametrize("name", NAMES, ids=range(len(NAMES)))
@drives(S2Basin.create_stream, S2Basin.list_streams, S2Basin.delete_stream)
async def test_a_stream_may_have_any_name(url: str, name: str) -> None:
    async with fresh_basin(url) as basin:
        assert (await basin.create_stream(name)).name == name
        await basin[name].append(AppendInput(records("body")))
        assert bodies((await basin[name].read(start=SeqNum(0))).records) == [b"body"]
        assert [info.name for info in (await basin.list_streams()).items] == [name]
        await basin.delete_stream(name)


@drives(S2Basin.ensure_stream)
async def test_ensure_says_what_it_did(url: str) -> None:
    async with fresh_basin(url) as basin:
        first = await basin.ensure_stream("stream", config=FULL_CONFIG)
        again = await basin.ensure_stream("stream", config=FULL_CONFIG)
        other = await basin.ensure_stream("stream", config=StreamConfig(retention_policy=60))
        assert [each.status for each in (first, again, other)] == [
            EnsureStatus.CREATED,
            EnsureStatus.CONFIG_UNCHANGED,
            EnsureStatus.CONFIG_UPDATED,
        ]
        config = await basin.get_stream_config("stream")
        assert config.retention_policy == 60
        assert config.storage_class == "express", "what is left out goes back to its default"


@drives(S2Basin.ensure_stream)
async def test_ensuring_what_a_stream_already_is_changes_nothing(url: str) -> None:
    async with fresh_basin(url) as basin:
        assert (await basin.ensure_stream("stream")).status is EnsureStatus.CREATED
        found = await basin.get_stream_config("stream")
        again = await basin.ensure_stream("stream", config=found)
        assert again.status is EnsureStatus.CONFIG_UNCHANGED
        assert again.stream.name == "stream"


@drives(S2Basin.reconfigure_stream)
async def test_reconfiguring_keeps_what_is_not_named(url: str) -> None:
    async with fresh_basin(url) as basin:
        await basin.create_stream("stream", config=FULL_CONFIG)
        config = await basin.reconfigure_stream(
            "stream", config=StreamConfig(timestamping=Timestamping(uncapped=True))
        )
        assert config.timestamping == Timestamping(TimestampingMode.ARRIVAL, uncapped=True)
        assert config.retention_policy == 86_400
        assert await basin.reconfigure_stream("stream", config=StreamConfig()) == config
        assert await basin.get_stream_config("stream") == config


@drives(S2Basin.create_stream, S2Basin.reconfigure_stream)
async def test_a_retention_of_nothing_is_refused(url: str) -> None:
    async with fresh_basin(url) as basin:
        none = StreamConfig(retention_policy=0)
        assert await refused(basin.create_stream("stream", config=none)) == (422, "invalid")
        await basin.create_stream("stream")
        assert await refused(basin.reconfigure_stream("stream", config=none)) == (422, "invalid")


@drives(S2Basin.list_streams, S2Basin.list_all_streams)
async def test_streams_are_listed_in_order_and_in_pages(url: str) -> None:
    async with fresh_basin(url) as basin:
        names = ["b", "p/0", "p/1", "p/2", "q"]
        for name in reversed(names):
            await basin.create_stream(name)
        first = await basin.list_streams(prefix="p/", limit=2)
        assert ([info.name for info in first.items], first.has_more) == (names[1:3], True)
        rest = await basin.list_streams(prefix="p/", start_after="p/1", limit=2)
        assert ([info.name for info in rest.items], rest.has_more) == (["p/2"], False)
        for limit in (0, 1500):
            whole = await basin.list_streams(limit=limit)
            assert [info.name for info in whole.items] == names
        assert [info.name async for info in basin.list_all_streams()] == names
        assert [info.name async for info in basin.list_all_streams(start_after="p/1")] == names[3:]
        none = await basin.list_streams(prefix="p/", start_after="p/2")
        assert (none.items, none.has_more) == ([], False)


@drives(S2Basin.delete_stream, S2Basin.list_all_streams)
async def test_a_deleted_stream_is_gone_and_its_name_is_free_again(url: str) -> None:
    async with fresh_basin(url) as basin:
        await basin.create_stream("stream")
        await basin["stream"].append(AppendInput(records("old")))
        await basin.delete_stream("stream")
        await basin.delete_stream("stream", ignore_not_found=True)
        assert [info async for info in basin.list_all_streams()] == []
        deleted = [info async for info in basin.list_all_streams(include_deleted=True)]
        assert all(info.deleted_at is not None for info in deleted)
        for call in (
            basin["stream"].check_tail(),
            basin["stream"].read(start=SeqNum(0)),
            basin["stream"].append(AppendInput(records("late"))),
            basin.get_stream_config("stream"),
        ):
            assert await refused(call) in (
                (404, "stream_not_found"),
                (409, "stream_deletion_pending"),
            )


@drives(S2Basin.stream, S2Basin.__getitem__, S2Basin.delete_stream, S2Basin.reconfigure_stream)
async def test_a_stream_that_never_was_is_not_found(url: str) -> None:
    async with fresh_basin(url) as basin:
        stream = basin.stream("missing")
        assert (stream.name, basin["missing"].name) == ("missing", "missing")
        for call in (
            stream.check_tail(),
            stream.append(AppendInput(records("body"))),
            stream.read(start=SeqNum(0)),
            basin.get_stream_config("missing"),
            basin.reconfigure_stream("missing", config=StreamConfig()),
            basin.delete_stream("missing"),
        ):
            assert await refused(call) == (404, "stream_not_found")
        assert [info async for info in basin.list_all_streams()] == []


@drives(S2Basin.create_stream)
async def test_a_name_is_taken_once(url: str) -> None:
    async with fresh_basin(url) as basin:
        await basin.create_stream("stream")
        call = basin.create_stream("stream")
        assert await refused(call) == (409, "resource_already_exists")


# Appending


@drives(S2Stream.append, S2Stream.check_tail)
async def test_an_append_says_where_it_went(url: str) -> None:
    async with fresh_stream(url) as stream:
        assert await stream.check_tail() == StreamPosition(0, 0)
        first = await stream.append(AppendInput(records("a")))
        second = await stream.append(AppendInput(records("b", "c")))
        assert (first.start.seq_num, first.end.seq_num, first.tail.seq_num) == (0, 1, 1)
        assert (second.start.seq_num, second.end.seq_num, second.tail.seq_num) == (1, 3, 3)
        assert await stream.check_tail() == second.tail == second.end
        assert first.end.timestamp <= second.start.timestamp


@drives(S2Stream.append, S2Stream.read)
async def test_a_record_comes_back_as_it_was_sent(url: str) -> None:
    sent = [
        Record(b""),
        Record(bytes(range(256)), [(b"name", b"value"), (b"name", b"again"), (b"\xff\x00", b"")]),
        Record("日本".encode(), [("ключ".encode(), b"\x80")]),
        Record(b"x" * 100_000),
    ]
    async with fresh_stream(url) as stream:
        await stream.append(AppendInput(sent))
        batch = await stream.read(start=SeqNum(0))
        assert [(r.body, r.headers) for r in batch.records] == [(r.body, r.headers) for r in sent]
        assert [r.seq_num for r in batch.records] == [0, 1, 2, 3]
        assert batch.tail is not None and batch.tail.seq_num == 4


@drives(S2Stream.append)
async def test_a_batch_may_be_as_large_as_the_limits_say(url: str) -> None:
    async with fresh_stream(url) as stream:
        many = await stream.append(AppendInput([Record(b"a")] * 1000))
        assert many.end.seq_num == 1000
        large = Record(b"x" * (ONE_MIB - 8))
        assert metered_bytes([large]) == ONE_MIB
        assert (await stream.append(AppendInput([large]))).end.seq_num == 1001
        batch = await stream.read(start=SeqNum(1000))
        assert bodies(batch.records) == [large.body]


@drives(S2Stream.append)
async def test_an_append_can_ask_for_its_place(url: str) -> None:
    async with fresh_stream(url) as stream:
        await stream.append(AppendInput(records("a"), match_seq_num=0))
        with pytest.raises(SeqNumMismatchError) as error:
            await stream.append(AppendInput(records("b"), match_seq_num=0))
        assert (error.value.status_code, error.value.expected_seq_num) == (412, 1)
        assert (await stream.append(AppendInput(records("b"), match_seq_num=1))).start.seq_num == 1


@drives(S2Stream.append, CommandRecord.fence)
async def test_a_fence_keeps_out_who_has_another_token(url: str) -> None:
    async with fresh_stream(url) as stream:
        await stream.append(AppendInput([CommandRecord.fence("mine")], fencing_token=""))
        await stream.append(AppendInput(records("a"), fencing_token="mine"))
        with pytest.raises(FencingTokenMismatchError) as error:
            await stream.append(AppendInput(records("b"), fencing_token="other"))
        assert (error.value.status_code, error.value.expected_fencing_token) == (412, "mine")
        await stream.append(AppendInput(records("c")))
        await stream.append(AppendInput([CommandRecord.fence("")], fencing_token="mine"))
        await stream.append(AppendInput(records("d"), fencing_token=""))
        found = await read_all(stream)
        assert [r.is_command_record() for r in found] == [True, False, False, True, False]
        assert found[0].headers == [(b"", b"fence")] and found[0].body == b"mine"


@drives(S2Stream.append, CommandRecord.trim)
async def test_a_trim_takes_a_number_and_happens_in_the_end(url: str) -> None:
    async with fresh_stream(url) as stream:
        await stream.append(AppendInput(records("a", "b", "c")))
        ack = await stream.append(AppendInput([CommandRecord.trim(2)]))
        assert (ack.start.seq_num, ack.end.seq_num) == (3, 4)
        await _until_trimmed(stream, to=2)
        batch = await stream.read(start=SeqNum(0))
        assert [r.seq_num for r in batch.records] == [2, 3]
        ack = await stream.append(AppendInput([CommandRecord.trim(2**64 - 1)]))
        assert (ack.start.seq_num, ack.end.seq_num) == (4, 5)


async def _until_trimmed(stream: S2Stream, *, to: int) -> None:
    """Waits by reading at the tail, which takes its time without records."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        try:
            batch = await stream.read(start=SeqNum(0), limit=ReadLimit(count=1))
        except ReadUnwrittenError:
            return
        if batch.records[0].seq_num >= to:
            return
        await stream.read(start=TailOffset(0), wait=1)
    raise AssertionError(f"never trimmed to {to}")


BAD_RECORDS = {
    "unknown command": Record(b"body", [(b"", b"nothing")]),
    "command among headers": Record(b"body", [(b"", b"fence"), (b"name", b"value")]),
    "empty name last": Record(b"body", [(b"name", b"value"), (b"", b"value")]),
    "fence too long": Record(b"x" * 37, [(b"", b"fence")]),
    "fence not text": Record(b"\xff", [(b"", b"fence")]),
    "trim of seven bytes": Record(b"1234567", [(b"", b"trim")]),
}


@pytest.mark.parametrize("name", BAD_RECORDS)
@drives(S2Stream.append)
async def test_a_bad_record_is_refused_with_its_batch(url: str, name: str) -> None:
    async with fresh_stream(url) as stream:
        call = stream.append(AppendInput([*records("good"), BAD_RECORDS[name]]))
        assert await refused(call) == (422, "invalid")
        assert (await stream.check_tail()).seq_num == 0


def now_ms() -> int:
    return int(time.time() * 1000)  # noqa: TID251


@drives(S2Stream.append)
async def test_timestamps_are_the_clients_and_never_go_back(url: str) -> None:
    async with fresh_stream(url) as stream:
        base = now_ms() - 10_000
        sent = [Record(b"a", timestamp=base), Record(b"b", timestamp=base + 5)]
        ack = await stream.append(AppendInput(sent))
        assert (ack.start.timestamp, ack.end.timestamp) == (base, base + 5)
        ack = await stream.append(AppendInput([Record(b"c", timestamp=base - 5)]))
        assert (ack.start.timestamp, ack.tail.timestamp) == (base + 5, base + 5)
        ack = await stream.append(AppendInput(records("d")))
        assert ack.start.timestamp >= base + 10_000


@pytest.mark.parametrize(
    ("mode", "uncapped"),
    [
        (TimestampingMode.CLIENT_PREFER, False),
        (TimestampingMode.CLIENT_PREFER, True),
        (TimestampingMode.CLIENT_REQUIRE, True),
        (TimestampingMode.ARRIVAL, True),
    ],
)
@drives(S2Stream.append)
async def test_a_timestamp_of_the_future_depends_on_the_mode(
    url: str, mode: TimestampingMode, uncapped: bool
) -> None:
    async with fresh_basin(url) as basin:
        config = StreamConfig(timestamping=Timestamping(mode, uncapped))
        await basin.create_stream("stream", config=config)
        future = now_ms() + 3_600_000
        ack = await basin["stream"].append(AppendInput([Record(b"a", timestamp=future)]))
        kept = uncapped and mode is not TimestampingMode.ARRIVAL
        assert (ack.start.timestamp == future) is kept
        if not kept:
            assert ack.start.timestamp < future - 1_000_000


@drives(S2Stream.append)
async def test_a_stream_may_require_timestamps(url: str) -> None:
    async with fresh_basin(url) as basin:
        config = StreamConfig(timestamping=Timestamping(TimestampingMode.CLIENT_REQUIRE))
        await basin.create_stream("stream", config=config)
        call = basin["stream"].append(AppendInput(records("a")))
        assert await refused(call) == (422, "invalid")


# Reading


@drives(S2Stream.read)
async def test_a_read_starts_where_it_is_told(url: str) -> None:
    async with fresh_stream(url) as stream:
        base = now_ms() - 10_000
        sent = [Record(b"%d" % number, timestamp=base + 10 * number) for number in range(5)]
        await stream.append(AppendInput(sent))
        for start, first in (
            (SeqNum(3), 3),
            (TailOffset(2), 3),
            (TailOffset(99), 0),
            (Timestamp(0), 0),
            (Timestamp(base + 20), 2),
            (Timestamp(base + 21), 3),
        ):
            batch = await stream.read(start=start)
            assert [r.seq_num for r in batch.records] == list(range(first, 5)), start


@drives(S2Stream.read)
async def test_a_read_ends_where_it_is_told(url: str) -> None:
    async with fresh_stream(url) as stream:
        base = now_ms() - 10_000
        sent = [Record(b"x" * 92, timestamp=base + 10 * number) for number in range(5)]
        assert metered_bytes(sent[:1]) == 100
        await stream.append(AppendInput(sent))
        for limit, until, count in (
            (ReadLimit(count=2), None, 2),
            (ReadLimit(count=99), None, 5),
            (ReadLimit(count=0), None, 0),
            (ReadLimit(bytes=250), None, 2),
            (ReadLimit(bytes=300), None, 3),
            (ReadLimit(bytes=99), None, 0),
            (ReadLimit(bytes=0), None, 0),
            (ReadLimit(count=4, bytes=300), None, 3),
            (None, base + 20, 2),
            (None, base + 21, 3),
            (ReadLimit(count=1), base + 20, 1),
        ):
            batch = await stream.read(start=SeqNum(0), limit=limit, until_timestamp=until)
            assert len(batch.records) == count, (limit, until)


@drives(S2Stream.read)
async def test_one_read_brings_a_thousand_records_or_a_mebibyte_at_most(url: str) -> None:
    async with fresh_stream(url) as stream:
        await stream.append(AppendInput([Record(b"a")] * 1000))
        await stream.append(AppendInput([Record(b"x" * 700_000)]))
        await stream.append(AppendInput([Record(b"x" * 700_000)]))
        batch = await stream.read(start=SeqNum(0), limit=ReadLimit(count=2000))
        assert len(batch.records) == 1000
        batch = await stream.read(start=SeqNum(1000), limit=ReadLimit(bytes=2 * ONE_MIB))
        assert len(batch.records) == 1
        assert batch.tail is None or batch.tail.seq_num == 1002


@drives(S2Stream.read)
async def test_a_read_of_what_is_not_written_tells_the_tail(url: str) -> None:
    async with fresh_stream(url) as stream:
        with pytest.raises(ReadUnwrittenError) as empty:
            await stream.read(start=SeqNum(0))
        assert (empty.value.status_code, empty.value.tail) == (416, StreamPosition(0, 0))
        ack = await stream.append(AppendInput(records("a")))
        for start in (SeqNum(1), SeqNum(100), TailOffset(0), Timestamp(now_ms() + 60_000)):
            with pytest.raises(ReadUnwrittenError) as beyond:
                await stream.read(start=start)
            assert beyond.value.tail == ack.tail
        with pytest.raises(ReadUnwrittenError):
            await stream.read(start=SeqNum(100), clamp_to_tail=True)


@drives(S2Stream.read)
async def test_a_read_may_wait(url: str) -> None:
    async with fresh_stream(url) as stream:
        assert (await stream.read(start=SeqNum(0), wait=1)).records == []
        await stream.append(AppendInput(records("a")))
        assert bodies((await stream.read(start=SeqNum(0), wait=30)).records) == [b"a"]
        assert (await stream.read(start=SeqNum(9), clamp_to_tail=True, wait=1)).records == []
        with pytest.raises(ReadUnwrittenError):
            await stream.read(start=SeqNum(9), wait=1)


@drives(S2Stream.read)
async def test_a_period_that_ends_before_it_begins_is_refused(url: str) -> None:
    async with fresh_stream(url) as stream:
        await stream.append(AppendInput([Record(b"a", timestamp=5)]))
        call = stream.read(start=Timestamp(5), until_timestamp=5)
        assert await refused(call) == (422, "invalid")


@drives(S2Stream.read)
async def test_command_records_can_be_left_out(url: str) -> None:
    async with fresh_stream(url) as stream:
        batch = [*records("a"), CommandRecord.fence("token"), *records("b")]
        await stream.append(AppendInput(batch))
        found = await stream.read(start=SeqNum(0), ignore_command_records=True)
        assert bodies(found.records) == [b"a", b"b"]


# Streams that come by themselves


@drives(S2Stream.append, S2Stream.read, S2Stream.check_tail)
async def test_a_basin_may_create_streams_when_they_are_used(url: str) -> None:
    config = BasinConfig(create_stream_on_append=True, create_stream_on_read=True)
    async with fresh_basin(url, config) as basin:
        chosen = StreamConfig(retention_policy=60)
        await basin["appended"].append(AppendInput(records("a"), stream_config=chosen))
        assert (
            await basin["read"].read(start=SeqNum(0), wait=1, stream_config=chosen)
        ).records == []
        assert (await basin["tail"].check_tail()).seq_num == 0
        names = [info.name async for info in basin.list_all_streams()]
        assert names == ["appended", "read", "tail"]
        ages = [(await basin.get_stream_config(name)).retention_policy for name in names]
        assert ages == [60, 60, WEEK_S]
        later = StreamConfig(retention_policy=120)
        await basin["appended"].append(AppendInput(records("b"), stream_config=later))
        assert (await basin.get_stream_config("appended")).retention_policy == 60


@drives(S2Stream.append)
async def test_a_stream_that_came_by_itself_stays_when_the_condition_fails(url: str) -> None:
    async with fresh_basin(url, BasinConfig(create_stream_on_append=True)) as basin:
        with pytest.raises(SeqNumMismatchError):
            await basin["stream"].append(AppendInput(records("a"), match_seq_num=7))
        bad = AppendInput([Record(b"a", [(b"", b"nothing")])])
        assert await refused(basin["other"].append(bad)) == (422, "invalid")
        assert [info.name async for info in basin.list_all_streams()] == ["stream"]


# Compression and encryption


@pytest.mark.parametrize("compression", Compression)
@drives(S2Stream.append, S2Stream.read)
async def test_bodies_may_be_compressed(url: str, compression: Compression) -> None:
    async with fresh_basin(url, compression=compression) as basin:
        await basin.create_stream("stream", config=FULL_CONFIG)
        sent = [Record(b"s2" * 2048), Record(os.urandom(5000))]
        await basin["stream"].append(AppendInput(sent))
        batch = await basin["stream"].read(start=SeqNum(0))
        assert bodies(batch.records) == [record.body for record in sent]
        assert await basin.get_stream_config("stream") == FULL_CONFIG


@pytest.mark.parametrize("cipher", Encryption)
@drives(S2Basin.stream, S2Stream.append, S2Stream.read)
async def test_records_may_be_encrypted_with_a_key_of_the_client(
    url: str, cipher: Encryption
) -> None:
    async with fresh_basin(url, BasinConfig(stream_cipher=cipher)) as basin:
        info = await basin.create_stream("stream")
        assert info.cipher is cipher
        key = os.urandom(32)
        sent = [Record(b"secret", [(b"name", b"value")]), CommandRecord.fence("token"), Record(b"")]
        await basin.stream("stream", encryption_key=key).append(AppendInput(sent))
        same = basin.stream("stream", encryption_key=base64.b64encode(key).decode())
        batch = await same.read(start=SeqNum(0))
        assert [(r.body, r.headers) for r in batch.records] == [(r.body, r.headers) for r in sent]
        assert bodies(await read_all(same)) == [b"secret", b"token", b""]
        assert (await basin["stream"].check_tail()).seq_num == 3, "a tail needs no key"


@pytest.mark.parametrize("cipher", Encryption)
@drives(S2Stream.append, S2Stream.read)
async def test_an_encrypted_stream_asks_for_its_key(url: str, cipher: Encryption) -> None:
    async with fresh_basin(url, BasinConfig(stream_cipher=cipher)) as basin:
        await basin.create_stream("stream")
        await basin.stream("stream", encryption_key=os.urandom(32)).append(
            AppendInput(records("secret"))
        )
        for key in (None, b"too short"):
            stream = basin.stream("stream", encryption_key=key)
            for call in (stream.append(AppendInput(records("a"))), stream.read(start=SeqNum(0))):
                with pytest.raises(S2ServerError) as missing:
                    await call
                assert missing.value.code == "bad_header"
                assert cipher.value in str(missing.value)
        other = basin.stream("stream", encryption_key=os.urandom(32))
        assert await refused(other.read(start=SeqNum(0))) == (400, "decryption_failed")
        await other.append(AppendInput(records("of another key")))


@drives(S2Basin.stream)
async def test_a_key_for_a_stream_that_is_not_encrypted_changes_nothing(url: str) -> None:
    async with fresh_basin(url) as basin:
        await basin.create_stream("stream")
        stream = basin.stream("stream", encryption_key=os.urandom(32))
        await stream.append(AppendInput(records("plain")))
        assert bodies((await basin["stream"].read(start=SeqNum(0))).records) == [b"plain"]
