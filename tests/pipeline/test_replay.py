"""Tables back into streams: in order, once, and taken up again after a crash."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headwater.lake.tables import FORMATS, TableRef
from headwater.pipeline.replay import arrange
from headwater.pipeline.spec import Replay, Spec
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


def change_plan(desk: Desk, **values: bool) -> None:
    plan = json.loads(plan_of(desk).read_text())
    assert plan.keys() >= values.keys()
    plan_of(desk).write_text(json.dumps({**plan, **values}))


@pytest.mark.parametrize("format", FORMATS)
def test_streams_come_back_in_order(desk: Desk, format: str) -> None:
    archived(desk, format)
    reports = desk.run_once(replay(desk, format=format))
    assert [(report.state, report.rows) for report in reports] == [
        ("running", 0),
        ("running", 80),
        ("finished", 0),
    ]
    desk.bucket += "-again"
    assert desk.bodies("s/1") == numbers(60)
    assert desk.bodies("s/2") == numbers(20, first=100)
    headers = desk.table("s/1").column("headers").to_pylist()
    assert headers[0] == [{"name": b"key", "value": b"k"}]


def test_an_interrupted_replay_adds_only_what_is_missing(desk: Desk) -> None:
    archived(desk)
    spec = replay(desk)
    desk.run_once(spec)
    # As if it had been killed just before it noted what it wrote, with the table growing since.
    change_plan(desk, written=False, done=False)
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


def test_a_replay_that_was_interrupted_while_it_closed_streams_closes_them(desk: Desk) -> None:
    archived(desk)
    spec = replay(desk, "  close: true\n")
    desk.run_once(spec)
    change_plan(desk, done=False)
    desk.run_once(spec)
    desk.bucket += "-again"
    assert desk.bodies("s/1") == numbers(60) and desk.bodies("s/2") == numbers(20, first=100)
    assert desk.at("s/1").closed and desk.at("s/2").closed


def test_a_stream_without_rows_is_closed_too(desk: Desk) -> None:
    archived(desk)
    desk.run_once(replay(desk, "  where: offset < 0\n  stream: none\n  close: true\n"))
    desk.bucket += "-again"
    assert desk.bodies("none") == [] and desk.at("none").closed


def test_the_plan_has_no_secrets_and_outlives_them(desk: Desk) -> None:
    archived(desk)
    for number, secret in enumerate(("open-sesame-1", "open-sesame-2")):
        spec = replay(desk, f"  storage: {{AWS_SECRET_ACCESS_KEY: {secret}}}\n")
        assert len(desk.run_once(spec)) == (1 if number else 3)
        assert "sesame" not in plan_of(desk).read_text()


def test_what_the_table_lacks_is_named(desk: Desk) -> None:
    archived(desk)
    (*_, report) = desk.run_once(replay(desk, "  order_by: nothing\n"), fails=True)
    assert "the table has no column nothing; it has bucket" in (report.error or "")


def test_rows_that_differ_beside_their_value_alone_have_an_order(desk: Desk) -> None:
    """Else a second run could cut them into other appends, and some would be missing."""
    rows = [("s", 0, b"same", key) for key in (b"d", b"b", b"a", b"c")]
    job = Replay(TableRef("delta", "unused"))
    orders = []
    for given in (rows, rows[::-1]):
        frame = desk.spark.createDataFrame(
            given, "stream string, offset long, value binary, key binary"
        )
        found = arrange(frame.coalesce(1), job, 1).collect()
        orders.append([bytes(row.key) for row in found])
    assert orders == [[b"a", b"b", b"c", b"d"]] * 2
