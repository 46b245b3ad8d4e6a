"""Streams into lake tables: every record once, whatever happens, and back out again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog

from headwater.lake.ranges import read_ranges
from headwater.lake.tables import FORMATS, open_table
from headwater.pipeline.maintain import maintain
from headwater.pipeline.spec import Spec
from tests.pipeline.support import Desk
from tests.spark.support import numbers

pytestmark = [pytest.mark.spark, pytest.mark.timeout(180)]

ARCHIVE = """
    name: {name}
    archive:
      streams: orders/*
      bucket: {bucket}
      to: {folder}/{name}/orders
      format: {format}
      options: {maxOffsetsPerTrigger: 40}
"""


def archive(desk: Desk, format: str, more: str = "", name: str | None = None) -> Spec:
    text = ARCHIVE.replace("{format}", format).replace("{name}", name or format)
    return desk.load(text + more, f"{name or format}.yaml")


def location(spec: Spec) -> str:
    assert spec.archive is not None
    return spec.archive.table.location


def rows_of(spec: Spec) -> list[dict[str, Any]]:
    """As other engines read the table: deltalake, pyiceberg, DuckDB."""
    assert spec.archive is not None
    where = location(spec)
    connection = duckdb.connect()
    if spec.archive.table.format == "delta":
        connection.register("found", DeltaTable(where).to_pyarrow_table())
    elif spec.archive.table.format == "iceberg":
        uri = f"sqlite:///{Path(where).parent}/iceberg.db"
        catalog = load_catalog("headwater", type="sql", uri=uri)
        connection.register("found", catalog.load_table("headwater.orders").scan().to_arrow())
    else:
        connection.execute(
            f"create view found as select * from read_parquet('{where}/**/*.parquet', "
            "hive_partitioning=true, union_by_name=true)"
        )
    found = connection.sql('select * from found order by stream, stream_id, "offset"')
    assert found is not None
    rows: list[dict[str, Any]] = found.to_arrow_table().to_pylist()
    return rows


def places(spec: Spec) -> list[tuple[str, int]]:
    return [(row["stream"], row["offset"]) for row in rows_of(spec)]


def archived(spec: Spec) -> dict[str, tuple[int, int]]:
    assert spec.archive is not None
    found = read_ranges(open_table(spec.archive.table).folder)
    return {each.stream: (each.first, each.end) for each in found}


@pytest.mark.parametrize("format", FORMATS)
def test_every_record_is_in_the_table_once(desk: Desk, format: str) -> None:
    desk.put("orders/1", *({"id": n, "price": n / 2, "tags": ["a"]} for n in range(30)))
    desk.make("orders/2", numbers(30), [[(b"key", b"k"), (b"h", b"v")]] * 30)
    desk.put("other", {"id": 1})
    spec = archive(desk, format)
    desk.run_once(spec)
    rows = rows_of(spec)
    assert places(spec) == [(f"orders/{s}", n) for s in (1, 2) for n in range(30)]
    assert [row["value"] for row in rows[30:]] == numbers(30)
    assert [(row["id"], row["price"], row["tags"]) for row in rows[:2]] == [
        (0, 0.0, '["a"]'),
        (1, 0.5, '["a"]'),
    ]
    assert {row["key"] for row in rows[30:]} == {b"k"}
    assert rows[40]["headers"] == [{"key": "key", "value": b"k"}, {"key": "h", "value": b"v"}]
    assert {str(row["day"]) for row in rows} == {str(row["timestamp"].date()) for row in rows}
    assert {row["stream_id"] for row in rows[:30]} == {desk.at("orders/1").id}
    assert archived(spec) == {"orders/1": (0, 30), "orders/2": (0, 30)}

    # What comes later is added, with the columns it brings.
    desk.put("orders/1", {"id": "thirty", "note": "new"})
    desk.put("orders/3", {"id": 3})
    desk.run_once(spec)
    rows = rows_of(spec)
    assert len(rows) == 62
    assert (rows[30]["id"], rows[30]["id__string"], rows[30]["note"]) == (None, "thirty", "new")
    assert archived(spec)["orders/3"] == (0, 1)


