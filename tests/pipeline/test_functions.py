"""Functions of a file beside the pipeline's go to Spark's workers, which do not have the file."""

from __future__ import annotations

import base64
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark import cloudpickle

from headwater.pipeline.functions import load_file
from headwater.pipeline.marks import SpecError


def test_a_function_takes_along_what_it_needs(tmp_path: Path) -> None:
    path = tmp_path / "steps.py"
    path.write_text(
        "FACTOR = 2\ndef helper(x): return FACTOR * x\ndef double(x): return helper(x)\n"
    )
    pickled = cloudpickle.dumps(load_file(str(path)).double)  # type: ignore[no-untyped-call]
    sent = base64.b64encode(pickled).decode()
    path.unlink()
    code = (
        "import base64, pickle, sys\nprint(pickle.loads(base64.b64decode(sys.stdin.read()))(21))\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], input=sent, capture_output=True, text=True, check=False
    )
    assert (ended.stdout, ended.stderr) == ("42\n", "")


def test_a_file_that_ends_the_program(tmp_path: Path) -> None:
    path = tmp_path / "job.py"
    path.write_text("import sys\nsys.exit(3)\n")
    with pytest.raises(SpecError, match="job.py:2: SystemExit: 3"):
        load_file(str(path))


def test_a_file_that_wants_spark_at_once(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(
        "from pyspark.sql.functions import udf\n@udf('string')\ndef loud(x): return x\n"
    )
    command = [sys.executable, "-m", "headwater", "pipeline", "validate", "job.py"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert ended.stderr.startswith("headwater: job.py:2: PySparkRuntimeError: ")
    assert ended.stderr.endswith(" is started: do this in a transform\n")
