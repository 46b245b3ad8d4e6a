"""Buckets made by their configuration, and removed with all their streams."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from headwater.core.buckets import BucketConfig
from headwater.core.commands import (
    Append,
    Command,
    Create,
    ProvisionMode,
    PutBucket,
    ReconfigureBucket,
)
from headwater.core.errors import (
    BucketDeleting,
    BucketNotFound,
    Conflict,
    DiskFull,
    TooManyRequests,
)
from headwater.core.provisioning import Result
from headwater.core.retention import Retention
from headwater.core.types import TimestampMs
from headwater.engine import basins
from headwater.engine.listing import BucketPage, list_buckets
from tests.support.builders import append, append_records, create, fork_of, provision
from tests.support.clock import START_MS
from tests.support.engines import EngineRunner

NOW = TimestampMs(START_MS)


@pytest.fixture
def runner() -> Iterator[EngineRunner]:
    with EngineRunner() as found:
        yield found


def make(runner: EngineRunner, bucket: str, config: BucketConfig | None = None) -> Result:
    pending = runner.engine.provision_bucket(bucket, ProvisionMode.ENSURE, config or BucketConfig())
    return runner.result(pending).result


def listed(runner: EngineRunner, prefix: str = "", after: str = "", limit: int = 100) -> BucketPage:
    found = list_buckets(
        runner.engine, prefix=prefix, after=after, limit=limit, admits=lambda name: "x" not in name
    )
    return runner.result(found)


def sweep(runner: EngineRunner, times: int = 1) -> None:
    for _ in range(times):
        runner.engine.sweeper.sweep()
        runner.settle()


def test_a_stream_is_provisioned_only_in_a_bucket_that_is_there(runner: EngineRunner) -> None:
    with pytest.raises(BucketNotFound):
        runner.result(runner.engine.provision(provision()))
    make(runner, "bucket")
    made = runner.result(runner.engine.provision(provision()))
    assert (made.result, made.created_at_ms) == (Result.CREATED, START_MS)
    found = runner.open("s")
    assert (found.state.id, found.tail) == (made.id, (0, 0))
    with EngineRunner(runner.store) as reopened:
        assert reopened.open("s").state == found.state


def test_a_stream_whose_life_is_over_gives_up_its_name(runner: EngineRunner) -> None:
    runner.create(create(body=b"old", ttl_s=10))
    later = START_MS + 10_000
    kept = provision(mode=ProvisionMode.KEEP, at_ms=later)
    assert runner.result(runner.engine.provision(kept)).result is Result.CREATED
    assert runner.content("s") == b""


def test_what_follows_a_provision_finds_its_stream(runner: EngineRunner) -> None:
    make(runner, "bucket")
    made, appended = runner.together(
        provision(mode=ProvisionMode.KEEP), Append("bucket", "s", NOW, body=b"x")
    )
    assert (made.result, appended.tail) == (Result.CREATED, (1, 1))


def test_a_full_bucket_takes_no_more_streams(runner: EngineRunner) -> None:
    runner.result(runner.engine.put_bucket("bucket", BucketConfig(streams_max=1)))
    runner.result(runner.engine.provision(provision("a")))
    with pytest.raises(TooManyRequests):
        runner.result(runner.engine.provision(provision("b")))
    again = provision("a", mode=ProvisionMode.KEEP)
    assert runner.result(runner.engine.provision(again)).result is Result.NOOP


def test_what_one_dialect_says_of_a_bucket_another_leaves_alone(runner: EngineRunner) -> None:
    make(runner, "bucket", BucketConfig(create_on_append=True))
    limits = BucketConfig(retention=Retention(records=5), streams_max=3)
    assert not runner.result(runner.engine.submit(PutBucket("bucket", "", NOW, limits)))
    found = runner.engine.bucket("bucket")
    assert found == BucketConfig(
        created_at_ms=NOW, create_on_append=True, retention=Retention(records=5), streams_max=3
    )
    assert make(runner, "bucket") is Result.UPDATED
    found = runner.engine.bucket("bucket")
    assert found is not None
    assert (found.streams_max, found.create_on_append) == (3, False)


def test_buckets_are_listed_with_the_one_that_is_always_there(runner: EngineRunner) -> None:
    for bucket in ("eagle", "ant", "ox", "bee"):
        make(runner, bucket)
    names = [name for name, _ in listed(runner).buckets]
    assert names == ["ant", "bee", "durable-streams", "eagle"]
    assert [name for name, _ in listed(runner, after="bee", limit=1).buckets] == ["durable-streams"]
    assert listed(runner, after="bee", limit=1).has_more
    assert not listed(runner, limit=4).has_more
    assert listed(runner, prefix="b").buckets == [("bee", BucketConfig(created_at_ms=NOW))]
    runner.create(Create("durable-streams", "s", NOW))
    stored = dict(listed(runner).buckets)
    assert list(stored) == names
    assert stored["durable-streams"].created_at_ms == 0


def test_a_list_shows_nothing_that_is_not_durable_yet(runner: EngineRunner) -> None:
    making = runner.engine.provision_bucket("ant", ProvisionMode.ENSURE, BucketConfig())
    found = list_buckets(runner.engine, prefix="", after="", limit=9, admits=lambda name: True)
    runner.result(making)
    assert [name for name, _ in runner.result(found).buckets] == ["durable-streams"]


@pytest.mark.parametrize("steps", [2, 512])
def test_a_bucket_goes_when_its_last_stream_has(
    runner: EngineRunner, monkeypatch: pytest.MonkeyPatch, steps: int
) -> None:
    monkeypatch.setattr(basins, "STREAMS_PER_SWEEP_MAX", steps)
    make(runner, "bucket")
    make(runner, "other")
    for number in range(5):
        runner.result(runner.engine.provision(provision(f"s{number}")))
    runner.result(runner.engine.provision(provision("kept", bucket="other")))
    runner.result(runner.engine.delete_bucket("bucket"))
    sweep(runner, 8)
    assert runner.engine.bucket("bucket") is None
    assert [name for name, _ in listed(runner).buckets] == ["durable-streams", "other"]
    assert runner.keys(b"n") == [b"nother\0kept"]
    sweep(runner)


def test_many_buckets_go_some_at_a_time_and_none_has_to_wait_for_ever(
    runner: EngineRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(basins, "STREAMS_PER_SWEEP_MAX", 3)
    monkeypatch.setattr(basins, "BUCKETS_PER_SWEEP_MAX", 2)
    for number in range(3):  # which stay for their forks, so the first bucket never goes
        runner.create(create(f"s{number}", body=b"x"))
        fork = create(f"f{number}", content_type=None, fork=fork_of(f"s{number}"))
        runner.create(replace(fork, bucket="kept"))
    for bucket in ("ccc", "ddd", "eee"):
        make(runner, bucket)
        runner.result(runner.engine.provision(provision("s", bucket=bucket)))
    for bucket in ("bucket", "ccc", "ddd", "eee"):
        runner.result(runner.engine.delete_bucket(bucket))
    before = runner.engine.committer.figures.commands
    sweep(runner)
    assert runner.engine.committer.figures.commands - before <= 3
    sweep(runner, 12)
    assert runner.engine.shard.buckets.deleting == {"bucket"}


def test_a_bucket_that_is_being_deleted_takes_nothing(runner: EngineRunner) -> None:
    make(runner, "bucket")
    runner.create(create("a", body=b"x"))
    for _ in range(2):
        assert runner.result(runner.engine.delete_bucket("bucket")) is None
    refused: tuple[Command, ...] = (
        create("b"),
        provision("b"),
        PutBucket("bucket", "", NOW),
        append("a", b"y"),
        append_records("a", [b"y"]),
    )
    for command in refused:
        with pytest.raises(BucketDeleting):
            runner.result(runner.submit(command))
    with pytest.raises(BucketDeleting):
        runner.result(runner.engine.reconfigure_bucket(ReconfigureBucket("bucket", "", NOW)))
    assert runner.content("a") == b"x", "what is there can be read until it goes"
    with pytest.raises(BucketNotFound):
        runner.result(runner.engine.delete_bucket("nothing"))
    with pytest.raises(Conflict):
        runner.result(runner.engine.delete_bucket("durable-streams"))


def test_a_removal_goes_on_after_a_restart(runner: EngineRunner) -> None:
    make(runner, "bucket")
    runner.create(create("a", body=b"x"))
    runner.result(runner.engine.delete_bucket("bucket"))
    with EngineRunner(runner.store) as reopened:
        sweep(reopened, 3)
        assert reopened.engine.bucket("bucket") is None
        assert (reopened.keys(b"n"), reopened.keys(b"r")) == ([], [])


def test_a_low_disk_refuses_what_is_new() -> None:
    with EngineRunner(free_bytes=lambda: 1, disk_reserve_bytes=100) as runner:
        runner.engine.start()
        with pytest.raises(DiskFull):
            runner.result(runner.engine.provision(provision()))
        with pytest.raises(DiskFull):
            make(runner, "bucket")