@pytest.mark.parametrize("format", FORMATS)
def test_a_batch_that_is_repeated_after_a_crash_adds_nothing(desk: Desk, format: str) -> None:
    desk.make("orders/1", numbers(100))
    spec = archive(desk, format)
    desk.run_once(spec)
    desk.forget_last_commit(spec, "archive")
    desk.make("orders/1", numbers(10, first=100))
    desk.run_once(spec)
    assert places(spec) == [("orders/1", n) for n in range(110)]
    assert archived(spec) == {"orders/1": (0, 110)}


def test_a_lost_checkpoint_does_not_archive_anything_twice(desk: Desk) -> None:
    desk.make("orders/1", numbers(20))
    desk.run_once(archive(desk, "delta"))
    again = archive(desk, "delta", "    checkpoint: {folder}/elsewhere\n")
    desk.make("orders/1", numbers(5, first=20))
    desk.make("orders/2", numbers(5))
    desk.run_once(again)
    assert places(again) == [("orders/1", n) for n in range(25)] + [
        ("orders/2", n) for n in range(5)
    ]


def test_tasks_that_disagree_about_a_new_column_are_reconciled(desk: Desk) -> None:
    desk.put("orders/1", {"id": "text"})
    desk.put("orders/2", {"id": 7})
    spec = archive(desk, "delta")
    desk.run_once(spec)
    rows = rows_of(spec)
    assert [(row["id"], row["id__string"]) for row in rows] == [(None, "text"), (7, None)]


# -- trimming, and reading on


@pytest.mark.parametrize("format", FORMATS)
def test_archive_and_live_are_one_table_after_a_trim(desk: Desk, format: str) -> None:
    desk.make("orders/1", numbers(100), [[(b"key", b"k")]] * 100)
    desk.make("orders/2", numbers(10))
    spec = archive(desk, format, "      trim: true\n")
    desk.run_once(spec)
    assert desk.at("orders/1").first == 100
    desk.add("orders/1", numbers(50, first=100))
    options = {
        "subscribePattern": "orders/*",
        "archive": location(spec),
        "archiveFormat": format,
        "includeHeaders": True,
    }

    batch = desk.read(desk.spark, **options).orderBy("stream", "offset").collect()
    assert [bytes(row.value) for row in batch] == numbers(150) + numbers(10)
    assert [row.offset for row in batch] == [*range(150), *range(10)]
    assert bytes(batch[0].key) == b"k" and batch[0].headers[0].key == "key"

    narrow = desk.read(desk.spark, startingOffsets='{"orders/1": 95}', **options)
    assert narrow.where("stream = 'orders/1'").count() == 55


def test_a_stream_is_followed_from_the_archive_into_the_server(desk: Desk) -> None:
    desk.make("orders/1", numbers(100))
    spec = archive(desk, "delta", "      trim: true\n")
    desk.run_once(spec)
    desk.add("orders/1", numbers(20, first=100))
    frame = desk.follow(
        desk.spark, subscribe="orders/1", archive=location(spec), maxOffsetsPerTrigger=70
    )
    desk.run(frame.select("value"), stream="copy")
    desk.forget_last_commit_of("checkpoint")
    desk.run(frame.select("value"), stream="copy")
    assert desk.bodies("copy") == numbers(120)


def test_without_the_archive_trimmed_records_are_missed_loudly(desk: Desk) -> None:
    desk.make("orders/1", numbers(20))
    desk.run_once(archive(desk, "delta", "      trim: true\n"))
    desk.add("orders/1", numbers(5, first=20))
    frame = desk.read(desk.spark, subscribe="orders/1", startingOffsets='{"orders/1": 3}')
    with pytest.raises(Exception, match="begins at 20, and was to be read from 3"):
        frame.count()


