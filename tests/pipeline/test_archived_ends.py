"""An archive says to the last record what it has, whatever comes last in a stream."""

from __future__ import annotations

import json

import pytest

from headwater.client.protocol import Request
from headwater.lake.ranges import read_ranges
from headwater.lake.tables import open_table
from headwater.pipeline.spec import Spec
from tests.pipeline.support import Desk

pytestmark = [pytest.mark.spark, pytest.mark.timeout(180)]

ARCHIVE = """
    name: ends
    archive:
      streams: orders/*
      bucket: {bucket}
      to: {folder}/lake/orders
      format: delta
"""


def fence(desk: Desk, name: str) -> None:
    """A command, which is no message."""
    record = {"headers": [["", "fence"]], "body": "token"}
    headers = {"Content-Type": "application/json", "s2-basin": desk.bucket}
    path = f"/v1/streams/{name.replace('/', '%2F')}/records"
    desk.client.fetch(Request("POST", path, headers, json.dumps({"records": [record]}).encode()))


def extents(spec: Spec) -> dict[str, tuple[int, int]]:
    assert spec.archive is not None
    found = read_ranges(open_table(spec.archive.table).folder)
    return {each.stream: (each.first, each.end) for each in found}


def test_long_messages_and_commands_at_the_end_are_archived(desk: Desk) -> None:
    long = b"z" * (3 * 1024 * 1024)
    desk.make("orders/long", [b"a", long])
    desk.make("orders/fenced", [b"b"])
    fence(desk, "orders/fenced")
    spec = desk.load(ARCHIVE)
    desk.run_once(spec)
    tails = {name: desk.at(name).tail for name in ("orders/long", "orders/fenced")}
    assert tails["orders/long"] > 2 and tails["orders/fenced"] == 2
    assert extents(spec) == {name: (0, tail) for name, tail in tails.items()}

    fence(desk, "orders/long")  # alone in its batch
    desk.run_once(spec)
    assert extents(spec)["orders/long"] == (0, tails["orders/long"] + 1)

    assert spec.archive is not None
    for name in tails:
        desk.trim(name, desk.at(name).tail)
    frame = desk.read(desk.spark, subscribe=",".join(tails), archive=spec.archive.table.location)
    assert sorted(len(row.value) for row in frame.collect()) == [1, 1, len(long)]
