"""Engine answers to responses of the native API. The bodies are the structs here.

The OpenAPI document is made from the same structs (openapi.py). Fields are only ever added.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from headwater.core.access import Grant
from headwater.core.append import Appended
from headwater.core.stream import StreamState
from headwater.core.types import Position, SeqNum, StreamId, TimestampMs
from headwater.dialects.access import may_know
from headwater.dialects.common import JSON_TYPE, NO_STORE, SECURITY_HEADERS
from headwater.dialects.log.errors import VERSION, first_seq, tail_seq
from headwater.dialects.log.requests import ARROW_TYPE, NDJSON_TYPE
from headwater.engine import facts, seek
from headwater.engine.backup import Backup
from headwater.engine.engine import Engine
from headwater.engine.lineage import Forks
from headwater.engine.stats import INTERVAL_S, Sample, Stats
from headwater.engine.streams import Stream
from headwater.engine.subscription_entry import Entry as SubscriptionEntry
from headwater.wire import offsets
from headwater.wire.http import BodyWriter, Buffer, Header, Response, StreamedResponse

HEADERS = SECURITY_HEADERS.extended(NO_STORE, VERSION)
JSON_HEADERS = HEADERS.extended(JSON_TYPE)
TAR_TYPE: Header = (b"content-type", b"application/x-tar")

PRODUCERS_SHOWN_MAX = 1000

_encode = msgspec.json.Encoder().encode


class Place(msgspec.Struct, frozen=True):
    """A position in a stream."""

    seq_num: int
    byte: int
    offset: str
    """The same as a Durable Streams offset."""


class Tail(Place, frozen=True):
    """Where the next record goes."""

    messages: int
    """Messages before it."""


class Lifetime(msgspec.Struct, frozen=True):
    """When the stream ends by itself."""

    ttl_s: int | None
    anchor: str | None
    """What the TTL counts from: access or creation."""
    expires_at_ms: int
    """As things stand; a sliding TTL moves it."""


class Retention(msgspec.Struct, frozen=True):
    """What is kept of the stream."""

    age_s: int | None
    bytes: int | None
    records: int | None


class Source(msgspec.Struct, frozen=True):
    """The stream that this one was forked from."""

    id: str
    bucket: str
    name: str
    at: Place
    sub_offset: int


class StreamSummary(msgspec.Struct, frozen=True):
    """One stream in a list."""

    id: str
    """Of this stream and no other, not even one of the same name later."""
    bucket: str
    name: str
    content_type: str
    json: bool
    """Its messages are JSON values."""
    state: str
    """open or closed."""
    tail: Tail
    first: Place
    """The first record that is retained."""
    records: int
    """Retained."""
    bytes: int
    """Body bytes retained, those of a fork's source included."""
    created_at_ms: int
    last_record_at_ms: int | None
    lifetime: Lifetime | None
    retention: Retention | None
    source: Source | None
    cipher: str | None
    """What its records are encrypted with."""


class ListedStream(StreamSummary, frozen=True):
    """The same with what was asked for besides."""

    seq_nums_at: list[int] | msgspec.UnsetType = msgspec.UNSET
    """For each time asked for, the first record that is not older; the tail if all are."""


class StreamList(msgspec.Struct, frozen=True):
    """The answer to GET streams."""

    streams: list[ListedStream]
    next: str | None
    """Send it as `after` for the streams that follow; null when there are none."""


class Producer(msgspec.Struct, frozen=True):
    """An idempotent producer, and the last batch accepted from it."""

    id: str
    epoch: int
    seq: int
    last_seen_ms: int


class Extent(msgspec.Struct, frozen=True):
    """Records that are read from the stream that wrote them."""

    owner: str
    first: int
    end: int
    cut: int | None


class Fork(msgspec.Struct, frozen=True):
    """A stream that reads records of this one."""

    id: str
    bucket: str
    name: str
    deleted: bool
    """Kept only for forks of its own."""


class Subscription(msgspec.Struct, frozen=True):
    """A subscription that this stream is linked to."""

    id: str
    type: str
    link: str
    """explicit or glob."""
    acked: Place
    pending: bool


class Snapshot(msgspec.Struct, frozen=True):
    """What a client published as standing for everything before a place."""

    at: Place
    digest: str
    content_type: str
    bytes: int


class Storage(msgspec.Struct, frozen=True):
    """How the stream lies on disk."""

    checkpoint_bytes: int
    runs: int
    """Since the last packing."""
    run_bytes: int
    partial_chunks: int


class StreamInfo(StreamSummary, frozen=True):
    """The answer to GET info."""

    first_record_at_ms: int | None
    stream_seq: str | None
    attributes: str | None
    """As text."""
    producers: list[Producer]
    """Those heard of last, the newest first."""
    producer_count: int
    extents: list[Extent]
    references: int
    """Streams that read this one's records, or were forked from it."""
    forks: list[Fork]
    forks_complete: bool
    """`forks` are all of them; not so when very many streams would have to be looked at."""
    subscriptions: list[Subscription]
    snapshot: Snapshot | None
    """The latest."""
    followers: int
    """Live readers."""
    storage: Storage


