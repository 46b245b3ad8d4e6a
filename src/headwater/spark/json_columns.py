"""JSON in the column `value` as columns of its own."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
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
    every = [*others, *wanted.fieldNames(), rescued]
    taken = sorted({name for name in every if every.count(name) > 1})
    if taken:
        raise ValueError(
            f"the schema has columns that are there already; drop or rename them first: {taken}"
        )
    fields = StructType([*wanted.fields, StructField(rescued, StringType())])
    text = F.col(f"`{value}`").cast("string")
    parsed = F.from_json(text, fields, {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": rescued})
    unread = F.when(~is_json(text), F.make_valid_utf8(text))
    columns = [F.col(f"`{name}`") for name in others]
    found = df.select(*columns, parsed.alias(value), unread.alias(rescued))
    struct = F.col(f"`{value}`")
    return found.select(
        *columns,
        *(struct[name].alias(name) for name in wanted.fieldNames()),
        F.coalesce(struct[rescued], F.col(f"`{rescued}`")).alias(rescued),
    )


def is_json(text: Column) -> Column:
    """Whether a text is one JSON value and nothing else.

    Spark's parser stops where a value ends, and takes nothing at all for null. So it is asked for
    what follows the text in an array: its hash, which the text itself cannot have foreseen.
    """
    hash = F.xxhash64(text).cast("string")
    array = F.concat(F.lit("["), text, F.lit(","), hash, F.lit("]"))
    follows = F.get_json_object(array, "$[1]") == hash
    return F.is_valid_utf8(text) & F.coalesce(follows, F.lit(False))


def why_unfit(text: Column, schema: str) -> Column:
    """What is wrong with a text that was rescued."""
    return (
        F.when(~F.is_valid_utf8(text), "the value is not JSON: it is not UTF-8")
        .when(text.rlike(r"^\s*$"), "the value is not JSON: it is empty")
        .when(~is_json(text), "the value is not JSON")
        .when(~text.rlike(r"^\s*\{"), "the value is JSON, but not an object")
        .otherwise(f"the value does not fit the schema {schema}")
    )