def test_a_batch_that_was_trimmed_can_still_be_repeated(desk: Desk) -> None:
    desk.make("orders/1", numbers(100))
    spec = archive(desk, "delta", "      trim: true\n")
    desk.run_once(spec)
    assert desk.at("orders/1").first == 100
    desk.forget_last_commit(spec, "archive")
    desk.add("orders/1", numbers(10, first=100))
    desk.run_once(spec)
    assert places(spec) == [("orders/1", n) for n in range(110)]


def test_records_that_were_never_archived_are_not_trimmed(desk: Desk) -> None:
    desk.make("orders/1", numbers(50))
    desk.run_once(archive(desk, "delta", "      from: latest\n"))
    desk.add("orders/1", numbers(10, first=50))
    spec = archive(desk, "delta", "      trim: true\n")  # the file was changed since
    desk.run_once(spec)
    assert places(spec) == [("orders/1", n) for n in range(50, 60)]
    assert desk.at("orders/1").first == 0


def test_a_stream_that_was_made_again_is_not_mixed_up(desk: Desk) -> None:
    desk.make("orders/1", numbers(10))
    spec = archive(desk, "delta", "      trim: true\n")
    desk.run_once(spec)
    desk.remove("orders/1")
    desk.make("orders/1", numbers(3, first=500))
    desk.make("orders/2", numbers(1))
    frame = desk.read(desk.spark, subscribe="orders/1", archive=location(spec))
    assert sorted(bytes(row.value) for row in frame.collect()) == numbers(3, first=500)
    desk.run_once(spec, fails=True)
    assert spec.archive is not None
    source = spec.archive.source
    loose = replace(source, options={**source.options, "failOnDeletion": "false"})
    desk.run_once(replace(spec, archive=replace(spec.archive, source=loose)))
    values = [(row["stream"], row["value"]) for row in rows_of(spec)]
    old, new = numbers(10), numbers(3, first=500)
    assert values == [("orders/1", value) for value in old + new] + [("orders/2", b"0")]


# -- upkeep


@pytest.mark.parametrize("format", FORMATS)
def test_maintenance_keeps_every_row(desk: Desk, format: str) -> None:
    desk.make("orders/1", numbers(120))
    spec = archive(desk, format)
    desk.run_once(spec)
    assert spec.archive is not None
    joined, removed = maintain(spec.archive.table, 1 << 27, 0)
    assert joined == 3
    assert removed >= (0 if format == "parquet" else 3)
    assert places(spec) == [("orders/1", n) for n in range(120)]
    frame = desk.read(
        desk.spark, subscribe="orders/1", archive=location(spec), archiveFormat=format
    )
    desk.trim("orders/1", 100)
    assert sorted(row.offset for row in frame.collect()) == list(range(120))


# -- killed


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_driver_killed_again_and_again_leaves_every_record_once(desk: Desk) -> None:
    folder = desk.folder / "pipelines"
    folder.mkdir()
    specs = []
    for format in FORMATS:
        specs.append(archive(desk, format))
        os.rename(desk.folder / f"{format}.yaml", folder / f"{format}.yaml")
    desk.make("orders/1", numbers(400))
    command = [sys.executable, "-m", "headwater", "pipeline", "run", str(folder)]
    command += ["--url", desk.url, "--state", str(desk.folder / "state"), "--cores", "2"]
    for batches in (1, 2, 3, 4, 5, 7):
        kill_after(command, batches)
    desk.client.close()  # the server has, in the meantime
    desk.add("orders/1", numbers(100, first=400))
    ended = subprocess.run([*command, "--once"], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    for spec in specs:
        assert places(spec) == [("orders/1", n) for n in range(500)]


def kill_after(command: list[str], batches: int) -> None:
    """Run it in a group of its own, and kill all of that once so many batches were reported."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
    assert process.stdout is not None
    seen = 0
    for line in process.stdout:
        seen += ": batch " in line
        if seen >= batches:
            break
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    process.stdout.close()
