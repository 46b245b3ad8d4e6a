"""The official Python SDK: basins, locations, access tokens and metrics of an account."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from s2_sdk import (
    S2,
    AccessTokenScope,
    AccountMetricSet,
    Accumulation,
    AppendInput,
    BasinConfig,
    BasinMetricSet,
    Encryption,
    EnsureStatus,
    ExactMatch,
    Gauge,
    Label,
    Operation,
    OperationGroupPermissions,
    Permission,
    PrefixMatch,
    S2ServerError,
    Scalar,
    SeqNum,
    StreamConfig,
    StreamMetricSet,
    TimeseriesInterval,
    Timestamping,
    TimestampingMode,
)

from tests.support.s2_sdk import connect, drives, fresh_basin, fresh_name, records, refused

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(60)]

WEEK_S = 7 * 86_400
FULL_CONFIG = BasinConfig(
    default_stream_config=StreamConfig(
        storage_class="standard",
        retention_policy=86_400,
        timestamping=Timestamping(mode=TimestampingMode.CLIENT_REQUIRE, uncapped=True),
        delete_on_empty_min_age=3600,
    ),
    stream_cipher=Encryption.AES_256_GCM,
    create_stream_on_append=True,
    create_stream_on_read=True,
)


@drives(S2.create_basin, S2.get_basin_config)
async def test_a_basin_keeps_the_configuration_it_was_created_with(url: str) -> None:
    async with connect(url) as s2:
        name = fresh_name()
        info = await s2.create_basin(name, config=FULL_CONFIG)
        assert info.name == name
        assert info.deleted_at is None
        assert abs(info.created_at - datetime.now(UTC)) < timedelta(minutes=1)  # noqa: TID251
        assert await s2.get_basin_config(name) == FULL_CONFIG


@drives(S2.create_basin, S2.get_basin_config)
async def test_a_basin_without_a_configuration_creates_no_streams_by_itself(url: str) -> None:
    async with connect(url) as s2:
        name = fresh_name()
        await s2.create_basin(name)
        config = await s2.get_basin_config(name)
        assert config.create_stream_on_append is False
        assert config.create_stream_on_read is False
        assert config.stream_cipher is None


@drives(S2.create_basin)
async def test_a_name_is_taken_once(url: str) -> None:
    async with connect(url) as s2:
        name = fresh_name()
        await s2.create_basin(name)
        with pytest.raises(S2ServerError) as taken:
            await s2.create_basin(name)
        assert (taken.value.status_code, taken.value.code) == (409, "resource_already_exists")


@drives(S2.create_basin, S2.list_locations)
async def test_a_basin_is_put_where_it_was_asked_for(url: str) -> None:
    async with connect(url) as s2:
        for location in await s2.list_locations():
            info = await s2.create_basin(fresh_name(), location=location.name)
            assert info.location == location.name
        with pytest.raises(S2ServerError) as unknown:
            await s2.create_basin(fresh_name(), location="no:such-place")
        assert unknown.value.status_code in (400, 422)


@drives(S2.list_locations, S2.get_default_location, S2.set_default_location)
async def test_a_default_location_is_one_of_the_list(url: str) -> None:
    async with connect(url) as s2:
        locations = await s2.list_locations()
        assert await s2.get_default_location() in locations
        for location in locations:
            assert location.name and location.is_private in (True, False)
            assert await s2.set_default_location(location.name) == location
            assert await s2.get_default_location() == location
        with pytest.raises(S2ServerError):
            await s2.set_default_location("no:such-place")


@drives(S2.ensure_basin)
async def test_ensure_says_what_it_did(url: str) -> None:
    async with connect(url) as s2:
        name = fresh_name()
        first = await s2.ensure_basin(name, config=BasinConfig(create_stream_on_append=True))
        again = await s2.ensure_basin(name, config=BasinConfig(create_stream_on_append=True))
        other = await s2.ensure_basin(name, config=BasinConfig(create_stream_on_read=True))
        assert [each.status for each in (first, again, other)] == [
            EnsureStatus.CREATED,
            EnsureStatus.CONFIG_UNCHANGED,
            EnsureStatus.CONFIG_UPDATED,
        ]
        assert {each.basin.created_at for each in (first, again, other)} == {first.basin.created_at}
        config = await s2.get_basin_config(name)
        assert config.create_stream_on_append is False, "what is left out goes back to its default"
        assert config.create_stream_on_read is True


@drives(S2.ensure_basin)
async def test_ensuring_what_a_basin_already_is_changes_nothing(url: str) -> None:
    async with connect(url) as s2:
        name = fresh_name()
        assert (await s2.ensure_basin(name)).status is EnsureStatus.CREATED
        found = await s2.get_basin_config(name)
        again = await s2.ensure_basin(name, config=found)
        assert again.status is EnsureStatus.CONFIG_UNCHANGED
        assert await s2.get_basin_config(name) == found


@drives(S2.reconfigure_basin)
async def test_reconfiguring_keeps_what_is_not_named(url: str) -> None:
    async with connect(url) as s2:
        name = fresh_name()
        await s2.create_basin(name, config=FULL_CONFIG)
        change = BasinConfig(
            default_stream_config=StreamConfig(retention_policy="infinite"),
            create_stream_on_read=False,
        )
        config = await s2.reconfigure_basin(name, config=change)
        assert config == await s2.get_basin_config(name)
        assert config.create_stream_on_append is True
        assert config.create_stream_on_read is False
        assert config.stream_cipher is Encryption.AES_256_GCM
        streams = config.default_stream_config
        assert streams is not None
        assert streams.retention_policy == "infinite"
        assert streams.storage_class == "standard"
        assert streams.delete_on_empty_min_age == 3600


@drives(S2.list_basins, S2.list_all_basins)
async def test_basins_are_listed_in_order_and_in_pages(url: str) -> None:
    async with connect(url) as s2:
        prefix = fresh_name("page")
        names = [f"{prefix}-{number}" for number in range(3)]
        for name in reversed(names):
            await s2.create_basin(name)
        first = await s2.list_basins(prefix=prefix, limit=2)
        assert ([info.name for info in first.items], first.has_more) == (names[:2], True)
        rest = await s2.list_basins(prefix=prefix, start_after=names[1], limit=2)
        assert ([info.name for info in rest.items], rest.has_more) == (names[2:], False)
        assert [info.name async for info in s2.list_all_basins(prefix=prefix)] == names
        after = [info.name async for info in s2.list_all_basins(start_after=names[0])]
        assert names[0] not in after and names[1] in after
        none = await s2.list_basins(prefix=prefix, start_after=names[2])
        assert (none.items, none.has_more) == ([], False)


@drives(S2.delete_basin, S2.list_all_basins)
async def test_a_deleted_basin_goes_with_its_streams(url: str) -> None:
    async with connect(url) as s2:
        name = fresh_name()
        await s2.create_basin(name)
        await s2.basin(name).create_stream("stream")
        await s2.delete_basin(name)
        await s2.delete_basin(name, ignore_not_found=True)
        assert name not in [info.name async for info in s2.list_all_basins()]
        deleted = [info async for info in s2.list_all_basins(prefix=name, include_deleted=True)]
        assert all(info.deleted_at is not None for info in deleted)
        with pytest.raises(S2ServerError) as gone:
            await s2.basin(name).create_stream("other")
        assert gone.value.code in ("basin_deletion_pending", "basin_not_found")


@drives(S2.delete_basin, S2.get_basin_config, S2.reconfigure_basin)
async def test_a_basin_that_never_was_is_not_found(url: str) -> None:
    async with connect(url) as s2:
        calls = [
            s2.delete_basin("no-such-basin"),
            s2.get_basin_config("no-such-basin"),
            s2.reconfigure_basin("no-such-basin", config=BasinConfig()),
            s2.basin("no-such-basin").create_stream("stream"),
            s2.basin("no-such-basin")["stream"].check_tail(),
        ]
        for call in calls:
            with pytest.raises(S2ServerError) as missing:
                await call
            assert (missing.value.status_code, missing.value.code) == (404, "basin_not_found")
        await s2.delete_basin("no-such-basin", ignore_not_found=True)


@drives(S2.issue_access_token, S2.list_access_tokens, S2.revoke_access_token)
async def test_an_access_token_is_listed_as_it_was_issued_until_it_is_revoked(url: str) -> None:
    async with connect(url) as s2:
        token_id = fresh_name("token")
        expires_at = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=1)  # noqa: TID251
        scope = AccessTokenScope(
            basins=PrefixMatch("basin-"),
            streams=PrefixMatch("tenant/"),
            access_tokens=ExactMatch(""),
            op_groups=OperationGroupPermissions(
                account=Permission.READ, basin=Permission.WRITE, stream=Permission.READ_WRITE
            ),
            ops=[Operation.CHECK_TAIL, Operation.READ],
        )
        token = await s2.issue_access_token(
            token_id, scope=scope, expires_at=expires_at, auto_prefix_streams=True
        )
        assert token
        (info,) = (await s2.list_access_tokens(prefix=token_id)).items
        assert info.id == token_id
        assert info.expires_at == expires_at
        assert info.auto_prefix_streams is True
        assert info.scope.basins == scope.basins
        assert info.scope.streams == scope.streams
        assert info.scope.op_groups == scope.op_groups
        assert set(info.scope.ops) >= set(scope.ops)
        await s2.revoke_access_token(token_id)
        assert (await s2.list_access_tokens(prefix=token_id)).items == []


@pytest.mark.parametrize("operation", Operation)
@drives(S2.issue_access_token)
async def test_every_operation_can_be_granted(url: str, operation: Operation) -> None:
    async with connect(url) as s2:
        token_id = fresh_name("token")
        scope = AccessTokenScope(basins=PrefixMatch(""), streams=PrefixMatch(""), ops=[operation])
        await s2.issue_access_token(token_id, scope=scope)
        (info,) = (await s2.list_access_tokens(prefix=token_id)).items
        assert info.scope.ops == [operation]


@drives(S2.list_access_tokens, S2.list_all_access_tokens)
async def test_access_tokens_are_listed_in_order_and_in_pages(url: str) -> None:
    async with connect(url) as s2:
        prefix = fresh_name("page")
        ids = [f"{prefix}-{number}" for number in range(3)]
        for token_id in reversed(ids):
            scope = AccessTokenScope(streams=PrefixMatch(""), ops=[Operation.READ])
            await s2.issue_access_token(token_id, scope=scope)
        first = await s2.list_access_tokens(prefix=prefix, limit=2)
        assert ([info.id for info in first.items], first.has_more) == (ids[:2], True)
        rest = await s2.list_access_tokens(prefix=prefix, start_after=ids[1])
        assert ([info.id for info in rest.items], rest.has_more) == (ids[2:], False)
        assert [info.id async for info in s2.list_all_access_tokens(prefix=prefix)] == ids


@drives(S2.issue_access_token, S2.revoke_access_token)
async def test_an_access_token_that_could_do_nothing_is_refused(url: str) -> None:
    async with connect(url) as s2:
        with pytest.raises(S2ServerError) as empty:
            await s2.issue_access_token(fresh_name("token"), scope=AccessTokenScope())
        assert empty.value.status_code in (400, 422)
        stream = OperationGroupPermissions(stream=Permission.READ_WRITE)
        with pytest.raises(S2ServerError) as no_prefix:
            await s2.issue_access_token(
                fresh_name("token"),
                scope=AccessTokenScope(op_groups=stream),
                auto_prefix_streams=True,
            )
        assert no_prefix.value.status_code in (400, 422)
        taken = fresh_name("token")
        scope = AccessTokenScope(streams=PrefixMatch(""), op_groups=stream)
        await s2.issue_access_token(taken, scope=scope)
        with pytest.raises(S2ServerError) as twice:
            await s2.issue_access_token(taken, scope=scope)
        assert (twice.value.status_code, twice.value.code) == (409, "resource_already_exists")
        with pytest.raises(S2ServerError) as unknown:
            await s2.revoke_access_token("no-such-token")
        assert (unknown.value.status_code, unknown.value.code) == (404, "access_token_not_found")


def _now_s() -> int:
    return int(datetime.now(UTC).timestamp())  # noqa: TID251


def _last_hour() -> dict[str, int]:
    return {"start": _now_s() - 3600, "end": _now_s() + 60}


NOT_KEPT = {
    BasinMetricSet.STORAGE: [TimeseriesInterval.MINUTE],
    StreamMetricSet.STORAGE: [TimeseriesInterval.HOUR, TimeseriesInterval.DAY],
}
"""By which intervals a set cannot be had."""


@pytest.mark.parametrize("interval", [None, *TimeseriesInterval])
@drives(S2.account_metrics, S2.basin_metrics, S2.stream_metrics)
async def test_every_set_of_metrics_answers(url: str, interval: TimeseriesInterval | None) -> None:
    async with connect(url) as s2:
        name = fresh_name()
        await s2.create_basin(name)
        await s2[name].create_stream("stream")
        await s2[name]["stream"].append(AppendInput(records("one", "two")))
        await s2[name]["stream"].read(start=SeqNum(0))
        ask: dict[str, Any] = {"interval": interval, **_last_hour()}
        calls = (
            [(each, s2.account_metrics(set=each, **ask)) for each in AccountMetricSet]
            + [(each, s2.basin_metrics(name, set=each, **ask)) for each in BasinMetricSet]
            + [
                (each, s2.stream_metrics(name, "stream", set=each, **ask))
                for each in StreamMetricSet
            ]
        )
        found = []
        for each, call in calls:
            if interval in NOT_KEPT.get(each, ()):
                assert await refused(call) == (422, "invalid")
            else:
                found += await call
        assert found
        assert all(isinstance(each, Scalar | Accumulation | Gauge | Label) for each in found)


PERIODS: dict[str, dict[str, int]] = {
    "no start": {"end": 0},
    "no end": {"start": -60},
    "backwards": {"start": 0, "end": -60},
    "future": {"start": 0, "end": 3600},
    "more than a month": {"start": -40 * 86_400, "end": 0},
}


@pytest.mark.parametrize("name", PERIODS)
@drives(S2.account_metrics, S2.basin_metrics, S2.stream_metrics)
async def test_metrics_are_of_a_period_that_is_said_and_can_be(url: str, name: str) -> None:
    async with fresh_basin(url) as basin, connect(url) as s2:
        await basin.create_stream("stream")
        period = {key: _now_s() + seconds for key, seconds in PERIODS[name].items()}
        for call in (
            s2.account_metrics(set=AccountMetricSet.ACTIVE_BASINS, **period),
            s2.basin_metrics(basin.name, set=BasinMetricSet.STORAGE, **period),
            s2.stream_metrics(basin.name, "stream", set=StreamMetricSet.STORAGE, **period),
        ):
            assert await refused(call) == (422, "invalid")


@drives(S2.basin, S2.__getitem__, S2.close)
async def test_a_basin_is_reached_by_name(url: str) -> None:
    s2 = connect(url)
    name = fresh_name()
    await s2.create_basin(name)
    assert s2.basin(name).name == s2[name].name == name
    await s2.close()
