"""Where queries begin that have no checkpoint yet. Spark does not look at it when they have.

What `latest` is, is settled once for all queries of a source, and noted beside their checkpoints
before the first of them begins:

    starts.json     {source: {"asked": …, "queries": [name, …], "begin": startingOffsets}}

If the first start of a pipeline is cut off between two queries, the next one takes it from there.
An archive begins where its table ends.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from headwater.client import StreamSummary
from headwater.lake.locations import Folder
from headwater.lake.ranges import read_ranges
from headwater.lake.tables import LakeError, open_table
from headwater.pipeline import frames
from headwater.pipeline.context import Context
from headwater.pipeline.spec import STARTS, Archive, Source
from headwater.spark import streams
from headwater.spark.options import LATEST, Selection, SourceOptions, parse_source

log = logging.getLogger("headwater.pipeline")

NOTES = "starts.json"
BEGIN = "startingOffsets"
_BEGINS = (BEGIN.lower(), "startingtimestamp")

Places = dict[tuple[str, str], int | str]
"""By bucket and name."""


# -- sources


def settle(
    sources: Sequence[Source], queries: Sequence[str], checkpoint: str, context: Context
) -> tuple[Source, ...]:
    """The sources with numbers for `latest`: all queries begin at the same records.

    Else what comes between their beginnings is new to some of them only, and a bad record could be
    missing in the sinks and among the dead letters. Streams that are made later are read whole.
    """
    latest = [_latest(source, context) for source in sources]
    if not any(latest):
        return tuple(sources)
    notes = Notes(checkpoint, queries)
    settled = []
    for source, options in zip(sources, latest, strict=True):
        if options is not None:
            begin = notes.of(source) or _tails(options)
            notes.add(source, begin)
            source = _beginning(source, begin)
        settled.append(source)
    notes.keep()
    return tuple(settled)


def _latest(source: Source, context: Context) -> SourceOptions | None:
    """The options of a source that is to begin at the end of some streams."""
    if source.streams is None:
        return None
    options = parse_source(frames.source_options(source, context), streaming=True)
    begin = options.start
    asked = begin.at_ms is None and LATEST in (begin.default, *begin.each.values())
    return options if asked else None


def _tails(options: SourceOptions) -> str:
    begin = options.start
    places: Places = dict(begin.each)
    with options.connection.open() as client:
        for stream in streams.find(client, options.selection).values():
            key = stream.bucket, stream.name
            if begin.each.get(key, begin.default) == LATEST:
                places[key] = stream.tail
    return _by_name(places, options.selection)


def _beginning(source: Source, begin: str) -> Source:
    """The same source with another beginning."""
    others = {name: value for name, value in source.options.items() if name.lower() not in _BEGINS}
    return replace(source, start=STARTS[0], options={**others, BEGIN: begin})


def _by_name(places: Mapping[tuple[str, str], int | str], selection: Selection) -> str:
    """As startingOffsets has streams: by name, with the bucket unless there is only one."""
    named = selection.bucket is not None
    return json.dumps(
        {name if named else f"{bucket}/{name}": at for (bucket, name), at in places.items()}
    )


class Notes:
    """What was settled before. It counts once a query has begun by it, and for the queries that
    there were: one that is new begins at what is `latest` now."""

    def __init__(self, checkpoint: str, queries: Sequence[str]) -> None:
        self._queries = list(queries)
        self._found: dict[str, Any] = {}
        self._noted: dict[str, Any] = {}
        self._folder: Folder | None = None
        try:
            self._folder = Folder(checkpoint)
            if self._has_begun():
                self._found = json.loads(self._folder.read(NOTES) or b"{}")
        except (LakeError, OSError) as error:
            log.warning("cannot note where queries begin in %s: %s", checkpoint, error)

    def _has_begun(self) -> bool:
        assert self._folder is not None
        return any(any(self._folder.walk(f"{query}/offsets")) for query in self._queries)

    def of(self, source: Source) -> str | None:
        found = self._found.get(source.name)
        if found is None or found["asked"] != _asked(source):
            return None
        known = set(self._queries) <= set(found["queries"])
        return str(found["begin"]) if known else None

    def add(self, source: Source, begin: str) -> None:
        entry = {"asked": _asked(source), "queries": self._queries, "begin": begin}
        self._noted[source.name] = entry

    def keep(self) -> None:
        if self._folder is not None and self._noted and self._noted != self._found:
            self._folder.write(NOTES, json.dumps(self._noted).encode())


def _asked(source: Source) -> list[Any]:
    """What makes it another beginning when it is changed."""
    assert source.streams is not None
    begins = {name: at for name, at in source.options.items() if name.lower() in _BEGINS}
    return [list(source.streams.names), source.streams.bucket, source.start, begins]


# -- the archive


def continued(job: Archive, context: Context) -> Source:
    """The source of an archive whose query has no checkpoint, or has lost it: it begins where the
    table ends, so that nothing is archived twice."""
    table = open_table(job.table)
    if table.schema() is None:
        return job.source
    ends = {each.key: each.end for each in read_ranges(table.folder, table.identity)}
    if not ends:
        return job.source
    options = parse_source(frames.source_options(job.source, context), streaming=True)
    places: Places = dict(options.start.each)
    with options.connection.open() as client:
        finder = streams.Finder(client, options)
        for stream in finder.find().values():
            end = ends.get((stream.bucket, stream.name, stream.id))
            if end is None:
                place = streams.resolve(options.start, stream, finder.seq_at)
            else:
                place = _end_of(stream, end)
            if end is not None or place > stream.first:  # what is not named begins at the first
                places[stream.bucket, stream.name] = place
    return _beginning(job.source, _by_name(places, options.selection))


def _end_of(stream: StreamSummary, end: int) -> int:
    if end < stream.first:
        log.warning(
            "%s/%s: the records from %d to %d are lost: the server has forgotten them, and they "
            "were not archived",
            stream.bucket,
            stream.name,
            end,
            stream.first,
        )
    return max(end, stream.first)
