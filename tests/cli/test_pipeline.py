"""`headwater pipeline` and `headwater query` as a user types them."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from headwater.cli.main import main
from headwater.cli.query import show
from headwater.cli.spark import context_of
from headwater.client import Client, Unreachable
from headwater.pipeline import files
from headwater.pipeline.context import Context
from headwater.pipeline.progress import Report, Reporter
from tests.support.inprocess import serving
from tests.support.keys import KEY
from tests.support.log import encode_records
from tests.support.server import ServerProcess

ARCHIVE = "archive: {streams: 'orders/*', to: lake}\n"
WRONG = "archive:\n  streams: a\n  to: b\n  formatx: delta\n"


def test_valid_files_are_said_to_be(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "one.yaml").write_text(ARCHIVE)
    assert main(["pipeline", "validate", str(tmp_path / "one.yaml")]) == 0
    assert capsys.readouterr().out == f"{tmp_path}/one.yaml: one is a valid archive pipeline\n"


def test_all_that_is_wrong_is_said_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "one.yaml").write_text(WRONG)
    (tmp_path / "two.yaml").write_text("name: x\n")
    assert main(["pipeline", "validate", str(tmp_path)]) == 2
    said = capsys.readouterr().err.splitlines()
    assert said == [
        f"headwater: {tmp_path}/one.yaml:4: archive has no key formatx; did you mean format?",
        f"headwater: {tmp_path}/two.yaml:1: a pipeline needs one of archive, replay, sources",
    ]


def test_two_pipelines_of_one_name_do_not_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("a.yaml", "b.yaml"):
        (tmp_path / name).write_text("name: same\n" + ARCHIVE)
    assert main(["pipeline", "run", str(tmp_path)]) == 2
    assert "same is the name of more than one pipeline" in capsys.readouterr().err
    assert main(["pipeline", "run"]) == 2


def test_files_are_checked_before_spark_is_even_loaded(tmp_path: Path) -> None:
    (tmp_path / "one.yaml").write_text(WRONG)
    code = (
        "import sys\n"
        "from headwater.cli.main import main\n"
        "code = main(sys.argv[1:])\n"
        "print('pyspark' in sys.modules)\n"
        "sys.exit(code)\n"
    )
    command = [sys.executable, "-c", code, "pipeline", "run", str(tmp_path / "one.yaml")]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (2, "False\n")


def test_the_pipelines_of_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pipeline", "list", str(tmp_path)]) == 0
    assert capsys.readouterr().out == f"no pipelines in {tmp_path}/\n"
    (tmp_path / "one.yaml").write_text(ARCHIVE)
    (tmp_path / "two.yaml").write_text("replay: {table: /t, stream: again}\n")
    assert main(["pipeline", "list", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert "orders/* → " in shown and "/t → again" in shown
    (tmp_path / "three.yaml").write_text(WRONG)
    assert main(["pipeline", "list", str(tmp_path)]) == 2
    assert "did you mean format?" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["archive", "a", "b/*", "--to", "x"], "streams is a list of names, or one pattern"),
        (["archive", "a", "--to", "x", "--catalog", "type"], "--catalog is KEY=VALUE"),
        (["transform", "select 1", "--from", "a", "--to-stream", "b"], "reads none of input"),
        (
            ["transform", "select * from input", "--from", "a", "--to-stream", "b", "--json", "x"],
            "json is a schema",
        ),
        (["replay", "t", "--name", "a b"], "name is 1 to 64"),
    ],
)
def test_built_in_pipelines_are_checked_too(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["pipeline", *arguments]) == 2
    assert said in capsys.readouterr().err


def test_the_status_is_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    with serving() as server, Client(server.url) as client:
        Reporter(client).send(Report("p", "out", "running", 0, 10, rows_per_s=2.5, lag=4))
        assert main(["pipeline", "status", "--url", server.url]) == 0
    head, _, row, count = capsys.readouterr().out.splitlines()
    assert head.split()[:7] == ["pipeline", "query", "state", "batches", "rows", "rows/s", "lag"]
    assert row.split() == ["p", "out", "running", "1", "10", "2.5", "4"]
    assert count == "(1 row)"


def test_a_server_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pipeline", "status", "--url", "http://127.0.0.1:1"]) == 1
    assert "no answer from http://127.0.0.1:1" in capsys.readouterr().err


def test_what_only_the_environment_says_goes_with_every_request(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HEADWATER_ENCRYPTION_KEY", KEY)
    monkeypatch.setenv("HEADWATER_CA_FILE", str(tmp_path / "ca.pem"))
    arguments = argparse.Namespace(url="https://127.0.0.1:1", token="t")
    context = context_of(arguments, once=True)
    assert context.connection == {
        "endpoint": "https://127.0.0.1:1",
        "token": "t",
        "encryptionKey": KEY,
        "caFile": str(tmp_path / "ca.pem"),
    }
    assert KEY not in repr(context)
    with context.client(retry_timeout_s=0.0) as client:
        assert client.endpoint.headers["s2-encryption-key"] == KEY
        with pytest.raises(Unreachable, match="No such file"):  # the certificates
            client.stream("b", "s")


def test_a_pipeline_with_a_server_of_its_own_has_the_same_keys(tmp_path: Path) -> None:
    (tmp_path / "one.yaml").write_text("endpoint: http://other\n" + ARCHIVE)
    spec = files.load(str(tmp_path / "one.yaml"))
    context = Context("http://one", "t", once=True, encryption_key=KEY, ca_file="ca.pem")
    assert context.for_spec(spec) == replace(context, endpoint="http://other")


def test_a_table_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pipeline", "maintain", str(tmp_path / "none")]) == 1
    assert "there is no delta table at" in capsys.readouterr().err


def test_rows_in_every_form(capsys: pytest.CaptureFixture[str]) -> None:
    columns = ["a", "b"]
    rows: list[list[object]] = [[1, b"x,y"], [None, "long " * 30]]
    show(columns, rows, "table")
    table = capsys.readouterr().out.splitlines()
    assert table[0] == "a  b" and table[2] == "1  x,y" and table[3].endswith("…")
    show(columns, rows, "json")
    assert json.loads(capsys.readouterr().out.splitlines()[0]) == {"a": 1, "b": "x,y"}
    show(columns, rows, "csv")
    assert capsys.readouterr().out.startswith('a,b\n1,"x,y"\n')


def test_up_wants_the_folder_it_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["up", "--memory", "--pipelines", str(tmp_path / "none")]) == 2
    assert "there is no folder" in capsys.readouterr().err


def append(client: Client, name: str, *values: object) -> None:
    client.create("durable-streams", name, "application/json")
    bodies = [json.dumps(value).encode() for value in values]
    client.append("durable-streams", name, encode_records(bodies))


@pytest.mark.spark
@pytest.mark.timeout(240)
def test_up_runs_the_server_and_then_the_pipelines(tmp_path: Path) -> None:
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "pipelines" / "orders.yaml").write_text(ARCHIVE)
    command = [sys.executable, "-m", "headwater", "up", "--port", "0", "--memory"]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        url = process.stdout.readline().split("listening on ")[1].split(" ")[0]
        with Client(url) as client:
            append(client, "orders/1", {"id": 1}, {"id": 2})
            for line in process.stdout:
                if line.startswith("orders/archive: batch ") and " 2 rows" in line:
                    break
            status = ["pipeline", "status", "orders", "--url", url]
            assert main(status) == 0
        process.terminate()
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.communicate()
    assert (tmp_path / "lake" / "_delta_log").is_dir()


@pytest.mark.spark
@pytest.mark.timeout(240)
def test_a_query_prints_a_table(tmp_path: Path) -> None:
    statement = "select item, sum(price) as total from stream('orders/*') group by 1 order by 1"
    with ServerProcess(tmp_path / "data", "--memory") as server, Client(server.url) as client:
        append(client, "orders/1", {"item": "a", "price": 1}, {"item": "b", "price": 2.5})
        append(client, "orders/2", {"item": "a", "price": 3})
        command = [sys.executable, "-m", "headwater", "query", "--cores", "2", statement]
        environment = {**os.environ, "HEADWATER_URL": server.url}
        ended = subprocess.run(
            command, capture_output=True, text=True, env=environment, check=False
        )
    assert (ended.returncode, ended.stdout) == (
        0,
        "item  total\n----  -----\na     4.0\nb     2.5\n(2 rows)\n",
    ), ended.stderr


@pytest.mark.spark
@pytest.mark.timeout(120)
def test_a_query_of_a_server_that_is_not_there() -> None:
    statement = "select * from stream('orders')"
    command = [sys.executable, "-m", "headwater", "query", "--url", "http://127.0.0.1:1", statement]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert "headwater: no answer from http://127.0.0.1:1" in ended.stderr
    # Workers of Spark that it no longer listens to may leave a traceback of their own.
    assert "client/sync.py" not in ended.stderr
