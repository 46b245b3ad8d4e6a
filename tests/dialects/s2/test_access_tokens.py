"""Access tokens over the S2 API, guarding it: issue, list, revoke, scopes, prefixes, sessions.

Over real sockets, since that is where tokens are asked for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest
from s2_sdk import (
    AccessTokenScope,
    AppendInput,
    CommandRecord,
    ExactMatch,
    Operation,
    OperationGroupPermissions,
    Permission,
    PrefixMatch,
    Record,
    S2ServerError,
)

from headwater.core.access import TRAITS
from headwater.core.access import Operation as Known
from headwater.server.auth import SWEEP_S
from tests.support.clock import FakeClock
from tests.support.inprocess import ServingThread, serving
from tests.support.s2 import encode_frame, split_frames
from tests.support.s2_sdk import connect

ROOT = "the root token of this test"
BASIN = "basin-of-tests"
EVERYTHING = {"prefix": ""}
ALL_GROUPS = {group: {"read": True, "write": True} for group in ("account", "basin", "stream")}
ALL = {
    "basins": EVERYTHING,
    "streams": EVERYTHING,
    "access_tokens": EVERYTHING,
    "op_groups": ALL_GROUPS,
}
NOW_MS = 1_800_000_000_000


class Api:
    """The account's API, with one token or another."""

    def __init__(self, server: ServingThread) -> None:
        self.server = server
        limits = httpx.Limits(max_keepalive_connections=0)  # time may pass in between
        self.http = httpx.Client(base_url=server.url, trust_env=False, timeout=10, limits=limits)
        assert self.ask("POST", "basins", json={"basin": BASIN}).status_code == 201

    def ask(self, method: str, path: str, token: str = ROOT, **given: Any) -> httpx.Response:
        headers = {"authorization": f"Bearer {token}", "s2-basin": BASIN}
        headers |= given.pop("headers", {})
        return self.http.request(method, f"/v1/{path}", headers=headers, **given)

    def try_to_issue(self, token: str = ROOT, **body: Any) -> httpx.Response:
        return self.ask("POST", "access-tokens", token, json={"id": "t", "scope": ALL, **body})

    def issue(self, token: str = ROOT, **body: Any) -> str:
        answer = self.try_to_issue(token, **body)
        assert answer.status_code == 201, answer.text
        assert answer.headers["cache-control"] == "no-store"
        text: str = answer.json()["access_token"]
        return text

    def stream(self, name: str) -> None:
        assert self.ask("POST", "streams", json={"stream": name}).status_code == 201


