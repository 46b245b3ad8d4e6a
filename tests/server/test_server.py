"""A whole server over real sockets: its own pages, its limits, and how it ends."""

from __future__ import annotations

import asyncio
import errno
import logging
import re
import socket
import ssl
import threading
from datetime import UTC, datetime
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from headwater.engine.engine import Engine
from headwater.server.app import Server
from headwater.server.listening import StartFailed
from headwater.server.probes import Probes
from headwater.server.settings import Settings
from headwater.storage import keys
from headwater.storage.memory import MemoryStore
from headwater.version import VERSION
from tests.support.clock import FakeClock
from tests.support.inprocess import running, serving
from tests.support.stores import DiskError, FaultyStore

TEXT = {"content-type": "text/plain"}


def client(url: str, **options: Any) -> httpx.Client:
    return httpx.Client(base_url=url, trust_env=False, timeout=10, **options)


def put(url: str, name: str = "a") -> httpx.Response:
    with client(url) as http:
        return http.put(f"/v1/stream/{name}", headers=TEXT, content=b"hello")


def figures(url: str) -> dict[str, float]:
    with client(url) as http:
        page = http.get("/metrics")
    assert page.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    found = re.findall(r"^([a-z][^ ]*) (\S+)$", page.text, re.MULTILINE)
    return {name: float(value) for name, value in found}


# -- its own pages


def test_health_and_readiness() -> None:
    with serving() as server, client(server.url) as http:
        assert http.get("/health").json() == {"status": "ok", "version": VERSION}
        assert http.get("/ready").json() == {"status": "ready"}
        assert http.head("/ready").status_code == 200


def probe_with(**changes: Any) -> tuple[int, dict[str, str]]:
    async def look() -> tuple[int, dict[str, str]]:
        loop = asyncio.get_running_loop()
        engine = Engine(
            MemoryStore(),
            FakeClock(),
            loop,
            disk_reserve_bytes=100,
            free_bytes=lambda: changes.get("free_bytes", 1000),
        )
        engine.start()
        engine.committer.failed = changes.get("failed", False)
        probes = Probes(engine)
        probes.draining = changes.get("draining", False)
        response = probes.ready()
        assert isinstance(response.body, bytes)
        return response.status, httpx.Response(200, content=response.body).json()

    return asyncio.run(look())


def test_a_server_that_is_stopping_is_not_ready() -> None:
    status, page = probe_with(draining=True)
    assert (status, page["status"]) == (503, "draining")


def test_a_server_whose_storage_failed_is_not_ready() -> None:
    status, page = probe_with(failed=True, draining=True)
    assert (status, page["status"]) == (503, "failed")


def test_a_server_short_of_disk_is_ready_and_says_so() -> None:
    status, page = probe_with(free_bytes=10)
    assert (status, page["status"]) == (200, "ready")
    assert "disk space is low" in page["warning"]


def test_the_metrics_page_counts_what_happened() -> None:
    with serving() as server:
        before = figures(server.url)
        put(server.url)
        with client(server.url) as http:
            http.post("/v1/stream/a", headers=TEXT, content=b"12345")
            http.get("/v1/stream/missing")
        after = figures(server.url)

    def grown(name: str) -> float:
        return after[name] - before.get(name, 0)

    assert grown("headwater_appends_total") == 1
    assert grown("headwater_append_bytes_total") == 5
    assert grown("headwater_commit_commands_total") == 2
    assert grown("headwater_commit_seconds_count") == 2
    assert grown('headwater_commit_seconds_bucket{le="5.0"}') == 2
    assert after["headwater_queue_commands"] == after["headwater_queue_bytes"] == 0
    assert grown('headwater_requests_total{method="write",status="2xx"}') == 2
    assert grown('headwater_requests_total{method="read",status="4xx"}') == 1
    assert after["headwater_hot_streams"] == 1
    assert after["headwater_connections"] == 1
    assert after["headwater_store_bytes"] > before["headwater_store_bytes"]
    assert after["headwater_ready"] == 1
    assert after[f'headwater_info{{version="{VERSION}"}}'] == 1
    assert after["headwater_rate_limited_total"] == 0
    assert after["process_resident_memory_bytes"] > 0


