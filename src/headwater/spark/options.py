"""The options of the data source: what there is, and how text becomes values.

Parsed on the driver before a job starts, so a mistake costs seconds. The tables here are the ones
of docs/spark.md; a test compares them. Names follow Spark's Kafka connector.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from typing import Any, NamedTuple

from headwater.client import Client, ClientError
from headwater.client.protocol import Endpoint, fits_header
from headwater.lake.tables import FORMATS, TableRef

DEFAULT_BUCKET = "durable-streams"
"""The bucket of the streams at /v1/stream/."""

EARLIEST, LATEST = "earliest", "latest"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
TIME_MAX = 2**63 - 1
ORDERS = ("auto", "kept")

FROM_SPARK = frozenset(("checkpointlocation", "queryname", "outputmode"))
"""What Spark hands to a sink although it is for Spark itself."""


class OptionError(ValueError):
    """An option is unknown, missing or not a value it may have."""


class Option(NamedTuple):
    """One option, as the documentation shows it."""

    name: str
    default: str
    about: str


CONNECTION_OPTIONS = (
    Option("endpoint", "http://127.0.0.1:4437", "address of the server; `https` for TLS"),
    Option("token", "", "access token, sent as `Authorization: Bearer`"),
    Option("encryptionKey", "", "key of encrypted streams, sent as `s2-encryption-key`"),
    Option("caFile", "", "certificates to trust instead of the system's, a PEM file on every node"),
    Option("retryTimeout", "60", "seconds for which a server that does not answer is asked again"),
)

SOURCE_OPTIONS = (
    *CONNECTION_OPTIONS,
    Option("subscribe", "", "streams to read: names with commas between, or a JSON list"),
    Option(
        "subscribePattern", "", "streams whose names match: `*` is one segment, `**` any number"
    ),
    Option("subscribePrefix", "", "streams whose names begin with this; all of them if it is `*`"),
    Option("bucket", "", "the bucket of those streams, see [below](#which-streams)"),
    Option(
        "startingOffsets",
        "latest, in a batch earliest",
        "`earliest`, `latest`, or JSON with a number for each stream, see [below](#where-to-begin)",
    ),
    Option(
        "endingOffsets", "latest", "batch only: `latest`, or JSON with a number for each stream"
    ),
    Option(
        "startingTimestamp",
        "",
        "begin with the first record not older; RFC 3339, or milliseconds since 1970",
    ),
    Option("endingTimestamp", "", "batch only: end before the first record not older"),
    Option("maxOffsetsPerTrigger", "", "streaming only: records of a micro-batch at most"),
    Option("maxBytesPerTrigger", "", "streaming only: bytes of a micro-batch, roughly, at most"),
    Option("minPartitions", "", "partitions at least, as far as there are records"),
    Option(
        "maxRecordsPerPartition", "as many as are about 128 MiB", "records of a partition at most"
    ),
    Option(
        "failOnDataLoss",
        "true",
        "fail when records are gone before they were read; `false` goes on with the next",
    ),
    Option(
        "failOnDeletion",
        "true",
        "fail too when a stream was deleted or has expired; `false` goes on with the others. "
        "A stream that the token may not see looks deleted",
    ),
    Option("includeHeaders", "false", "add the column `headers`"),
    Option("includeStreamId", "false", "add the column `stream_id`: no two streams ever share one"),
    Option(
        "includeCommands",
        "false",
        "records as they are stored: commands, and long messages in parts",
    ),
    Option(
        "archive",
        "",
        "lake table to read trimmed records from, see [Archive and live](#archive-and-live)",
    ),
    Option("archiveFormat", "delta", "of that table: `delta`, `iceberg` or `parquet`"),
    Option(
        "filterPushdown",
        "false",
        "batch only: filters on `bucket`, `stream`, `offset`, `timestamp` narrow what is read",
    ),
)

SINK_OPTIONS = (
    *CONNECTION_OPTIONS,
    Option("stream", "", "stream to write to; without it the column `stream` says"),
    Option("bucket", "", "bucket to write to; without it the column `bucket` says"),
    Option("createIfMissing", "true", "make streams that are not there"),
    Option("contentType", "application/octet-stream", "of streams that are made"),
    Option("headers", "", "JSON object: headers that every record gets"),
    Option("closeOnFinish", "false", "batch only: close the streams once all is written"),
    Option("order", "auto", "`auto` or `kept`, see [below](#order)"),
    Option("producerId", "", "instead of the id of the query, see [below](#exactly-once)"),
    Option("producerEpoch", "", "batch only, with `producerId`: number of this write"),
)


@dataclass(frozen=True, slots=True)
class Connection:
    """How to reach the server, in plain values that travel to executors."""

    endpoint: str
    token: str | None = field(repr=False)
    encryption_key: str | None = field(repr=False)
    ca_file: str | None
    retry_timeout_s: float

    def open(self) -> Client:
        return Client(
            self.endpoint,
            token=self.token,
            encryption_key=self.encryption_key,
            ca_file=self.ca_file,
            retry_timeout_s=self.retry_timeout_s,
        )


@dataclass(frozen=True, slots=True)
class Selection:
    """Which streams are read. One of names, pattern and prefix is given."""

    bucket: str | None
    names: tuple[tuple[str, str], ...] = ()
    """Bucket and name of each."""
    pattern: str | None = None
    prefix: str | None = None


@dataclass(frozen=True, slots=True)
class Bound:
    """Where reading begins or ends: the same for all streams, by number, or by time."""

    default: str
    each: Mapping[tuple[str, str], int | str] = field(default_factory=dict)
    at_ms: int | None = None


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """What is read."""

    connection: Connection
    selection: Selection
    start: Bound
    end: Bound
    rows_max: int | None
    """Of a micro-batch."""
    bytes_max: int | None
    partitions_min: int
    partition_rows_max: int | None
    fail_on_data_loss: bool
    fail_on_deletion: bool
    headers: bool
    stream_ids: bool
    commands: bool
    pushdown: bool
    archive: TableRef | None


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """What is written."""

    connection: Connection
    stream: str | None
    bucket: str | None
    create: bool
    content_type: str
    headers: tuple[tuple[str, str], ...]
    close: bool
    kept: bool
    """Rows are in an order that a repeat will have too."""
    producer_id: str | None
    producer_epoch: int | None


def parse_source(given: Mapping[str, str], *, streaming: bool) -> SourceOptions:
    """Raises OptionError."""
    found = _Given(given, SOURCE_OPTIONS)
    for name in ("endingOffsets", "endingTimestamp", "filterPushdown"):
        if streaming and found.has(name):
            raise OptionError(f"{name} is for batch reads; a streaming query has no end")
    for name in ("maxOffsetsPerTrigger", "maxBytesPerTrigger"):
        if not streaming and found.has(name):
            raise OptionError(f"{name} is for streaming queries; use endingOffsets")
    selection = _selection(found)
    start = _bound(found, selection, "starting", LATEST if streaming else EARLIEST)
    end = _bound(found, selection, "ending", LATEST)
    _check_order(start, end)
    return SourceOptions(
        connection=_connection(found),
        selection=selection,
        start=start,
        end=end,
        rows_max=found.number("maxOffsetsPerTrigger"),
        bytes_max=found.number("maxBytesPerTrigger"),
        partitions_min=found.number("minPartitions") or 1,
        partition_rows_max=found.number("maxRecordsPerPartition"),
        fail_on_data_loss=found.flag("failOnDataLoss"),
        fail_on_deletion=found.flag("failOnDeletion"),
        headers=found.flag("includeHeaders"),
        stream_ids=found.flag("includeStreamId"),
        commands=found.flag("includeCommands"),
        pushdown=found.flag("filterPushdown"),
        archive=_archive(found),
    )


def parse_sink(given: Mapping[str, str], *, streaming: bool) -> SinkOptions:
    """Raises OptionError."""
    found = _Given(given, SINK_OPTIONS)
    if streaming and found.flag("closeOnFinish"):
        raise OptionError("closeOnFinish is for batch writes; a streaming query does not finish")
    if found.has("producerEpoch") and (streaming or not found.has("producerId")):
        raise OptionError("producerEpoch is for batch writes, together with producerId")
    order = found.value("order")
    if order not in ORDERS:
        raise OptionError(f"order is one of {', '.join(ORDERS)}. received={order!r}")
    epoch = found.number("producerEpoch", low=0)
    return SinkOptions(
        connection=_connection(found),
        stream=found.text("stream"),
        bucket=found.text("bucket"),
        create=found.flag("createIfMissing"),
        content_type=found.header("contentType"),
        headers=_headers(found),
        close=found.flag("closeOnFinish"),
        kept=order == "kept",
        producer_id=found.header("producerId") or None,
        producer_epoch=epoch,
    )


def check_names(
    given: Iterable[str], known: tuple[Option, ...] = SOURCE_OPTIONS + SINK_OPTIONS
) -> None:
    """Raises OptionError for an option that there is not, with the one that was likely meant."""
    names = list(dict.fromkeys(option.name for option in known))
    lower = {name.lower() for name in names} | FROM_SPARK
    for name in given:
        if name.lower() not in lower:
            raise OptionError(_unknown(name, names))


class _Given:
    """The options as Spark hands them over, whose names are in any case."""

    def __init__(self, given: Mapping[str, str], known: tuple[Option, ...]) -> None:
        check_names(given, known)
        names = {option.name.lower(): option for option in known}
        self._values = {name.lower(): value.strip() for name, value in given.items()}
        self._known = names

    def text(self, name: str) -> str | None:
        return self._values.get(name.lower()) or None

    def value(self, name: str) -> str:
        """The text, or the default."""
        return self.text(name) or self._known[name.lower()].default

    def header(self, name: str) -> str:
        """The same, of what goes into a header of HTTP."""
        text = self.value(name)
        if not fits_header(text):
            raise OptionError(
                f"{name} has characters that a header cannot carry. received={text!r}"
            )
        return text

    def has(self, name: str) -> bool:
        return self.text(name) is not None

    def number(self, name: str, *, low: int = 1) -> int | None:
        text = self.text(name)
        if text is None:
            return None
        if not (text.isascii() and text.isdigit()) or int(text) < low:
            raise OptionError(f"{name} is a whole number from {low}. received={text!r}")
        return int(text)

    def seconds(self, name: str) -> float:
        text = self.value(name)
        try:
            value = float(text)
        except ValueError:
            value = -1.0
        if not 0 <= value < float("inf"):
            raise OptionError(f"{name} is a number of seconds. received={text!r}")
        return value

    def flag(self, name: str) -> bool:
        text = self.value(name).lower()
        if text not in ("true", "false"):
            raise OptionError(f"{name} is true or false. received={text!r}")
        return text == "true"


def _unknown(name: str, known: list[str]) -> str:
    if name.lower() in ("path", "provider"):
        return (
            "there is no path to load or save; name streams with subscribe, or stream to write. "
            "In SQL, make a TEMPORARY VIEW, not a TABLE"
        )
    by_lower = {option.lower(): option for option in known}
    close = get_close_matches(name.lower(), by_lower, n=1, cutoff=0.6)
    hint = f"did you mean {by_lower[close[0]]}?" if close else f"known: {', '.join(known)}"
    return f"the data source headwater has no option {name}; {hint}"


def _connection(found: _Given) -> Connection:
    endpoint = found.value("endpoint")
    token, key = found.text("token"), found.text("encryptionKey")
    try:
        Endpoint.parse(endpoint, token=token, encryption_key=key)
    except ClientError as error:
        raise OptionError(str(error)) from None
    return Connection(endpoint, token, key, found.text("caFile"), found.seconds("retryTimeout"))


def _selection(found: _Given) -> Selection:
    names = ("subscribe", "subscribePattern", "subscribePrefix")
    if sum(found.has(name) for name in names) != 1:
        raise OptionError(f"say which streams to read, with one of {', '.join(names)}")
    bucket = found.text("bucket")
    listed = found.text("subscribe")
    if listed is not None:
        split = _list(listed)
        return Selection(bucket, tuple(dict.fromkeys(parse_name(name, bucket) for name in split)))
    prefix = found.text("subscribePrefix")
    return Selection(
        bucket,
        pattern=found.text("subscribePattern"),
        prefix="" if prefix == "*" else prefix,
    )


def _list(text: str) -> list[str]:
    if text.startswith("["):
        names = _json("subscribe", text)
    else:
        names = [name.strip() for name in text.split(",") if name.strip()]
    if not names or not all(name and isinstance(name, str) for name in names):
        raise OptionError(f"subscribe is a list of names. received={text!r}")
    return list(names)


def parse_name(text: str, bucket: str | None) -> tuple[str, str]:
    """Bucket and name: a name in `bucket` if there is one, else `bucket/name`."""
    if bucket is not None:
        return bucket, text
    first, slash, rest = text.partition("/")
    if slash and first and rest:
        return first, rest
    return DEFAULT_BUCKET, text


def _bound(found: _Given, selection: Selection, which: str, default: str) -> Bound:
    """The timestamp wins over the offsets, as with Kafka."""
    stamp, name = found.text(f"{which}Timestamp"), f"{which}Offsets"
    if stamp is not None:
        return Bound(default, at_ms=parse_time(f"{which}Timestamp", stamp))
    text = found.text(name)
    if text is None:
        return Bound(default)
    if not text.startswith("{"):
        if text.lower() not in (EARLIEST, LATEST):
            raise OptionError(f"{name} is earliest, latest or a JSON object. received={text!r}")
        return Bound(text.lower())
    each, known = {}, frozenset(selection.names)
    for stream, place in _json(name, text).items():
        key = parse_name(stream, selection.bucket)
        if known and key not in known:
            raise OptionError(f"{name} is for streams that subscribe names. received={stream!r}")
        each[key] = _place(name, stream, place)
    # A stream that is not named is read whole.
    return Bound(EARLIEST if which == "starting" else LATEST, each)


def _place(option: str, stream: str, place: Any) -> int | str:
    if place in (EARLIEST, -2):
        return EARLIEST
    if place in (LATEST, -1):
        return LATEST
    if isinstance(place, dict) and "seq" in place:  # as a checkpoint has it
        place = place["seq"]
    if not isinstance(place, int) or isinstance(place, bool) or place < 0:
        raise OptionError(
            f"{option} has a number for each stream, or earliest, or latest. {stream}={place!r}"
        )
    return place


def _check_order(start: Bound, end: Bound) -> None:
    """Raises OptionError if something is to end before it begins."""
    if start.at_ms is not None and end.at_ms is not None and end.at_ms < start.at_ms:
        raise OptionError("endingTimestamp is before startingTimestamp")
    for (bucket, name), first in start.each.items():
        last = end.each.get((bucket, name))
        if isinstance(first, int) and isinstance(last, int) and last < first:
            raise OptionError(
                f"endingOffsets is before startingOffsets. {bucket}/{name}: {last} < {first}"
            )


def parse_time(option: str, text: str) -> int:
    """Milliseconds since 1970."""
    if text.isascii() and text.isdigit() and int(text) <= TIME_MAX:
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise OptionError(
            f"{option} is a time with its zone, such as 2030-01-31T12:00:00Z, or milliseconds "
            f"since 1970. received={text!r}"
        )
    return milliseconds(moment)


def milliseconds(moment: datetime) -> int:
    """Since 1970, rounded down. Not by `timestamp()`, which is a float and now and then falls
    short."""
    return (moment - EPOCH) // timedelta(milliseconds=1)


def _archive(found: _Given) -> TableRef | None:
    """A folder, or all about a table as TableRef.encode has it."""
    text = found.text("archive")
    if text is None:
        if found.has("archiveFormat"):
            raise OptionError("archiveFormat is for the table that archive names")
        return None
    if found.flag("includeCommands"):
        raise OptionError("an archive has messages, no commands: leave out includeCommands")
    if text.startswith("{"):
        return TableRef.decode(text)
    format = found.value("archiveFormat")
    if format not in FORMATS:
        raise OptionError(f"archiveFormat is one of {', '.join(FORMATS)}. received={format!r}")
    return TableRef(format, text)


def _headers(found: _Given) -> tuple[tuple[str, str], ...]:
    text = found.text("headers")
    if text is None:
        return ()
    headers = _json("headers", text)
    wrong = not isinstance(headers, dict)
    if wrong or not all(name and isinstance(value, str) for name, value in headers.items()):
        raise OptionError(f"headers is a JSON object of texts. received={text!r}")
    return tuple(headers.items())


def _json(option: str, text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise OptionError(f"{option} is not valid JSON: {error}. received={text!r}") from None
