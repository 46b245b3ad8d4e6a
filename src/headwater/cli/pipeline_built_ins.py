"""The built-in pipelines from flags: archive, replay, transform. As if a file had said it."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from headwater.cli.spark import wrong

if TYPE_CHECKING:
    from headwater.pipeline.marks import Node
    from headwater.pipeline.spec import Spec

FORMATS = ("delta", "iceberg", "parquet")


def add_built_ins(actions: Any, add_run: Callable[[argparse.ArgumentParser], None]) -> None:
    """`add_run` adds the flags of everything that runs."""
    archive = actions.add_parser("archive", help="streams into a lake table")
    archive.add_argument("streams", nargs="+", metavar="STREAM", help="names, or one pattern")
    archive.add_argument("--to", required=True, metavar="TABLE", help="folder or URL of the table")
    add_table(archive)
    archive.add_argument(
        "--trim", action="store_true", help="let the server forget what is archived"
    )
    archive.add_argument("--no-json", action="store_true", help="no columns for JSON fields")
    replay = actions.add_parser("replay", help="a lake table, or rows of it, into streams")
    replay.add_argument("table", metavar="TABLE")
    add_table(replay)
    replay.add_argument("--stream", help="to write to (default: the column stream says)")
    replay.add_argument("--where", metavar="SQL", help="only rows for which this is true")
    replay.add_argument("--order-by", action="append", metavar="COLUMN", help="default: offset")
    replay.add_argument("--content-type", help="of streams that are made")
    transform = actions.add_parser("transform", help="SQL from streams to a stream or a table")
    transform.add_argument("sql", help="reads the table input: the streams of --from")
    transform.add_argument("--from", dest="streams", nargs="+", required=True, metavar="STREAM")
    transform.add_argument("--json", metavar="SCHEMA", help="such as 'id bigint, name string'")
    transform.add_argument("--watermark", metavar="'COLUMN DELAY'", help="such as 'at 10 minutes'")
    transform.add_argument("--mode", help="append, update or complete")
    where = transform.add_mutually_exclusive_group(required=True)
    where.add_argument("--to-stream", metavar="STREAM")
    where.add_argument("--to-table", metavar="TABLE")
    add_table(transform)
    for built_in in (archive, replay, transform):
        built_in.add_argument("--bucket", help="of the streams")
        built_in.add_argument("--name", help="of the pipeline: its progress and checkpoint")
        add_run(built_in)


def add_table(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--format", choices=FORMATS, default=FORMATS[0], help="default: delta")
    parser.add_argument(
        "--catalog", action="append", default=[], metavar="KEY=VALUE", help="of Iceberg"
    )


def spec_of(arguments: argparse.Namespace) -> Spec:
    """Raises Failed for what is wrong."""
    from headwater.pipeline.marks import SpecError
    from headwater.pipeline.parse import parse

    makers = {"archive": _archive, "replay": _replay, "transform": _transform}
    try:
        return parse(makers[arguments.action](arguments), arguments.action)
    except SpecError as error:
        raise wrong(error.message) from error


def archive_of_all(folder: str) -> Spec:
    """Every stream of every bucket, into a Delta table below a folder."""
    from headwater.pipeline.marks import from_plain
    from headwater.pipeline.parse import parse

    job = {"streams": "**", "bucket": "*", "to": os.path.join(folder, "streams")}
    return parse(from_plain({"archive": job}, "--archive", None), "archive")


def _node(arguments: argparse.Namespace, values: dict[str, Any]) -> Node:
    from headwater.pipeline.marks import from_plain

    name = {} if arguments.name is None else {"name": arguments.name}
    return from_plain({**name, **values}, f"headwater pipeline {arguments.action}", None)


def _given(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value not in (None, [], {})}


def _table_keys(arguments: argparse.Namespace) -> dict[str, Any]:
    return _given(format=arguments.format, catalog=pairs(arguments.catalog))


def pairs(given: Sequence[str]) -> dict[str, str]:
    for pair in given:
        if "=" not in pair:
            raise wrong(f"--catalog is KEY=VALUE. received={pair!r}")
    return {pair.partition("=")[0]: pair.partition("=")[2] for pair in given}


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
