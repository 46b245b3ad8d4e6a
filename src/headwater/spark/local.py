"""A Spark session with settings that fit: on this machine, or wherever a master is named."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import cast

from pyspark.sql import SparkSession

from headwater.spark.java import find_java_home

CONNECT = "sc://"
TASK_TRIES = 4
"""In local mode Spark gives a task one try, unless it is told otherwise."""

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    # Lets reads with filterPushdown use it; others do not notice.
    "spark.sql.python.filterPushdown.enabled": "true",
    # A repeated micro-batch must have the same partitions; adaptive plans look at sizes.
    "spark.sql.adaptive.streaming.stateless.enabled": "false",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.shuffle.partitions": "8",
    # Sockets of the file system between the JVM and Python are faster than those of the network.
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.redaction.regex": "(?i)secret|password|token|access[.]?key|encryptionkey",
}

OF_A_SESSION = "spark.sql."
"""How the settings begin that a session may change of a Spark that is up, as with Connect."""

SUBMITTED = "PYSPARK_GATEWAY_PORT"
"""Set where spark-submit runs the program: Java is up, and the master is chosen."""

LOCAL_SETTINGS = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}

OWN_PYTHON_SETTINGS = {"spark.python.daemon.module": "headwater.worker_daemon"}
"""Where workers run the same Python as this."""

ARROW_JAVA_OPTIONS = (
    "-Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false"
)
"""Spark looks at nulls and lengths itself: a tenth less work for the JVM on what Python sends."""

DRIVER_OPTIONS = "spark.driver.extraJavaOptions"
EXECUTOR_OPTIONS = "spark.executor.extraJavaOptions"

LOG_SETTINGS = Path(__file__).with_name("log4j2.properties")
STARTUP = Path(__file__).with_name("startup")
"""Goes on the path of Spark's Python processes; what is there runs as they start."""


def session(
    name: str = "headwater",
    *,
    master: str | None = None,
    cores: int | None = None,
    settings: Mapping[str, str] | None = None,
    quiet: bool = True,
) -> SparkSession:
    """A session; the one there is, if there is one.

    Without a `master` it runs on this machine, on `cores` of it, and tries a failed task again; or
    where `spark-submit` was told, if that runs the program, whose settings then count. A master
    `sc://host:port` is a Spark Connect server. `settings` win over those here. When it is `quiet`,
    Spark logs errors only.
    """
    builder = SparkSession.builder.appName(name)
    given = {**SETTINGS, **(settings or {})}
    if master is not None and master.startswith(CONNECT):
        return _with(builder.remote(master), {**_of_a_session(), **(settings or {})})
    if master is None and SUBMITTED in os.environ:
        return _submitted(builder, settings or {})
    os.environ["JAVA_HOME"] = str(find_java_home())
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    own = os.environ["PYSPARK_PYTHON"] == sys.executable and STARTUP.exists()
    if master is None:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        given = {**LOCAL_SETTINGS, **(OWN_PYTHON_SETTINGS if own else {}), **given}
    driver = ARROW_JAVA_OPTIONS
    if quiet and LOG_SETTINGS.exists():  # not when the package is in a zip file
        driver += f" -Dlog4j2.configurationFile={LOG_SETTINGS.as_uri()}"
    for key, ours in ((DRIVER_OPTIONS, driver), (EXECUTOR_OPTIONS, ARROW_JAVA_OPTIONS)):
        given[key] = f"{ours} {given.get(key, '')}"
    builder = builder.master(master or f"local[{cores or os.cpu_count() or 1},{TASK_TRIES}]")
    with _python_path() if own else nullcontext():
        return _with(builder, given)


@contextmanager
def _python_path() -> Iterator[None]:
    """With STARTUP, for as long as a JVM is started."""
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (before, str(STARTUP))))
    try:
        yield
    finally:
        if before is None:
            del os.environ["PYTHONPATH"]
        else:
            os.environ["PYTHONPATH"] = before


def _submitted(builder: SparkSession.Builder, settings: Mapping[str, str]) -> SparkSession:
    spark = _with(builder, settings)
    told = spark.sparkContext.getConf()
    for key, value in _of_a_session().items():
        if not told.contains(key):
            spark.conf.set(key, value)
    return spark


def _of_a_session() -> dict[str, str]:
    return {key: value for key, value in SETTINGS.items() if key.startswith(OF_A_SESSION)}


def _with(builder: SparkSession.Builder, settings: Mapping[str, str]) -> SparkSession:
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def session_beside(spark: SparkSession) -> SparkSession:
    """A session with the settings of another, on the same Spark, and with views of its own."""
    if _is_connect(spark):
        # A new one would begin with the server's settings.
        beside = spark.cloneSession()  # type: ignore[attr-defined]
        beside.release_session_on_close = True  # PySpark 4.2 leaves it out, and stop() needs it
        return cast(SparkSession, beside)
    return spark.newSession()


def release(beside: SparkSession) -> None:
    """Let go of what `session_beside` gave. A program that keeps a session of Connect never ends;
    stopping one of any other kind would stop them all."""
    if _is_connect(beside):
        beside.stop()


def _is_connect(spark: SparkSession) -> bool:
    return type(spark).__module__.startswith("pyspark.sql.connect.")
