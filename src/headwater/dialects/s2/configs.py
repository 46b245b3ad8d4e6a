"""Configurations of streams and basins as S2 writes them in JSON, to and from those of core.

One shape serves for what is asked for and for changes: a field that is left out says nothing, in
a change `null` takes back what was said. S2 API: StreamConfig, BasinConfig.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType
from msgspec.structs import replace

from headwater.core.buckets import BucketConfig
from headwater.core.stream_config import FOREVER, SYSTEM_DEFAULTS, StreamConfig
from headwater.dialects.s2.errors import Refused

U64_MAX = 2**64 - 1
STORAGE_CLASSES = ("express", "standard")
"""Both are kept the same way."""

Seconds = Annotated[int, Meta(ge=0)]
"""Up to U64_MAX, which a bound of msgspec cannot say."""
Json = dict[str, object]


class _Timestamping(msgspec.Struct):
    mode: Literal["client-prefer", "client-require", "arrival"] | None | UnsetType = UNSET
    uncapped: bool | None | UnsetType = UNSET


class _DeleteOnEmpty(msgspec.Struct):
    min_age_secs: Seconds | None | UnsetType = UNSET


class _Infinite(msgspec.Struct):
    """An object with nothing in it."""


class _Retention(msgspec.Struct):
    age: Seconds | UnsetType = UNSET
    infinite: _Infinite | UnsetType = UNSET


class StreamBody(msgspec.Struct):
    """A StreamConfig as it is sent."""

    storage_class: str | None | UnsetType = UNSET
    retention_policy: _Retention | None | UnsetType = UNSET
    timestamping: _Timestamping | None | UnsetType = UNSET
    delete_on_empty: _DeleteOnEmpty | None | UnsetType = UNSET


class BasinBody(msgspec.Struct):
    """A BasinConfig as it is sent."""

    default_stream_config: StreamBody | None | UnsetType = UNSET
    stream_cipher: Literal["aegis-256", "aes-256-gcm"] | None | UnsetType = UNSET
    create_stream_on_append: bool | None | UnsetType = UNSET
    create_stream_on_read: bool | None | UnsetType = UNSET


StreamChanges = dict[str, str | int | bool | None]
"""Fields of StreamConfig by name; None takes back what was said."""


def stream_changes(sent: StreamBody | None) -> StreamChanges:
    """What a body says about a stream. Raises Refused for what no stream can be."""
    if sent is None:
        return dict.fromkeys(StreamConfig.__struct_fields__)
    changes: StreamChanges = {}
    if sent.storage_class is not UNSET:
        changes["storage_class"] = _check_storage_class(sent.storage_class)
    if sent.retention_policy is not UNSET:
        changes["age_s"] = _parse_retention(sent.retention_policy)
    timing = _Timestamping(None, None) if sent.timestamping is None else sent.timestamping
    if timing is not UNSET and timing.mode is not UNSET:
        changes["timestamping"] = timing.mode
    if timing is not UNSET and timing.uncapped is not UNSET:
        changes["uncapped"] = timing.uncapped
    empty = _DeleteOnEmpty(None) if sent.delete_on_empty is None else sent.delete_on_empty
    if empty is not UNSET and empty.min_age_secs is not UNSET:
        changes["delete_on_empty_s"] = _check_seconds(empty.min_age_secs)
    return changes


def _check_storage_class(name: str | None) -> str | None:
    if name is not None and name not in STORAGE_CLASSES:
        known = " or ".join(STORAGE_CLASSES)
        raise Refused("invalid", f"storage_class is {known}. received={name[:64]!r}")
    return name


def _parse_retention(policy: _Retention | None) -> int | None:
    if policy is None:
        return None
    if (policy.age is UNSET) == (policy.infinite is UNSET):
        raise Refused("bad_json", "retention_policy is one of age and infinite")
    if policy.age is UNSET:
        return FOREVER
    if policy.age == 0:
        raise Refused("invalid", "a retention age is more than 0 seconds")
    return _check_seconds(policy.age)


def _check_seconds(seconds: int | None) -> int | None:
    if seconds is not None and seconds > U64_MAX:
        raise Refused("bad_json", f"a number of seconds is at most {U64_MAX}")
    return seconds


def stream_config(sent: StreamBody | None) -> StreamConfig:
    """What is asked of a new stream, or of one that is ensured."""
    return msgspec.convert(stream_changes(sent), StreamConfig)


def parse_config_header(text: bytes) -> StreamConfig:
    """`s2-stream-config`. Raises Refused, with the code of a bad header whatever is wrong."""
    try:
        return stream_config(msgspec.json.decode(text, type=StreamBody))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, Refused) as error:
        raise Refused("bad_header", f"s2-stream-config is no StreamConfig: {error}") from None


def bucket_config(sent: BasinBody | None) -> BucketConfig:
    """What is asked of a new basin, or of one that is ensured."""
    sent = sent or BasinBody()
    defaults = stream_config(sent.default_stream_config or StreamBody())
    if defaults != StreamConfig() and defaults.storage_class is None:
        # As it is rendered, so that a basin can be ensured with what it was found to be.
        defaults = replace(defaults, storage_class=SYSTEM_DEFAULTS.storage_class)
    return BucketConfig(
        stream_defaults=None if defaults == StreamConfig() else defaults,
        stream_cipher=sent.stream_cipher or None,
        create_on_append=bool(sent.create_stream_on_append),
        create_on_read=bool(sent.create_stream_on_read),
    )


def bucket_changes(sent: BasinBody) -> tuple[dict[str, str | bool | None], StreamChanges]:
    """What to change: fields of BucketConfig, and of what it says about new streams."""
    fields: dict[str, str | bool | None] = {}
    if sent.stream_cipher is not UNSET:
        fields["stream_cipher"] = sent.stream_cipher
    if sent.create_stream_on_append is not UNSET:
        fields["create_on_append"] = bool(sent.create_stream_on_append)
    if sent.create_stream_on_read is not UNSET:
        fields["create_on_read"] = bool(sent.create_stream_on_read)
    defaults = sent.default_stream_config
    return fields, {} if defaults is UNSET else stream_changes(defaults)


def render_stream_config(config: StreamConfig) -> Json:
    """The fields that are said."""
    rendered: Json = {}
    if config.storage_class is not None:
        rendered["storage_class"] = config.storage_class
    if config.age_s is not None:
        kept_forever = config.age_s == FOREVER
        rendered["retention_policy"] = {"infinite": {}} if kept_forever else {"age": config.age_s}
    timing = {"mode": config.timestamping, "uncapped": config.uncapped}
    timing = {name: value for name, value in timing.items() if value is not None}
    if timing:
        rendered["timestamping"] = timing
    if config.delete_on_empty_s is not None:
        rendered["delete_on_empty"] = {"min_age_secs": config.delete_on_empty_s}
    return rendered


def render_bucket_config(config: BucketConfig) -> Json:
    """Where a basin says anything about new streams, their storage class is told too."""
    streams: Json | None = None
    if config.stream_defaults is not None:
        streams = {"storage_class": SYSTEM_DEFAULTS.storage_class}
        streams |= render_stream_config(config.stream_defaults)
    return {
        "default_stream_config": streams,
        "stream_cipher": config.stream_cipher,
        "create_stream_on_append": config.create_on_append,
        "create_stream_on_read": config.create_on_read,
    }
