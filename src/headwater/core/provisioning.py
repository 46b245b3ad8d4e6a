"""Streams and buckets with a configuration: made, ensured, changed, told. S2 API: basins, streams.

A stream's configuration is resolved when it is made and stored whole, so later changes of its
bucket touch new streams only.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from headwater.core import jsonmode
from headwater.core.buckets import BucketConfig
from headwater.core.commands import (
    Provision,
    ProvisionBucket,
    ProvisionMode,
    ReconfigureBucket,
)
from headwater.core.errors import BucketDeleting, BucketExists, StreamExists, StreamGone
from headwater.core.retention import Retention
from headwater.core.stream import StreamState
from headwater.core.stream_config import FOREVER, SYSTEM_DEFAULTS, StreamConfig
from headwater.core.types import StreamId, TimestampMs


class Result(StrEnum):
    """What became of a request to provision."""

    CREATED = "created"
    UPDATED = "updated"
    NOOP = "noop"


class Provisioned(msgspec.Struct, frozen=True, gc=False):
    """The answer to a Provision: the stream is there as asked for."""

    result: Result
    id: StreamId
    created_at_ms: TimestampMs
    cipher: str | None


class BucketProvisioned(msgspec.Struct, frozen=True, gc=False):
    """The answer to a ProvisionBucket."""

    result: Result
    config: BucketConfig


def provisioned_stream(command: Provision, stream_id: StreamId) -> StreamState:
    """The state of a new stream: empty, and of any bytes."""
    state = StreamState(
        id=stream_id,
        bucket=command.bucket,
        name=command.name,
        created_at_ms=command.at_ms,
        touched_at_ms=command.at_ms,
        content_type=jsonmode.DEFAULT_CONTENT_TYPE,
        creation_token=command.creation_token,
        cipher=command.cipher,
        seal_id=command.seal_id,
    )
    configure(state, command.config)
    return state


def judge_provision(state: StreamState, command: Provision) -> Result:
    """What to do about a stream that is there. Raises StreamGone and StreamExists."""
    if state.deleted:
        raise StreamGone(command.name)
    if command.mode is ProvisionMode.CREATE:
        token = command.creation_token
        if token is None or token != state.creation_token:
            raise StreamExists(f"the stream exists. stream={command.name}")
    elif command.mode is ProvisionMode.ENSURE and configure(state, command.config):
        return Result.UPDATED
    return Result.NOOP


def configure(state: StreamState, config: StreamConfig) -> bool:
    """Set the fields that `config` says. Returns whether that changed anything."""
    before = config_of(state)
    if config.storage_class is not None:
        state.storage_class = config.storage_class
    if config.age_s is not None:
        state.retention = _with_age(state.retention, config.age_s)
    if config.timestamping is not None:
        state.timestamping = config.timestamping
    if config.uncapped is not None:
        state.uncapped = config.uncapped
    if config.delete_on_empty_s is not None:
        state.delete_on_empty_s = config.delete_on_empty_s
    return config_of(state) != before


def _with_age(retention: Retention | None, age_s: int) -> Retention | None:
    """The other limits, which S2 does not know, stay."""
    known = retention or Retention()
    changed = Retention(age_s or None, known.bytes, known.records)
    return None if changed == Retention() else changed


def config_of(state: StreamState) -> StreamConfig:
    """The whole configuration."""
    age_s = None if state.retention is None else state.retention.age_s
    return StreamConfig(
        storage_class=state.storage_class or SYSTEM_DEFAULTS.storage_class,
        age_s=age_s or FOREVER,
        timestamping=state.timestamping,
        uncapped=state.uncapped,
        delete_on_empty_s=state.delete_on_empty_s,
    )


def judge_bucket(known: BucketConfig | None, command: ProvisionBucket) -> BucketProvisioned:
    """What to do about a bucket, there or not. Raises BucketDeleting and BucketExists."""
    wanted = command.config
    if known is None:
        made = msgspec.structs.replace(wanted, created_at_ms=command.at_ms)
        return BucketProvisioned(Result.CREATED, made)
    _check_kept(command.bucket, known)
    if command.mode is ProvisionMode.CREATE:
        if wanted.creation_token is None or wanted.creation_token != known.creation_token:
            raise BucketExists(command.bucket)
        return BucketProvisioned(Result.NOOP, known)
    ensured = msgspec.structs.replace(
        known,
        stream_defaults=wanted.stream_defaults,
        stream_cipher=wanted.stream_cipher,
        create_on_append=wanted.create_on_append,
        create_on_read=wanted.create_on_read,
    )
    result = Result.NOOP if ensured == known else Result.UPDATED
    return BucketProvisioned(result, ensured)


def reconfigured_bucket(known: BucketConfig, command: ReconfigureBucket) -> BucketConfig:
    """The bucket with the fields that the command says. Raises BucketDeleting."""
    _check_kept(command.bucket, known)
    defaults = known.stream_defaults
    if command.stream_defaults:
        changed = msgspec.structs.asdict(defaults or StreamConfig()) | command.stream_defaults
        defaults = msgspec.convert(changed, StreamConfig)
        if defaults == StreamConfig():
            defaults = None
    fields = msgspec.structs.asdict(known) | command.fields | {"stream_defaults": defaults}
    return msgspec.convert(fields, BucketConfig)


def _check_kept(bucket: str, known: BucketConfig) -> None:
    if known.deleted_at_ms is not None:
        raise BucketDeleting(bucket)