def code(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["code"]


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(NOW_MS)


@pytest.fixture
def api(clock: FakeClock) -> Iterator[Api]:
    with serving(auth=True, root_token=ROOT, clock=clock) as server:
        found = Api(server)
        yield found
        found.http.close()


# -- the three requests


def test_an_expiry_is_listed_as_finely_as_it_was_given(api: Api) -> None:
    for number, finer in enumerate(("", "9", "999001", "975864000")):
        expires_at = f"2030-01-31T12:00:00.123{finer}Z"
        api.issue(id=f"t{number}", expires_at=expires_at)
        (token,) = api.ask("GET", f"access-tokens?prefix=t{number}").json()["access_tokens"]
        assert token["expires_at"] == f"2030-01-31T12:00:00.123{finer[:6]}Z"


def test_a_token_is_issued_listed_and_revoked(api: Api) -> None:
    text = api.issue(id="t1", expires_at="2030-01-31T12:00:00+01:00")
    assert api.ask("GET", "basins", text).status_code == 200
    assert api.ask("GET", "access-tokens").json() == {
        "access_tokens": [
            {
                "id": "t1",
                "expires_at": "2030-01-31T11:00:00.000Z",
                "auto_prefix_streams": False,
                "scope": ALL,
            }
        ],
        "has_more": False,
    }
    revoked = api.ask("DELETE", "access-tokens/t1")
    assert (revoked.status_code, revoked.content) == (204, b"")
    assert code(api.ask("GET", "basins", text)) == (401, "authn")
    assert code(api.ask("DELETE", "access-tokens/t1")) == (404, "access_token_not_found")


def test_lists_come_in_pages(api: Api) -> None:
    for number in range(5):
        api.issue(id=f"t/{number}")
    api.issue(id="other")

    def listed(**query: Any) -> tuple[list[str], bool]:
        body = api.ask("GET", "access-tokens", params=query).json()
        return [token["id"] for token in body["access_tokens"]], body["has_more"]

    assert listed(prefix="t/", limit=2) == (["t/0", "t/1"], True)
    assert listed(prefix="t/", start_after="t/1") == (["t/2", "t/3", "t/4"], False)
    assert listed(limit=0) == (["other", *(f"t/{number}" for number in range(5))], False)
    assert listed(limit=5000, start_after="zz") == ([], False)
    assert code(api.ask("GET", "access-tokens", params={"limit": "x"})) == (400, "bad_query")
    assert code(api.ask("GET", "access-tokens", params={"prefix": "\0"})) == (400, "bad_query")
    assert api.ask("DELETE", "access-tokens/t%2F3").status_code == 204


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"scope": {"basins": EVERYTHING}}, (422, "invalid")),
        ({"scope": {"ops": []}}, (422, "invalid")),
        ({"scope": {"ops": None, "op_groups": {"account": {}}}}, (422, "invalid")),
        ({"auto_prefix_streams": True}, (422, "invalid")),
        (
            {"auto_prefix_streams": True, "scope": {**ALL, "streams": {"exact": "s"}}},
            (422, "invalid"),
        ),
        ({"expires_at": "2020-01-01T00:00:00Z"}, (422, "invalid")),
        ({"expires_at": "tomorrow"}, (400, "bad_json")),
        ({"id": ""}, (400, "bad_json")),
        ({"id": "x" * 97}, (400, "bad_json")),
        ({"id": ".."}, (400, "bad_json")),
        ({"id": 7}, (400, "bad_json")),
        ({"scope": {**ALL, "ops": ["fly"]}}, (400, "bad_json")),
        ({"scope": {**ALL, "basins": {"exact": "a", "prefix": "b"}}}, (400, "bad_json")),
        ({"scope": {**ALL, "basins": {}}}, (400, "bad_json")),
        ({"scope": {**ALL, "basins": {"regex": "a"}}}, (400, "bad_json")),
        ({"scope": {**ALL, "op_groups": {"galaxy": {"read": True}}}}, (400, "bad_json")),
        ({"scope": None}, (400, "bad_json")),
    ],
    ids=repr,
)
def test_what_cannot_be_issued_is_refused(
    api: Api, body: dict[str, Any], expected: tuple[int, str]
) -> None:
    assert code(api.try_to_issue(**body)) == expected
    assert api.ask("GET", "access-tokens").json()["access_tokens"] == []


def test_a_body_that_is_no_json_is_refused(api: Api) -> None:
    for content, kind in ((b"{", "application/json"), (b"{}", "text/plain"), (b"\xff", "a/b")):
        answer = api.ask("POST", "access-tokens", content=content, headers={"content-type": kind})
        assert code(answer) == (400, "bad_json")


def test_an_id_is_taken_once(api: Api) -> None:
    api.issue()
    assert code(api.try_to_issue()) == (409, "resource_already_exists")


# -- what they bound


def test_a_token_issues_no_more_than_itself(api: Api, clock: FakeClock) -> None:
    ops = ["issue-access-token", "list-access-tokens", "revoke-access-token", "read"]
    scope = {"access_tokens": {"prefix": "team-"}, "streams": {"prefix": "team/"}, "ops": ops}
    team = api.issue(id="team", scope=scope, expires_at="2027-01-15T09:00:00Z")
    narrower = {"streams": {"exact": "team/1"}, "ops": ["read"]}
    api.issue(team, id="team-1", scope=narrower)
    for body in (
        {"id": "other", "scope": narrower},
        {"id": "team-2", "scope": {**narrower, "ops": ["append"]}},
        {"id": "team-2", "scope": {**narrower, "streams": EVERYTHING}},
        {"id": "team-2", "scope": {**narrower, "basins": EVERYTHING}},
    ):
        assert code(api.try_to_issue(team, **body)) == (403, "permission_denied"), body
    listed = api.ask("GET", "access-tokens", team).json()["access_tokens"]
    # Its end is the issuer's, since it asked for none.
    assert [(t["id"], t["expires_at"]) for t in listed] == [("team-1", "2027-01-15T09:00:00.000Z")]
    assert code(api.ask("DELETE", "access-tokens/team", team)) == (403, "permission_denied")
    assert api.ask("DELETE", "access-tokens/team-1", team).status_code == 204
    api.server.call(lambda: clock.advance(3601))
    assert code(api.ask("GET", "access-tokens", team)) == (401, "authn")


