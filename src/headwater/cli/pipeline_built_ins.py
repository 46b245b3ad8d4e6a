"""The built-in pipelines from flags: archive, replay, transform. As if a file had said it."""

from __future__ import annotations

import argparse
import json
import os
import re
from collections.abc import Callable
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from headwater.cli.spark import pairs, wrong

if TYPE_CHECKING:
    from headwater.pipeline.marks import Node
    from headwater.pipeline.spec import Spec

FORMATS = ("delta", "iceberg", "parquet")
WORD_CHARS_MAX = 40
DIGEST_CHARS = 6


def add_built_ins(actions: Any, add_run: Callable[[argparse.ArgumentParser], None]) -> None:
    """`add_run` adds the flags of everything that runs."""
    archive = actions.add_parser("archive", help="streams into a lake table")
    replay = actions.add_parser("replay", help="a lake table, or rows of it, into streams")
    transform = actions.add_parser("transform", help="SQL from streams to a stream or a table")
    _add_archive(archive)
    _add_replay(replay)
    _add_transform(transform)
    for built_in in (archive, replay, transform):
        add_table(built_in)
        built_in.add_argument("--bucket", help="of the streams (default: durable-streams)")
        built_in.add_argument(
            "--name", help="of the pipeline: its progress and checkpoint (default: by the flags)"
        )
        add_run(built_in)


def _add_archive(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("streams", nargs="+", metavar="STREAM", help="names, or one pattern")
    parser.add_argument("--to", required=True, metavar="TABLE", help="folder or URL of the table")
    parser.add_argument(
        "--trim", action="store_true", help="let the server forget what is archived"
    )
    parser.add_argument("--no-json", action="store_true", help="no columns for JSON fields")


def _add_replay(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("table", metavar="TABLE", help="folder or URL of the table")
    parser.add_argument("--stream", help="to write to (default: the column stream says)")
    parser.add_argument("--where", metavar="SQL", help="only rows for which this is true")
    parser.add_argument("--order-by", action="append", metavar="COLUMN", help="default: offset")
    parser.add_argument("--content-type", help="of streams that are made")


def _add_transform(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("sql", metavar="SQL", help="reads the table input: the streams of --from")
    parser.add_argument(
        "--from",
        dest="streams",
        nargs="+",
        required=True,
        metavar="STREAM",
        help="names, or one pattern",
    )
    parser.add_argument("--json", metavar="SCHEMA", help="such as 'id bigint, name string'")
    parser.add_argument("--watermark", metavar="'COLUMN DELAY'", help="such as 'at 10 minutes'")
    parser.add_argument("--mode", help="append, update or complete")
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--to-stream", metavar="STREAM", help="stream to append the rows to")
    where.add_argument("--to-table", metavar="TABLE", help="folder or URL of a table")


def add_table(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--format", choices=FORMATS, default=FORMATS[0], help="of the table (delta)"
    )
    parser.add_argument(
        "--catalog",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="property of an Iceberg catalog",
    )


def spec_of(arguments: argparse.Namespace) -> Spec:
    """Raises Failed for what is wrong."""
    from headwater.pipeline.marks import SpecError
    from headwater.pipeline.parse import parse

    makers = {"archive": _archive, "replay": _replay, "transform": _transform}
    node = makers[arguments.action](arguments)
    try:
        return parse(node, default_name(arguments.action, node.plain))
    except SpecError as error:
        raise wrong(error.message) from error


def default_name(action: str, given: dict[str, Any]) -> str:
    """The same for the same flags, which go on where they stopped, and another for others, which
    must not. An archive is told by its table: streams may join it."""
    job = given.get("archive") or given.get("replay") or given["sinks"]["out"]
    target = str(job.get("to") or job.get("table") or job["stream"])
    what = target if action == "archive" else json.dumps(given, sort_keys=True)
    word = re.sub(r"[^A-Za-z0-9_-]+", "-", target.rstrip("/").rpartition("/")[2]).strip("-")
    digest = sha256(what.encode()).hexdigest()[:DIGEST_CHARS]
    return "-".join(part for part in (action, word[:WORD_CHARS_MAX], digest) if part)


def archive_of_all(folder: str) -> Spec:
    """Every stream of every bucket, into a Delta table below a folder. Some of them will be deleted
    or expire, which must not end the archive of the others."""
    from headwater.pipeline.marks import from_plain
    from headwater.pipeline.parse import parse

    to = os.path.join(folder, "streams")
    job = {"streams": "**", "bucket": "*", "to": to, "options": {"failOnDeletion": False}}
    return parse(from_plain({"archive": job}, "--archive", None), "archive")


def _node(arguments: argparse.Namespace, values: dict[str, Any]) -> Node:
    from headwater.pipeline.marks import from_plain

    name = {} if arguments.name is None else {"name": arguments.name}
    return from_plain({**name, **values}, f"headwater pipeline {arguments.action}", None)


def _given(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value not in (None, [], {})}


def _table_keys(arguments: argparse.Namespace) -> dict[str, Any]:
    return _given(format=arguments.format, catalog=pairs("--catalog", arguments.catalog))


def _archive(arguments: argparse.Namespace) -> Node:
    job = _given(
        streams=arguments.streams,
        bucket=arguments.bucket,
        to=arguments.to,
        **_table_keys(arguments),
    )
    job |= {"trim": arguments.trim, "json": not arguments.no_json}
    return _node(arguments, {"archive": job})


def _replay(arguments: argparse.Namespace) -> Node:
    job = _given(
        table=arguments.table,
        bucket=arguments.bucket,
        stream=arguments.stream,
        where=arguments.where,
        order_by=arguments.order_by,
        content_type=arguments.content_type,
        **_table_keys(arguments),
    )
    return _node(arguments, {"replay": job})


def _transform(arguments: argparse.Namespace) -> Node:
    source = _given(streams=arguments.streams, bucket=arguments.bucket, json=arguments.json)
    if arguments.watermark:
        column, _, delay = arguments.watermark.partition(" ")
        source["watermark"] = {"column": column, "delay": delay}
    sink = _given(**{"from": "output"}, mode=arguments.mode)
    if arguments.to_table:
        sink |= {"table": arguments.to_table, **_table_keys(arguments)}
    else:
        sink |= _given(stream=arguments.to_stream, bucket=arguments.bucket)
    return _node(
        arguments,
        {
            "sources": {"input": source},
            "transforms": {"output": arguments.sql},
            "sinks": {"out": sink},
        },
    )
