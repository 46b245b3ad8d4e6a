"""The official Python SDK with authentication on, and with basins that are named by host."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from s2_sdk import (
    S2,
    AccessTokenScope,
    AppendInput,
    CommandRecord,
    Endpoints,
    ExactMatch,
    Operation,
    OperationGroupPermissions,
    Permission,
    PrefixMatch,
    S2ServerError,
    SeqNum,
)

from tests.support.s2_sdk import bodies, connect, drives, fresh_name, read_all, records, refused
from tests.support.server import ServerProcess

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(60)]

ROOT = "a-token-that-permits-everything"
DOMAIN = "basins.example"
STREAM_READ_WRITE = OperationGroupPermissions(stream=Permission.READ_WRITE)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    folder = tmp_path_factory.mktemp("s2") / "data"
    flags = ("--auth", "--s2-domain", DOMAIN)
    with ServerProcess(folder, *flags, env={"HEADWATER_ROOT_TOKEN": ROOT}) as server:
        yield server


async def issue(s2: S2, scope: AccessTokenScope, **options: Any) -> tuple[str, str]:
    """A new token: its id and itself."""
    token_id = fresh_name("token")
    token: str = await s2.issue_access_token(token_id, scope=scope, **options)
    return token_id, token


async def create(s2: S2, *streams: str) -> str:
    """A new basin with these streams."""
    name = fresh_name()
    await s2.create_basin(name)
    for stream in streams:
        await s2[name].create_stream(stream)
    return name


@drives(S2.issue_access_token)
async def test_nothing_goes_without_a_token_that_is_known(url: str) -> None:
    async with connect(url, "nobody gave me this") as stranger:
        for call in (
            stranger.list_basins(),
            stranger.create_basin("basin-of-nobody"),
            stranger["basin-of-nobody"]["stream"].append(AppendInput(records("a"))),
        ):
            assert await refused(call) == (401, "authn")
        with pytest.raises(S2ServerError) as session:
            await read_all(stranger["basin-of-nobody"]["stream"])
        assert session.value.status_code == 401


@drives(S2.issue_access_token)
async def test_a_token_permits_what_its_scope_says(url: str) -> None:
    async with connect(url, ROOT) as root:
        basin = await create(root, "stream", "other")
        scope = AccessTokenScope(
            basins=ExactMatch(basin),
            streams=ExactMatch("stream"),
            ops=[Operation.READ, Operation.CHECK_TAIL],
        )
        _, token = await issue(root, scope)
        await root[basin]["stream"].append(AppendInput(records("a")))
        async with connect(url, token) as reader:
            stream = reader[basin]["stream"]
            assert (await stream.check_tail()).seq_num == 1
            assert bodies((await stream.read(start=SeqNum(0))).records) == [b"a"]
            assert bodies(await read_all(stream)) == [b"a"]
            for call in (
                stream.append(AppendInput(records("b"))),
                reader[basin]["other"].check_tail(),
                reader[basin].create_stream("more"),
                reader.create_basin(fresh_name()),
                reader.list_access_tokens(),
            ):
                assert await refused(call) == (403, "permission_denied")
        assert (await root[basin]["stream"].check_tail()).seq_num == 1


@drives(S2.issue_access_token)
async def test_commands_are_permitted_apart_from_appends(url: str) -> None:
    async with connect(url, ROOT) as root:
        basin = await create(root, "stream")
        scope = AccessTokenScope(
            basins=PrefixMatch(""), streams=PrefixMatch(""), ops=[Operation.APPEND]
        )
        _, token = await issue(root, scope)
        async with connect(url, token) as writer:
            stream = writer[basin]["stream"]
            await stream.append(AppendInput(records("a")))
            for command in (CommandRecord.fence("mine"), CommandRecord.trim(1)):
                call = stream.append(AppendInput([command]))
                assert await refused(call) == (403, "permission_denied")
            assert (await root[basin]["stream"].check_tail()).seq_num == 1


@drives(S2.issue_access_token, S2.list_access_tokens)
async def test_a_prefix_can_be_put_before_the_names_of_streams(url: str) -> None:
    async with connect(url, ROOT) as root:
        basin = await create(root, "tenant-2/secret")
        scope = AccessTokenScope(
            basins=ExactMatch(basin),
            streams=PrefixMatch("tenant-1/"),
            op_groups=STREAM_READ_WRITE,
            ops=[Operation.CREATE_STREAM, Operation.LIST_STREAMS, Operation.GET_STREAM_CONFIG],
        )
        _, token = await issue(root, scope, auto_prefix_streams=True)
        async with connect(url, token) as tenant:
            assert (await tenant[basin].create_stream("mine")).name == "mine"
            async with tenant[basin]["mine"].append_session() as session:
                await session.submit(AppendInput(records("a")))
            assert bodies(await read_all(tenant[basin]["mine"])) == [b"a"]
            assert [info.name for info in (await tenant[basin].list_streams()).items] == ["mine"]
            assert (await refused(tenant[basin]["secret"].check_tail()))[0] == 404
        names = [info.name for info in (await root[basin].list_streams()).items]
        assert names == ["tenant-1/mine", "tenant-2/secret"]


@drives(S2.revoke_access_token)
async def test_a_token_that_was_revoked_permits_nothing(url: str) -> None:
    async with connect(url, ROOT) as root:
        account = OperationGroupPermissions(account=Permission.READ_WRITE)
        scope = AccessTokenScope(basins=PrefixMatch(""), op_groups=account)
        token_id, token = await issue(root, scope)
        async with connect(url, token) as other:
            await other.list_basins()
            await root.revoke_access_token(token_id)
            assert await refused(other.list_basins()) == (401, "authn")


@drives(S2.issue_access_token)
async def test_a_token_lives_no_longer_than_the_one_that_issued_it(url: str) -> None:
    async with connect(url, ROOT) as root:
        soon = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=1)  # noqa: TID251
        scope = AccessTokenScope(
            basins=PrefixMatch(""),
            streams=PrefixMatch(""),
            access_tokens=PrefixMatch(""),
            op_groups=OperationGroupPermissions(
                account=Permission.READ_WRITE, stream=Permission.READ_WRITE
            ),
        )
        _, token = await issue(root, scope, expires_at=soon)
        narrower = AccessTokenScope(streams=PrefixMatch(""), ops=[Operation.READ])
        async with connect(url, token) as issuer:
            for wanted in (None, soon + timedelta(hours=1), soon - timedelta(minutes=30)):
                child_id, _ = await issue(issuer, narrower, expires_at=wanted)
                (child,) = (await issuer.list_access_tokens(prefix=child_id)).items
                assert child.expires_at == min(wanted or soon, soon)


@drives(S2.basin)
async def test_a_basin_may_be_named_by_host(
    server: ServerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    resolve = socket.getaddrinfo

    def loopback(host: str, *rest: Any, **options: Any) -> Any:
        return resolve("127.0.0.1" if str(host).endswith(DOMAIN) else host, *rest, **options)

    monkeypatch.setattr(socket, "getaddrinfo", loopback)
    endpoints = Endpoints(account=server.url, basin=f"http://{{basin}}.{DOMAIN}:{server.port}")
    async with S2(ROOT, endpoints=endpoints) as s2:
        basin = await create(s2, "stream")
        await s2[basin]["stream"].append(AppendInput(records("a")))
        assert bodies(await read_all(s2[basin]["stream"])) == [b"a"]
