"""Verifying a store: a sound one passes whatever happened to it, and each damage is named."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from headwater.core.commands import PublishSnapshot, Trim
from headwater.core.stream import Snapshot, decode_state, encode_state
from headwater.core.types import SeqNum, StreamId, TimestampMs
from headwater.engine.snapshots import Upload
from headwater.storage import check, keys
from headwater.storage.check import Findings, check_store
from headwater.storage.memory import MemoryStore
from headwater.storage.store import Batch
from tests.support.builders import BUCKET, JSON, append, create, delete, fork_of, position
from tests.support.clock import START_MS
from tests.support.engines import EngineRunner, small_sizes

NOW = TimestampMs(START_MS)
PLAIN, FORKED, FORK, TRIMMED, LIVED = (StreamId(number) for number in range(1, 6))


@pytest.fixture
def store() -> MemoryStore:
    """Streams of every kind: packed, forked, trimmed, with a lifetime, with a snapshot."""
    store = MemoryStore()
    with small_sizes(runs_min=4), EngineRunner(store) as runner:
        runner.create(create("plain", content_type=JSON))
        for number in range(20):
            runner.append(append("plain", b"[%d,0]" % number, content_type=JSON))
        runner.create(create("forked", body=b"ab"))
        runner.append(append("forked", b"cd"))
        runner.create(create("fork", content_type=None, fork=fork_of("forked")))
        runner.append(append("fork", b"ef"))
        runner.create(create("trimmed"))
        for _ in range(3):
            runner.append(append("trimmed", b"xx"))
        runner.result(runner.submit(Trim(BUCKET, "trimmed", NOW, position(2, 4))))
        runner.create(create("lived", ttl_s=60))
        runner.create(create("deleted", body=b"gone"))
        runner.result(runner.submit(delete("deleted")))
        publish(runner, "plain", b"state")
        runner.settle()
    return store


def publish(runner: EngineRunner, name: str, body: bytes) -> None:
    upload = Upload(runner.store, 77, "text/plain")
    upload.add(body)
    upload.flush(whole=True)
    stream = runner.open(name)
    snapshot = Snapshot(stream.tail, upload.digest, "text/plain", upload.size, upload.number)
    command = PublishSnapshot(BUCKET, name, NOW, stream.state.id, snapshot)
    assert runner.result(runner.submit(command))


def change(store: MemoryStore, *changes: Callable[[Batch], None]) -> None:
    batch = store.batch()
    for apply in changes:
        apply(batch)
    store.write(batch)


def edit(store: MemoryStore, stream_id: StreamId, **fields: object) -> None:
    stored = store.get(keys.state(stream_id))
    assert stored is not None
    state = msgspec.structs.replace(decode_state(stored), **fields)
    change(store, lambda batch: batch.put(keys.state(stream_id), encode_state(state)))


def runs_of(store: MemoryStore, stream_id: StreamId) -> list[tuple[bytes, bytes]]:
    return list(store.scan(keys.run(stream_id, SeqNum(0)), keys.run_end(stream_id)))


def test_a_sound_store_has_no_problems(store: MemoryStore) -> None:
    found = check_store(store)
    assert found.problems == []
    assert (found.streams, found.snapshots) == (5, 1)
    assert found.records == 40 + 2 + 1 + 1
    assert found.documents >= 1


def test_progress_is_told(store: MemoryStore) -> None:
    seen: list[int] = []
    check_store(store, lambda found: seen.append(found.streams))
    assert seen == [1, 2, 3, 4, 5]


def test_an_empty_store_is_none(store: MemoryStore) -> None:
    assert check_store(MemoryStore()).problems == ["the format is None, not b'1'"]


def test_what_a_trim_and_an_undone_pack_leave_is_counted_and_no_problem(store: MemoryStore) -> None:
    (kept,) = runs_of(store, TRIMMED)[-1:]
    stray = keys.run(TRIMMED, SeqNum(0))
    gone = keys.run(StreamId(999), SeqNum(0))
    before = check_store(store)
    first_run = runs_of(store, FORKED)[0][1]
    change(store, lambda batch: batch.put(stray, first_run), lambda batch: batch.put(gone, kept[1]))
    found = check_store(store)
    assert found.problems == []
    assert found.unreachable_runs == before.unreachable_runs + 2


def flip(value: bytes) -> bytes:
    return value[:-9] + bytes([value[-9] ^ 1]) + value[-8:]


def damage_checksum(store: MemoryStore) -> None:
    key, value = runs_of(store, FORK)[0]
    change(store, lambda batch: batch.put(key, flip(value)))


def drop_run(store: MemoryStore) -> None:
    key, _ = runs_of(store, FORKED)[0]
    change(store, lambda batch: batch.delete(key))


def drop_later_run(store: MemoryStore) -> None:
    key, _ = runs_of(store, FORKED)[-1]
    change(store, lambda batch: batch.delete(key))


def move_run(store: MemoryStore) -> None:
    key, value = runs_of(store, FORKED)[-1]
    further = keys.run(FORKED, SeqNum(keys.split_run(key)[1] + 5))
    change(store, lambda batch: batch.put(further, value))


def double_run(store: MemoryStore) -> None:
    _, value = runs_of(store, PLAIN)[0]
    change(store, lambda batch: batch.put(keys.run(PLAIN, SeqNum(1)), value))


def swap_runs(store: MemoryStore) -> None:
    key, _ = runs_of(store, FORKED)[-1]
    other = runs_of(store, TRIMMED)[-1][1]
    change(store, lambda batch: batch.put(key, other))


def drop_state(store: MemoryStore) -> None:
    change(store, lambda batch: batch.delete(keys.state(FORKED)))


def break_state(store: MemoryStore) -> None:
    change(store, lambda batch: batch.put(keys.state(TRIMMED), b"\xc1"))


def drop_name(store: MemoryStore) -> None:
    change(store, lambda batch: batch.delete(keys.name(BUCKET, "fork")))


def cross_name(store: MemoryStore) -> None:
    key = keys.name(BUCKET, "fork")
    change(store, lambda batch: batch.put(key, keys.pack_id(LIVED)))


def drop_deadline(store: MemoryStore) -> None:
    for key, _ in list(store.scan(b"e", b"f")):
        change(store, lambda batch, key=key: batch.delete(key))  # type: ignore[misc]


def damage_snapshot(store: MemoryStore) -> None:
    change(store, lambda batch: batch.put(keys.piece(77, 0), b"stale"))


def stray_pieces(store: MemoryStore) -> None:
    change(store, lambda batch: batch.put(keys.piece(78, 0), b"x"))


def drop_bucket(store: MemoryStore) -> None:
    change(store, lambda batch: batch.delete(keys.document(keys.BUCKETS, BUCKET)))


def break_bucket(store: MemoryStore) -> None:
    change(store, lambda batch: batch.put(keys.document(keys.BUCKETS, BUCKET), b"\xc1"))


def reuse_id(store: MemoryStore) -> None:
    change(store, lambda batch: batch.put(keys.NEXT_ID, keys.pack_id(2)))


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (damage_checksum, "bucket/fork: a run fails its checksum"),
        (drop_run, "bucket/forked: records are missing between 0 and 2"),
        (drop_later_run, "bucket/forked: records are missing"),
        (move_run, "bucket/forked: records are missing after its checkpoint"),
        (double_run, "bucket/plain: two runs have record 1"),
        (swap_runs, "bucket/forked: bytes do not add up before record 1"),
        (drop_state, "stream 2: is read by forks, and is not there"),
        (drop_state, "bucket/forked: the name leads to no stream"),
        (break_state, "stream 4: its checkpoint is unreadable"),
        (drop_name, "bucket/fork: no name leads to stream 3"),
        (cross_name, "bucket/fork: the name leads to bucket/lived"),
        (drop_deadline, "bucket/lived: has a lifetime, and nothing will end it"),
        (damage_snapshot, "bucket/plain: its snapshot is not what was published"),
        (stray_pieces, "upload 4e: is no stream's snapshot"),
        (drop_bucket, "bucket bucket: has streams, and is not there"),
        (break_bucket, "bucket bucket: its document is unreadable"),
        (reuse_id, "the next id is in use already"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_each_damage_is_named(
    store: MemoryStore, damage: Callable[[MemoryStore], None], problem: str
) -> None:
    damage(store)
    assert any(line.startswith(problem) for line in check_store(store).problems)


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"references": 0}, "bucket/forked: the number of its references is wrong"),
        ({"tail_seq": 5}, "bucket/forked: records are missing between 0 and 5"),
        ({"deleted": True, "references": 0}, "bucket/forked: deleted, and nothing needs it"),
    ],
)
def test_a_checkpoint_that_does_not_fit_is_named(
    store: MemoryStore, fields: dict[str, object], problem: str
) -> None:
    edit(store, FORKED, **fields)
    assert problem in check_store(store).problems


def test_a_checkpoint_inside_a_run_is_named(store: MemoryStore) -> None:
    assert len(runs_of(store, PLAIN)) < 20, "nothing was packed"
    edit(store, PLAIN, tail_seq=1)
    assert any("ends inside a run" in line for line in check_store(store).problems)


def test_the_list_of_problems_has_an_end() -> None:
    found = Findings()
    for _ in range(check.PROBLEMS_MAX + 1):
        found.report("again")
    assert len(found.problems) == check.PROBLEMS_MAX
