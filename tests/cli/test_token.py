"""`headwater token`: the first token offline, the others through a server."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import httpx
import pytest

from headwater.cli.main import main
from tests.support.inprocess import ServingThread, serving

ROOT = "the root token of this test"


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(["token", *arguments])
    shown = capsys.readouterr()
    return code, shown.out, shown.err


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ServingThread]:
    with serving(auth=True, root_token=ROOT) as server:
        monkeypatch.setenv("HEADWATER_URL", server.url)
        monkeypatch.setenv("HEADWATER_TOKEN", ROOT)
        yield server


def get(server: ServingThread, path: str, token: str) -> int:
    headers = {"authorization": f"Bearer {token}"}
    return httpx.get(server.url + path, headers=headers, trust_env=False).status_code


def test_the_first_token_opens_the_server_that_starts_on_the_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = str(tmp_path / "data")
    code, out, err = run(capsys, "init", "--data-dir", folder)
    assert (code, err) == (0, "")
    (token,) = out.split()
    with serving(auth=True, memory=False, data_dir=folder) as server:
        assert get(server, "/v1/log/streams", token) == 200
        assert get(server, "/v1/log/streams", token + "x") == 401
        assert run(capsys, "init", "--data-dir", folder, "--id", "other")[0] == 1


def test_the_id_of_the_first_token_is_taken_then_but_another_is_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = str(tmp_path)
    assert run(capsys, "init", "--data-dir", folder)[0] == 0
    code, out, err = run(capsys, "init", "--data-dir", folder)
    assert (code, out) == (1, "")
    assert err == "headwater: there is an access token of this id. id=root\n"
    assert run(capsys, "init", "--data-dir", folder, "--id", "second")[0] == 0
    assert run(capsys, "init", "--data-dir", folder, "--id", "..")[0] == 1


def test_a_token_is_issued_listed_and_revoked(
    server: ServingThread, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = run(
        capsys,
        "issue",
        "a/b",
        *("--basins", "*", "--streams", "mine/*", "--access-tokens", "x"),
        *("--groups", "basin=r,stream=rw", "--ops", "create-stream,delete-stream"),
        *("--expires-at", "2999-01-01T00:00:00Z", "--auto-prefix-streams"),
    )
    assert code == 0
    token = out.strip()
    assert get(server, "/v1/log/streams", token) == 200
    code, out, _ = run(capsys, "list", "--prefix", "a")
    assert code == 0
    assert json.loads(out) == {
        "id": "a/b",
        "expires_at": "2999-01-01T00:00:00.000Z",
        "auto_prefix_streams": True,
        "scope": {
            "basins": {"prefix": ""},
            "streams": {"prefix": "mine/"},
            "access_tokens": {"exact": "x"},
            "op_groups": {
                "basin": {"read": True, "write": False},
                "stream": {"read": True, "write": True},
            },
            "ops": ["create-stream", "delete-stream"],
        },
    }
    assert run(capsys, "revoke", "a/b") == (0, "", "")
    assert get(server, "/v1/log/streams", token) == 401
    assert run(capsys, "list") == (0, "", "")


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("revoke", "none"), 1, "404: no such access token. id=none"),
        (("issue", "t"), 1, "422: Access token permissions cannot be empty"),
        (("list", "--token", "wrong"), 1, "401: the access token is not known here"),
        (("list", "--url", "http://127.0.0.1:1"), 1, "cannot reach http://127.0.0.1:1"),
        (("list", "--url", "http://127.0.0.1:x"), 1, "cannot reach http://127.0.0.1:x"),
        (("list", "--url", "ftp://x"), 2, "the URL of a server begins with http://"),
        (("issue", "t", "--groups", "streams=rw"), 2, "--groups is a list such as"),
        (("issue", "t", "--ops", "nothing"), 1, "400: the body is not what this request needs"),
    ],
)
def test_what_goes_wrong_is_one_line(
    server: ServingThread,
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
    code: int,
    message: str,
) -> None:
    found, out, err = run(capsys, *arguments)
    assert (found, out) == (code, "")
    assert err.startswith(f"headwater: {message}")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        pytest.param(b"", "cannot reach", id="none, as from one that speaks TLS"),
        pytest.param(b"SSH-2.0-x\r\n", "cannot reach", id="not HTTP"),
        pytest.param(b"HTTP/1.1 200 OK\r\n\r\n<html>", "what answers at", id="a web page"),
    ],
)
def test_another_server_is_told_apart_in_one_line(
    capsys: pytest.CaptureFixture[str], answer: bytes, message: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = Thread(target=answer_once, args=(listening, answer))
        thread.start()
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        code, out, err = run(capsys, "list", "--url", url)
        thread.join()
    assert (code, out) == (1, "")
    assert err.startswith(f"headwater: {message} {url}")
    assert err.count("\n") == 1


def answer_once(listening: socket.socket, answer: bytes) -> None:
    connection, _ = listening.accept()
    with connection:
        connection.recv(1 << 16)
        connection.sendall(answer)
