"""Streams and buckets that are made, ensured and changed by their configuration."""

from __future__ import annotations

import msgspec
import pytest

from headwater.core import provisioning
from headwater.core.buckets import BucketConfig
from headwater.core.commands import Provision, ProvisionBucket, ProvisionMode, ReconfigureBucket
from headwater.core.errors import BucketDeleting, BucketExists, StreamExists, StreamGone
from headwater.core.provisioning import BucketProvisioned, Result
from headwater.core.retention import Retention
from headwater.core.stream_config import ARRIVAL, FOREVER, SYSTEM_DEFAULTS, StreamConfig, resolve
from headwater.core.types import StreamId, TimestampMs
from tests.support.builders import BUCKET, stream_state
from tests.support.clock import START_MS

NOW = TimestampMs(START_MS)
CREATE, ENSURE, KEEP = ProvisionMode


def provision(
    mode: ProvisionMode = CREATE,
    config: StreamConfig = SYSTEM_DEFAULTS,
    token: bytes | None = None,
) -> Provision:
    return Provision(BUCKET, "s", NOW, mode, config, token)


def test_a_new_stream_is_empty_takes_any_bytes_and_has_its_configuration() -> None:
    config = resolve(StreamConfig(age_s=60, timestamping=ARRIVAL, delete_on_empty_s=9))
    command = Provision(BUCKET, "s", NOW, CREATE, config, b"token", "aes-256-gcm", b"seal")
    state = provisioning.provisioned_stream(command, StreamId(7))
    assert (state.id, state.created_at_ms, state.json) == (7, NOW, False)
    assert state.content_type == "application/octet-stream"
    assert provisioning.config_of(state) == config
    assert (state.cipher, state.seal_id) == ("aes-256-gcm", b"seal")
    assert state.creation_token == b"token"


def test_a_stream_of_another_dialect_tells_its_configuration_too() -> None:
    assert provisioning.config_of(stream_state()) == resolve(StreamConfig(age_s=FOREVER))


@pytest.mark.parametrize(
    ("mode", "token", "expected"),
    [
        (CREATE, None, StreamExists),
        (CREATE, b"other", StreamExists),
        (CREATE, b"made", Result.NOOP),
        (KEEP, None, Result.NOOP),
        (ENSURE, None, Result.UPDATED),
    ],
)
def test_a_stream_that_is_there(
    mode: ProvisionMode, token: bytes | None, expected: Result | type[Exception]
) -> None:
    state = stream_state()
    state.creation_token = b"made"
    command = provision(mode, resolve(StreamConfig(age_s=60)), token)
    if isinstance(expected, type) and not isinstance(expected, Result):
        with pytest.raises(expected):
            provisioning.judge_provision(state, command)
    else:
        assert provisioning.judge_provision(state, command) is expected
    assert (state.retention is not None) == (expected is Result.UPDATED)
    assert state.creation_token == b"made"


def test_ensuring_what_is_so_changes_nothing() -> None:
    state = stream_state()
    assert provisioning.judge_provision(state, provision(ENSURE)) is Result.UPDATED
    assert provisioning.judge_provision(state, provision(ENSURE)) is Result.NOOP


def test_a_name_that_is_kept_for_forks_is_not_free() -> None:
    state = stream_state()
    state.deleted = True
    for mode in ProvisionMode:
        with pytest.raises(StreamGone):
            provisioning.judge_provision(state, provision(mode))


def test_only_what_is_said_is_set() -> None:
    state = stream_state()
    assert not provisioning.configure(state, StreamConfig())
    assert provisioning.configure(state, StreamConfig(storage_class="standard"))
    assert provisioning.configure(state, StreamConfig(uncapped=True, delete_on_empty_s=3))
    assert not provisioning.configure(state, StreamConfig(uncapped=True))
    assert provisioning.config_of(state) == resolve(
        StreamConfig(storage_class="standard", age_s=FOREVER, uncapped=True, delete_on_empty_s=3)
    )


