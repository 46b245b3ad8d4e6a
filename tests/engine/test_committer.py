"""Group commit: what goes into one sync, who is answered when, and what a failure does."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from headwater.core.append import Appended
from headwater.core.commands import AppendRecords
from headwater.core.errors import (
    FencingTokenMismatch,
    Overloaded,
    PreconditionFailed,
    StorageFailed,
    StreamClosed,
    StreamNotFound,
)
from headwater.core.lifecycle import Created
from headwater.core.limits import KIB, MIB
from headwater.core.pending import Pending
from headwater.engine.committer import BUSY_RETRY_S, COMMIT_COMMANDS_MAX, COMMIT_MESSAGES_MAX
from tests.support.builders import (
    JSON,
    append,
    claim,
    create,
    delete,
    fence,
    position,
    s2_append,
)
from tests.support.engines import EngineRunner, small_sizes
from tests.support.stores import DiskError, FaultyStore


def collect(pending: Pending[Any]) -> list[Any]:
    """A list that will hold the outcome."""
    outcomes: list[Any] = []
    pending.deliver(outcomes.append)
    return outcomes


# -- how much goes into one commit


def test_commands_that_arrive_together_share_one_sync() -> None:
    store = FaultyStore()
    with EngineRunner(store) as runner:
        runner.create(create())
        syncs = store.syncs
        answers = runner.together(*[append(body=b"%d;" % n) for n in range(50)])
        assert all(isinstance(answer, Appended) for answer in answers)
        assert store.syncs == syncs + 1
        assert runner.content("s") == b"".join(b"%d;" % n for n in range(50))


def test_commands_that_arrive_during_a_sync_form_the_next_commit() -> None:
    store = FaultyStore()
    with EngineRunner(store) as runner:
        runner.create(create())
        syncs = store.syncs
        store.hold_syncs()
        first = collect(runner.submit(append(body=b"a")))
        runner.turn(3)
        rest = [collect(runner.submit(append(body=b"b"))) for _ in range(20)]
        runner.turn(3)
        assert first == [] and not any(rest)
        store.release_syncs()
        runner.settle()
        assert len(first) == 1 and all(len(outcome) == 1 for outcome in rest)
        assert store.syncs == syncs + 2


def test_a_commit_holds_a_bounded_number_of_commands() -> None:
    store = FaultyStore()
    with EngineRunner(store) as runner:
        runner.create(create())
        syncs = store.syncs
        runner.together(*[append(body=b"x") for _ in range(COMMIT_COMMANDS_MAX + 1)])
        assert store.syncs == syncs + 2


def test_a_commit_holds_a_bounded_number_of_bytes() -> None:
    store = FaultyStore()
    with EngineRunner(store) as runner:
        runner.create(create())
        syncs = store.syncs
        runner.together(*[append(body=bytes(MIB)) for _ in range(9)])
        assert store.syncs == syncs + 3


def test_a_commit_holds_a_bounded_number_of_json_messages() -> None:
    store = FaultyStore()
    with EngineRunner(store) as runner:
        runner.create(create(content_type=JSON))
        syncs = store.syncs
        half = b"[%b]" % b",".join([b"1"] * (COMMIT_MESSAGES_MAX // 2))
        runner.together(*[append(body=half, content_type=JSON) for _ in range(4)])
        assert store.syncs == syncs + 2
        assert runner.open("s").state.tail_message == 2 * COMMIT_MESSAGES_MAX


def test_what_changes_nothing_is_not_synced() -> None:
    store = FaultyStore()
    with EngineRunner(store) as runner:
        runner.create(create())
        runner.append(append(body=b"x", producer=claim(seq=0)))
        syncs, writes = store.syncs, store.writes
        repeated = runner.append(append(body=b"x", producer=claim(seq=0)))
        assert repeated.repeat
        assert isinstance(runner.outcome(runner.submit(delete("unknown"))), StreamNotFound)
        assert not runner.create(create()).new
        assert (store.syncs, store.writes) == (syncs, writes)


def test_an_engine_without_a_durable_store_never_syncs_but_commits() -> None:
    with EngineRunner() as runner:
        runner.create(create(body=b"x"))
        figures = runner.engine.committer.figures
        assert (figures.syncs, figures.commits, figures.commands) == (0, 1, 1)


# -- who is answered when


def test_an_append_is_answered_and_seen_only_after_its_sync() -> None:
    store = FaultyStore()
    with EngineRunner(store) as runner:
        runner.create(create(body=b"old"))
        stream = runner.open("s")
        store.hold_syncs()
        outcome = collect(runner.submit(append(body=b"new")))
        runner.turn(5)
        assert outcome == []
        assert runner.content("s") == b"old"
        assert stream.tail == position(1, 3)
        store.release_syncs()
        runner.settle()
        assert [answer.tail for answer in outcome] == [position(2, 6)]
        assert runner.content("s") == b"oldnew"


def test_a_close_is_seen_only_after_its_sync() -> None:
    store = FaultyStore()
    with EngineRunner(store) as runner:
        runner.create(create(body=b"old"))
        store.hold_syncs()
        runner.submit(append(close=True))
        runner.turn(3)
        assert not runner.read("s").closed
        store.release_syncs()
        runner.settle()
        assert runner.read("s").closed


def test_an_error_that_depends_on_an_unsynced_append_waits_for_it() -> None:
    store = FaultyStore()
    with EngineRunner(store) as runner:
        runner.create(create())
        store.hold_syncs()
        closing = collect(runner.submit(append(body=b"x", close=True)))
        same_commit = collect(runner.submit(append(body=b"y")))
        runner.turn(3)
        next_commit = collect(runner.submit(append(body=b"z")))
        runner.turn(3)
        assert (closing, same_commit, next_commit) == ([], [], [])
        store.release_syncs()
        runner.settle()
        assert [type(outcome) for outcome in closing + same_commit + next_commit] == [
            Appended,
            StreamClosed,
            StreamClosed,
        ]


@pytest.mark.parametrize(
    ("second", "error"),
    [
        (s2_append("s", b"y", match_seq_num=0), PreconditionFailed),
        (s2_append("s", b"y", fencing_token=""), FencingTokenMismatch),
    ],
    ids=["number", "token"],
)
def test_a_condition_that_an_unsynced_append_breaks_waits_for_it(
    second: AppendRecords, error: type[Exception]
) -> None:
    store = FaultyStore()
    with EngineRunner(store) as runner:
        runner.create(create())
        store.hold_syncs()
        first = collect(runner.submit(fence("s", "token")))
        same_commit = collect(runner.submit(second))
        runner.turn(3)
        next_commit = collect(runner.submit(second))
        runner.turn(3)
        assert (first, same_commit, next_commit) == ([], [], [])
        store.release_syncs()
        runner.settle()
        assert [type(outcome) for outcome in first + same_commit + next_commit] == [
            Appended,
            error,
            error,
        ]


def test_a_repeat_of_an_unsynced_batch_waits_for_it() -> None:
    store = FaultyStore()
    with EngineRunner(store) as runner:
        runner.create(create())
        store.hold_syncs()
        first = collect(runner.submit(append(body=b"x", producer=claim())))
        again = collect(runner.submit(append(body=b"x", producer=claim())))
        runner.turn(3)
        later = collect(runner.submit(append(body=b"x", producer=claim())))
        runner.turn(3)
        assert (first, again, later) == ([], [], [])
        store.release_syncs()
        runner.settle()
        assert [answer.repeat for answer in first + again + later] == [False, True, True]
        assert runner.content("s") == b"x"


def test_a_reader_of_a_name_that_is_being_created_or_removed_waits_for_the_commit() -> None:
    store = FaultyStore()
    with EngineRunner(store) as runner:
        runner.create(create("old", body=b"old"))
        store.hold_syncs()
        runner.submit(create("new", body=b"new"))
        runner.submit(delete("old"))
        runner.turn(3)
        opened: dict[str, list[Any]] = {}
        for name in ("new", "old"):
            look = runner.engine.when_settled(
                "bucket",
                name,
                lambda name=name: runner.engine.open("bucket", name),  # type: ignore[misc]
            )
            assert isinstance(look, Pending)
            opened[name] = collect(look)
        store.release_syncs()
        runner.settle()
        assert opened["new"][0].tail == position(1, 3)
        assert isinstance(opened["old"][0], StreamNotFound)


def test_one_answer_that_cannot_be_delivered_does_not_disturb_the_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def broken(_: object) -> None:
        raise ConnectionResetError("the client is gone")

    woken: list[int] = []
    with EngineRunner(FaultyStore()) as runner:
        runner.create(create())
        stream = runner.open("s")
        runner.engine.follow(stream, lambda changed, _: woken.append(changed.tail.seq))
        outcomes = []
        for number in range(5):
            pending = runner.submit(append(body=b"%d" % number))
            if number in (0, 2):
                pending.deliver(broken)
            else:
                outcomes.append(collect(pending))
        runner.settle()
        assert [len(outcome) for outcome in outcomes] == [1, 1, 1]
        assert runner.content("s") == b"01234"
        assert woken == [5]
        assert runner.append(append(body=b"5")).tail == position(6, 6)
    assert caplog.text.count("an answer could not be delivered") == 2


def test_one_reader_that_is_gone_does_not_disturb_those_that_waited_with_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def broken(_: object) -> None:
        raise ConnectionResetError("the client is gone")

    store = FaultyStore()
    with EngineRunner(store) as runner:
        runner.create(create("followed"))
        woken: list[int] = []
        stream = runner.open("followed")
        runner.engine.follow(stream, lambda changed, _: woken.append(changed.tail.seq))
        store.hold_syncs()
        runner.submit(create("new"))
        runner.submit(append("followed", b"x"))
        runner.turn(3)
        looks = [
            runner.engine.when_settled("bucket", "new", lambda: runner.engine.open("bucket", "new"))
            for _ in range(2)
        ]
        assert isinstance(looks[0], Pending) and isinstance(looks[1], Pending)
        looks[0].deliver(broken)
        waiting = collect(looks[1])
        store.release_syncs()
        runner.settle()
        assert len(waiting) == 1
        assert woken == [1]
    assert "the client is gone" in caplog.text


def test_a_command_that_breaks_a_rule_nobody_thought_of_fails_alone(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    with EngineRunner(FaultyStore()) as runner:
        runner.create(create())
        apply = runner.engine.shard.apply

        def sometimes(command: Any) -> Any:
            if getattr(command, "body", b"") == b"bug":
                raise KeyError("a bug")
            return apply(command)

        monkeypatch.setattr(runner.engine.shard, "apply", sometimes)
        outcomes = runner.together(append(body=b"a"), append(body=b"bug"), append(body=b"b"))
        assert [type(outcome) for outcome in outcomes] == [Appended, KeyError, Appended]
        assert runner.content("s") == b"ab"
    assert "a command failed unexpectedly" in caplog.text


# -- failures


def test_a_failed_sync_fails_everything_and_is_never_tried_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    failures: list[bool] = []
    store = FaultyStore()
    with EngineRunner(store, on_failed=lambda: failures.append(True)) as runner:
        runner.create(create(body=b"old"))
        store.hold_syncs()
        running = [collect(runner.submit(append(body=b"a"))) for _ in range(2)]
        runner.turn(3)
        queued = [collect(runner.submit(append(body=b"b"))) for _ in range(2)]
        store.sync_error = DiskError("I/O error")
        syncs = store.syncs
        store.release_syncs()
        runner.settle()
        for outcome in running + queued:
            assert [type(error) for error in outcome] == [StorageFailed]
        assert failures == [True]
        assert not runner.engine.ready

        store.sync_error = None
        writes = store.writes
        assert isinstance(runner.outcome(runner.submit(append(body=b"c"))), StorageFailed)
        with pytest.raises(StorageFailed):
            runner.engine.open("bucket", "s")
        runner.clock.advance(60)
        runner.settle()
        assert store.syncs == syncs + 1
        assert store.writes == writes
    assert "a sync failed" in caplog.text


def test_a_failed_write_fails_everything(caplog: pytest.LogCaptureFixture) -> None:
    failures: list[bool] = []
    store = FaultyStore()
    with EngineRunner(store, on_failed=lambda: failures.append(True)) as runner:
        runner.create(create())
        store.write_error = DiskError("no space left on device")
        assert isinstance(runner.outcome(runner.submit(append(body=b"a"))), StorageFailed)
        store.write_error = None
        assert isinstance(runner.outcome(runner.submit(append(body=b"a"))), StorageFailed)
        assert failures == [True]
    assert "a write to the store failed" in caplog.text


def test_readers_that_waited_for_a_commit_that_failed_are_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = FaultyStore()
    with EngineRunner(store) as runner:
        store.hold_syncs()
        runner.submit(create("new"))
        runner.turn(3)
        look = runner.engine.when_settled(
            "bucket", "new", lambda: runner.engine.open("bucket", "new")
        )
        assert isinstance(look, Pending)
        waiting = collect(look)
        store.sync_error = DiskError("I/O error")
        store.release_syncs()
        runner.settle()
        assert [type(outcome) for outcome in waiting] == [StorageFailed]
        with pytest.raises(StorageFailed):
            runner.engine.when_settled("bucket", "new", lambda: runner.engine.open("bucket", "new"))
    assert caplog.records


def test_closing_ends_even_if_the_last_sync_fails(caplog: pytest.LogCaptureFixture) -> None:
    store = FaultyStore()
    runner = EngineRunner(store)
    store.hold_syncs()
    outcome = collect(runner.submit(create()))
    runner.turn(3)
    closed = runner.engine.close()
    store.sync_error = DiskError("I/O error")
    store.release_syncs()
    assert runner.outcome(closed) is None
    assert [type(error) for error in outcome] == [StorageFailed]
    runner.loop.close()
    assert "a sync failed" in caplog.text


def test_a_batch_that_cannot_even_be_made_fails_the_server_instead_of_hanging_it(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken() -> None:
        raise ValueError("cannot be encoded")

    failures: list[bool] = []
    with EngineRunner(FaultyStore(), on_failed=lambda: failures.append(True)) as runner:
        runner.create(create())
        monkeypatch.setattr(runner.engine.shard, "seal", broken)
        assert isinstance(runner.outcome(runner.submit(append(body=b"a"))), StorageFailed)
        assert failures == [True]
    assert caplog.records


# -- a store that is busy


@pytest.mark.parametrize("times", [1, 3])
def test_a_busy_store_is_tried_again_and_nothing_is_lost_or_doubled(times: int) -> None:
    store = FaultyStore()
    with EngineRunner(store) as runner:
        runner.create(create())
        syncs = store.syncs
        store.busy_writes = times
        outcomes = [
            collect(runner.submit(append(body=b"%d" % n, producer=claim(seq=n)))) for n in range(3)
        ]
        runner.turn(3)
        later = collect(runner.submit(append(body=b"3", producer=claim(seq=3))))
        for _ in range(times):
            runner.turn(3)
            assert not any(outcomes) and not later
            runner.clock.advance(BUSY_RETRY_S)
        runner.settle()
        assert [answer.tail.seq for outcome in [*outcomes, later] for answer in outcome] == [
            1,
            2,
            3,
            4,
        ]
        assert runner.content("s") == b"0123"
        assert runner.engine.committer.figures.stalls == times
        assert store.syncs == syncs + 2
        with EngineRunner(store.inner) as reopened:
            assert reopened.content("s") == b"0123"
            assert reopened.append(append(body=b"x", producer=claim(seq=3))).repeat


def test_while_the_store_is_busy_a_deleted_stream_does_not_come_back() -> None:
    store = FaultyStore()
    with EngineRunner(store) as runner:
        runner.create(create(body=b"old", ttl_s=60))
        store.busy_writes = 1
        gone = collect(runner.submit(delete()))
        runner.turn(3)
        runner.engine.sweeper.sweep()
        runner.submit(append(body=b"x"))
        runner.clock.advance(BUSY_RETRY_S)
        runner.settle()
        assert gone == [None]
        with pytest.raises(StreamNotFound):
            runner.open("s")


def test_packing_while_the_store_is_busy_keeps_the_producers() -> None:
    """A chunk drops the changes of its runs only together with a checkpoint that holds them."""
    store = FaultyStore()
    with small_sizes(), EngineRunner(store) as runner:
        runner.create(create())
        packer = runner.engine.packer
        packer.enabled = False
        for number in range(4):
            runner.append(append(body=b"x", producer=claim(seq=number)))
        packer.enabled = True
        packer.consider(runner.open("s"))
        store.busy_writes = 1
        runner.submit(append(close=True))
        runner.turn(3)
        packer.step()
        with EngineRunner(store.inner) as crashed:
            assert crashed.append(append(body=b"x", producer=claim(seq=3))).repeat
        runner.clock.advance(BUSY_RETRY_S)
        runner.settle()
        with EngineRunner(store.inner) as reopened:
            assert reopened.read("s").closed


# -- limits


def test_more_than_the_queue_may_hold_is_refused_and_the_rest_goes_on() -> None:
    store = FaultyStore()
    with EngineRunner(store, queue_bytes_max=100 * KIB) as runner:
        runner.create(create())
        store.hold_syncs()
        runner.submit(append(body=b"first"))
        runner.turn(3)
        accepted = [collect(runner.submit(append(body=bytes(30 * KIB)))) for _ in range(3)]
        refused = runner.outcome(runner.submit(append(body=bytes(30 * KIB))))
        assert isinstance(refused, Overloaded)
        store.release_syncs()
        runner.settle()
        assert all(isinstance(outcome[0], Appended) for outcome in accepted)
        assert isinstance(runner.outcome(runner.submit(append(body=bytes(90 * KIB)))), Appended)


def test_commands_without_a_body_count_too() -> None:
    store = FaultyStore()
    with EngineRunner(store, queue_bytes_max=64 * KIB) as runner:
        store.hold_syncs()
        runner.submit(create())
        runner.turn(3)
        outcomes = [collect(runner.submit(delete("x"))) for _ in range(10_000)]
        refused = sum(1 for outcome in outcomes if outcome)
        assert 0 < refused < 10_000
        store.release_syncs()
        runner.settle()


def test_closing_finishes_what_was_accepted_and_takes_nothing_more() -> None:
    store = FaultyStore()
    runner = EngineRunner(store)
    store.hold_syncs()
    outcome = collect(runner.submit(create(body=b"x")))
    runner.turn(3)
    queued = collect(runner.submit(append(body=b"y")))
    closed = collect(runner.engine.close())
    refused = runner.outcome(runner.submit(append(body=b"z")))
    assert isinstance(refused, Overloaded)
    assert (outcome, queued, closed) == ([], [], [])
    store.release_syncs()
    while not closed:
        runner.turn()
    assert isinstance(outcome[0], Created) and isinstance(queued[0], Appended)
    runner.loop.close()


def test_nothing_is_logged_when_all_is_well(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "headwater"), EngineRunner(FaultyStore()) as runner:
        runner.create(create(body=b"x"))
        runner.append(append(body=b"y"))
        runner.delete(delete())
    assert caplog.records == []
