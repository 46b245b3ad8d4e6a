"""The commands that change buckets themselves. What they do to streams comes later, by other
commands. Ursula: buckets; S2 API: basins.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from headwater.core import provisioning
from headwater.core.buckets import BucketConfig
from headwater.core.commands import (
    Command,
    DeleteBucket,
    DropBucket,
    ProvisionBucket,
    PutBucket,
    ReconfigureBucket,
)
from headwater.core.errors import BucketNotFound, Conflict, NotFound
from headwater.core.names import DURABLE_STREAMS_BUCKET
from headwater.core.provisioning import BucketProvisioned, Result
from headwater.engine.buckets import Buckets
from headwater.engine.effects import Effect


class BucketCommands:
    """Applied as part of a shard, which writes the effects."""

    def __init__(
        self,
        buckets: Buckets,
        *,
        add_effect: Callable[[Effect], None],
        has_streams: Callable[[str], bool],
    ) -> None:
        self._buckets = buckets
        self._add_effect = add_effect
        self._has_streams = has_streams

    def handlers(self) -> dict[type[Command], Callable[[Any], Any]]:
        return {
            PutBucket: self.put,
            DropBucket: self.drop,
            ProvisionBucket: self.provision,
            ReconfigureBucket: self.reconfigure,
            DeleteBucket: self.delete,
        }

    def put(self, command: PutBucket) -> bool:
        """Returns whether it is new. What S2 says of a bucket stays as it is."""
        known = self._buckets.find(command.bucket)
        self._buckets.check_kept(command.bucket)
        if known is None or command.config is not None:
            config = command.config or BucketConfig()
            changed = msgspec.structs.replace(
                known or BucketConfig(created_at_ms=command.at_ms),
                retention=config.retention,
                content_type=config.content_type,
                streams_max=config.streams_max,
                bytes_max=config.bytes_max,
            )
            self._add_effect(self._buckets.put(command.bucket, changed))
        return known is None

    def provision(self, command: ProvisionBucket) -> BucketProvisioned:
        answer = provisioning.judge_bucket(self._buckets.find(command.bucket), command)
        if answer.result is not Result.NOOP:
            self._add_effect(self._buckets.put(command.bucket, answer.config))
        return answer

    def reconfigure(self, command: ReconfigureBucket) -> BucketConfig:
        known = self._known(command)
        config = provisioning.reconfigured_bucket(known, command)
        self._add_effect(self._buckets.put(command.bucket, config))
        return config

    def delete(self, command: DeleteBucket) -> None:
        known = self._known(command)
        _check_removable(command.bucket)
        if known.deleted_at_ms is None:
            config = msgspec.structs.replace(known, deleted_at_ms=command.at_ms)
            self._add_effect(self._buckets.put(command.bucket, config))

    def drop(self, command: DropBucket) -> None:
        bucket = command.bucket
        if self._buckets.find(bucket) is None:
            raise NotFound(f"no such bucket. bucket={bucket}")
        _check_removable(bucket)
        if self._has_streams(bucket):
            raise Conflict(f"the bucket has streams; delete them first. bucket={bucket}")
        self._add_effect(self._buckets.drop(bucket))

    def _known(self, command: Command) -> BucketConfig:
        known = self._buckets.find(command.bucket)
        if known is None:
            raise BucketNotFound(command.bucket)
        return known


def _check_removable(bucket: str) -> None:
    if bucket == DURABLE_STREAMS_BUCKET:
        raise Conflict(f"this bucket is always there. bucket={bucket}")
