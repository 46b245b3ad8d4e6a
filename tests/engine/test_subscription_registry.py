"""What appends cost, and whom they concern."""

from __future__ import annotations

from typing import Any

import pytest

from headwater.core.errors import Corruption
from headwater.core.globs import Glob
from headwater.engine import subscription_registry
from tests.support import builders
from tests.support.builders import JSON
from tests.support.subscriptions import hub

FORK = builders.fork_of("source")


def test_a_stream_is_matched_once_however_often_it_changes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    matched: list[str] = []
    whole = Glob.matches

    def matches(glob: Glob, name: str) -> bool:
        matched.append(name)
        return whole(glob, name)

    monkeypatch.setattr(Glob, "matches", matches)
    with hub() as h:
        h.put()
        for name in ("other", "events/e"):
            h.create(name)
            for _ in range(3):
                h.append(name)
        assert matched == ["other", "events/e"]


def test_without_subscriptions_streams_are_not_looked_at() -> None:
    class Untouchable:
        def __getattribute__(self, name: str) -> Any:
            raise AssertionError(f"somebody looked at {name}")

    with hub() as h:
        untouchable: Any = Untouchable()
        h.subscriptions.registry.observe([untouchable])


def test_a_stream_that_cannot_be_read_hides_no_other(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with hub() as h:
        h.put()
        h.create("source", b"1")
        inherited = h.append("source")

        def read_run(*given: Any) -> Any:
            raise Corruption("broken")

        with monkeypatch.context() as patch:
            patch.setattr(h.runner.engine.shard, "read_run", read_run)
            h.runner.together(
                builders.create("events/broken", content_type=JSON, body=b"1", fork=FORK),
                builders.create("events/whole", content_type=JSON, body=b"1"),
            )
        assert "could not be followed" in caplog.text
        assert [info["path"] for info in h.notice(1)["streams"]] == ["events/whole"]
        h.append("events/broken")
        assert h.acked("events/broken") == inherited  # it is tried again


def test_what_is_remembered_of_streams_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscription_registry, "TARGETS_MAX", 2)
    with hub() as h:
        h.put()
        for number in range(5):
            h.create(f"events/{number}", b"1")
        h.settle()
        assert h.get().pending_count == 5
