"""How far a streaming query has read: the JSON that Spark keeps in the checkpoint.

    {"cut": [250000, 1],
     "bucket/name": {"id": "0000000000000001", "seq": 1200, "from": 1000, "end": true}, …}

`seq` is one past the last record of the micro-batch, `from` its first where that does not follow
from the offset before: the stream is new to the query, or records were lost. `end` says that the
stream was closed there, so that nothing is lost when it goes away. `cut` says how the micro-batch
is cut into partitions. With these a repeated micro-batch is the same as the first, whatever options
or streams have become since. Frozen: fields are only ever added.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

CUT = "cut"
"""No stream is called so: theirs have a slash."""

Json = dict[str, Any]


class Mark(NamedTuple):
    """Where a micro-batch ends in one stream."""

    id: str
    seq: int
    start: int | None = None
    ended: bool = False


class Cut(NamedTuple):
    """How ranges become partitions."""

    rows_max: int
    partitions_min: int


class Offset(NamedTuple):
    """Where a micro-batch ends."""

    marks: Mapping[str, Mark]
    cut: Cut | None
    """None before the first micro-batch: where streams begin is not settled."""


def key_of(bucket: str, name: str) -> str:
    return f"{bucket}/{name}"


def split_key(key: str) -> tuple[str, str]:
    """Bucket names have no slash."""
    bucket, _, name = key.partition("/")
    return bucket, name


def encode(offset: Offset) -> Json:
    assert offset.cut is not None
    found: Json = {CUT: list(offset.cut)}
    for key in sorted(offset.marks):
        mark = offset.marks[key]
        found[key] = entry = {"id": mark.id, "seq": mark.seq}
        if mark.start is not None:
            entry["from"] = mark.start
        if mark.ended:
            entry["end"] = True
    return found


def decode(found: Json) -> Offset:
    """The empty one is that before the first micro-batch."""
    marks = {
        key: Mark(entry["id"], entry["seq"], entry.get("from"), bool(entry.get("end")))
        for key, entry in found.items()
        if key != CUT
    }
    return Offset(marks, Cut(*found[CUT]) if CUT in found else None)


def _json(text: str | Json | None) -> Json:
    """Progress reports have offsets as texts."""
    found = json.loads(text) if isinstance(text, str) else text
    return found if isinstance(found, dict) else {}


def lag(progress: Mapping[str, Any]) -> dict[str, int]:
    """Records that a query has not read yet, by `bucket/name`, from one of its progress reports.

    `progress` is `query.lastProgress`, or the JSON of a listener's event, as a dict. All sources of
    the query are looked at; those that are not ours are left out. Records that were trimmed are
    not counted.
    """
    behind: dict[str, int] = {}
    for source in progress.get("sources", ()):
        end, latest = _json(source.get("endOffset")), _json(source.get("latestOffset"))
        if CUT not in latest:
            continue
        read = decode(end).marks
        for key, mark in decode(latest).marks.items():
            known, first = read.get(key), mark.start or 0
            since = max(first, known.seq) if known is not None and known.id == mark.id else first
            behind[key] = behind.get(key, 0) + max(0, mark.seq - since)
    return behind
