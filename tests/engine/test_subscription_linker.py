"""Which streams a subscription has, and where their cursors begin."""

from __future__ import annotations

from functools import partial

import pytest

from headwater.core.commands import Command, Create
from headwater.core.errors import Corruption
from headwater.core.subscription_config import Code
from headwater.engine import subscription_linker
from headwater.engine import subscriptions as module
from headwater.engine.engine import Engine
from headwater.engine.subscription_entry import LINKS
from headwater.engine.subscription_wakes import StreamInfo
from headwater.storage.memory import MemoryStore
from tests.support import builders
from tests.support.builders import BUCKET, JSON
from tests.support.clock import FakeClock
from tests.support.stores import FaultyStore
from tests.support.subscriptions import ZERO, hub, refused
from tests.support.webhooks import DONE


def paths(streams: list[StreamInfo]) -> list[str]:
    return sorted(info.path for info in streams)


def test_what_exists_is_linked_at_its_tail_and_wakes_nobody() -> None:
    with hub() as h:
        h.create("events/old")
        tail = h.append("events/old")
        h.create("other/old", b'{"n": 0}')
        view = h.put()
        assert view.created
        assert [(info.path, info.acked_offset) for info in view.streams] == [("events/old", tail)]
        h.settle()
        assert h.notices == 0


def test_what_comes_later_is_linked_before_its_first_append() -> None:
    with hub() as h:
        h.put()
        h.create("events/new", b'{"n": 0}')  # a PUT with a body is an append
        notice = h.notice(1)
        [info] = notice["streams"]
        assert (info["path"], info["link_type"], info["acked_offset"]) == (
            "events/new",
            "glob",
            ZERO,
        )
        assert info["tail_offset"] > ZERO and info["has_pending"] is True


def test_a_stream_that_is_created_empty_wakes_with_its_first_append() -> None:
    with hub() as h:
        h.put()
        h.create("events/new")
        h.settle()
        assert h.notices == 0
        h.append("events/new")
        assert h.notice(1)["streams"][0]["acked_offset"] == ZERO


def test_a_fork_is_linked_after_what_it_inherits() -> None:
    with hub() as h:
        h.create("source")
        inherited = h.append("source")
        h.put()
        h.create("events/fork", fork=builders.fork_of("source"))
        h.settle()
        assert h.notices == 0
        assert h.acked("events/fork") == inherited
        h.append("events/fork")
        assert h.notice(1)["streams"][0]["acked_offset"] == inherited


def test_a_fork_that_is_created_with_a_body_is_pending_from_where_it_left() -> None:
    with hub() as h:
        h.create("source")
        inherited = h.append("source")
        h.put()
        h.create("events/fork", b'{"own": 1}', fork=builders.fork_of("source"))
        assert h.notice(1)["streams"][0]["acked_offset"] == inherited


def test_streams_can_be_named_before_they_exist_and_beat_the_pattern() -> None:
    with hub() as h:
        view = h.put(streams=["manual/a", "events/b"])
        assert {info.path: info.link_type for info in view.streams} == {
            "manual/a": "explicit",
            "events/b": "explicit",
        }
        h.create("manual/a", b"1")
        assert h.notice(1)["streams"][0]["path"] == "manual/a"


def test_links_are_added_and_taken_back() -> None:
    with hub() as h:
        h.create("manual/a")
        tail = h.append("manual/a")
        h.create("events/e")
        h.put()
        add = h.subscriptions.add_streams
        h.result(add(BUCKET, "s", ("events/e", "manual/a", "missing")))
        h.result(add(BUCKET, "s", ("manual/a",)))
        assert {info.path: info.link_type for info in h.get().streams} == {
            "events/e": "explicit",
            "manual/a": "explicit",
            "missing": "explicit",
        }
        assert h.acked("manual/a") == tail
        for name in ("events/e", "manual/a", "missing", "unknown", "events/e"):
            h.result(h.subscriptions.remove_stream(BUCKET, "s", name))
        assert [(info.path, info.link_type) for info in h.get().streams] == [("events/e", "glob")]
        h.append("manual/a")
        h.settle()
        assert h.notices == 0


def test_a_subscription_names_a_limited_number_of_streams(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "EXPLICIT_STREAMS_MAX", 2)
    with hub() as h:
        h.put(streams=["a", "b"])
        h.result(h.subscriptions.add_streams(BUCKET, "s", ("a",)))
        add = h.subscriptions.add_streams(BUCKET, "s", ("c",))
        assert refused(lambda: h.result(add)) is Code.INVALID_REQUEST


def test_a_deleted_stream_drops_out_unless_it_was_named() -> None:
    with hub() as h:
        h.put(streams=["manual"])
        h.create("manual", b"1")
        h.create("events/e", b"1")
        h.notice(1)
        h.delete("events/e")
        h.delete("manual")
        assert [(info.path, info.acked_offset) for info in h.get().streams] == [("manual", ZERO)]


def test_a_stream_that_is_created_again_is_another_one() -> None:
    with hub() as h:
        h.put(streams=["manual"])
        h.receiver.always = DONE
        for name in ("manual", "events/e"):
            h.create(name, b"[1, 2, 3]")
        h.settle()
        before = h.acked("manual")
        for name in ("manual", "events/e"):
            h.runner.together(builders.delete(name), builders.create(name, body=b"x"))
        h.settle()
        infos = h.receiver.requests[-1].json["streams"]
        assert before is not None and before > ZERO
        assert {info["path"] for info in infos} == {"manual", "events/e"}
        assert h.acked("manual") == h.acked("events/e") == f"{1:016}_{1:016}"