class Rates(msgspec.Struct, frozen=True):
    """One list per figure, oldest first; all are as long as `at_ms`."""

    at_ms: list[int]
    appends_per_s: list[float]
    append_bytes_per_s: list[float]
    commits_per_s: list[float]
    commit_ms: list[float | None]
    sync_ms: list[float | None]
    requests_per_s: list[float]
    response_bytes_per_s: list[float]
    followers: list[int]
    connections: list[int]
    queue_bytes: list[int]


class ServerStats(msgspec.Struct, frozen=True):
    """The answer to GET stats."""

    now_ms: int
    started_at_ms: int
    interval_s: float
    series: Rates
    totals: dict[str, float]
    gauges: dict[str, float]


class AppendResult(msgspec.Struct, frozen=True):
    """The answer to POST records: all of them are in the stream, and durable."""

    first_seq: int | None
    """Of the first record; null when this was a repeat, and nothing was added."""
    records: int
    """Records added: more than were sent if some were too long for one."""
    repeat: bool
    tail: Place
    closed: bool
    producer: Producer | None


class TrimResult(msgspec.Struct, frozen=True):
    """The answer to POST trim, durable."""

    first: Place
    """The first record that is retained. Less than asked for if that was inside a message; more
    if the stream was trimmed before."""


# -- streams


def show_id(stream_id: StreamId) -> str:
    return f"{stream_id:016x}"


def _place(position: Position) -> Place:
    return Place(position.seq, position.byte, offsets.render(position).decode())


def summarize(engine: Engine, stream: Stream, grant: Grant | None) -> StreamSummary:
    """What is durable about a stream, as far as a client with this grant may know."""
    state, tail = stream.state, stream.tail
    return StreamSummary(
        id=show_id(state.id),
        bucket=state.bucket,
        name=state.name,
        content_type=state.content_type,
        json=state.json,
        state="closed" if stream.tail_closed else "open",
        tail=Tail(tail.seq, tail.byte, offsets.render(tail).decode(), facts.message_count(stream)),
        first=_place(state.first),
        records=tail.seq - state.first_seq,
        bytes=tail.byte - state.first_byte,
        created_at_ms=state.created_at_ms,
        last_record_at_ms=facts.last_time_ms(engine.shard, stream),
        lifetime=_lifetime(state, engine.deadline_of(stream)),
        retention=_retention(state),
        source=_source(state, grant),
        cipher=state.cipher,
    )


def _fields(summary: StreamSummary) -> dict[str, Any]:
    return {field: getattr(summary, field) for field in summary.__struct_fields__}


def _lifetime(state: StreamState, deadline_ms: TimestampMs | None) -> Lifetime | None:
    if deadline_ms is None:
        return None
    anchor = None
    if state.ttl_s is not None:
        anchor = "access" if state.ttl_from_access else "creation"
    return Lifetime(state.ttl_s, anchor, deadline_ms)


def _retention(state: StreamState) -> Retention | None:
    kept = state.retention
    return None if kept is None else Retention(kept.age_s, kept.bytes, kept.records)


def _source(state: StreamState, grant: Grant | None) -> Source | None:
    origin = state.origin
    if origin is None or (grant is not None and not grant.sees(origin.bucket, origin.name)):
        return None
    return Source(
        show_id(origin.source), origin.bucket, origin.name, _place(origin.at), origin.sub_offset
    )


class SummaryList:
    """A list of streams on its way to text: each is rendered when it is seen."""

    def __init__(self, engine: Engine, grant: Grant | None, times: Sequence[TimestampMs]) -> None:
        self._engine = engine
        self._grant = grant
        self._times = times
        self._parts: list[Buffer] = []

    def show(self, stream: Stream) -> None:
        summary = summarize(self._engine, stream, self._grant)
        if self._times:
            shard = self._engine.shard
            seqs: list[int] = [seek.find_time(shard, stream, at).seq for at in self._times]
            summary = ListedStream(**_fields(summary), seq_nums_at=seqs)
        self._parts.append(_encode(summary))

    def render(self, next_after: str | None) -> Response:
        streams = b",".join(self._parts)
        body = b'{"streams":[%b],"next":%b}' % (streams, _encode(next_after))
        return Response(200, (), body, base=JSON_HEADERS)


# -- one stream


