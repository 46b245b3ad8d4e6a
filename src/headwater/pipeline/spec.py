"""What a pipeline file says, as values that have been checked. See parse.py.

A pipeline is one of three: `archive` (streams into a table), `replay` (a table into streams), or
`sources`, `transforms` and `sinks`. docs/pipelines.md explains every key.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from headwater.core.globs import Glob
from headwater.lake.tables import TableRef

DEFAULT_BUCKET = "durable-streams"
"""The bucket of the streams at /v1/stream/."""
ANY_BUCKET = "*"

STARTS = ("earliest", "latest")
MODES = ("append", "update", "complete")
BAD_RECORDS = ("dead-letter", "fail", "keep")
ARCHIVE_PARTITIONS = ("bucket", "stream", "day")

RECORD_COLUMNS = ("key", "value", "stream", "bucket", "offset", "timestamp", "headers")
"""What every record of a stream has, beside the columns of its JSON."""


@dataclass(frozen=True, slots=True)
class Watermark:
    """How late an event may be and still count."""

    column: str
    delay: str


@dataclass(frozen=True, slots=True)
class Streams:
    """Which streams."""

    names: tuple[str, ...]
    """Or one pattern."""
    bucket: str = DEFAULT_BUCKET

    @property
    def pattern(self) -> str | None:
        return self.names[0] if "*" in self.names[0] else None

    def selects(self, bucket: str, name: str) -> bool:
        """Is a stream of this name among them?"""
        if self.bucket not in (ANY_BUCKET, bucket):
            return False
        return name in self.names if self.pattern is None else Glob(self.pattern).matches(name)


@dataclass(frozen=True, slots=True)
class Source:
    """Rows to begin with: of streams, or of a table that does not change meanwhile."""

    name: str
    streams: Streams | None = None
    table: TableRef | None = None
    start: str = "earliest"
    schema: str | None = None
    """Of the JSON values, as DDL."""
    watermark: Watermark | None = None
    bad_records: str = "dead-letter"
    archive: TableRef | None = None
    """Read what the server has trimmed from here."""
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_elsewhere(self) -> bool:
        """On another server than the rest."""
        return any(name.lower() == "endpoint" for name in self.options)

    @property
    def has_dead_letters(self) -> bool:
        return self.schema is not None and self.bad_records == "dead-letter"


@dataclass(frozen=True, slots=True)
class Transform:
    """Rows out of other rows: SQL, or a function of data frames."""

    name: str
    inputs: tuple[str, ...]
    sql: str | None = None
    function: Callable[..., Any] | None = None
    watermark: Watermark | None = None
    line: int | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Sink:
    """Where rows go: to streams, or to a table."""

    name: str
    input: str
    stream: str | None = None
    """None with a bucket: the column `stream` says."""
    bucket: str = DEFAULT_BUCKET
    content_type: str = "application/json"
    table: TableRef | None = None
    mode: str = "append"
    options: Mapping[str, str] = field(default_factory=dict)
    line: int | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Archive:
    """Streams into a table, record by record."""

    source: Source
    table: TableRef
    json: bool = True
    """Add the fields of JSON values as columns."""
    trim: bool = False


@dataclass(frozen=True, slots=True)
class Replay:
    """A table, or the rows of it that pass a condition, into streams."""

    table: TableRef
    bucket: str | None = None
    """None: the column `bucket` says."""
    stream: str | None = None
    """None: the column `stream` says."""
    where: str | None = None
    order_by: tuple[str, ...] = ("offset",)
    value: str = "value"
    content_type: str = "application/octet-stream"
    close: bool = False


@dataclass(frozen=True, slots=True)
class Spec:
    """One pipeline."""

    name: str
    file: str
    endpoint: str | None = None
    checkpoint: str | None = None
    trigger: str | None = None
    """Time between batches; None for as soon as the one before has ended."""
    spark: Mapping[str, str] = field(default_factory=dict)
    dead_letters: tuple[str, str] = (DEFAULT_BUCKET, "")
    sources: tuple[Source, ...] = ()
    transforms: tuple[Transform, ...] = ()
    sinks: tuple[Sink, ...] = ()
    archive: Archive | None = None
    replay: Replay | None = None

    @property
    def read(self) -> tuple[Streams, ...]:
        """The streams that it reads on its own server."""
        sources = self.sources if self.archive is None else (self.archive.source,)
        here = (source for source in sources if not source.is_elsewhere)
        return tuple(source.streams for source in here if source.streams is not None)

    @property
    def tables(self) -> tuple[TableRef, ...]:
        """Every table that it reads or writes."""
        read = [table for source in self.sources for table in (source.table, source.archive)]
        jobs = [job.table for job in (self.archive, self.replay) if job is not None]
        found = (*read, *(sink.table for sink in self.sinks), *jobs)
        return tuple(table for table in found if table is not None)

    @property
    def kind(self) -> str:
        if self.archive is not None:
            return "archive"
        return "transform" if self.replay is None else "replay"
