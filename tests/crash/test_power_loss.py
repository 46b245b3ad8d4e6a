"""The power goes off in the middle of everything, and a store forgets what it may forget.

Commands are applied in the order they were submitted, so after a crash the streams must be as they
were after the first so many of them: at least all that were answered, at most all that were sent,
and nothing else. That is checked against a model, over several crashes, with packing at work.
"""

from __future__ import annotations

from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.core.commands import Trim
from headwater.core.errors import StorageFailed
from headwater.storage.check import check_store
from tests.support.builders import append, claim, create, delete, fork_of
from tests.support.engines import EngineRunner, small_sizes
from tests.support.histories import NAMES, Operation, draw_operation, replay
from tests.support.model import RECORD_BYTES, Expected, Model, View, check_outcome, view_of
from tests.support.stores import PowerLoss, VolatileStore

pytestmark = pytest.mark.crash


def draw_crash(data: st.DataObject, store: VolatileStore) -> VolatileStore:
    """What is left of a store: nothing but the log, everything, or something in between."""
    some = st.sampled_from([0, store.batches]) | st.integers(0, store.batches)
    return store.crash(flushed=data.draw(some), logged=data.draw(some))


def next_operation(data: st.DataObject, model: Model, retries: list[Operation]) -> Operation:
    """What a writer got no answer for comes first, then something new."""
    while retries:
        operation = retries.pop(0)
        if operation.fits(model):
            return operation
    return draw_operation(data, model)


def run_until_power_loss(
    runner: EngineRunner, data: st.DataObject, done: list[Operation], retries: list[Operation]
) -> tuple[list[Operation], int]:
    """Send commands in groups. Returns those sent, and how many of them were answered."""
    model = replay(done)
    sent: list[Operation] = []
    expectations: list[Expected] = []
    outcomes: list[list[object]] = []
    store = runner.store
    assert isinstance(store, VolatileStore)
    groups = data.draw(st.integers(1, 8))
    for _ in range(groups):
        for _ in range(data.draw(st.integers(1, 6))):
            operation = next_operation(data, model, retries)
            expected = operation.act(model)
            sent.append(operation)
            expectations.append(expected)
            outcome: list[object] = []
            outcomes.append(outcome)
            runner.submit(operation.command).deliver(outcome.append)
        if data.draw(st.booleans()):
            runner.turn(data.draw(st.integers(1, 3)))
        else:
            runner.settle()
            if runner.engine.ready:
                model.settle()
        if data.draw(st.booleans()):
            try:
                runner.engine.sweeper.sweep()
            except PowerLoss:
                break
        if not store.powered:
            break
    if data.draw(st.booleans()):
        runner.settle()
    answered = [bool(o) and not isinstance(o[0], StorageFailed) for o in outcomes]
    count = sum(answered)
    assert answered == [True] * count + [False] * (len(sent) - count), "answers come in order"
    for operation, expected, outcome in zip(sent[:count], expectations, outcomes, strict=False):
        check_outcome(operation.command, expected, outcome[0])
    return sent, count


@pytest.mark.timeout(60)
@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_after_a_power_loss_everything_answered_is_there_once_and_nothing_is_torn(
    data: st.DataObject,
) -> None:
    with small_sizes(record_bytes=RECORD_BYTES, runs_min=2):
        store = VolatileStore()
        EngineRunner(store).abandon()
        done: list[Operation] = []
        retries: list[Operation] = []
        for _ in range(data.draw(st.integers(1, 3))):
            store.cut_power_after(data.draw(st.integers(1, 60)))
            hot_streams_max = data.draw(st.sampled_from([1, 100]))
            with EngineRunner(store, sync_on_loop=True, hot_streams_max=hot_streams_max) as runner:
                sent, answered = run_until_power_loss(runner, data, done, retries)

            store = draw_crash(data, store)
            assert check_store(store).problems == []
            with EngineRunner(store, packing_enabled=False) as reopened:
                found = view_of(reopened, NAMES)
            possible = [
                count
                for count in range(answered, len(sent) + 1)
                if replay(done + sent[:count]).view() == found
            ]
            assert possible, _explain(answered, done, sent, found)
            # Whoever got no answer sends again: the next round begins with that, and the model
            # says for each whether it is new or a repeat.
            done += sent[: possible[0]]
            retries = [op for op in sent[answered:] if not isinstance(op.command, Trim)]