# Each row of the table of routes, with what it needs besides its own operation.
REQUESTS: list[tuple[str, str, list[str], dict[str, Any]]] = [
    ("GET", "basins", ["list-basins"], {}),
    ("POST", "basins", ["create-basin"], {"json": {"basin": "another-basin"}}),
    ("PUT", f"basins/{BASIN}", ["create-basin", "reconfigure-basin"], {}),
    ("GET", f"basins/{BASIN}", ["get-basin-config"], {}),
    ("PATCH", f"basins/{BASIN}", ["reconfigure-basin"], {"json": {}}),
    ("GET", "streams", ["list-streams"], {}),
    ("POST", "streams", ["create-stream"], {"json": {"stream": "new"}}),
    ("PUT", "streams/new", ["create-stream", "reconfigure-stream"], {}),
    ("GET", "streams/s", ["get-stream-config"], {}),
    ("PATCH", "streams/s", ["reconfigure-stream"], {"json": {}}),
    ("GET", "streams/s/records/tail", ["check-tail"], {}),
    ("GET", "streams/s/records?seq_num=0", ["read"], {}),
    ("POST", "streams/s/records", ["append"], {"json": {"records": [{"body": "x"}]}}),
    ("GET", "access-tokens", ["list-access-tokens"], {}),
    ("DELETE", "access-tokens/spare", ["revoke-access-token"], {}),
    ("GET", "metrics?set=account-ops&start=0&end=9", ["account-metrics"], {}),
    ("GET", f"metrics/{BASIN}?set=basin-ops&start=0&end=9", ["basin-metrics"], {}),
    ("GET", f"metrics/{BASIN}/s?set=storage&start=0&end=9", ["stream-metrics"], {}),
    ("GET", "locations", ["list-locations"], {}),
    ("GET", "locations/default", ["get-default-location"], {}),
    ("PUT", "locations/default", ["set-default-location"], {"json": "local"}),
    ("DELETE", "streams/s", ["delete-stream"], {}),
    ("DELETE", f"basins/{BASIN}", ["delete-basin"], {}),
]


@pytest.mark.parametrize(
    ("method", "path", "ops", "given"), REQUESTS, ids=[f"{row[0]} {row[1]}" for row in REQUESTS]
)
def test_a_request_needs_its_operations_and_no_other(
    api: Api, method: str, path: str, ops: list[str], given: dict[str, Any]
) -> None:
    api.stream("s")
    api.ask("POST", "streams/s/records", json={"records": [{"body": "x"}]})
    api.issue(id="spare")
    names = {"basins": EVERYTHING, "streams": EVERYTHING, "access_tokens": EVERYTHING}
    for missing in ops:
        others = [op.value for op in Known if op.value != missing]
        if missing == "append":
            others = [op for op in others if op not in ("trim", "fence")]
        text = api.issue(id=f"without-{missing}", scope={**names, "ops": others})
        assert code(api.ask(method, path, text, **given)) == (403, "permission_denied")
    text = api.issue(id="just", scope={**names, "ops": ops})
    assert api.ask(method, path, text, **given).is_success


def test_every_operation_of_s2_is_shown_above() -> None:
    shown = {op for _, _, ops, _ in REQUESTS for op in ops}
    elsewhere = {"issue-access-token", "trim", "fence"}
    assert shown | elsewhere == {operation.value for operation in TRAITS}


def test_names_out_of_scope_are_refused_wherever_they_stand(api: Api) -> None:
    api.stream("s")
    scope = {"basins": {"exact": "my-own-basin"}, "streams": {"prefix": "mine/"}}
    text = api.issue(scope={**scope, "op_groups": ALL_GROUPS})
    for method, path, given in (
        ("POST", "basins", {"json": {"basin": "another-basin"}}),
        ("PUT", "basins/another-basin", {}),
        ("DELETE", f"basins/{BASIN}", {}),
        ("GET", "streams", {}),
        ("POST", "streams", {"json": {"stream": "mine/s"}}),
        ("GET", "streams/mine%2Fs/records/tail", {}),
        ("GET", f"metrics/{BASIN}?set=storage", {}),
    ):
        assert code(api.ask(method, path, text, **given)) == (403, "permission_denied"), path
    assert api.ask("POST", "basins", text, json={"basin": "my-own-basin"}).status_code == 201
    mine = {"s2-basin": "my-own-basin"}
    for stream, status in (("mine/s", 201), ("s", 403)):
        answer = api.ask("POST", "streams", text, json={"stream": stream}, headers=mine)
        assert answer.status_code == status
    names = [basin["name"] for basin in api.ask("GET", "basins", text).json()["basins"]]
    assert names == ["my-own-basin"]


def test_lists_of_streams_show_what_is_in_scope(api: Api) -> None:
    for name in ("a", "mine/1", "mine/2", "z"):
        api.stream(name)
    scope = {"basins": EVERYTHING, "streams": {"prefix": "mine/"}, "ops": ["list-streams"]}
    body = api.ask("GET", "streams", api.issue(scope=scope)).json()
    assert [stream["name"] for stream in body["streams"]] == ["mine/1", "mine/2"]