def test_an_age_leaves_the_other_limits_of_a_stream_alone() -> None:
    state = stream_state()
    state.retention = Retention(bytes=100)
    assert provisioning.configure(state, StreamConfig(age_s=60))
    assert state.retention == Retention(60, 100)
    assert provisioning.configure(state, StreamConfig(age_s=FOREVER))
    assert state.retention == Retention(bytes=100)
    state.retention = Retention(60)
    assert provisioning.configure(state, StreamConfig(age_s=FOREVER))
    assert state.retention is None


# -- buckets


def judge_bucket(
    known: BucketConfig | None, mode: ProvisionMode, config: BucketConfig
) -> BucketProvisioned:
    return provisioning.judge_bucket(known, ProvisionBucket(BUCKET, "", NOW, mode, config))


def test_a_new_bucket_is_as_it_was_asked_for() -> None:
    wanted = BucketConfig(create_on_append=True, creation_token=b"token")
    for mode in (CREATE, ENSURE):
        answer = judge_bucket(None, mode, wanted)
        assert answer.result is Result.CREATED
        assert answer.config == msgspec.structs.replace(wanted, created_at_ms=NOW)


def test_a_bucket_is_created_again_only_by_the_same_request() -> None:
    made = BucketConfig(created_at_ms=TimestampMs(1), creation_token=b"token")
    again = judge_bucket(made, CREATE, BucketConfig(creation_token=b"token"))
    assert again == BucketProvisioned(Result.NOOP, made)
    for token in (None, b"other"):
        with pytest.raises(BucketExists):
            judge_bucket(made, CREATE, BucketConfig(creation_token=token))
    with pytest.raises(BucketExists):
        judge_bucket(BucketConfig(), CREATE, BucketConfig())


def test_ensuring_replaces_what_s2_knows_and_nothing_else() -> None:
    made = BucketConfig(
        created_at_ms=TimestampMs(1),
        creation_token=b"token",
        streams_max=5,
        create_on_read=True,
        stream_defaults=StreamConfig(age_s=1),
    )
    wanted = BucketConfig(create_on_append=True, stream_cipher="aegis-256")
    answer = judge_bucket(made, ENSURE, wanted)
    assert answer.result is Result.UPDATED
    assert answer.config == BucketConfig(
        created_at_ms=TimestampMs(1),
        creation_token=b"token",
        streams_max=5,
        create_on_append=True,
        stream_cipher="aegis-256",
    )
    assert judge_bucket(answer.config, ENSURE, wanted).result is Result.NOOP


def test_a_bucket_is_changed_field_by_field() -> None:
    known = BucketConfig(create_on_read=True, stream_defaults=StreamConfig(age_s=1, uncapped=True))

    def changed(
        defaults: dict[str, str | int | bool | None], **fields: str | bool | None
    ) -> BucketConfig:
        command = ReconfigureBucket(BUCKET, "", NOW, fields, defaults)
        return provisioning.reconfigured_bucket(known, command)

    assert changed({}) == known
    assert changed({}, create_on_append=True) == msgspec.structs.replace(
        known, create_on_append=True
    )
    assert changed({"age_s": None, "timestamping": ARRIVAL}).stream_defaults == StreamConfig(
        uncapped=True, timestamping=ARRIVAL
    )
    assert changed({"age_s": None, "uncapped": None}).stream_defaults is None


def test_a_bucket_that_is_being_deleted_is_left_alone() -> None:
    gone = BucketConfig(deleted_at_ms=NOW, creation_token=b"token")
    for mode in ProvisionMode:
        with pytest.raises(BucketDeleting):
            judge_bucket(gone, mode, gone)
    with pytest.raises(BucketDeleting):
        provisioning.reconfigured_bucket(gone, ReconfigureBucket(BUCKET, "", NOW))