def test_the_metrics_page_covers_rocksdb(tmp_path: Path) -> None:
    with serving(memory=False, data_dir=str(tmp_path / "data")) as server:
        await_first_writes(server.url)
        before = figures(server.url)
        put(server.url)
        found = figures(server.url)
    assert found["headwater_sync_seconds_count"] == before["headwater_sync_seconds_count"] + 1
    assert found["headwater_store_memtable_bytes"] > 0
    assert (tmp_path / "data" / "shard-000" / "CURRENT").exists()


def test_errors_of_the_http_layer_carry_the_security_headers() -> None:
    with serving() as server, socket.create_connection(_address(server.url)) as raw:
        raw.sendall(b"GET / HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n")
        answer = _read_all(raw)
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"x-content-type-options: nosniff\r\n" in answer
    assert b'"code":"bad_request"' in answer


# -- settings that the whole server must honour


def test_the_rate_limit_is_per_second_and_client() -> None:
    clock = FakeClock()
    with serving(clock=clock, requests_per_second_max=2) as server, client(server.url) as http:
        statuses = [http.get("/v1/stream/a").status_code for _ in range(3)]
        assert statuses == [404, 404, 429]
        server.call(lambda: clock.advance(0.5))
        assert http.get("/v1/stream/a").status_code == 404
        assert figures(server.url)["headwater_rate_limited_total"] == 1


def test_one_connection_too_many_is_closed_at_once() -> None:
    with serving(connections_max=1) as server, client(server.url) as http:
        assert http.get("/health").status_code == 200
        with socket.create_connection(_address(server.url)) as second:
            assert _read_all(second) == b""
        page = http.get("/metrics").text
        assert "headwater_connections_refused_total 1.0" in page
        assert "headwater_connections_max 1.0" in page


def test_a_trusted_proxy_decides_what_location_says() -> None:
    forwarded = {"x-forwarded-proto": "https", "x-forwarded-host": "streams.example"}
    with serving(trusted_proxies="127.0.0.1") as server, client(server.url) as http:
        created = http.put("/v1/stream/a", headers={**TEXT, **forwarded})
    assert created.headers["location"] == "https://streams.example/v1/stream/a"


def test_the_public_url_decides_before_all() -> None:
    with serving(public_url="https://streams.example") as server:
        assert put(server.url).headers["location"] == "https://streams.example/v1/stream/a"


def test_a_read_only_server_refuses_writes() -> None:
    with serving(read_only=True) as server:
        assert put(server.url).status_code == 405


def test_listed_origins_are_the_only_ones_allowed() -> None:
    with serving(cors_origins="https://app.example") as server, client(server.url) as http:
        ours = http.get("/v1/stream/a", headers={"origin": "https://app.example"})
        other = http.options("/v1/stream/a", headers={"origin": "https://other.example"})
    assert ours.headers["access-control-allow-origin"] == "https://app.example"
    assert "access-control-allow-methods" not in other.headers


def test_the_access_log_has_a_line_per_response(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "headwater.access")
    with serving(access_log=True) as server, client(server.url) as http:
        http.get("/health", headers={"x-request-id": "mine"})
    assert [record.__dict__["request"].id for record in caplog.records] == ["mine"]


def test_localhost_is_served_on_one_port() -> None:
    with serving(host="localhost") as server:
        port = httpx.URL(server.url).port
        assert httpx.get(f"http://localhost:{port}/health", trust_env=False).status_code == 200


def test_https(tmp_path: Path) -> None:
    cert, key = make_certificate(tmp_path)
    trusting = ssl.create_default_context(cafile=str(cert))
    with serving(tls_cert=str(cert), tls_key=str(key)) as server:
        assert server.url.startswith("https://127.0.0.1:")
        with client(server.url, verify=trusting) as http:
            created = http.put("/v1/stream/a", headers=TEXT)
    assert created.headers["location"] == f"{server.url}/v1/stream/a"


# -- what keeps it from starting


def start_fails(**settings: Any) -> str:
    async def start() -> None:
        async with running(**settings):
            raise AssertionError("it started")

    with pytest.raises(StartFailed) as caught:
        asyncio.run(start())
    return str(caught.value)


