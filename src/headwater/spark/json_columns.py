"""JSON in the column `value` as columns of its own."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StringType, StructField, StructType

RESCUED = "_rescued"


def from_json(
    df: DataFrame,
    schema: StructType | str,
    *,
    value: str = "value",
    rescued: str = RESCUED,
) -> DataFrame:
    """The columns of `df` without `value`, then those of `schema`, then `rescued`.

    Where a value is not JSON, or does not fit the schema, `rescued` has its text, and the columns
    have what could be made out, or null. Otherwise it is null. `schema` may be a DDL text.
    """
    wanted = DataType.fromDDL(schema) if isinstance(schema, str) else schema
    if not isinstance(wanted, StructType):
        raise ValueError(f"the schema has no columns, such as 'a int, b string'. received={schema}")
    others = [name for name in df.columns if name != value]
    taken = sorted(set(wanted.fieldNames()) & {*others, rescued})
    if taken:
        raise ValueError(
            f"the schema has columns that are there already; drop or rename them first: {taken}"
        )
    fields = StructType([*wanted.fields, StructField(rescued, StringType())])
    parsed = F.from_json(
        F.col(value).cast("string"),
        fields,
        {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": rescued},
    )
    columns = [F.col(f"`{name}`") for name in others]
    return df.withColumn(value, parsed).select(*columns, F.col(f"`{value}`.*"))
