"""{root}/__ds/…: the subscription API over its real routes. PROTOCOL §6, §7."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from headwater.core.errors import TooManyRequests
from headwater.core.pending import Pending
from headwater.core.subscription_config import Code
from headwater.dialects.durable import subscriptions as routes
from headwater.engine import subscriptions as engine_subscriptions
from headwater.wire.http import Request, Response
from tests.support.builders import BUCKET
from tests.support.subscriptions import ZERO, Hub

ROOT = "http://127.0.0.1:4437/v1/stream"
SUB = "subscriptions/s"


class Answer(NamedTuple):
    """A response, with its body read."""

    status: int
    headers: dict[str, str]
    json: Any


class Api:
    """Requests as clients make them."""

    def __init__(self) -> None:
        self.hub = Hub()

    def __call__(
        self,
        method: str,
        tail: str,
        body: Any = b"",
        *,
        token: str | None = None,
        query: str = "",
    ) -> Answer:
        headers = {} if token is None else {b"authorization": f"Bearer {token}".encode()}
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        request = Request(method, f"/v1/stream/__ds/{tail}", query, headers, body=raw)
        answer = routes.route(
            self.hub.subscriptions, bucket=BUCKET, root_url=ROOT, request=request, tail=tail
        )
        found = self.hub.result(answer) if isinstance(answer, Pending) else answer
        return _read(found)

    def put(self, tail: str = SUB, **fields: Any) -> Answer:
        whole = {
            "type": "webhook",
            "pattern": "events/*",
            "webhook": {"url": self.hub.receiver.url},
        }
        return self("PUT", tail, whole | fields)

    def put_pull(self, **fields: Any) -> Answer:
        self.hub.create("wake")
        return self.put(type="pull-wake", wake_stream="wake", webhook=None, **fields)


def _read(response: Response) -> Answer:
    pairs = (*response.base.pairs, *response.headers)
    headers = {name.decode(): value.decode() for name, value in pairs}
    assert headers["x-content-type-options"] == "nosniff"
    assert isinstance(response.body, bytes)
    return Answer(response.status, headers, json.loads(response.body) if response.body else None)


@pytest.fixture
def api() -> Iterator[Api]:
    found = Api()
    yield found
    found.hub.abandon()


def code(answer: Answer) -> str:
    found: str = answer.json["error"]["code"]
    assert answer.json["error"]["message"]
    return found


# -- the subscription


def test_a_subscription_is_created_confirmed_read_and_deleted(api: Api) -> None:
    created = api.put(description="d", streams=["b", "a"])
    assert created.status == 201
    assert created.headers["content-type"] == "application/json"
    assert created.headers["cache-control"] == "no-store"
    assert created.json == {
        "id": "s",
        "subscription_id": "s",
        "type": "webhook",
        "pattern": "events/*",
        "streams": [
            {"path": "a", "link_type": "explicit", "acked_offset": ZERO},
            {"path": "b", "link_type": "explicit", "acked_offset": ZERO},
        ],
        "webhook": {
            "url": api.hub.receiver.url,
            "signing": {
                "alg": "ed25519",
                "kid": created.json["webhook"]["signing"]["kid"],
                "jwks_url": f"{ROOT}/__ds/jwks.json",
            },
        },
        "wake_stream": None,
        "lease_ttl_ms": 30_000,
        "created_at": "2023-11-14T22:13:20.000Z",
        "status": "active",
        "description": "d",
        "stream_count": 2,
        "pending_count": 0,
        "generation": 0,
        "holder": None,
        "lease_expires_at": None,
        "failed_attempts": 0,
        "next_attempt_at": None,
        "last_error": None,
    }
    confirmed = api.put(description="d", streams=["a", "b"])
    assert (confirmed.status, confirmed.json) == (200, created.json)
    assert api("GET", SUB) == api("HEAD", SUB)
    assert api("GET", SUB).json == created.json
    conflict = api.put(description="other")
    assert (conflict.status, code(conflict)) == (409, "SUBSCRIPTION_ALREADY_EXISTS")
    assert api("DELETE", SUB).status == 204
    assert api("DELETE", SUB).status == 204
    missing = api("GET", SUB)
    assert (missing.status, code(missing)) == (404, "SUBSCRIPTION_NOT_FOUND")


def test_a_pull_wake_subscription_has_no_webhook(api: Api) -> None:
    created = api.put_pull()
    assert (created.status, created.json["webhook"]) == (201, None)
    assert created.json["wake_stream"] == "wake"


def test_how_delivery_goes_can_be_seen(api: Api) -> None:
    api.put(webhook={"url": "http://127.0.0.1:1/"})
    api.hub.create("events/e", b"1")
    api.hub.settle()
    found = api("GET", SUB).json
    assert (found["status"], found["failed_attempts"], found["generation"]) == ("failed", 1, 1)
    assert found["last_error"] and found["next_attempt_at"].startswith("2023-11-14T22:13:2")


def test_the_keys_are_published(api: Api) -> None:
    kid = api.put().json["webhook"]["signing"]["kid"]
    answer = api("GET", "jwks.json")
    assert answer.status == 200
    assert answer.headers["content-type"] == "application/jwk-set+json"
    assert answer.headers["cache-control"] == "public, max-age=300"
    assert [key["kid"] for key in answer.json["keys"]] == [kid]
    api.hub.result(api.hub.subscriptions.rotate_keys())
    assert [key["kid"] for key in api("GET", "jwks.json").json["keys"]][1] == kid


def test_subscriptions_are_listed(api: Api) -> None:
    assert api("GET", "subscriptions").json == {"subscriptions": [], "has_more": False}
    for name in ("b", "a", "c%2Fd"):
        api.put(f"subscriptions/{name}")
    first = api("GET", "subscriptions", query="limit=2").json
    assert [found["id"] for found in first["subscriptions"]] == ["a", "b"]
    assert first["has_more"] is True
    assert "streams" not in first["subscriptions"][0]
    rest = api("GET", "subscriptions", query="limit=2&after=b").json
    assert [found["id"] for found in rest["subscriptions"]] == ["c/d"]
    assert rest["has_more"] is False
    for limit in ("0", "-1", "x", "9999999999", "²"):
        assert code(api("GET", "subscriptions", query=f"limit={limit}")) == "INVALID_REQUEST"


# -- streams


def test_streams_are_added_and_removed(api: Api) -> None:
    api.put()
    added = api("POST", f"{SUB}/streams", {"streams": ["/manual/b", "manual/c", "ü"]})
    assert (added.status, added.json) == (204, None)
    for path in ("manual%2Fb", "manual/c/", "%C3%BC", "missing"):
        assert api("DELETE", f"{SUB}/streams/{path}").status == 204
    assert api("GET", SUB).json["streams"] == []
    assert code(api("POST", "subscriptions/x/streams", {"streams": []})) == "SUBSCRIPTION_NOT_FOUND"
    assert code(api("DELETE", "subscriptions/x/streams/a")) == "SUBSCRIPTION_NOT_FOUND"


# -- workers


def test_a_worker_claims_acks_and_releases(api: Api) -> None:
    api.put_pull()
    nothing = api("POST", f"{SUB}/claim", {"worker": "w1"})
    assert (nothing.status, code(nothing)) == (409, "NO_PENDING_WORK")
    api.hub.create("events/e", b"1")
    claimed = api("POST", f"{SUB}/claim", {"worker": "w1"})
    assert claimed.status == 200
    assert set(claimed.json) == {"wake_id", "generation", "token", "streams", "lease_ttl_ms"}
    [info] = claimed.json["streams"]
    assert info == {
        "path": "events/e",
        "link_type": "glob",
        "acked_offset": ZERO,
        "tail_offset": info["tail_offset"],
        "has_pending": True,
    }
    busy = api("POST", f"{SUB}/claim", {"worker": "w2"})
    assert (busy.status, code(busy)) == (409, "ALREADY_CLAIMED")
    assert busy.json["error"]["current_holder"] == "w1"
    assert busy.json["error"]["generation"] == 1

    wake = {name: claimed.json[name] for name in ("wake_id", "generation")}
    token = claimed.json["token"]
    ack = wake | {"acks": [{"stream": "events/e", "offset": info["tail_offset"]}]}
    heartbeat = api("POST", f"{SUB}/ack", ack, token=token)
    assert (heartbeat.status, heartbeat.json) == (200, {"ok": True, "next_wake": False})
    assert api("POST", f"{SUB}/release", wake, token=token).status == 204
    stale = api("POST", f"{SUB}/ack", ack, token=token)
    assert (stale.status, code(stale)) == (409, "FENCED")


@pytest.mark.parametrize("name", ["events/a/", "/events/a", "events//"])
def test_a_stream_is_acked_by_the_path_it_was_told_of(api: Api, name: str) -> None:
    api.put_pull(pattern="**")
    api.hub.create(name, b"1")
    claimed = api("POST", f"{SUB}/claim", {"worker": "w1"}).json
    [info] = [info for info in claimed["streams"] if info["has_pending"]]
    assert info["path"] == name
    ack = {
        "wake_id": claimed["wake_id"],
        "generation": claimed["generation"],
        "acks": [{"stream": name, "offset": info["tail_offset"]}],
        "done": True,
    }
    done = api("POST", f"{SUB}/ack", ack, token=claimed["token"])
    assert (done.status, done.json) == (200, {"ok": True, "next_wake": False})


def test_a_webhook_calls_back(api: Api) -> None:
    api.put()
    api.hub.create("events/e", b"1")
    notice = api.hub.notice(1)
    assert notice["callback_url"] == f"{ROOT}/__ds/{SUB}/callback"
    body = {
        "wake_id": notice["wake_id"],
        "generation": notice["generation"],
        "acks": [{"stream": "events/e", "offset": notice["streams"][0]["tail_offset"]}],
        "done": True,
    }
    wrong = body | {"acks": [{"stream": "events/e", "offset": "-1"}]}
    token = notice["callback_token"]
    refused = api("POST", f"{SUB}/callback", wrong, token=token)
    assert (refused.status, code(refused)) == (409, "INVALID_OFFSET")
    assert refused.json["error"]["stream"] == "events/e"
    answer = api("POST", f"{SUB}/callback", body, token=token)
    assert (answer.status, answer.json) == (200, {"ok": True, "next_wake": False})


@pytest.mark.parametrize("action", ["callback", "ack", "release"])
@pytest.mark.parametrize("authorization", [None, "", "x.y"])
def test_a_token_comes_as_a_bearer(api: Api, action: str, authorization: str | None) -> None:
    if action == "callback":
        api.put()
    else:
        api.put_pull()
    answer = api("POST", f"{SUB}/{action}", {}, token=authorization)
    assert (answer.status, code(answer)) == (401, "TOKEN_INVALID")
    assert answer.headers["www-authenticate"] == "Bearer"


# -- what is wrong


@pytest.mark.parametrize(
    ("method", "tail", "allow"),
    [
        ("POST", SUB, "GET, HEAD, PUT, DELETE"),
        ("PATCH", SUB, "GET, HEAD, PUT, DELETE"),
        ("POST", "subscriptions", "GET, HEAD"),
        ("GET", f"{SUB}/streams", "POST"),
        ("GET", f"{SUB}/streams/a", "DELETE"),
        ("PUT", f"{SUB}/callback", "POST"),
        ("GET", f"{SUB}/claim", "POST"),
        ("HEAD", f"{SUB}/ack", "POST"),
        ("DELETE", f"{SUB}/release", "POST"),
        ("PUT", "jwks.json", "GET, HEAD"),
    ],
)
def test_a_path_names_the_methods_it_takes(api: Api, method: str, tail: str, allow: str) -> None:
    answer = api(method, tail)
    assert (answer.status, answer.headers["allow"]) == (405, allow)


@pytest.mark.parametrize(
    "tail",
    [
        "",
        "unknown",
        "subscriptions/",
        "subscriptions/s/unknown",
        "subscriptions/s/claim/more",
        "subscriptions/s//x",
        "jwks.json/",
        "jwks",
    ],
)
def test_elsewhere_there_is_nothing(api: Api, tail: str) -> None:
    assert api("GET", tail).status == 404


@pytest.mark.parametrize(
    ("method", "tail", "body"),
    [
        pytest.param("GET", "subscriptions/%zz", b"", id="bad escape in the id"),
        pytest.param("GET", "subscriptions/a%2", b"", id="escape cut off"),
        pytest.param("GET", "subscriptions/%ff", b"", id="id is not UTF-8"),
        pytest.param("GET", "subscriptions/a%00b", b"", id="NUL in the id"),
        pytest.param("GET", "subscriptions//claim", b"", id="no id"),
        pytest.param("DELETE", f"{SUB}/streams/%E0%A4", b"", id="path is not UTF-8"),
        pytest.param("PUT", SUB, b"", id="no configuration"),
        pytest.param("PUT", SUB, b"{'a'}", id="not JSON"),
        pytest.param("PUT", SUB, b'"\xff"', id="JSON that is not UTF-8"),
        pytest.param("PUT", SUB, b"[" * 100_000, id="JSON that never ends"),
        pytest.param("PUT", SUB, b'{"type": "webhook"}', id="half a configuration"),
        pytest.param("POST", f"{SUB}/streams", b"{}", id="no streams"),
        pytest.param("POST", f"{SUB}/claim", b"[]", id="no worker"),
    ],
)
def test_what_makes_no_sense_is_refused_with_a_reason(
    api: Api, method: str, tail: str, body: bytes
) -> None:
    answer = api(method, tail, body)
    assert (answer.status, code(answer)) == (400, "INVALID_REQUEST")


def test_a_body_that_makes_no_sense_does_not_ack(api: Api) -> None:
    api.put_pull()
    answer = api("POST", f"{SUB}/ack", b'{"generation": "one"}', token="t")
    assert (answer.status, code(answer)) == (400, "INVALID_REQUEST")


def test_an_unsafe_url_is_rejected(api: Api) -> None:
    answer = api.put(webhook={"url": "http://10.0.0.1/hook"})
    assert (answer.status, code(answer)) == (400, "WEBHOOK_URL_REJECTED")


def test_errors_of_the_engine_are_left_to_the_dialect(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_subscriptions, "SUBSCRIPTIONS_MAX", 0)
    with pytest.raises(TooManyRequests):
        api.put()


def test_every_code_has_a_status() -> None:
    assert routes.STATUS.keys() == set(Code)


@pytest.mark.parametrize(
    ("method", "tail", "own"),
    [
        ("POST", f"{SUB}/callback", True),
        ("POST", f"{SUB}/ack", True),
        ("POST", f"{SUB}/release", True),
        ("GET", "jwks.json", True),
        ("HEAD", "jwks.json", True),
        ("POST", f"{SUB}/claim", False),
        ("POST", f"{SUB}/streams", False),
        ("POST", f"{SUB}/x/ack", False),
        ("DELETE", f"{SUB}/ack", False),
        ("GET", SUB, False),
        ("PUT", SUB, False),
        ("GET", "subscriptions", False),
        ("PUT", "jwks.json", False),
    ],
)
def test_some_requests_bring_a_token_of_their_own(method: str, tail: str, own: bool) -> None:
    assert routes.carries_own_token(method, tail) is own