def test_a_port_that_is_taken() -> None:
    with serving() as server:
        port = httpx.URL(server.url).port
        reason = start_fails(port=port)
    assert reason.startswith(f"cannot listen on 127.0.0.1 port {port}: the port is in use")


def test_a_host_that_is_not_ours() -> None:
    assert "cannot listen on 192.0.2.1 port 0: " in start_fails(host="192.0.2.1")


def test_a_host_that_nobody_knows() -> None:
    assert "cannot listen on nowhere.invalid port 0: " in start_fails(host="nowhere.invalid")


def test_a_data_folder_in_use(tmp_path: Path) -> None:
    folder = str(tmp_path / "data")
    with serving(memory=False, data_dir=folder):
        reason = start_fails(memory=False, data_dir=folder)
    assert reason == f"the data folder {folder} is in use by another server"


def test_a_data_folder_that_is_a_file(tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.write_text("")
    reason = start_fails(memory=False, data_dir=str(path))
    assert reason == f"cannot use the data folder {path}: not a directory"


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(PermissionError(errno.EACCES, "Permission denied"), id="folder"),
        pytest.param(
            Exception("IO error: While open a file for lock: /d/LOCK: Permission denied"), id="file"
        ),
    ],
)
def test_a_data_folder_without_permission(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("headwater.storage.rocks.RocksStore", refuse)
    reason = start_fails(memory=False, data_dir="/d")
    assert reason == "cannot use the data folder /d: permission denied"


def test_a_data_folder_that_is_damaged(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    with serving(memory=False, data_dir=str(folder)):
        pass
    (folder / "shard-000" / "CURRENT").write_text("garbage\n")
    reason = start_fails(memory=False, data_dir=str(folder))
    assert reason.startswith(f"cannot open the data folder {folder}: Corruption: ")
    assert reason.endswith(" (see headwater recover)")


def test_a_data_folder_of_another_format() -> None:
    store = MemoryStore()
    batch = store.batch()
    batch.put(keys.FORMAT, b"99")
    store.write(batch)
    assert "has format '99'" in start_fails(store=store)


def test_a_certificate_that_is_not_there(tmp_path: Path) -> None:
    missing = str(tmp_path / "cert.pem")
    reason = start_fails(tls_cert=missing, tls_key=missing)
    assert reason.startswith(f"cannot read TLS certificate {missing} ")


def test_a_certificate_that_is_none(tmp_path: Path) -> None:
    path = tmp_path / "cert.pem"
    path.write_text("nothing")
    reason = start_fails(tls_cert=str(path), tls_key=str(path))
    assert reason.startswith(f"cannot use TLS certificate {path} ")


def test_what_failed_to_start_leaves_the_folder_free(tmp_path: Path) -> None:
    folder = str(tmp_path / "data")
    with serving() as other:
        port = httpx.URL(other.url).port
        start_fails(port=port, memory=False, data_dir=folder)
    with serving(memory=False, data_dir=folder) as server:
        assert put(server.url).status_code == 201


# -- how it ends


class WatchedStore(FaultyStore):
    """Tells when a sync has begun."""

    def __init__(self) -> None:
        super().__init__()
        self.syncing = threading.Event()

    def sync(self) -> None:
        self.syncing.set()
        super().sync()


def await_first_writes(url: str) -> None:
    """A new server makes its keys; whoever asks for them is answered once they are on disk."""
    with client(url) as http:
        assert http.get("/v1/stream/__ds/jwks.json").status_code == 200


def test_stopping_finishes_the_commit_under_way_and_answers() -> None:
    store = WatchedStore()
    with serving(store=store) as server:
        await_first_writes(server.url)
        store.syncing.clear()
        store.hold_syncs()
        answers: list[httpx.Response] = []
        writer = threading.Thread(target=lambda: answers.append(put(server.url)))
        writer.start()
        assert store.syncing.wait(10)
        stopped = server.stop_soon()
        with pytest.raises(OSError):
            socket.create_connection(_address(server.url))
        store.release_syncs()
        assert stopped.result(10) is True
        writer.join()
    assert [answer.status_code for answer in answers] == [201]


def test_stopping_ends_live_responses() -> None:
    with serving() as server:
        put(server.url)
        live = "/v1/stream/a?offset=now&live=sse"
        with client(server.url) as http, http.stream("GET", live) as response:
            lines = response.iter_lines()
            assert next(lines) == "event: control"
            stopped = server.stop_soon()
            assert len(list(lines)) < 10  # it ends, and properly
        assert stopped.result(10) is True


def test_stopping_answers_those_who_wait_for_data() -> None:
    with serving(clock=FakeClock()) as server:
        put(server.url)
        answers: list[httpx.Response] = []

        def wait() -> None:
            with client(server.url) as http:
                answers.append(http.get("/v1/stream/a?offset=now&live=long-poll"))

        reader = threading.Thread(target=wait)
        reader.start()
        while not server.call(lambda: server.server.engine.followers):
            pass
        assert server.stop_soon(grace_s=10).result(10) is True
        reader.join()
    assert [answer.status_code for answer in answers] == [204]
    assert answers[0].headers["connection"] == "close"


def test_stopping_cuts_what_does_not_end_in_time() -> None:
    clock = FakeClock()
    with (
        serving(clock=clock) as server,
        socket.create_connection(_address(server.url)) as raw,
    ):
        raw.sendall(
            b"POST /v1/stream/a HTTP/1.1\r\nhost: a\r\nexpect: 100-continue\r\n"
            b"content-type: text/plain\r\ncontent-length: 5\r\n\r\n"
        )
        assert raw.recv(100).startswith(b"HTTP/1.1 100 ")
        assert server.stop_soon(grace_s=0.01).result(10) is True
        assert _read_all(raw) == b""


def test_stopping_twice_is_fine() -> None:
    with serving() as server:
        assert server.stop_soon().result(10) is True


def test_a_failed_sync_is_answered_and_ends_the_server() -> None:
    store = FaultyStore()
    with serving(store=store) as server:
        store.sync_error = DiskError("gone")
        assert put(server.url).status_code == 503
        assert server.call(server.server.failed.is_set)
        with client(server.url) as http:
            assert http.get("/ready").json()["status"] == "failed"
            assert http.get("/health").status_code == 200
        syncs = store.syncs
        assert server.stop_soon().result(10) is False
    assert store.syncs == syncs  # it was not tried again


def test_a_sync_that_fails_while_stopping_is_noticed() -> None:
    store = WatchedStore()
    with serving(store=store) as server:
        await_first_writes(server.url)
        store.syncing.clear()
        store.hold_syncs()
        store.sync_error = DiskError("gone")
        writer = threading.Thread(target=lambda: put(server.url))
        writer.start()
        assert store.syncing.wait(10)
        stopped = server.stop_soon()
        store.release_syncs()
        assert stopped.result(10) is False
        writer.join()


def test_a_server_runs_inside_a_coroutine_too() -> None:
    async def ask() -> int:
        async with running() as server, httpx.AsyncClient(trust_env=False) as http:
            return (await http.get(f"{server.url}/health")).status_code

    assert asyncio.run(ask()) == 200


def test_a_server_that_was_never_started_has_no_engine() -> None:
    with pytest.raises(AssertionError):
        Server(Settings()).engine  # noqa: B018


def _address(url: str) -> tuple[str, int]:
    parsed = httpx.URL(url)
    assert parsed.port is not None
    return parsed.host, parsed.port


def _read_all(raw: socket.socket) -> bytes:
    raw.settimeout(10)
    data = b""
    try:
        while piece := raw.recv(65536):
            data += piece
    except ConnectionResetError:
        pass
    return data


def make_certificate(folder: Path) -> tuple[Path, Path]:
    """A certificate for 127.0.0.1 that signs itself, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "headwater test")])
    cert = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(datetime(2020, 1, 1, tzinfo=UTC))
        .not_valid_after(datetime(2100, 1, 1, tzinfo=UTC))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(IPv4Address("127.0.0.1"))]), critical=False
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    cert_path, key_path = folder / "cert.pem", folder / "key.pem"
    cert_path.write_bytes(cert.public_bytes(serialization.Encoding.PEM))
    key_path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return cert_path, key_path
