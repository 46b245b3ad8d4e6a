"""The stream that a request of the data plane is about, made on the spot where its basin says so.

S2 API: `create_stream_on_append`, `create_stream_on_read`, `s2-stream-config`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from headwater.core.buckets import BucketConfig
from headwater.core.ciphers import SEAL_ID_BYTES
from headwater.core.commands import Provision, ProvisionMode
from headwater.core.errors import BucketDeleting, BucketNotFound, StreamNotFound
from headwater.core.pending import Pending
from headwater.core.provisioning import Provisioned
from headwater.core.stream_config import StreamConfig, resolve
from headwater.dialects.s2.targets import Target
from headwater.engine.engine import Engine
from headwater.engine.steps import follow
from headwater.engine.streams import Stream

T = TypeVar("T")


def find_basin(engine: Engine, basin: str) -> BucketConfig:
    """Raises BucketNotFound and BucketDeleting."""
    found = engine.bucket(basin)
    if found is None:
        raise BucketNotFound(basin)
    if found.deleted_at_ms is not None:
        raise BucketDeleting(basin)
    return found


def use_stream(
    engine: Engine,
    target: Target,
    config: StreamConfig | None,
    use: Callable[[Stream], T | Pending[T]],
    *,
    read_only: bool,
) -> T | Pending[T]:
    """Open a stream for reading, or make it if reads may, and call `use`."""
    basin = find_basin(engine, target.basin)

    def look() -> Stream | None:
        try:
            return engine.open(*target)
        except StreamNotFound:
            if not basin.create_on_read or read_only:
                raise
            return None

    def opened(stream: Stream | None) -> T | Pending[T]:
        if stream is not None:
            return use(stream)
        return follow(make_stream(engine, target, basin, config), reopened)

    def reopened(_: Provisioned) -> T | Pending[T]:
        return use(engine.open(*target))

    return follow(engine.when_settled(*target, look), opened)


def make_stream(
    engine: Engine,
    target: Target,
    basin: BucketConfig,
    config: StreamConfig | None,
    mode: ProvisionMode = ProvisionMode.KEEP,
    creation_token: bytes | None = None,
) -> Pending[Provisioned]:
    """Make a stream with what the request says about it, over what the basin says. `mode` is for
    one that is there already."""
    cipher = basin.stream_cipher
    return engine.provision(
        Provision(
            *target,
            engine.clock.now_ms(),
            mode,
            resolve(config, basin.stream_defaults),
            creation_token,
            cipher,
            None if cipher is None else engine.clock.random_bytes(SEAL_ID_BYTES),
        )
    )


def after(made: Pending[Provisioned], then: Callable[[Provisioned], Pending[T]]) -> Pending[T]:
    """What `then` comes to, once the stream is there."""
    answer: T | Pending[T] = follow(made, then)
    assert isinstance(answer, Pending)
    return answer


def or_make(
    first: Pending[T], *, make: Callable[[], Pending[Provisioned]], again: Callable[[], Pending[T]]
) -> Pending[T]:
    """What `first` comes to; where that is "no such stream", what `again` does after `make`."""
    answer: Pending[T] = Pending()

    def settled(outcome: T | Exception) -> None:
        if isinstance(outcome, StreamNotFound):
            after(make(), lambda _: again()).deliver(answer.complete)
        else:
            answer.complete(outcome)

    first.deliver(settled)
    return answer