# -- command records


def test_fencing_and_trimming_are_permitted_apart_from_appending(api: Api) -> None:
    async def main() -> None:
        api.stream("s")
        batches = {
            "append": [Record(body=b"x")],
            "fence": [CommandRecord.fence("")],
            "trim": [CommandRecord.trim(0)],
        }
        for op in batches:
            names = {"basins": EVERYTHING, "streams": EVERYTHING, "ops": [op]}
            async with connect(api.server.url, api.issue(id=op, scope=names)) as s2:
                stream = s2.basin(BASIN).stream("s")
                await stream.append(AppendInput(records=batches[op]))
                for other, records in batches.items():
                    if other != op:
                        with pytest.raises(S2ServerError) as refused:
                            await stream.append(AppendInput(records=[*batches[op], *records]))
                        assert refused.value.code == "permission_denied"
                        with pytest.raises(S2ServerError):
                            async with stream.append_session() as session:
                                ticket = await session.submit(AppendInput(records=records))
                                await ticket
        tail = api.ask("GET", "streams/s/records/tail").json()["tail"]["seq_num"]
        assert tail == len(batches)

    asyncio.run(main())


# -- prefixes


def test_a_token_that_prefixes_streams_never_names_its_prefix(api: Api) -> None:
    scope = {"basins": EVERYTHING, "streams": {"prefix": "tenant/1/"}, "op_groups": ALL_GROUPS}
    text = api.issue(scope=scope, auto_prefix_streams=True)
    api.stream("tenant/2/s")

    async def main() -> None:
        async with connect(api.server.url, text) as s2:
            basin = s2.basin(BASIN)
            assert (await basin.create_stream("a")).name == "a"
            await basin.stream("a").append(AppendInput(records=[Record(body=b"x")]))
            assert (await basin.stream("a").check_tail()).seq_num == 1
            await basin.create_stream("b")
            page = await basin.list_streams()
            assert [stream.name for stream in page.items] == ["a", "b"]
            page = await basin.list_streams(prefix="b")
            assert [stream.name for stream in page.items] == ["b"]
            page = await basin.list_streams(start_after="a")
            assert [stream.name for stream in page.items] == ["b"]
            await basin.delete_stream("b")
            # What would be somebody else's whole name is just a name below the prefix.
            with pytest.raises(S2ServerError) as missing:
                await basin.stream("tenant/2/s").check_tail()
            assert missing.value.code == "stream_not_found"

    asyncio.run(main())
    found = api.ask("GET", "streams").json()["streams"]
    assert [stream["name"] for stream in found] == ["tenant/1/a", "tenant/2/s"]
    too_long = api.ask("POST", "streams", text, json={"stream": "x" * 510})
    assert code(too_long) == (400, "bad_json")
    assert code(api.ask("GET", f"streams/{'x' * 510}", text)) == (400, "bad_path")
    ensured = api.ask("PUT", "streams/c", text)
    assert (ensured.status_code, ensured.json()["name"]) == (201, "c")


def test_errors_do_not_name_the_prefix_either(api: Api) -> None:
    scope = {"basins": EVERYTHING, "streams": {"prefix": "tenant/1/"}, "op_groups": ALL_GROUPS}
    text = api.issue(scope=scope, auto_prefix_streams=True)
    assert api.ask("POST", "streams", text, json={"stream": "a"}).status_code == 201
    records = {"json": {"records": [{"body": "x"}]}}
    session = {"headers": {"content-type": "s2s/proto"}}
    for method, path, status, given in (
        ("GET", "streams/none", 404, {}),
        ("PATCH", "streams/none", 404, {"json": {}}),
        ("DELETE", "streams/none", 404, {}),
        ("GET", "streams/none/records/tail", 404, {}),
        ("GET", "streams/none/records", 404, {}),
        ("POST", "streams/none/records", 404, records),
        ("POST", "streams/none/records", 404, session),
        ("GET", f"metrics/{BASIN}/none?set=storage&start=0&end=9", 404, {}),
        ("POST", "streams", 409, {"json": {"stream": "a"}}),
        ("GET", f"streams/{'x' * 510}", 400, {}),
    ):
        answer = api.ask(method, path, text, **given)
        assert answer.status_code == status
        assert "tenant" not in answer.text
        assert "519" not in answer.text


