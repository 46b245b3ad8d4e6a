"""A whole server with an encrypted bucket: one stream in every dialect, and what it leaves."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from headwater.server.logs import ACCESS, JsonFormatter, TextFormatter
from tests.support.inprocess import serving
from tests.support.keys import CIPHERS, KEY, OTHER_KEY, RAW

BASIN = "basin-with-a-cipher"
SECRET = "a secret that is nowhere to be found"
WITH_KEY = {"s2-encryption-key": KEY, "content-type": "application/json"}
S2 = {"s2-basin": BASIN}


@pytest.fixture
def logged() -> Iterator[io.StringIO]:
    """Everything that is logged meanwhile, in both forms."""
    root, written = logging.getLogger(), io.StringIO()
    handlers = [logging.StreamHandler(written), logging.StreamHandler(written)]
    for handler, formatter in zip(handlers, (JsonFormatter(), TextFormatter()), strict=True):
        handler.setFormatter(formatter)
        root.addHandler(handler)
    before = root.level, ACCESS.level
    root.setLevel(logging.DEBUG)
    ACCESS.setLevel(logging.INFO)
    yield written
    root.setLevel(before[0])
    ACCESS.setLevel(before[1])
    for handler in handlers:
        root.removeHandler(handler)


def client(url: str) -> httpx.Client:
    return httpx.Client(base_url=url, trust_env=False, timeout=10)


def write_everywhere(http: httpx.Client) -> None:
    """The same stream, through each dialect that can write it."""
    path, value = f"/{BASIN}/s", json.dumps({"text": SECRET})
    assert http.put(path, headers=WITH_KEY, content=f"[{value}]").status_code == 201
    assert http.post(path, headers=WITH_KEY, content=value).status_code == 204
    record = {"records": [{"body": value, "headers": [[SECRET, SECRET]]}]}
    appended = http.post("/v1/streams/s/records", headers={**WITH_KEY, **S2}, json=record)
    assert appended.status_code == 200, appended.text
    refused = http.post(path, headers={"content-type": "application/json"}, content=value)
    assert refused.status_code == 400


def read_everywhere(http: httpx.Client, key: str) -> list[httpx.Response]:
    given = {"s2-encryption-key": key}
    return [
        http.get(f"/{BASIN}/s?offset=-1", headers=given),
        http.get(f"/{BASIN}/s?offset=-1&live=long-poll", headers=given),
        http.get(f"/{BASIN}/s/bootstrap", headers=given),
        http.get(f"/v1/log/records/{BASIN}/s", headers=given),
        http.get("/v1/streams/s/records?seq_num=0", headers={**given, **S2}),
        http.get(
            "/v1/streams/s/records?seq_num=0&count=3",
            headers={**given, **S2, "accept": "text/event-stream"},
        ),
    ]


@pytest.mark.parametrize("cipher", CIPHERS)
def test_a_secret_stays_one(cipher: str, tmp_path: Path, logged: io.StringIO) -> None:
    folder = tmp_path / "data"
    with (
        serving(memory=False, data_dir=folder, access_log=True) as server,
        client(server.url) as http,
    ):
        made = http.put(f"/v1/basins/{BASIN}", json={"config": {"stream_cipher": cipher}})
        assert made.status_code == 201
        write_everywhere(http)
        for reply in read_everywhere(http, KEY):
            assert reply.status_code == 200
            assert reply.text.count(SECRET) >= 3, reply.text
            assert "no-store" in reply.headers["cache-control"]
            assert "etag" not in reply.headers
        for reply in read_everywhere(http, OTHER_KEY):
            assert SECRET not in reply.text
            assert "decryption_failed" in reply.text
        pages = [http.get("/metrics").text, http.get("/v1/log/stats").text]
        pages.append(http.get(f"/v1/log/info/{BASIN}/s").text)
    with serving(memory=False, data_dir=folder) as again, client(again.url) as http:
        assert http.get(f"/{BASIN}/s?offset=-1").json()["error"]["code"] == "key_required"
        for reply in read_everywhere(http, KEY):
            assert reply.text.count(SECRET) >= 3
    stored = b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())
    told = "".join([logged.getvalue(), *pages])
    assert BASIN in told and BASIN.encode() in stored
    for hidden in (SECRET, KEY, OTHER_KEY, SECRET[2:12]):
        assert hidden not in told
        assert hidden.encode() not in stored
    assert RAW not in stored


def test_a_page_may_send_a_key() -> None:
    with serving() as server, client(server.url) as http:
        for path in ("/v1/stream/s", f"/{BASIN}/s", "/v1/streams/s/records", "/v1/log/streams"):
            reply = http.options(path)
            allowed = reply.headers["access-control-allow-headers"].lower()
            assert "s2-encryption-key" in allowed
