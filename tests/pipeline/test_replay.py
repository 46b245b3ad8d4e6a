"""Tables back into streams: in order, once, and taken up again after a crash."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headwater.lake.tables import FORMATS
from headwater.pipeline.spec import Spec
from tests.pipeline.support import Desk
from tests.spark.support import numbers

pytestmark = [pytest.mark.spark, pytest.mark.timeout(180)]


def archived(desk: Desk, format: str = "delta") -> None:
    """Two streams in a table, in several files each."""
    desk.make("s/1", numbers(60), [[(b"key", b"k")]] * 60)
    desk.make("s/2", numbers(20, first=100))
    text = """
        archive:
          streams: s/*
          bucket: {bucket}
          to: "{folder}/lake/s"
          format: FORMAT
          options: {maxOffsetsPerTrigger: 30}
        """
    desk.run_once(desk.load(text.replace("FORMAT", format), "archive.yaml"))


def replay(desk: Desk, more: str = "", format: str = "delta") -> Spec:
    text = f"""\
replay:
  table: "{{folder}}/lake/s"
  format: {format}
  bucket: {{bucket}}-again
  content_type: text/plain
"""
    return desk.load(text + more, "replay.yaml")


def plan_of(desk: Desk) -> Path:
    return desk.folder / "state" / "replay" / "replay.json"


@pytest.mark.parametrize("format", FORMATS)
def test_streams_come_back_in_order(desk: Desk, format: str) -> None:
    archived(desk, format)
    desk.run_once(replay(desk, format=format))
    desk.bucket += "-again"
    assert desk.bodies("s/1") == numbers(60)
    assert desk.bodies("s/2") == numbers(20, first=100)
    headers = desk.table("s/1").column("headers").to_pylist()
    assert headers[0] == [{"name": b"key", "value": b"k"}]


def test_an_interrupted_replay_adds_only_what_is_missing(desk: Desk) -> None:
    archived(desk)
    spec = replay(desk)
    desk.run_once(spec)
    # As if it had been killed just before it noted that it is done, with the table growing since.
    plan = json.loads(plan_of(desk).read_text())
    plan_of(desk).write_text(json.dumps({**plan, "done": False}))
    desk.make("s/1", numbers(10, first=60))
    desk.run_once(desk.load((desk.folder / "archive.yaml").read_text(), "archive.yaml"))
    desk.run_once(spec)
    desk.bucket += "-again"
    assert desk.bodies("s/1") == numbers(60)


def test_a_replay_that_is_done_does_nothing(desk: Desk) -> None:
    archived(desk)
    spec = replay(desk)
    desk.run_once(spec)
    assert [report.state for report in desk.run_once(spec)] == ["finished"]


def test_another_replay_is_not_mistaken_for_this_one(desk: Desk) -> None:
    archived(desk)
    desk.run_once(replay(desk))
    (report,) = desk.run_once(replay(desk, "  where: offset < 3\n"), fails=True)
    assert "is of another replay" in (report.error or "")


def test_some_rows_into_one_stream(desk: Desk) -> None:
    archived(desk)
    more = """\
  where: offset between 5 and 7
  stream: merged
  order_by: [offset, stream]
  close: true
"""
    desk.run_once(replay(desk, more))
    desk.bucket += "-again"
    assert desk.bodies("merged") == [b"5", b"105", b"6", b"106", b"7", b"107"]
    assert desk.at("merged").closed


def test_what_the_table_lacks_is_named(desk: Desk) -> None:
    archived(desk)
    (*_, report) = desk.run_once(replay(desk, "  order_by: nothing\n"), fails=True)
    assert "the table has no column nothing; it has bucket" in (report.error or "")
