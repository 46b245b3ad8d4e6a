"""The examples of the create page, word for word, and paths of the concepts page, on a real server.

A command is run as curl would run it: only the address is that of the test's server.
"""

from __future__ import annotations

import http.client
import json
import shlex
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from headwater.server.settings import Settings
from tests.support.inprocess import ServingThread, serving

HELLO = "curl -X PUT http://127.0.0.1:4437/demo/hello"
FIRST_ENTRY = r"""curl -X PUT http://127.0.0.1:4437/demo/hello \
  -H 'Content-Type: application/json' \
  --data-binary '{"msg": "first entry"}'"""
EPHEMERAL = r"""curl -X PUT http://127.0.0.1:4437/demo/ephemeral \
  -H 'Stream-TTL: 3600'"""
CHILD = r"""curl -X PUT http://127.0.0.1:4437/demo/child \
  -H 'Stream-Forked-From: demo/hello'"""
SESSION = r"""curl -X PUT http://127.0.0.1:4437/demo/session-1 \
  -H 'Stream-Attrs: {"title":"Support session","metadata":{"purpose":"customer-support"}}'"""


class Shell:
    """Runs curl commands against one server."""

    def __init__(self, server: ServingThread) -> None:
        self._host = urlsplit(server.url).netloc

    def run(self, command: str) -> tuple[int, dict[str, str], bytes]:
        words = iter(shlex.split(command.replace("\\\n", " ")))
        assert next(words) == "curl"
        method, url, headers, body = "GET", "", {"Accept": "*/*"}, None
        for word in words:
            if word == "-X":
                method = next(words)
            elif word == "-H":
                name, _, value = next(words).partition(": ")
                headers[name] = value
            elif word == "--data-binary":
                body = next(words).encode()
            else:
                url = word
        return self.send(method, urlsplit(url).path, headers, body)

    def send(
        self,
        method: str,
        path: str,
        headers: dict[str, str] | None = None,
        body: bytes | None = None,
    ) -> tuple[int, dict[str, str], bytes]:
        connection = http.client.HTTPConnection(self._host, timeout=10)
        try:
            connection.request(method, path, body, headers or {})
            reply = connection.getresponse()
            return reply.status, {k.lower(): v for k, v in reply.getheaders()}, reply.read()
        finally:
            connection.close()


@pytest.fixture
def shell() -> Iterator[Shell]:
    with serving() as server:
        yield Shell(server)


def test_an_empty_stream(shell: Shell) -> None:
    status, headers, body = shell.run(HELLO)
    assert (status, body) == (201, b"")
    assert headers["location"].endswith("/demo/hello")
    assert headers["content-type"] == "application/octet-stream"
    assert shell.run(HELLO)[0] == 200


def test_a_stream_with_a_first_entry(shell: Shell) -> None:
    assert shell.run(FIRST_ENTRY)[0] == 201
    assert shell.run(FIRST_ENTRY)[0] == 200
    assert json.loads(shell.send("GET", "/demo/hello")[2]) == [{"msg": "first entry"}]


def test_the_address_of_the_page_is_the_one_of_a_server_without_settings() -> None:
    settings = Settings()
    assert HELLO.startswith(f"curl -X PUT http://{settings.host}:{settings.port}/")


def test_the_first_two_name_one_stream_with_two_types(shell: Shell) -> None:
    assert shell.run(HELLO)[0] == 201
    assert shell.run(FIRST_ENTRY)[0] == 409


def test_a_stream_with_a_lifetime(shell: Shell) -> None:
    status, headers, _ = shell.run(EPHEMERAL)
    assert (status, headers["stream-ttl"]) == (201, "3600")
    assert 3590 < int(shell.send("HEAD", "/demo/ephemeral")[1]["stream-ttl"]) <= 3600


def test_a_fork(shell: Shell) -> None:
    shell.run(FIRST_ENTRY)
    status, headers, _ = shell.run(CHILD)
    assert (status, headers["content-type"]) == (201, "application/json")
    assert json.loads(shell.send("GET", "/demo/child")[2]) == [{"msg": "first entry"}]


def test_a_stream_with_attributes(shell: Shell) -> None:
    assert shell.run(SESSION)[0] == 201
    assert json.loads(shell.send("GET", "/demo/session-1/attrs")[2]) == {
        "title": "Support session",
        "metadata": {"purpose": "customer-support"},
    }


@pytest.mark.parametrize("path", ["/streams/my-stream", "/events/orders", "/events/a/b"])
def test_paths_of_the_concepts_page(shell: Shell, path: str) -> None:
    given = {"Content-Type": "text/plain"}
    assert shell.send("PUT", path, given)[0] == 201
    assert shell.send("POST", path, given, b"hello")[0] == 204
    assert shell.send("GET", path)[2] == b"hello"


def test_what_is_written_here_is_read_through_the_native_api(shell: Shell) -> None:
    shell.run(FIRST_ENTRY)
    status, _, body = shell.send("GET", "/v1/log/records/demo/hello")
    assert status == 200
    assert json.loads(body)["value"] == {"msg": "first entry"}
    listed = json.loads(shell.send("GET", "/v1/log/streams?bucket=demo")[2])
    assert [found["name"] for found in listed["streams"]] == ["hello"]


def test_what_is_written_here_is_read_through_s2(shell: Shell) -> None:
    shell.run(FIRST_ENTRY)
    status, _, body = shell.send("GET", "/v1/streams/hello/records?seq_num=0", {"s2-basin": "demo"})
    assert status == 200
    (record,) = json.loads(body)["records"]
    assert json.loads(record["body"]) == {"msg": "first entry"}


def test_the_servers_own_paths_are_no_buckets(shell: Shell) -> None:
    assert shell.send("GET", "/health")[0] == 200
    for path in ("/", "/health/x", "/v1/nothing", "/favicon.ico", "/__x/y", "/a%20b"):
        status, _, body = shell.send("GET", path)
        assert (status, json.loads(body)["error"]["code"]) == (404, "not_found")
    assert shell.send("PUT", "/metrics/x")[0] == 404


def test_subscriptions_of_a_bucket(shell: Shell) -> None:
    shell.run(HELLO)
    body = b'{"type":"pull-wake","pattern":"**","wake_stream":"wakes"}'
    given = {"Content-Type": "application/json"}
    shell.send("PUT", "/demo/wakes", given)
    status, _, answer = shell.send("PUT", "/demo/__ds/subscriptions/one", given, body)
    assert status == 201, answer
    assert shell.send("GET", "/demo/__ds/subscriptions/one")[0] == 200
    assert shell.send("GET", "/other/__ds/subscriptions/one")[0] == 404
    assert shell.send("PUT", "/demo/__ds", given)[0] != 201


def test_a_bucket_with_subscriptions_cannot_be_deleted(shell: Shell) -> None:
    given = {"Content-Type": "application/json"}
    shell.run(HELLO)
    shell.send("PUT", "/demo/wakes", given)
    body = b'{"type":"pull-wake","pattern":"**","wake_stream":"wakes"}'
    shell.send("PUT", "/demo/__ds/subscriptions/one", given, body)
    for path in ("/demo/hello", "/demo/wakes"):
        assert shell.send("DELETE", path)[0] == 204
    status, _, answer = shell.send("DELETE", "/demo")
    assert (status, "subscriptions" in json.loads(answer)["error"]["message"]) == (409, True)
    assert shell.send("DELETE", "/demo/__ds/subscriptions/one")[0] == 204
    assert shell.send("DELETE", "/demo")[0] == 204