@pytest.mark.timeout(60)
@settings(max_examples=150, deadline=None)
@given(
    batches=st.lists(st.integers(1, 4), min_size=1, max_size=12),
    operations=st.integers(2, 40),
    data=st.data(),
)
def test_a_producer_that_sends_everything_again_after_a_crash_doubles_nothing(
    batches: list[int], operations: int, data: st.DataObject
) -> None:
    """Answered or not, every batch is sent again from the very first: each is there once."""
    with small_sizes():
        store = VolatileStore()
        with EngineRunner(store) as runner:
            runner.create(create())
        store.cut_power_after(operations)
        sent = 0
        with EngineRunner(store, sync_on_loop=True) as runner:
            for size in batches:
                for _ in range(size):
                    runner.submit(append(body=b"%d," % sent, producer=claim(seq=sent)))
                    sent += 1
                runner.settle()
        store = draw_crash(data, store)
        with EngineRunner(store) as runner:
            survived = runner.open("s").state.producers.get("p")
            kept = 0 if survived is None else survived.seq + 1
            assert runner.content("s") == b"".join(b"%d," % n for n in range(kept))
            for number in range(sent):
                again = runner.append(append(body=b"%d," % number, producer=claim(seq=number)))
                assert again.repeat == (number < kept)
            assert runner.content("s") == b"".join(b"%d," % n for n in range(sent))


@pytest.mark.timeout(60)
@settings(max_examples=100, deadline=None)
@given(operations=st.integers(2, 40), data=st.data())
def test_closed_stays_closed_and_deleted_stays_deleted(
    operations: int, data: st.DataObject
) -> None:
    with small_sizes():
        store = VolatileStore()
        with EngineRunner(store, sync_on_loop=True) as runner:
            for name in ("closed", "deleted", "source"):
                runner.create(create(name, body=b"x"))
            runner.create(create("fork", content_type=None, fork=fork_of("source")))
        store.cut_power_after(operations)
        answers: dict[str, object] = {}
        with EngineRunner(store, sync_on_loop=True) as runner:
            for number in range(data.draw(st.integers(0, 6))):
                runner.submit(append("closed", b"%d" % number, producer=claim(seq=number)))
                runner.turn(data.draw(st.integers(0, 4)))
            for key, command in (
                ("closed", append("closed", close=True)),
                ("deleted", delete("deleted")),
                ("source", delete("source")),
                ("fork", append("fork", b"!")),
            ):
                runner.submit(command).deliver(partial(answers.__setitem__, key))
                runner.turn(data.draw(st.integers(0, 4)))
            runner.settle()
            if store.powered:
                runner.engine.sweeper.sweep()
        store = draw_crash(data, store)
        with EngineRunner(store) as runner:
            found = view_of(runner, ["closed", "deleted", "source", "fork"])
            done = {key for key, answer in answers.items() if not isinstance(answer, StorageFailed)}
            assert "closed" not in done or found["closed"].closed
            assert "deleted" not in done or "deleted" not in found
            assert "source" not in done or found["source"].deleted
            assert found["fork"].content in ((b"x!",) if "fork" in done else (b"x", b"x!"))


def test_what_was_not_synced_is_really_forgotten() -> None:
    """The store itself: without this, the tests above would prove nothing."""
    store = VolatileStore()
    for number, (logged, synced) in enumerate(
        [(True, True), (False, False), (True, True), (True, False), (False, False)]
    ):
        batch = store.batch()
        batch.put(b"%d" % number, b"")
        (store.write if logged else store.write_unlogged)(batch)
        if synced:
            store.sync()
    assert _keys(store.crash()) == b"02"
    assert _keys(store.crash(logged=4)) == b"023"
    assert _keys(store.crash(flushed=2)) == b"012"
    assert _keys(store.crash(flushed=5)) == b"01234"
    assert _keys(store.crash(flushed=1, logged=1)) == b"02"
    assert _keys(store.crash().crash()) == b"02"
    store.cut_power_after(1)
    store.sync()
    with pytest.raises(PowerLoss):
        store.sync()
    assert _keys(store.crash()) == b"023"


def _keys(store: VolatileStore) -> bytes:
    return b"".join(key for key, _ in store.scan(b"", b"\xff"))


def _explain(
    answered: int, done: list[Operation], sent: list[Operation], found: dict[str, View]
) -> str:
    commands = "\n".join(f"  {n}: {operation.command}" for n, operation in enumerate(sent))
    return f"answered={answered}\nsent:\n{commands}\nfound: {found}\nbefore: {replay(done).view()}"
