"""What can be said about a stream beyond its name and type: S2's StreamConfig, flattened.

Each field is optional and None says nothing about it, so one type serves for what a client asks
for, for a bucket's defaults, and for a change. S2 API: StreamConfig.
"""

from __future__ import annotations

import msgspec

CLIENT_PREFER = "client-prefer"
"""A record has the time its writer gave it, or else its arrival."""
CLIENT_REQUIRE = "client-require"
ARRIVAL = "arrival"
TIMESTAMPING_MODES = (CLIENT_PREFER, CLIENT_REQUIRE, ARRIVAL)

FOREVER = 0
"""As an age: records are kept whatever their age."""


class StreamConfig(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Fields are only ever added, with None as default: it is stored in buckets."""

    storage_class: str | None = None
    age_s: int | None = None
    """How long records are kept, or FOREVER."""
    timestamping: str | None = None
    """One of TIMESTAMPING_MODES."""
    uncapped: bool | None = None
    """Times may lie in the future."""
    delete_on_empty_s: int | None = None
    """A stream without records goes when nothing was written for so long; 0 for never."""


SYSTEM_DEFAULTS = StreamConfig(
    storage_class="express",
    age_s=7 * 24 * 3600,
    timestamping=CLIENT_PREFER,
    uncapped=False,
    delete_on_empty_s=0,
)
"""What S2 gives a stream when neither its creator nor its basin says."""


def resolve(*layers: StreamConfig | None) -> StreamConfig:
    """Field by field, what the first layer says that says anything; then the system's defaults."""
    said: dict[str, object] = {}
    for layer in (*layers, SYSTEM_DEFAULTS):
        if layer is not None:
            for field in StreamConfig.__struct_fields__:
                value = getattr(layer, field)
                if value is not None:
                    said.setdefault(field, value)
    return msgspec.convert(said, StreamConfig)
