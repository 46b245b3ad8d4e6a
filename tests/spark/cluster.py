"""A standalone cluster from the PyPI package: a master, and workers on addresses of their own.

Spark runs a speculative attempt only on another host, which other loopback addresses count as.
"""

from __future__ import annotations

import sys
import sysconfig
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import headwater
from tests.spark.processes import SHORT_LIVED, SPARK_HOME, Program, spark_environment

WORKERS = 2
EXECUTOR = "CoarseGrainedExecutorBackend"
SETTINGS = {
    "spark.driver.host": "127.0.0.1",
    "spark.executor.extraJavaOptions": SHORT_LIVED,
    "spark.driver.memory": "512m",
    "spark.executor.memory": "512m",
}
"""Of a session that runs on it."""


class Cluster:
    """One that is up. `url` is what a session takes as its master."""

    def __init__(self, url: str, workers: list[Program]) -> None:
        self.url = url
        self._workers = workers

    def executors(self) -> list[int]:
        """The processes, of whatever application."""
        return [pid for worker in self._workers for pid in worker.below(EXECUTOR)]


@contextmanager
def standing(folder: Path) -> Iterator[Cluster]:
    """Start one. It is gone, executors included, when the context is left."""
    environment = {**spark_environment(), "SPARK_DAEMON_MEMORY": "256m"}
    environment["SPARK_DAEMON_JAVA_OPTS"] = SHORT_LIVED
    del environment["SPARK_LOCAL_IP"]  # an executor would take it for its own
    spark_class = SPARK_HOME / "bin" / "spark-class"

    def program(name: str, kind: str, *arguments: str) -> Program:
        command = [f"org.apache.spark.deploy.{kind}", "--webui-port", "0", *arguments]
        return Program([spark_class, *command], folder / f"{name}.log", environment)

    with ExitStack() as stack:
        address = ("--host", "127.0.0.1", "--port", "0")
        master = stack.enter_context(program("master", "master.Master", *address))
        url = master.wait_for(r"(spark://127\.0\.0\.1:\d+)")
        workers = []
        for number in range(WORKERS):
            place = ("--host", f"127.0.0.{number + 2}", "--work-dir", str(folder / f"{number}"))
            size = ("--cores", "1", "--memory", "1g")
            worker = program(f"worker-{number}", "worker.Worker", *place, *size, url)
            workers.append(stack.enter_context(worker))
        for worker in workers:
            worker.wait_for(r"(Successfully registered with master)")
        yield Cluster(url, workers)


def package(folder: Path) -> Path:
    """What goes to executors with --py-files."""
    source = Path(headwater.__file__).parent.parent
    made = folder / "headwater.zip"
    with zipfile.ZipFile(made, "w") as out:
        for top in ("headwater", "pyspark_headwater", "pyspark_headwater_lake"):
            for path in sorted((source / top).rglob("*.py")):
                out.write(path, path.relative_to(source))
    return made


def bare_python(folder: Path) -> Path:
    """This Python and what is installed for it, without what is installed for development."""
    found = folder / "python"
    packages = sysconfig.get_path("purelib")
    found.write_text(
        f'#!/bin/sh\nPYTHONPATH="$PYTHONPATH:{packages}" exec {sys.executable} -S "$@"\n'
    )
    found.chmod(0o755)
    return found
