"""`headwater backup` and `headwater restore`, against a server that runs."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from urllib.request import Request, urlopen

import pytest

from headwater.cli.main import main
from headwater.storage.rocks import RocksStore
from headwater.storage.store import SHARD_FOLDER
from tests.server.test_server import make_certificate
from tests.support.engines import EngineRunner
from tests.support.inprocess import serving

BODY = b"x" * 100_000


def fill(url: str) -> None:
    for name, body in (("a", b"hello"), ("b", BODY)):
        urlopen(Request(f"{url}/demo/{name}", data=body, method="PUT")).close()


def content(folder: Path, name: str) -> bytes:
    store = RocksStore(folder / SHARD_FOLDER)
    with EngineRunner(store) as runner:
        stream = runner.engine.open("demo", name)
        found = runner.engine.read_now(stream, stream.state.first, 1 << 30)
        body = b"".join(bytes(part) for part in found.buffers)
    store.close()
    return body


def test_a_backup_is_a_data_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with serving(memory=False, data_dir=str(tmp_path / "data")) as server:
        fill(server.url)
        assert main(["backup", server.url, str(tmp_path / "copy")]) == 0
        urlopen(Request(f"{server.url}/demo/a", method="DELETE")).close()
        assert "bytes in" in capsys.readouterr().out
    assert main(["check", str(tmp_path / "copy")]) == 0
    assert main(["restore", str(tmp_path / "copy"), str(tmp_path / "restored")]) == 0
    assert (content(tmp_path / "restored", "a"), content(tmp_path / "restored", "b")) == (
        b"hello",
        BODY,
    )
    assert not (tmp_path / "copy.partial").exists()


def test_the_certificate_of_a_server_can_be_trusted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    cert, key = make_certificate(tmp_path)
    copy = str(tmp_path / "copy")
    folder = str(tmp_path / "data")
    with serving(memory=False, data_dir=folder, tls_cert=str(cert), tls_key=str(key)) as server:
        assert main(["backup", server.url, copy]) == 1
        assert "CERTIFICATE_VERIFY_FAILED" in capsys.readouterr().err
        monkeypatch.setenv("HEADWATER_CA_FILE", str(cert))
        assert main(["backup", server.url, copy]) == 0
        assert main(["token", "list", "--url", server.url]) == 0
        monkeypatch.setenv("HEADWATER_CA_FILE", "/nowhere")
        assert main(["token", "list", "--url", server.url]) == 1
    assert "no such file or directory. file=/nowhere" in capsys.readouterr().err


def test_a_server_in_memory_has_nothing_to_copy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving() as server:
        assert main(["backup", server.url, str(tmp_path / "copy")]) == 1
    assert "nothing to copy" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_there_is_left_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["backup", "http://127.0.0.1:1", str(tmp_path)]) == 1
    assert "is there already" in capsys.readouterr().err
    (tmp_path / "x").touch()
    assert main(["restore", str(tmp_path / "none"), str(tmp_path)]) == 1
    assert "is not empty" in capsys.readouterr().err


def test_a_file_is_no_folder_to_restore_to(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "x").touch()
    assert main(["restore", str(tmp_path / "none"), str(tmp_path / "x")]) == 1
    assert "cannot be used: not a directory" in capsys.readouterr().err


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "nonsense", "http://"])
def test_no_server_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], url: str
) -> None:
    assert main(["backup", url, str(tmp_path / "copy")]) == 1
    message = capsys.readouterr().err
    assert message.startswith("headwater: the backup failed: ")
    assert "<" not in message, "what the libraries call it"


def test_a_backup_with_problems_is_not_restored(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["restore", str(tmp_path / "none"), str(tmp_path / "data")]) == 1
    assert "the backup is not restored" in capsys.readouterr().err
    assert not (tmp_path / "data").exists()


# -- answers that are no backup


class Answers(BaseHTTPRequestHandler):
    """Sends what the test put there."""

    body = b""
    length = 0

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(self.length))
        self.end_headers()
        self.wfile.write(self.body)

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def other_server() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), Answers)
    thread = Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def tar(*names: str) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        for name in names:
            entry = tarfile.TarInfo(name)
            entry.size = 5
            archive.addfile(entry, io.BytesIO(b"hello"))
    return made.getvalue()


def test_one_that_is_cut_off_is_not_kept(
    other_server: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole = tar("shard-000/a", "shard-000/b")
    monkeypatch.setattr(Answers, "length", len(whole))
    for cut in (len(whole) - 1, len(whole) - 1024, 700, 512, 0):
        monkeypatch.setattr(Answers, "body", whole[:cut])
        assert main(["backup", other_server, str(tmp_path / "copy")]) == 1
        assert "the backup failed" in capsys.readouterr().err
        assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["../x", "/tmp/x", "x", "a/../x", "a/b/c"])
def test_files_go_nowhere_else(
    other_server: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    name: str,
) -> None:
    body = tar(name)
    monkeypatch.setattr(Answers, "length", len(body))
    monkeypatch.setattr(Answers, "body", body)
    assert main(["backup", other_server, str(tmp_path / "deep" / "copy")]) == 1
    assert "this is not a backup" in capsys.readouterr().err
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
