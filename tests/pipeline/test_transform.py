"""Sources, transforms and sinks: SQL and Python, windows, state, bad records, tables."""

from __future__ import annotations

from typing import Any

import pytest

from headwater.lake.tables import TableRef
from headwater.pipeline import jobs
from headwater.pipeline.frames import read_table
from headwater.pipeline.spec import Sink
from headwater.spark.writer import QUERY_ID
from tests.pipeline.support import Desk

pytestmark = [pytest.mark.spark, pytest.mark.timeout(180)]

WINDOWS = """
    sources:
      clicks:
        streams: clicks/*
        bucket: {bucket}
        json: user string, at timestamp
        watermark: {column: at, delay: 10 minutes}
    transforms:
      hourly: |
        select date_format(window.start, 'HH:mm') as hour, count(*) as clicks,
               approx_count_distinct(user) as users
        from clicks group by window(at, '1 hour')
    sinks:
      out:
        from: hourly
        stream: hourly
        bucket: {bucket}
"""


def click(user: str, time: str) -> dict[str, str]:
    return {"user": user, "at": f"2026-01-01T{time}:00Z"}


def test_windows_are_written_once_they_are_over(desk: Desk) -> None:
    desk.put("clicks/a", click("u", "10:00"), click("v", "10:30"), click("u", "11:15"))
    spec = desk.load(WINDOWS)
    desk.run_once(spec)
    desk.put("clicks/b", click("u", "10:50"), click("w", "12:30"))
    desk.run_once(spec)
    # Late by more than the watermark allows: it does not count any more.
    desk.put("clicks/b", click("x", "10:10"), click("w", "14:00"))
    desk.run_once(spec)
    assert sorted(desk.values("hourly"), key=lambda row: str(row["hour"])) == [
        {"hour": "10:00", "clicks": 2, "users": 2},
        {"hour": "11:00", "clicks": 1, "users": 1},
        {"hour": "12:00", "clicks": 1, "users": 1},
    ]


BAD = """
    name: bad
    sources:
      readings:
        streams: readings
        bucket: {bucket}
        json: sensor string, value_c double
        bad_records: {policy}
    transforms:
      warm: select sensor, value_c from readings where value_c > 20
    sinks:
      out: {from: warm, stream: warm, bucket: {bucket}}
    dead_letters: rejected
    dead_letter_bucket: {bucket}
"""


def readings(desk: Desk) -> None:
    desk.make(
        "readings",
        [
            b'{"sensor": "a", "value_c": 21.5}',
            b"no json",
            b'{"sensor": "b", "value_c": "hot"}',
            b'{"sensor": "c", "value_c": 25}',
            b"\xff\xfe",
            b"",
            b" \n",
            b'{"sensor": "d", "value_c": 30} trailing',
            b'{"sensor": "d", "value_c": 30}{"sensor": "e", "value_c": 30}',
            b'{"sensor": "d", "value_c": 30}, {"sensor": "e", "value_c": 30}',
            b'{"sensor": "d", "value_c": 30}]',
            b'{"sensor": "\xff", "value_c": 30}',
            b' ["d", 30]',
        ],
    )


REASONS = {
    1: "the value is not JSON",
    2: "the value does not fit the schema sensor string, value_c double",
    4: "the value is not JSON: it is not UTF-8",
    5: "the value is not JSON: it is empty",
    6: "the value is not JSON: it is empty",
    7: "the value is not JSON",
    8: "the value is not JSON",
    9: "the value is not JSON",
    10: "the value is not JSON",
    11: "the value is not JSON: it is not UTF-8",
    12: "the value is JSON, but not an object",
}
"""Of the bad ones above, by their offsets."""


def test_bad_records_go_to_a_stream_with_the_reason(desk: Desk) -> None:
    readings(desk)
    reports = desk.run_once(desk.load(BAD.replace("{policy}", "dead-letter")))
    rows = {report.query: report.rows for report in reports if report.rows}
    assert rows == {"out": 13, "dead-letters-readings": len(REASONS)}
    assert desk.values("warm") == [
        {"sensor": "a", "value_c": 21.5},
        {"sensor": "c", "value_c": 25.0},
    ]
    letters = desk.values("rejected")
    assert {letter["offset"]: letter["reason"] for letter in letters} == REASONS
    assert letters[0]["value"] == "no json" and "value_base64" not in letters[0]
    assert letters[2]["value_base64"] == "//4="
    for letter in letters:
        assert (letter["pipeline"], letter["source"]) == ("bad", "readings")
        assert (letter["bucket"], letter["stream"]) == (desk.bucket, "readings")


def test_or_stay_with_their_text(desk: Desk) -> None:
    readings(desk)
    spec = desk.load(
        BAD.replace("{policy}", "keep").replace(
            "sensor, value_c from readings where value_c > 20",
            "offset, _rescued from readings where _rescued is not null",
        )
    )
    desk.run_once(spec)
    kept = {row["offset"]: row["_rescued"] for row in desk.values("warm")}
    assert kept.keys() == REASONS.keys()
    assert (kept[5], kept[6], kept[11]) == ("", " \n", '{"sensor": "\ufffd", "value_c": 30}')


