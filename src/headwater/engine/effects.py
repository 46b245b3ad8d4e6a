"""What commands write besides runs and checkpoints: names, looks to come, what is dropped.

Each is a function that is called with the batch of the commit, when it is sealed.
"""

from __future__ import annotations

from collections.abc import Callable

from headwater.core.limits import LIFETIME_MS_MAX
from headwater.core.stream import StreamState
from headwater.core.types import TimestampMs
from headwater.storage import keys
from headwater.storage.store import Batch

Effect = Callable[[Batch], None]


def put_name(state: StreamState) -> Effect:
    """A new stream has its name, and the sweeper looks at it when something may end."""
    name_key, stream_id = keys.name(state.bucket, state.name), state.id
    looks = [] if state.deadline_ms is None else [state.deadline_ms]
    if state.retention is not None and state.retention.age_s is not None:
        # What a fork inherits may be old already.
        age_ms = 0 if state.extents else state.retention.age_s * 1000
        looks.append(TimestampMs(state.created_at_ms + age_ms))
    if state.delete_on_empty_s:
        looks.append(TimestampMs(state.created_at_ms + state.delete_on_empty_s * 1000))
    look_at_ms = min((*looks, LIFETIME_MS_MAX)) if looks else None

    def effect(batch: Batch) -> None:
        batch.put(name_key, keys.pack_id(stream_id))
        if look_at_ms is not None:
            batch.put(keys.deadline(TimestampMs(look_at_ms), stream_id), b"")

    return effect


def drop_stream(state: StreamState) -> Effect:
    """The name is free; the records go later, in the background."""
    name_key, stream_id = keys.name(state.bucket, state.name), state.id
    snapshot = state.snapshot

    def effect(batch: Batch) -> None:
        batch.delete(name_key)
        batch.delete(keys.state(stream_id))
        batch.put(keys.garbage(stream_id), b"")
        if snapshot is not None:
            drop_upload(snapshot.upload)(batch)

    return effect


def drop_upload(upload: int) -> Effect:
    """The bytes of a snapshot."""
    return lambda batch: batch.delete_range(keys.piece(upload, 0), keys.pieces_end(upload))
