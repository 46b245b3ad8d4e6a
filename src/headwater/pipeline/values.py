"""Single values of a pipeline file: names, times, streams, tables.

Everything here raises SpecError with the line.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime

from headwater.client import ClientError
from headwater.client.protocol import Endpoint
from headwater.core.errors import InvalidRequest
from headwater.core.globs import Glob
from headwater.core.names import check_bucket, check_stream
from headwater.lake.locations import absolute
from headwater.lake.tables import FORMATS, TableRef
from headwater.pipeline.marks import Fields, Node, text_of
from headwater.pipeline.spec import ANY_BUCKET, DEFAULT_BUCKET, STARTS, Streams

SQL_SETTINGS = "spark.sql."

_DURATION = re.compile(r"(\d+)\s*(millisecond|second|minute|hour|day|week)s?\Z")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}\Z")
_NAME_RULE = "1 to 64 letters, digits, '.', '_' or '-'"


def name_of(fields: Fields, default: str) -> str:
    """`name`, or else that of the file."""
    node = fields.take("name")
    if node is None:
        if not _NAME.match(default):
            fields.node.fail(
                f"the file's name is no name of a pipeline; give it a name: {_NAME_RULE}"
            )
        return default
    name = text_of(node, "name")
    if not _NAME.match(name):
        node.fail(f"name is {_NAME_RULE}. received={name!r}")
    return name


def endpoint_of(fields: Fields) -> str | None:
    node = fields.take("endpoint")
    if node is None:
        return None
    endpoint = text_of(node, "endpoint")
    try:
        Endpoint.parse(endpoint)
    except ClientError as error:
        node.fail(str(error))
    return endpoint


def settings_of(fields: Fields) -> dict[str, str]:
    """`spark`: what a session may change of a Spark that is up."""
    settings = fields.mapping("spark")
    for name in settings:
        if not name.startswith(SQL_SETTINGS):
            fields.node.value["spark"].value[name].fail(
                f"spark is for settings that begin with {SQL_SETTINGS}; give others to Spark as it "
                f"starts: --conf {name}={settings[name]}"
            )
    return settings


def trigger_of(fields: Fields) -> str | None:
    node = fields.take("trigger")
    return None if node is None else duration_of(node, "trigger")


def duration_of(node: Node, name: str) -> str:
    text = str(node.plain).strip()
    if not _DURATION.match(text):
        node.fail(f"{name} is a time such as '10 seconds' or '5 minutes'. received={text!r}")
    return text


def start_of(fields: Fields) -> str:
    """`from` of a source."""
    node = fields.take("from")
    if node is None:
        return STARTS[0]
    text = node.plain.isoformat() if hasattr(node.plain, "isoformat") else text_of(node, "from")
    if text not in STARTS and not _has_zone(text):
        node.fail(
            "from is earliest, latest, or a time with its zone such as 2030-01-31T12:00:00Z. "
            f"received={text!r}"
        )
    return text


def _has_zone(text: str) -> bool:
    try:
        return datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        return False


# -- streams


def bucket_of(fields: Fields, key: str = "bucket") -> str | None:
    """The bucket that is named, if there is one."""
    bucket = fields.text(key)
    if bucket is not None:
        _checked(check_bucket, bucket, key, fields.node.value[key])
    return bucket


def target_of(fields: Fields, key: str) -> str | None:
    """The stream to write to, if there is one."""
    stream = fields.text(key)
    if stream is None:
        return None
    node = fields.node.value[key]
    if "*" in stream:
        node.fail(f"{key} is one stream to write to, no pattern. received={stream!r}")
    _checked(check_stream, stream, key, node)
    return stream


def streams_of(fields: Fields) -> Streams:
    """The streams to read."""
    names = fields.texts("streams")
    node = fields.node.value["streams"]
    any_bucket = fields.has("bucket") and fields.node.value["bucket"].value == ANY_BUCKET
    bucket = fields.text("bucket") if any_bucket else bucket_of(fields)
    if len(names) > 1 and any("*" in name for name in names):
        node.fail("streams is a list of names, or one pattern")
    if any_bucket and "*" not in names[0]:
        node.fail("streams of all buckets are named with a pattern; name the bucket")
    for name in names:
        _checked(Glob if "*" in name else check_stream, name, "streams", node)
        if names.count(name) > 1:
            node.fail(f"streams has {name} twice")
    return Streams(tuple(names), bucket or DEFAULT_BUCKET)


def _checked(check: Callable[[str], object], text: str, key: str, node: Node) -> None:
    try:
        check(text)
    except InvalidRequest as error:
        node.fail(f"{key} is wrong: {error}. received={text!r}")


# -- tables


def table_of(
    fields: Fields, key: str, partition_by: tuple[str, ...], *, prefix: str = ""
) -> TableRef:
    node = fields.need(key)
    location = text_of(node, key)
    format = fields.choice(f"{prefix}format", FORMATS, FORMATS[0])
    catalog = fields.mapping(f"{prefix}catalog")
    if catalog and format != "iceberg":
        fields.node.value[f"{prefix}catalog"].fail(f"{format} tables have no catalog")
    if format == "iceberg" and not catalog and "://" in location:
        node.fail("an Iceberg table in an object store needs a catalog")
    storage = fields.mapping(f"{prefix}storage")
    # Spark's processes may have another working directory.
    place = location if catalog else absolute(location)
    return TableRef(format, place, partition_by, catalog, storage)
