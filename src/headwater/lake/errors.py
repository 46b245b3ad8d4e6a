"""What goes wrong with tables. Importers know it as `headwater.lake.tables.LakeError`."""

from __future__ import annotations


class LakeError(Exception):
    """A table that cannot be used as asked. The message says what to do."""
