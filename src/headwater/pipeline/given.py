"""The `options` of a pipeline file, checked as the data source will check them, with their lines.

The data source is in a package that loads PySpark, which takes a second: so it is asked only when
a file has options.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NoReturn

from headwater.pipeline.context import Context
from headwater.pipeline.marks import Node
from headwater.pipeline.spec import Sink, Source

if TYPE_CHECKING:
    from headwater.spark.options import SourceOptions

SOURCE_KEYS = {
    "subscribe": "streams",
    "subscribepattern": "streams",
    "subscribeprefix": "streams",
    "bucket": "bucket",
    "archive": "archive",
    "archiveformat": "archive_format",
}
SINK_KEYS = {"stream": "stream", "bucket": "bucket", "contenttype": "content_type"}
"""Options, in small letters, that a key of the file stands for: said twice, one does nothing."""


def check_source(source: Source, node: Node) -> SourceOptions:
    """Raises SpecError with the line of the option that is wrong."""
    _check_keys(node, SOURCE_KEYS)
    from headwater.pipeline.frames import source_options
    from headwater.spark.options import OptionError, parse_source

    try:
        return parse_source(source_options(source, Context()), streaming=True)
    except OptionError as error:
        _fail(node, str(error))


def check_sink(sink: Sink, node: Node) -> None:
    """Raises SpecError with the line of the option that is wrong."""
    _check_keys(node, SINK_KEYS)
    from headwater.pipeline.jobs import sink_options
    from headwater.spark.options import OptionError, parse_sink

    try:
        parse_sink(sink_options(sink, Context()), streaming=True)
    except OptionError as error:
        _fail(node, str(error))


def check_archived(source: Source, node: Node, *, whole: bool) -> None:
    """Raises SpecError for options that leave gaps in a table, or if it is to have all records,
    for those that leave out the first."""
    from headwater.spark.options import EARLIEST, Bound

    options = check_source(source, node)
    if not options.fail_on_data_loss:
        _fail(node, "failOnDataLoss cannot be false: an archive has all records, without gaps")
    if options.commands:
        _fail(node, "includeCommands cannot be true: an archive has messages, no commands")
    if whole and options.start != Bound(EARLIEST):
        which = "startingOffsets" if options.start.at_ms is None else "startingTimestamp"
        _fail(node, f"trim needs the whole streams in the table: leave out {which}")


def _check_keys(node: Node, keys: Mapping[str, str]) -> None:
    options: dict[str, Node] = node.value
    for name, given in options.items():
        if name.lower() in keys:
            given.fail(f"{name} is no option here: use the key {keys[name.lower()]}")


def _fail(node: Node, message: str) -> NoReturn:
    """At the option that the message names first; else where the options begin."""
    said = message.lower()
    given: dict[str, Node] = node.value
    named = [name for name in given if name.lower() in said]
    first = min(named, key=lambda name: said.find(name.lower()), default=None)
    blamed = node if first is None else given[first]
    blamed.fail(message)
