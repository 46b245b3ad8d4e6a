"""`headwater pipeline` and `headwater query` as a user types them."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from headwater.cli.main import main
from headwater.cli.pipeline_built_ins import archive_of_all
from headwater.cli.spark import context_of
from headwater.client import ClientError
from headwater.pipeline import files
from headwater.pipeline.context import Context
from headwater.pipeline.frames import source_options
from headwater.spark.options import parse_source
from tests.support.keys import KEY

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
    assert f"b.yaml: {tmp_path}/a.yaml has the name same already" in capsys.readouterr().err
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
    assert main(["pipeline", "list", str(tmp_path), "--output", "json"]) == 0
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert (first["name"], first["kind"], first["from"]) == ("one", "archive", "orders/*")
    assert (second["from"], second["to"], second["error"]) == ("/t", "again", None)
    (tmp_path / "three.yaml").write_text(WRONG)
    assert main(["pipeline", "list", str(tmp_path)]) == 2
    assert "did you mean format?" in capsys.readouterr().out
    assert main(["pipeline", "list", str(tmp_path / "none")]) == 2
    assert "there is no folder" in capsys.readouterr().err


def test_the_help_of_an_action_says_how_to_get_it(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["pipeline", "validate"])
    assert "(see headwater pipeline validate --help)" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        main(["pipeline", "status", "--out", "json"])
    assert "unrecognized arguments: --out; did you mean --output?" in capsys.readouterr().err


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
        with pytest.raises(ClientError, match="No such file"):  # the certificates
            client.stream("b", "s")


def test_a_pipeline_with_a_server_of_its_own_has_the_same_keys(tmp_path: Path) -> None:
    (tmp_path / "one.yaml").write_text("endpoint: http://other\n" + ARCHIVE)
    spec = files.load(str(tmp_path / "one.yaml"))
    context = Context("http://one", "t", once=True, encryption_key=KEY, ca_file="ca.pem")
    assert context.for_spec(spec) == replace(context, endpoint="http://other")


def test_a_table_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pipeline", "maintain", str(tmp_path / "none")]) == 1
    assert "there is no delta table at" in capsys.readouterr().err


def test_the_archive_of_all_streams_outlives_some_of_them() -> None:
    archive = archive_of_all("lake").archive
    assert archive is not None
    options = parse_source(
        source_options(archive.source, Context("http://127.0.0.1:4437")), streaming=True
    )
    assert (options.fail_on_data_loss, options.fail_on_deletion) == (True, False)
