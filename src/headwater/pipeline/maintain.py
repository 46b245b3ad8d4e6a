"""Upkeep of a table: small files are joined, old versions and orphans removed."""

from __future__ import annotations

import secrets

from headwater.lake.leases import lease
from headwater.lake.tables import LakeError, TableRef, reach_table


def maintain(ref: TableRef, target_bytes: int, keep_s: int) -> tuple[int, int]:
    """Returns how many files were joined, and how many removed. Raises LakeError if somebody else
    does this to the table: two that join the same files would leave their rows there twice."""
    if target_bytes <= 0 or keep_s < 0:
        raise LakeError(
            "files are joined up to a size above 0, and old ones kept for 0 hours or more. "
            f"received={target_bytes} bytes, {keep_s / 3600:g} hours"
        )
    table = reach_table(ref)
    if table.schema() is None:
        raise LakeError(f"there is no {ref.format} table at {ref.location}")
    with lease(table.folder, "maintenance"):
        joined = table.compact(target_bytes, f"joined-{secrets.token_hex(8)}")
        return joined, table.clean(keep_s, table.folder.now_s())