def test_a_subscription_does_not_watch_its_own_wake_stream() -> None:
    with hub() as h:
        h.create("wake")
        h.put_pull(pattern="**")
        h.create("a", b"1")
        h.settle()
        assert paths(h.get().streams) == ["a"]
        assert len(h.content("wake")) == 1
        add = h.subscriptions.add_streams(BUCKET, "s", ("wake",))
        assert refused(lambda: h.result(add)) is Code.INVALID_REQUEST


def test_other_buckets_are_other_worlds() -> None:
    with hub() as h:
        h.put(pattern="**")
        stranger = Create("elsewhere", "events/x", h.clock.now_ms(), "text/plain", b"x")
        h.runner.create(stranger)
        h.settle()
        assert h.get().stream_count == 0
        answer = h.subscriptions.get("elsewhere", "s")
        assert refused(partial(h.result, answer)) is Code.SUBSCRIPTION_NOT_FOUND


@pytest.mark.parametrize("when", ["before", "during", "after"])
def test_a_bucket_of_many_streams_is_linked_in_steps_that_miss_nothing(
    when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subscription_linker, "STEP_STREAMS", 4)
    with hub(FaultyStore()) as h:
        for number in range(30):
            h.create(f"events/{number:02}", b"1")
        if when == "before":
            h.append("events/07")
        answer = h.put_later()
        if when == "during":
            h.runner.turn(2)
            assert not answer.done
            h.append("events/29")
            h.create("events/30", b"1")
        view = h.result(answer)
        if when == "after":
            h.append("events/07")
            h.create("events/30", b"1")
        h.settle()
        assert len(paths(h.get().streams)) == (30 if when == "before" else 31)
        assert view.stream_count == (31 if when == "during" else 30)
        # What was there when the answer came is no news; what came after it is.
        assert h.get().pending_count == (2 if when == "after" else 0)


def test_a_subscription_can_be_deleted_while_it_is_being_created(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(subscription_linker, "STEP_STREAMS", 2)
    with hub() as h:
        for number in range(20):
            h.create(f"events/{number}", b"1")
        answer = h.put_later()
        also = h.put_later()
        h.runner.turn(1)
        h.remove()
        assert refused(lambda: h.result(answer)) is Code.SUBSCRIPTION_NOT_FOUND
        assert refused(lambda: h.result(also)) is Code.SUBSCRIPTION_NOT_FOUND
        h.settle()
        assert list(h.runner.engine.shard.documents(LINKS)) == []


def test_streams_that_cannot_be_read_stop_a_subscription_from_being_created(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with hub() as h:
        h.create("events/e", b"1")

        def broken(*given: object) -> None:
            raise Corruption("broken")

        with monkeypatch.context() as patch:
            patch.setattr(h.runner.engine, "open", broken)
            with pytest.raises(Corruption):
                h.put()
        assert refused(h.get) is Code.SUBSCRIPTION_NOT_FOUND
        assert h.put().created


def test_streams_that_cannot_be_read_do_not_stop_a_subscription_from_being_loaded(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    store, clock = MemoryStore(), FakeClock()
    with hub(store, clock) as h:
        h.create("events/e", b"1")
        h.put()
        before = h.get().streams

    def broken(*given: object) -> None:
        raise Corruption("broken")

    monkeypatch.setattr(Engine, "open", broken)
    with hub(store, clock) as h:
        assert h.get().streams == before
        assert "could not all be looked at" in caplog.text


def test_many_links_are_looked_at_again_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscription_linker, "STEP_STREAMS", 2)
    store, clock = MemoryStore(), FakeClock()
    with hub(store, clock) as h:
        for number in range(9):
            h.create(f"events/{number}", b"1")
        h.put()
        h.put("removed")
        h.subscriptions.close()
        h.append("events/8")
        h.create("events/9", b"1")
    with hub(store, clock) as h:
        waiting = h.subscriptions.get(BUCKET, "s")
        removed = h.subscriptions.get(BUCKET, "removed")
        assert not waiting.done
        h.remove("removed")
        assert refused(partial(h.result, removed)) is Code.SUBSCRIPTION_NOT_FOUND
        assert (h.result(waiting).stream_count, h.get().pending_count) == (10, 2)
        h.settle()
        assert len(list(h.runner.engine.shard.documents(LINKS))) == 9


def test_what_happens_while_links_are_looked_at_again_is_not_missed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(subscription_linker, "STEP_STREAMS", 2)
    store, clock = MemoryStore(), FakeClock()
    with hub(store, clock) as h:
        for number in range(9):
            h.create(f"events/{number}", b"1")
        h.put()
    with hub(store, clock) as h:
        waiting = h.subscriptions.get(BUCKET, "s")
        commands: list[Command] = [
            builders.delete("events/8"),
            builders.create("events/8", body=b"x"),
            builders.delete("events/7"),
            builders.append("events/6", b"1", content_type=JSON),
        ]
        for command in commands:
            h.runner.submit(command)
        h.runner.turn(1)
        assert not waiting.done
        h.result(waiting)
        h.settle()
        infos = {info.path: info for info in h.get().streams}
        assert "events/7" not in infos
        assert (infos["events/8"].acked_offset, infos["events/8"].has_pending) == (ZERO, True)
        assert infos["events/6"].has_pending
        assert h.get().pending_count == 2


def test_a_server_that_stops_leaves_the_rest_for_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscription_linker, "STEP_STREAMS", 2)
    store, clock = MemoryStore(), FakeClock()
    with hub(store, clock) as h:
        for number in range(9):
            h.create(f"events/{number}", b"1")
        answer = h.put_later()
        h.subscriptions.close()
        h.settle()
        assert not answer.done
    with hub(store, clock) as h:
        assert refused(h.get) is Code.SUBSCRIPTION_NOT_FOUND
        h.settle()
        assert list(h.runner.engine.shard.documents(LINKS)) == []