def test_a_bucket_that_is_no_basin_is_hidden_from_those_it_is_not_for(api: Api) -> None:
    headers = {"authorization": f"Bearer {ROOT}"}
    assert api.http.put("/team", headers=headers).status_code == 201
    names = {"streams": EVERYTHING, "op_groups": ALL_GROUPS}
    other = api.issue(id="other", scope={"basins": {"prefix": "x"}, **names})
    own = api.issue(id="own", scope={"basins": {"exact": "team"}, **names})
    for method, path in (("GET", "streams"), ("GET", "basins/{}"), ("GET", "metrics/{}")):
        there, missing = (
            api.ask(method, path.format(name), other, headers={"s2-basin": name})
            for name in ("team", "none")
        )
        assert (there.status_code, there.text) == (missing.status_code, missing.text)
    assert api.ask("GET", "streams", own, headers={"s2-basin": "team"}).status_code == 200


# -- the official SDK


def test_the_official_sdk_issues_lists_and_revokes(api: Api) -> None:
    async def main() -> None:
        scope = AccessTokenScope(
            basins=ExactMatch(BASIN),
            streams=PrefixMatch("s/"),
            op_groups=OperationGroupPermissions(
                account=Permission.READ, stream=Permission.READ_WRITE
            ),
            ops=[Operation.CREATE_STREAM],
        )
        expires = datetime(2030, 1, 1, tzinfo=UTC)
        async with connect(api.server.url, ROOT) as s2:
            text = await s2.issue_access_token("mine", scope=scope, expires_at=expires)
            page = await s2.list_access_tokens()
            (info,) = page.items
            assert (info.id, info.expires_at, info.scope) == ("mine", expires, scope)
            assert [found.id async for found in s2.list_all_access_tokens()] == ["mine"]
            async with connect(api.server.url, text) as mine:
                basin = mine.basin(BASIN)
                await basin.create_stream("s/1")
                await basin.stream("s/1").append(AppendInput(records=[Record(body=b"x")]))
                with pytest.raises(S2ServerError) as refused:
                    await basin.create_stream("other")
                assert (refused.value.status_code, refused.value.code) == (
                    403,
                    "permission_denied",
                )
                await s2.revoke_access_token("mine")
                with pytest.raises(S2ServerError) as unknown:
                    await basin.stream("s/1").check_tail()
                assert (unknown.value.status_code, unknown.value.code) == (401, "authn")

    asyncio.run(main())


# -- sessions


def test_a_session_ends_when_its_token_is_revoked(api: Api, clock: FakeClock) -> None:
    api.stream("s")
    text = api.issue()
    headers = {
        "authorization": f"Bearer {text}",
        "s2-basin": BASIN,
        "accept": "text/event-stream",
    }
    with api.http.stream("GET", "/v1/streams/s/records", headers=headers) as answer:
        assert answer.status_code == 200
        lines = answer.iter_lines()
        assert next(lines) == "event: ping"
        api.ask("DELETE", "access-tokens/t")
        api.server.call(lambda: clock.advance(SWEEP_S))
        api.server.call(lambda: clock.advance(SWEEP_S))
        rest = list(lines)
    assert any("server_draining" in line or "[DONE]" in line for line in rest)


def test_an_append_session_takes_nothing_once_its_token_is_revoked(api: Api) -> None:
    api.stream("s")
    text = api.issue()
    batch = encode_frame(b"\x0a\x03\x1a\x01x")  # one record

    def body() -> Iterator[bytes]:
        yield batch
        while api.ask("GET", "streams/s/records/tail").json()["tail"]["seq_num"] == 0:
            pass
        api.ask("DELETE", "access-tokens/t")
        yield batch

    answer = api.ask(
        "POST",
        "streams/s/records",
        text,
        headers={"content-type": "s2s/proto"},
        content=body(),
    )
    acknowledged, refused = split_frames(answer.content)
    assert acknowledged.ack.end.seq_num == 1
    assert (refused.status, refused.error["code"]) == (401, "authn")
    assert api.ask("GET", "streams/s/records/tail").json()["tail"]["seq_num"] == 1


def test_a_waiting_read_gets_nothing_that_came_after_its_token_was_revoked(api: Api) -> None:
    api.stream("s")
    text = api.issue()
    engine = api.server.server.engine
    with ThreadPoolExecutor(1) as threads:
        read = threads.submit(api.ask, "GET", "streams/s/records?seq_num=0&wait=60", text)
        while not api.server.call(lambda: engine.followers):
            pass
        api.ask("DELETE", "access-tokens/t")
        api.ask("POST", "streams/s/records", json={"records": [{"body": "news"}]})
        answer = read.result(10)
    assert code(answer) == (401, "authn")
    assert "news" not in answer.text
