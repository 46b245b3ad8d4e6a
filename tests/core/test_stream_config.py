"""What a stream's configuration comes to when several have a say."""

from __future__ import annotations

from headwater.core.stream_config import ARRIVAL, FOREVER, SYSTEM_DEFAULTS, StreamConfig, resolve


def test_the_system_says_what_nobody_else_does() -> None:
    assert resolve() == resolve(None, StreamConfig()) == SYSTEM_DEFAULTS
    assert (
        StreamConfig(
            storage_class="express",
            age_s=604_800,
            timestamping="client-prefer",
            uncapped=False,
            delete_on_empty_s=0,
        )
        == SYSTEM_DEFAULTS
    )


def test_fields_are_resolved_one_by_one_and_the_first_that_says_wins() -> None:
    asked = StreamConfig(age_s=FOREVER, uncapped=False)
    default = StreamConfig(age_s=60, uncapped=True, timestamping=ARRIVAL)
    assert resolve(asked, default) == StreamConfig(
        storage_class="express",
        age_s=FOREVER,
        timestamping=ARRIVAL,
        uncapped=False,
        delete_on_empty_s=0,
    )
