"""One shard: the same commands give the same bytes, whatever was in memory in between."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.core import commands, limits
from headwater.core.append import Appended
from headwater.core.commands import Command
from headwater.core.errors import (
    HeadwaterError,
    ProducerGap,
    SequenceRegression,
    StreamClosed,
    StreamExists,
    StreamNotFound,
)
from headwater.core.lifecycle import Created
from headwater.engine.shard import Shard
from headwater.storage.memory import MemoryStore
from tests.support.builders import (
    BUCKET,
    JSON,
    append,
    claim,
    create,
    delete,
    expire,
    fork_of,
    position,
    touch,
)
from tests.support.clock import START_MS
from tests.support.engines import EngineRunner, small_sizes

NAMES = st.sampled_from(["a", "b", "c"])
TIMES = st.integers(START_MS, START_MS + 20_000)
BODIES = st.sampled_from([b"", b"x", b"yy" * 30, b"[1,2]", b"{"])
CLAIMS = st.none() | st.builds(
    claim, st.sampled_from(["p", "q"]), st.integers(0, 1), st.integers(0, 3)
)
SEQUENCES = st.none() | st.sampled_from(["1", "2", "3"])

every_command: st.SearchStrategy[Command] = st.one_of(
    st.builds(
        create,
        NAMES,
        at_ms=TIMES,
        content_type=st.sampled_from([JSON, None]),
        body=BODIES,
        closed=st.booleans(),
        ttl_s=st.none() | st.integers(0, 10),
        producer=CLAIMS,
        stream_seq=SEQUENCES,
    ),
    st.builds(create, NAMES, at_ms=TIMES, content_type=st.none(), fork=st.builds(fork_of, NAMES)),
    st.builds(
        append,
        NAMES,
        BODIES,
        at_ms=TIMES,
        close=st.sampled_from([False, False, True]),
        producer=CLAIMS,
        stream_seq=SEQUENCES,
    ),
    st.builds(delete, NAMES, at_ms=TIMES),
    st.builds(expire, NAMES, at_ms=TIMES),
    st.builds(touch, NAMES, at_ms=TIMES),
)
histories = st.lists(st.lists(every_command, min_size=1, max_size=5), max_size=8)


def run(
    store: MemoryStore, history: Sequence[Sequence[Command]], *, reload: bool = False
) -> list[str]:
    """Apply commits to a shard, and return what each command answered."""
    shard = Shard(store)
    outcomes = []
    for commit in history:
        for command in commit:
            try:
                outcomes.append(repr(shard.apply(command)))
            except HeadwaterError as error:
                outcomes.append(repr(error))
        batch = shard.seal()
        if batch is not None:
            store.write(batch)
            shard.written()
        shard.settle()
        if reload:
            shard = Shard(store)
    return outcomes


def entries(store: MemoryStore) -> list[tuple[bytes, bytes]]:
    return list(store.scan(b"", b"\xff"))


@settings(max_examples=150, deadline=None)
@given(history=histories)
def test_the_same_commands_give_the_same_answers_and_the_same_bytes_on_two_shards(
    history: list[list[Command]],
) -> None:
    one, other = MemoryStore(), MemoryStore()
    with small_sizes():
        sent = [[commands.decode(commands.encode(c)) for c in commit] for commit in history]
        assert run(one, history) == run(other, sent)
        assert entries(one) == entries(other)


@settings(max_examples=150, deadline=None)
@given(history=histories)
def test_a_shard_that_forgets_everything_after_each_commit_answers_the_same(
    history: list[list[Command]],
) -> None:
    kept, forgetful = MemoryStore(), MemoryStore()
    with small_sizes():
        assert run(kept, history) == run(forgetful, history, reload=True)
        assert entries(kept) == entries(forgetful)


# -- several commands on one name in one commit


def test_a_name_deleted_and_created_in_one_commit_is_a_new_stream() -> None:
    with EngineRunner() as runner:
        first = runner.create(create(body=b"old", producer=claim()))
        _, again = runner.together(delete(), create(body=b"new"))
        assert isinstance(again, Created)
        assert again.new and again.id != first.id
        assert runner.content("s") == b"new"
        with EngineRunner(runner.store) as reopened:
            assert reopened.content("s") == b"new"
            with pytest.raises(ProducerGap):
                reopened.append(append(body=b"x", producer=claim(seq=1)))


def test_an_append_after_a_delete_in_one_commit_finds_nothing() -> None:
    with EngineRunner() as runner:
        runner.create(create(body=b"old"))
        outcomes = runner.together(delete(), append(body=b"lost?"), delete())
        assert [type(outcome) for outcome in outcomes[1:]] == [StreamNotFound, StreamNotFound]
        with pytest.raises(StreamNotFound):
            runner.open("s")


def test_a_stream_created_and_deleted_in_one_commit_leaves_nothing() -> None:
    with EngineRunner() as runner:
        runner.together(create(body=b"x"), append(body=b"y"), delete())
        runner.engine.sweeper.sweep()
        assert [runner.keys(prefix) for prefix in (b"n", b"s", b"r", b"g")] == [[], [], [], []]


def test_a_name_may_come_and_go_many_times_in_one_commit() -> None:
    with EngineRunner() as runner:
        runner.together(
            *[command for n in range(5) for command in (create(body=b"%d" % n), delete())],
            create(body=b"last"),
        )
        assert runner.content("s") == b"last"
        runner.engine.sweeper.sweep()
        assert (len(runner.keys(b"n")), len(runner.keys(b"s")), len(runner.keys(b"r"))) == (1, 1, 1)


def test_a_fork_of_data_from_the_same_commit_has_it() -> None:
    with EngineRunner() as runner:
        runner.together(
            create("source", body=b"one"),
            append("source", b"two"),
            create("fork", content_type=None, fork=fork_of("source", position(1, 3), 2)),
            append("source", b"three"),
            append("fork", b"!"),
            delete("source"),
        )
        assert runner.content("fork") == b"onetw!"
        with EngineRunner(runner.store) as reopened:
            assert reopened.content("fork") == b"onetw!"


def test_ids_are_never_used_twice_not_even_after_a_restart() -> None:
    store = MemoryStore()
    seen = set()
    for _ in range(3):
        with EngineRunner(store) as runner:
            for name in ("a", "b"):
                seen.add(runner.create(create(name)).id)
                runner.delete(delete(name))
    assert len(seen) == 6


def test_what_follows_a_stream_deleted_with_its_last_data_sees_its_end_not_the_data() -> None:
    with EngineRunner() as runner:
        runner.create(create(body=b"old"))
        stream = runner.open("s")
        seen: list[tuple[int, bool]] = []
        runner.engine.follow(
            stream, lambda changed, _: seen.append((changed.tail.seq, changed.gone))
        )
        runner.together(append(body=b"never written"), delete())
        assert set(seen) == {(1, True)}


# -- creating


def test_a_refused_create_leaves_nothing_behind() -> None:
    with EngineRunner() as runner:
        runner.create(create("source", content_type=JSON, body=b"[1,2]"))
        before = entries_of(runner)
        for command in (
            create("x", content_type=JSON, body=b"{"),
            create("x", producer=claim(seq=1)),
            create("x", fork=fork_of("unknown")),
            create("x", content_type="text/html", fork=fork_of("source")),
            create("x", content_type=None, fork=fork_of("source", position(9, 9))),
            create("x", content_type=None, fork=fork_of("source", position(0, 0), 3)),
            create("x", content_type=None, fork=fork_of("source"), body=b"{"),
        ):
            assert isinstance(runner.outcome(runner.submit(command)), HeadwaterError)
        assert entries_of(runner) == before
        runner.delete(delete("source"))
        runner.engine.sweeper.sweep()
        assert runner.keys(b"s") == [], "no reference leaked"


def entries_of(runner: EngineRunner) -> list[tuple[bytes, bytes]]:
    return list(runner.store.scan(b"", b"\xff"))


def test_an_empty_json_array_creates_an_empty_stream() -> None:
    with EngineRunner() as runner:
        assert runner.create(create(content_type=JSON, body=b"[]")).tail == position(0, 0)
        assert runner.content("s") == b"[]"


def test_the_producer_and_sequence_of_a_create_count_for_later_appends() -> None:
    with EngineRunner() as runner:
        runner.create(create(body=b"0", producer=claim("p", 4, 0), stream_seq="b"))
        runner = _reopened(runner)
        assert runner.append(append(body=b"0", producer=claim("p", 4, 0))).repeat
        with pytest.raises(SequenceRegression):
            runner.append(append(body=b"1", stream_seq="b"))
        answer = runner.append(append(body=b"1", producer=claim("p", 4, 1), stream_seq="c"))
        assert isinstance(answer, Appended) and answer.tail == position(2, 2)
        runner.abandon()


def test_a_stream_created_closed_by_a_producer_stays_closed_and_knows_who_closed_it() -> None:
    with EngineRunner() as runner:
        runner.create(create(body=b"all", closed=True, producer=claim()))
        runner = _reopened(runner)
        assert runner.append(append(body=b"all", close=True, producer=claim())).repeat
        with pytest.raises(StreamClosed):
            runner.append(append(body=b"x"))
        with pytest.raises(StreamExists):
            runner.create(create())
        assert not runner.create(create(closed=True)).new
        runner.abandon()


def _reopened(runner: EngineRunner) -> EngineRunner:
    runner.abandon()
    return EngineRunner(runner.store, runner.clock)


# -- memory


def test_streams_beyond_the_limit_are_forgotten_and_found_again() -> None:
    with EngineRunner(hot_streams_max=2) as runner:
        names = [f"s{n}" for n in range(6)]
        for name in names:
            runner.create(create(name, body=name.encode()))
        for seq in range(4):
            for name in names:
                runner.append(
                    append(name, b"%d" % seq, producer=claim(seq=seq), stream_seq=f"{seq}")
                )
                assert runner.engine.shard.hot_streams() <= 3
        for name in names:
            assert runner.content(name) == name.encode() + b"0123"
            assert runner.append(append(name, b"3", producer=claim(seq=3))).repeat
            with pytest.raises(SequenceRegression):
                runner.append(append(name, b"x", stream_seq="3"))
            runner.append(append(name, close=True))
        for name in names:
            with pytest.raises(StreamClosed):
                runner.append(append(name, b"x"))


def test_more_streams_in_one_commit_than_memory_may_hold_are_all_written() -> None:
    with EngineRunner(hot_streams_max=2) as runner:
        names = [f"s{n}" for n in range(8)]
        runner.together(*[create(name) for name in names])
        for part in (b"a", b"b"):
            runner.together(*[append(name, part) for name in names for _ in range(2)])
        for name in names:
            assert runner.content(name) == b"aabb"
        runner.create(create("one more"))
        assert runner.engine.shard.hot_streams() <= 3


def test_a_stream_that_waits_to_be_packed_is_not_forgotten() -> None:
    """Its job holds the stream: a second object for it would let an old checkpoint win."""
    with small_sizes(), EngineRunner(hot_streams_max=1) as runner:
        runner.create(create("packed"))
        packer = runner.engine.packer
        packer.enabled = False
        for number in range(4):
            runner.append(append("packed", b"%d" % number, producer=claim(seq=number)))
        packer.enabled = True
        packer.consider(runner.open("packed"))
        packer.enabled = False
        runner.create(create("other"))
        runner.append(append("packed", close=True))
        packer.enabled = True
        while packer.has_work:
            packer.step()
        with EngineRunner(runner.store) as reopened:
            found = reopened.read("packed")
            assert found.closed
            assert reopened.content("packed") == b"0123"


@pytest.mark.parametrize("from_access", [True, False], ids=["sliding", "from creation"])
def test_streams_with_a_ttl_are_forgotten_too(from_access: bool) -> None:
    with EngineRunner(hot_streams_max=2) as runner:
        for number in range(10):
            runner.create(create(f"s{number}", ttl_s=1000, ttl_from_access=from_access))
        for number in range(10):
            runner.engine.touch(runner.open(f"s{number}"))
        assert runner.engine.shard.hot_streams() <= 3


def test_a_producer_beyond_the_kept_number_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "PRODUCERS_KEPT_MAX", 3)
    hour_ms = limits.PRODUCER_IDLE_MS_MIN
    with EngineRunner() as runner:
        runner.create(create())
        for number in range(5):
            runner.append(
                append(
                    body=b"x",
                    producer=claim(f"p{number}"),
                    at_ms=START_MS + number * (hour_ms + 1),
                )
            )
        with pytest.raises(ProducerGap):
            runner.append(append(body=b"x", producer=claim("p0", seq=1)))
        assert runner.append(append(body=b"x", producer=claim("p4"))).repeat


# -- listing


def test_names_come_in_order_by_prefix_and_after_a_name() -> None:
    with EngineRunner() as runner:
        for name in ("b", "a/2", "a/1", "a", "ab", "ü"):
            runner.create(create(name))
        names = runner.engine.shard.names
        assert list(names(BUCKET)) == ["a", "a/1", "a/2", "ab", "b", "ü"]
        assert list(names(BUCKET, "a/")) == ["a/1", "a/2"]
        assert list(names(BUCKET, "a", after="a/1")) == ["a/2", "ab"]
        assert list(names(BUCKET, after="ab")) == ["b", "ü"]
        assert list(names("bucke")) == []
        assert list(names("buckett")) == []


def test_documents_are_kept_by_collection() -> None:
    with EngineRunner() as runner:
        for collection, name, value in (("c", "1", b"x"), ("c", "2", b"y"), ("cc", "1", b"z")):
            runner.result(runner.engine.save_document(collection, name, value))
        runner.result(runner.engine.save_document("c", "2", None))
        runner.result(runner.engine.save_document("c", "3", b""))
        with EngineRunner(runner.store) as reopened:
            shard = reopened.engine.shard
            assert list(shard.documents("c")) == [("1", b"x"), ("3", b"")]
            assert shard.document("cc", "1") == b"z"
            assert shard.document("c", "2") is None
