"""What a table can be partitioned by, told before anything is written."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql.types import StringType, StructField, StructType

from headwater.lake.tables import FORMATS, LakeError, TableRef, open_table
from headwater.pipeline.lake_source import LakeDataSource


def begin(format: str, folder: Path, *columns: str) -> TableRef:
    """Rows with these columns, by the first of them."""
    ref = TableRef(format, str(folder / "lake" / "t"), columns[:1])
    schema = StructType([StructField(name, StringType()) for name in columns])
    LakeDataSource({"table": ref.encode()}).streamWriter(schema, False)
    return ref


@pytest.mark.parametrize("format", FORMATS)
def test_files_need_a_column_of_their_own(format: str, tmp_path: Path) -> None:
    """Without one they would have no rows. Those of Iceberg hold the partitions too."""
    if format == "iceberg":
        begin(format, tmp_path, "a")
        return
    with pytest.raises(LakeError, match="partition_by names all columns"):
        begin(format, tmp_path, "a")
    assert open_table(begin(format, tmp_path, "a", "b")).schema() is not None


@pytest.mark.parametrize("name", ["a/b", "a=b"])
def test_folders_of_parquet_say_what_their_column_is(name: str, tmp_path: Path) -> None:
    with pytest.raises(LakeError, match="cannot be in the name of a folder"):
        begin("parquet", tmp_path, name, "b")
    begin("delta", tmp_path, name, "b")
