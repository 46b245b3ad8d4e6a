"""Archives in an object store: a real S3 API, over HTTP, written and read by real Spark."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa
import pytest

from headwater.cli import pipeline_run
from headwater.cli.main import EXIT_FAILED, main
from headwater.lake.ranges import read_ranges
from headwater.lake.tables import FORMATS, TableRef, open_table
from headwater.pipeline.maintain import maintain
from headwater.pipeline.spec import Spec
from tests.lake.others import seen_by_others
from tests.lake.tables import add, make_at, place, rows
from tests.pipeline.support import Desk
from tests.spark.support import numbers
from tests.support.object_store import ObjectStore
from tests.support.server import ServerProcess

pytestmark = [pytest.mark.spark, pytest.mark.timeout(180)]

ARCHIVE = """
    name: {name}
    archive:
      streams: orders/*
      bucket: {bucket}
      to: {to}
      format: {name}
      catalog: {catalog}
      storage: {storage}
      trim: true
      options: {maxOffsetsPerTrigger: 40}
"""


@pytest.fixture(scope="module")
def objects() -> Iterator[ObjectStore]:
    with ObjectStore() as found:
        yield found


def archive(desk: Desk, objects: ObjectStore, format: str) -> tuple[Spec, TableRef]:
    """The file of a pipeline, and the table that it names."""
    ref = place(objects, desk.folder, format)
    text = ARCHIVE.replace("{name}", format).replace("{to}", ref.location)
    text = text.replace("{catalog}", str(dict(ref.catalog)))
    spec = desk.load(text.replace("{storage}", str(dict(ref.storage))), f"{format}.yaml")
    assert spec.tables == (ref,)
    return spec, ref


def records(found: pa.Table) -> list[tuple[int, bytes]]:
    return list(zip(found["offset"].to_pylist(), found["value"].to_pylist(), strict=True))


def expected(count: int) -> list[tuple[int, bytes]]:
    return list(enumerate(numbers(count)))


def ends(ref: TableRef) -> dict[str, tuple[int, int]]:
    found = read_ranges(open_table(ref).folder)
    return {each.stream: (each.first, each.end) for each in found}


@pytest.mark.parametrize("format", FORMATS)
def test_an_archive_in_s3_has_every_record_once(
    desk: Desk, objects: ObjectStore, format: str
) -> None:
    spec, ref = archive(desk, objects, format)
    desk.make("orders/1", numbers(60))
    desk.run_once(spec)
    assert records(seen_by_others(ref, objects)) == expected(60)
    assert ends(ref) == {"orders/1": (0, 60)}

    # The driver dies after a commit that Spark has not noted, so that it is repeated.
    desk.forget_last_commit(spec, "archive")
    desk.add("orders/1", numbers(10, first=60))
    desk.run_once(spec)
    assert records(seen_by_others(ref, objects)) == expected(70)
    assert ends(ref) == {"orders/1": (0, 70)}

    joined, removed = maintain(ref, 1 << 27, 0)
    assert joined > 1
    assert removed >= (0 if format == "parquet" else joined)
    assert records(seen_by_others(ref, objects)) == expected(70)

    # What the server has forgotten is read from there, and the rest from the server.
    assert desk.at("orders/1").first == 70
    desk.add("orders/1", numbers(5, first=70))
    frame = desk.read(desk.spark, subscribe="orders/1", archive=ref.encode())
    assert sorted((row.offset, bytes(row.value)) for row in frame.collect()) == expected(75)


def test_a_table_in_s3_is_a_source(desk: Desk, objects: ObjectStore) -> None:
    table = make_at(place(objects, desk.folder, "iceberg"))
    add(table, rows(0, 1, 2), 0)
    found = desk.spark.read.format("headwater_lake").option("table", table.ref.encode()).load()
    assert sorted(row.offset for row in found.collect()) == [0, 1, 2]


def test_a_bucket_that_is_missing_ends_a_pipeline_before_it_begins(
    desk: Desk, objects: ObjectStore
) -> None:
    spec, ref = archive(desk, objects, "delta")
    assert spec.archive is not None
    away = replace(spec.archive, table=replace(ref, location="s3://nowhere/orders"))
    (report,) = desk.run_once(replace(spec, archive=away), fails=True)
    assert report.error is not None
    assert report.error.startswith("cannot reach s3://nowhere/orders")
    assert "AWS_ENDPOINT_URL" in report.error
    assert not (desk.folder / "state" / spec.name).exists()


# -- on the command line, where the environment says how to get at a store


def test_the_command_says_so_before_it_starts_spark(
    server: ServerProcess,
    objects: ObjectStore,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name, value in objects.storage.items():
        monkeypatch.setenv(name, value)

    def never(*_: object) -> None:
        raise AssertionError("Spark was started")

    monkeypatch.setattr(pipeline_run, "open_session", never)
    table = f"s3://{objects.make_bucket()}/orders"
    with objects.refusing():
        arguments = ["pipeline", "archive", "orders/*", "--to", table, "--url", server.url]
        assert main(arguments) == EXIT_FAILED
    said = capsys.readouterr().err
    assert f"cannot reach {table}" in said
    assert "AWS_ACCESS_KEY_ID" in said


def test_upkeep_takes_the_store_from_the_environment(
    objects: ObjectStore, desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    ref = place(objects, desk.folder, "parquet")
    table = make_at(ref)
    for batch in range(2):
        add(table, rows(batch), batch)
    for name, value in objects.storage.items():
        monkeypatch.setenv(name, value)
    arguments = ["pipeline", "maintain", ref.location, "--format", "parquet"]
    ended = subprocess.run(
        [sys.executable, "-m", "headwater", *arguments], capture_output=True, text=True, check=False
    )
    assert ended.stdout == "2 small files joined, 0 old files removed\n", ended.stderr
    assert seen_by_others(ref, objects)["offset"].to_pylist() == [0, 1]
