"""Appends of the S2 API to commands, and what became of them to acknowledgements."""

from __future__ import annotations

from headwater.core.append import Appended
from headwater.core.commands import AppendRecords
from headwater.core.types import SeqNum, TimestampMs
from headwater.dialects.s2.access import require_append
from headwater.dialects.s2.requests import Sent
from headwater.dialects.s2.responses import tail_of
from headwater.dialects.s2.targets import Target
from headwater.engine.engine import Engine
from headwater.wire.http import Request
from headwater.wire.s2.records import Ack, Input, Place


def permit(request: Request, target: Target, sent: Sent) -> None:
    """May this client append such records? Raises PermissionDenied."""
    if request.grant is None:
        return
    fences = sum(1 for said in sent.commands.values() if isinstance(said, str))
    require_append(
        request,
        target,
        data=len(sent.commands) < len(sent.batch.bodies),
        fence=fences > 0,
        trim=fences < len(sent.commands),
    )


def make_command(target: Target, batch: Input, at_ms: TimestampMs) -> AppendRecords:
    """One batch, as it arrived at `at_ms`."""
    expected = batch.match_seq_num
    return AppendRecords(
        *target,
        at_ms,
        batch.bodies,
        batch.headers,
        None,
        None if expected is None else SeqNum(expected),
        batch.times,  # type: ignore[arg-type]  # plain numbers on the wire, times from here on
        True,
        batch.fencing_token,
    )


def make_ack(appended: Appended, tail: Place | None) -> Ack:
    """`tail` is the stream's as of now, unless the stream is gone."""
    assert appended.first_seq is not None
    start = Place(appended.first_seq, appended.first_time_ms or 0)
    end = Place(appended.tail.seq, appended.last_time_ms or 0)
    return Ack(start, end, end if tail is None or tail.seq < end.seq else tail)


def tail_now(engine: Engine, target: Target) -> Place | None:
    """The durable tail."""
    stream = engine.shard.find(*target)
    return None if stream is None else tail_of(engine.shard, stream)