def describe(
    engine: Engine,
    stream: Stream,
    subscriptions: Iterable[SubscriptionEntry],
    grant: Grant | None,
) -> StreamInfo:
    """Everything about a stream but its forks, at a moment when it is all durable."""
    state = stream.state
    summary = summarize(engine, stream, grant)
    return StreamInfo(
        **_fields(summary),
        first_record_at_ms=facts.first_time_ms(engine.shard, stream),
        stream_seq=state.stream_seq,
        attributes=None
        if state.attributes is None
        else state.attributes.decode("utf-8", "replace"),
        producers=_producers(state),
        producer_count=len(state.producers),
        extents=[
            Extent(show_id(extent.owner), extent.first, extent.end, extent.cut)
            for extent in state.extents
        ],
        references=state.references,
        forks=[],
        forks_complete=not state.references,
        subscriptions=[
            Subscription(
                entry.subscription.id,
                entry.subscription.type,
                link.link_type,
                _place(link.acked),
                link.pending,
            )
            for entry in subscriptions
            if (link := entry.links.get(state.name)) is not None
            and link.stream_id == state.id
            and may_know(grant, entry)
        ],
        snapshot=_snapshot(stream),
        followers=len(stream.followers or ()),
        storage=Storage(
            stream.checkpoint_bytes, len(stream.runs), stream.runs.bytes, len(state.partial_chunks)
        ),
    )


def _snapshot(stream: Stream) -> Snapshot | None:
    found = stream.snapshot
    if found is None:
        return None
    return Snapshot(_place(found.at), found.digest, found.content_type, found.size)


def _producers(state: StreamState) -> list[Producer]:
    found = []
    for producer_id, mark in reversed(state.producers.items()):
        found.append(Producer(producer_id, mark.epoch, mark.seq, mark.at_ms))
        if len(found) == PRODUCERS_SHOWN_MAX:
            break
    return found


def render_info(info: StreamInfo, forks: Forks, grant: Grant | None = None) -> Response:
    """With those forks that a client with this grant may know of."""
    found = [
        Fork(show_id(fork.id), fork.bucket, fork.name, fork.deleted)
        for fork in forks.found
        if grant is None or grant.sees(fork.bucket, fork.name)
    ]
    whole = msgspec.structs.replace(info, forks=found, forks_complete=forks.complete)
    return render_json(whole)


def render_json(body: object) -> Response:
    return Response(200, (), _encode(body), base=JSON_HEADERS)


# -- records


def render_records(
    first: SeqNum,
    end: SeqNum,
    stream: Stream,
    start: Callable[[BodyWriter], None],
    *,
    arrow: bool,
) -> Response:
    """A range, which was found to be there."""
    content_type = ARROW_TYPE if arrow else NDJSON_TYPE
    headers: Sequence[Header] = (
        (b"content-type", content_type.encode()),
        (b"vary", b"accept"),
        (b"log-stream-id", show_id(stream.state.id).encode()),
        (b"log-from-seq", b"%d" % first),
        (b"log-to-seq", b"%d" % end),
        first_seq(stream.state.first),
        tail_seq(stream.tail),
    )
    return StreamedResponse(200, list(headers), start, base=HEADERS)


def render_appended(appended: Appended, producer_id: str | None) -> Response:
    mark, first = appended.producer, appended.first_seq
    producer = None
    if mark is not None and producer_id is not None:
        producer = Producer(producer_id, mark.epoch, mark.seq, mark.at_ms)
    return render_json(
        AppendResult(
            first_seq=first,
            records=0 if first is None else appended.tail.seq - first,
            repeat=appended.repeat,
            tail=_place(appended.tail),
            closed=appended.closed,
            producer=producer,
        )
    )


def render_trimmed(first: Position) -> Response:
    return render_json(TrimResult(_place(first)))


# -- the server


def render_backup(backup: Backup) -> Response:
    """A tar file, whose length is known: a client can tell a part from the whole."""
    length = (b"content-length", b"%d" % backup.size)
    return StreamedResponse(200, [TAR_TYPE, length], backup.start, base=HEADERS)


def render_backup_head() -> Response:
    return Response(200, (TAR_TYPE,), base=HEADERS)


def render_stats(stats: Stats, now_ms: TimestampMs) -> Response:
    samples: list[Sample] = list(stats.samples)
    series = Rates(
        at_ms=[sample.at_ms for sample in samples],
        appends_per_s=[sample.appends_per_s for sample in samples],
        append_bytes_per_s=[sample.append_bytes_per_s for sample in samples],
        commits_per_s=[sample.commits_per_s for sample in samples],
        commit_ms=[sample.commit_ms for sample in samples],
        sync_ms=[sample.sync_ms for sample in samples],
        requests_per_s=[sample.requests_per_s for sample in samples],
        response_bytes_per_s=[sample.response_bytes_per_s for sample in samples],
        followers=[sample.gauges.followers for sample in samples],
        connections=[sample.gauges.connections for sample in samples],
        queue_bytes=[sample.gauges.queue_bytes for sample in samples],
    )
    return render_json(
        ServerStats(
            now_ms=now_ms,
            started_at_ms=stats.started_at_ms,
            interval_s=INTERVAL_S,
            series=series,
            totals=stats.totals()._asdict(),
            gauges=stats.gauges()._asdict(),
        )
    )
