"""`headwater serve` as a user runs it: a process with an exit code, one line, and signals."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from headwater.cli.main import main
from headwater.cli.serve import raise_file_limit, serve
from headwater.server.app import Server
from headwater.server.settings import Settings
from headwater.version import VERSION

TIMEOUT_S = 15

# What a failing disk looks like from Python: `flush_wal` raises. Figures of usage are saved when a
# minute is over; should that be now, theirs would be the sync that fails.
FAILING_SYNC = """
import sys
from headwater.cli.main import main
from headwater.engine import stored, usage
from headwater.storage.rocks import RocksStore

def fail(self):
    raise OSError("Input/output error")

RocksStore.sync = fail
stored.to_next_minute_s = usage.to_next_minute_s = lambda engine: 3600.0
sys.exit(main(sys.argv[1:]))
"""


# A request that keeps its connection busy: the body is awaited, and never comes.
UNFINISHED = (
    b"POST /v1/stream/a HTTP/1.1\r\nhost: a\r\nexpect: 100-continue\r\n"
    b"content-type: text/plain\r\ncontent-length: 5\r\n\r\n"
)


def environment(**variables: str) -> dict[str, str]:
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("HEADWATER_")}
    return {**inherited, **variables}


def fails(*arguments: str, **variables: str) -> tuple[int, str]:
    """Run it to its end. Returns the exit code and what it said, which must be one line."""
    ended = subprocess.run(
        [sys.executable, "-m", "headwater", "serve", *arguments],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        env=environment(**variables),
        check=False,
    )
    assert ended.stdout == ""
    assert ended.stderr.count("\n") == 1, ended.stderr
    return ended.returncode, ended.stderr


class Running:
    """A process that said it is ready."""

    def __init__(self, process: subprocess.Popen[str], line: str) -> None:
        self.process = process
        self.line = line
        self.address = ("127.0.0.1", int(line.split("http://127.0.0.1:")[1].split(" ")[0]))

    def exchange(self, request: bytes) -> bytes:
        with socket.create_connection(self.address, TIMEOUT_S) as raw:
            raw.sendall(request)
            return raw.recv(65536)

    def wait_for(self, words: str) -> None:
        """Read stderr until `words` were logged."""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            if words in line:
                return
        raise AssertionError(f"it ended without saying {words!r}")

    def wait(self) -> int:
        return self.process.wait(TIMEOUT_S)


@contextmanager
def started(*arguments: str, script: str | None = None) -> Iterator[Running]:
    how = ["-m", "headwater"] if script is None else ["-c", script]
    process = subprocess.Popen(
        [sys.executable, *how, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    )
    try:
        assert process.stdout is not None
        yield Running(process, process.stdout.readline())
    finally:
        process.kill()
        process.communicate()


def put(name: str) -> bytes:
    head = f"PUT /v1/stream/{name} HTTP/1.1\r\nhost: a\r\ncontent-type: text/plain\r\n"
    return f"{head}connection: close\r\ncontent-length: 5\r\n\r\nhello".encode()


def test_one_line_says_where_it_listens_and_what_it_keeps(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    with started("serve", "--port", "0", "--data-dir", str(folder)) as server:
        port = server.address[1]
        expected = f"headwater {VERSION} listening on http://127.0.0.1:{port} (data: {folder})\n"
        assert server.line == expected
        assert server.exchange(put("a")).startswith(b"HTTP/1.1 201 ")
        server.process.terminate()
        assert server.wait() == 0
        assert server.process.stdout is not None
        assert server.process.stdout.read() == ""
    assert (folder / "shard-000").is_dir()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_in_order(number: signal.Signals) -> None:
    with started("serve", "--port", "0", "--memory") as server:
        assert server.line.endswith("(data: in memory, gone at the end)\n")
        server.process.send_signal(number)
        assert server.wait() == 0


def test_a_second_signal_ends_it_at_once() -> None:
    with (
        started("serve", "--port", "0", "--memory", "--shutdown-grace", "3600") as server,
        socket.create_connection(server.address, TIMEOUT_S) as busy,
    ):
        busy.sendall(UNFINISHED)
        assert busy.recv(100).startswith(b"HTTP/1.1 100 ")
        server.process.terminate()
        server.wait_for("shutting down")
        server.process.terminate()
        assert server.wait() == 128 + signal.SIGTERM


def test_a_failed_sync_ends_it_with_a_code_of_its_own(tmp_path: Path) -> None:
    arguments = ("serve", "--port", "0", "--data-dir", str(tmp_path / "data"))
    with started(*arguments) as server:  # the first start has writes of its own
        assert server.exchange(put("a")).startswith(b"HTTP/1.1 201 ")
    with started(*arguments, script=FAILING_SYNC) as server:
        assert server.exchange(put("b")).startswith(b"HTTP/1.1 503 ")
        assert server.wait() == 3
        server.wait_for("headwater: storage failed")


def test_up_is_a_server_too() -> None:
    with started("up", "--port", "0", "--memory") as server:
        assert server.exchange(put("a")).startswith(b"HTTP/1.1 201 ")


def test_settings_come_from_all_sources(tmp_path: Path) -> None:
    config = tmp_path / "headwater.toml"
    config.write_text("memory = true\nport = 0\nbody_bytes_max = '1KiB'")
    with started("serve", "--config", str(config)) as server:
        head = "POST /v1/stream/a HTTP/1.1\r\nhost: a\r\ncontent-length: 2000\r\n\r\n"
        assert server.exchange(head.encode()).startswith(b"HTTP/1.1 413 ")


def test_a_port_in_use() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, said = fails("--memory", "--port", str(port))
    assert code == 1
    assert said.startswith(f"headwater: cannot listen on 127.0.0.1 port {port}: the port is in use")


def test_a_folder_that_another_server_uses(tmp_path: Path) -> None:
    folder = str(tmp_path / "data")
    with started("serve", "--port", "0", "--data-dir", folder):
        code, said = fails("--port", "0", "--data-dir", folder)
    assert (code, said) == (1, f"headwater: the data folder {folder} is in use by another server\n")


def test_a_config_file_that_cannot_be_read(tmp_path: Path) -> None:
    code, said = fails("--config", str(tmp_path))
    assert (code, said) == (
        2,
        f"headwater: cannot read the config file {tmp_path}: Is a directory\n",
    )


@pytest.mark.parametrize(
    ("arguments", "variables", "said"),
    [
        pytest.param(
            ["--port", "http"],
            {},
            "headwater: port = 'http' (from --port) is not allowed; "
            "use a whole number from 0 to 65535\n",
            id="bad flag",
        ),
        pytest.param(
            [],
            {"HEADWATER_LOG_FORMAT": "xml"},
            "headwater: log_format = 'xml' (from HEADWATER_LOG_FORMAT) is not allowed; "
            "use text or json\n",
            id="bad variable",
        ),
        pytest.param(
            [],
            {"HEADWATER_PROT": "1"},
            "headwater: unknown setting in the environment: HEADWATER_PROT; "
            "did you mean HEADWATER_PORT?\n",
            id="unknown variable",
        ),
    ],
)
def test_a_setting_that_is_wrong(
    arguments: list[str], variables: dict[str, str], said: str
) -> None:
    assert fails(*arguments, **variables) == (2, said)


def test_without_its_libraries_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "uvloop", None)
    assert main(["serve", "--memory"]) == 1
    assert 'pip install "headwater[server]"' in capsys.readouterr().err


class Signalled(Server):
    """Gets a signal as soon as somebody waits for one."""

    async def start(self) -> None:
        await super().start()
        asyncio.get_running_loop().call_soon(os.kill, os.getpid(), signal.SIGTERM)


def test_the_loop_ends_with_the_signal(capsys: pytest.CaptureFixture[str]) -> None:
    server = Signalled(Settings(port=0, memory=True))
    assert asyncio.run(serve(server)) == 0
    assert capsys.readouterr().out.startswith(f"headwater {VERSION} listening on {server.url} ")


@pytest.mark.parametrize(
    ("soft", "hard", "allowed", "raised"),
    [
        pytest.param(1024, 1 << 20, 65536, 66560, id="room to raise it"),
        pytest.param(1024, 4096, 3072, 4096, id="some room"),
        pytest.param(1024, 1024, 1, 1024, id="no room"),
        pytest.param(1 << 20, 1 << 20, 65536, 1 << 20, id="enough already"),
        pytest.param(1024, resource.RLIM_INFINITY, 65536, 66560, id="no hard limit"),
        pytest.param(
            resource.RLIM_INFINITY, resource.RLIM_INFINITY, 65536, resource.RLIM_INFINITY, id="none"
        ),
    ],
)
def test_connections_are_bounded_by_the_files_a_process_may_open(
    monkeypatch: pytest.MonkeyPatch, soft: int, hard: int, allowed: int, raised: int
) -> None:
    limits = [(soft, hard)]
    monkeypatch.setattr(resource, "getrlimit", lambda _: limits[-1])
    monkeypatch.setattr(resource, "setrlimit", lambda _, given: limits.append(given))
    assert raise_file_limit(65536) == allowed
    assert limits[-1] == (raised, hard)
