"""What the micro-batches of an archive have read, which their rows do not say.

A row has the number of the first record of its message. Those of the rest of a long message, and
of commands, are in no row: when they are the last of a batch, it has read further than its rows
go. Spark notes where a batch ends before it begins, in its checkpoint:

    offsets/{batch}     v1, a line about the query, then the offset: see headwater.spark.offsets
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping

from headwater.lake.locations import Folder
from headwater.lake.ranges import Range
from headwater.lake.tables import LakeError
from headwater.spark import offsets, plan
from headwater.spark.offsets import CUT, Offset

log = logging.getLogger("headwater.pipeline")

VERSION = "v1"


def read_batch(checkpoint: str, storage: Mapping[str, str], batch: int) -> list[Range] | None:
    """The ranges of streams that a batch has; None if the checkpoint is not to be read from here.

    `storage` are options of an object store, as a table has them.
    """
    if not checkpoint:
        return None  # it is where Spark's own settings say
    try:
        folder = Folder(checkpoint, storage)
        end = _read(folder, batch)
        start = _read(folder, batch - 1) if batch else offsets.decode({})
    except (LakeError, OSError) as error:
        log.warning("cannot read the checkpoint %s: %s", checkpoint, error)
        return None
    if start is None or end is None:
        return None
    return [Range(*part, batch) for part in plan.ranges(start, end)]


def _read(folder: Folder, batch: int) -> Offset | None:
    data = folder.read(f"offsets/{batch}")
    lines = [] if data is None else data.decode().splitlines()
    if len(lines) != 3 or lines[0] != VERSION:  # of two sources, or of a Spark to come
        return None
    found = json.loads(lines[2])
    return offsets.decode(found) if CUT in found else None