def test_or_end_the_pipeline(desk: Desk) -> None:
    readings(desk)
    reports = desk.run_once(desk.load(BAD.replace("{policy}", "fail")), fails=True)
    assert reports[-1].state == "failed"
    assert f"bad record: {desk.bucket}/readings at 1" in (reports[-1].error or "")


PYTHON = """
from headwater.pipeline import Pipeline

pipeline = Pipeline("totals")
pipeline.source("orders", streams="orders/*", bucket="{bucket}", json="item string, price double")
pipeline.source("names", table="{folder}/names", format="parquet")


@pipeline.transform
def totals(orders, names):
    joined = orders.join(names.select("item", "label"), "item")
    return joined.groupBy("label").sum("price").withColumnRenamed("sum(price)", "total")


pipeline.sink("lake", totals, table="{folder}/totals", format="{format}", mode="complete")
pipeline.sink("live", "totals", stream="totals", bucket="{bucket}", mode="update")
"""


@pytest.mark.parametrize("format", ["delta", "iceberg"])
def test_state_is_kept_in_a_table_and_told_in_a_stream(desk: Desk, format: str) -> None:
    names = desk.load(
        """
        sources: {names: {streams: names, bucket: {bucket}, json: "item string, label string"}}
        sinks: {out: {from: names, table: "{folder}/names", format: parquet}}
        """,
        "names.yaml",
    )
    desk.put("names", {"item": "a", "label": "apple"}, {"item": "b", "label": "pear"})
    desk.run_once(names)
    spec = desk.load(PYTHON.replace("{format}", format), "totals.py")
    desk.put("orders/1", {"item": "a", "price": 1.5}, {"item": "b", "price": 2})
    desk.run_once(spec)
    assert totals(desk, format) == {"apple": 1.5, "pear": 2.0}
    desk.put("orders/2", {"item": "a", "price": 3})
    desk.run_once(spec)
    for query in ("lake", "live"):
        desk.forget_last_commit(spec, query)
    desk.run_once(spec)
    assert totals(desk, format) == {"apple": 4.5, "pear": 2.0}
    told = [(row["label"], row["total"]) for row in desk.values("totals")]
    assert sorted(told[:2]) == [("apple", 1.5), ("pear", 2.0)]
    assert told[2:] == [("apple", 4.5)]


def totals(desk: Desk, format: str) -> dict[str, Any]:
    ref = TableRef(format, f"{desk.folder}/totals")
    return {row.label: row.total for row in read_table(desk.spark, ref.encode()).collect()}


def test_rows_may_say_which_stream_they_go_to(desk: Desk) -> None:
    desk.put("events", {"kind": "a", "n": 1}, {"kind": "b", "n": 2}, {"kind": "a", "n": 3})
    spec = desk.load(
        """
        sources: {events: {streams: events, bucket: {bucket}, json: "kind string, n int"}}
        transforms:
          routed: select concat('by-kind/', kind) as stream, n as `the.n` from events
        sinks: {out: {from: routed, streams: by column, bucket: {bucket}}}
        """
    )
    desk.run_once(spec)
    assert desk.values("by-kind/a") == [{"the.n": 1}, {"the.n": 3}]
    assert desk.values("by-kind/b") == [{"the.n": 2}]


def test_updates_are_written_by_the_producer_that_their_sink_names(desk: Desk) -> None:
    rows = desk.spark.createDataFrame([("1",)], "value string").coalesce(1)
    sink = Sink("out", "in", "out", desk.bucket, mode="update", options={"producerId": "mine"})
    write = jobs._updates(jobs.sink_options(sink, desk.context), "")  # noqa: SLF001
    for query in ("first", "begun anew"):
        desk.spark.sparkContext.setLocalProperty(QUERY_ID, query)  # as Spark does
        write(rows, 0)
    desk.spark.sparkContext.setLocalProperty(QUERY_ID, None)  # type: ignore[arg-type]
    assert desk.values("out") == [1]


def test_what_spark_does_not_take_is_said_with_its_line(desk: Desk) -> None:
    desk.put("events", {"n": 1})
    text = """
        sources: {events: {streams: events, bucket: {bucket}, json: n int}}
        transforms: {counted: "select STATEMENT from events group by 1"}
        sinks:
          out: {from: counted, stream: out, bucket: {bucket}}
        """
    for statement, said in (
        ("nothing", ":3: transform counted: [UNRESOLVED_COLUMN"),
        ("n, count(*)", ":5: sink out: [STREAMING_OUTPUT_MODE"),
    ):
        spec = desk.load(text.replace("STATEMENT", statement))
        (report,) = desk.run_once(spec, fails=True)
        assert (report.error or "").startswith(f"{spec.file}{said}")
        assert "\n" not in (report.error or "")
    by_column = text.replace("stream: out", "streams: by column").replace("STATEMENT", "n")
    (report,) = desk.run_once(desk.load(by_column), fails=True)
    assert ":5: sink out: there is no column stream among n" in (report.error or "")
