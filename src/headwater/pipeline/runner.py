"""Runs pipelines on one Spark session until they end, fail or are told to stop.

Each has a session of its own within it, so that their tables do not mix. One that fails does not
stop the others; with `restart` it is started again, after longer and longer pauses.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from queue import SimpleQueue
from typing import Any

from pyspark.sql import SparkSession, is_remote
from pyspark.sql.streaming.query import StreamingQuery

from headwater.lake.ranges import read_own, read_ranges
from headwater.lake.tables import LakeTable, open_table, reach_table
from headwater.pipeline import jobs
from headwater.pipeline.context import Context
from headwater.pipeline.lake_source import trim_settled
from headwater.pipeline.last_words import last_words
from headwater.pipeline.progress import Report, report_of
from headwater.pipeline.replay import Note, replay
from headwater.pipeline.spec import Spec
from headwater.spark.local import release, session_beside

log = logging.getLogger("headwater.pipeline")

LOOK_S = 0.5
RESTART_FIRST_S = 5.0
RESTART_LONGEST_S = 300.0


class Runner:
    """Several pipelines, watched in one loop."""

    def __init__(
        self,
        spark: SparkSession,
        specs: Sequence[Spec],
        context: Context,
        note: Note,
        *,
        beat: Callable[[], None] = lambda: None,
        restart: bool = False,
    ) -> None:
        """`beat` is called again and again while pipelines run."""
        self.stopping = threading.Event()
        self._beat = beat
        # Replays last: to stop, they are waited for, and the others need not go on meanwhile.
        self._running = [
            Running(spark, spec, context.for_spec(spec), note, restart=restart)
            for spec in sorted(specs, key=lambda spec: spec.replay is not None)
        ]

    def run(self) -> bool:
        """Returns whether none failed. Stops in order when `stopping` is set."""
        try:
            for each in self._running:
                each.start()
            while any(each.alive for each in self._running) and not self.stopping.wait(LOOK_S):
                for each in self._running:
                    each.look()
                self._beat()
        finally:
            for each in self._running:
                each.stop()
        return all(each.error is None for each in self._running)


class Running:
    """One pipeline at work."""

    def __init__(
        self, spark: SparkSession, spec: Spec, context: Context, note: Note, *, restart: bool
    ) -> None:
        self.spec = spec
        self.queries: dict[str, StreamingQuery] = {}
        self.error: str | None = None
        self._spark = spark
        self._context = context
        self._note = note
        self._restart = restart
        self._seen: dict[str, str] = {}
        self._failures = 0
        self._again_s = 0.0
        self._session: SparkSession | None = None
        self._replay: Aside | None = None

    @property
    def alive(self) -> bool:
        """It runs, or will again."""
        again = self._restart and self.error is not None
        return bool(self.queries) or self._replay is not None or again

    def start(self) -> None:
        spec = self.spec
        try:
            self._reach_tables()
            session = self._open_session()
            if spec.replay is not None:
                self._replay = Aside(partial(_replay, session, spec, self._context))
                return
            started = jobs.start(session, spec, self._context)
        except Exception as error:
            self._fail(spec.kind, error, *(sink.name for sink in spec.sinks))
            return
        self.queries = {str(query.name): query for query in started}
        for name in self.queries:
            self._note(Report(spec.name, name, "running"))

    def _reach_tables(self) -> None:
        """Raises LakeError. A Spark elsewhere may reach what we cannot, and says so itself."""
        for ref in () if is_remote() else self.spec.tables:
            reach_table(ref)

    def _open_session(self) -> SparkSession:
        self._release_session()
        self._session = session_beside(self._spark)
        for key, value in self.spec.spark.items():
            self._session.conf.set(key, value)
        return self._session

    def _release_session(self) -> None:
        if self._session is not None:
            release(self._session)
            self._session = None

    def look(self) -> None:
        """Report what is new; see who has ended; start again what failed."""
        if self._restart and self.error is not None and time.monotonic() >= self._again_s:
            self.error = None
            self.start()
        if self._replay is not None:
            self._look_at(self._replay)
        for name, query in list(self.queries.items()):
            active = query.isActive  # before the reports, so that the last ones are seen
            self._report(name, query)
            if active:
                continue
            del self.queries[name]
            error = query.exception()
            if error is not None:
                self._fail(name, error)
                self._stop_queries()  # half a pipeline is none
                return
            try:
                self._finish(name, query)
            except Exception as reason:
                self._fail(name, reason)

    def _look_at(self, aside: Aside) -> None:
        ended = aside.ended  # before the reports, so that the last ones are seen
        for report in aside.reports():
            self._note(report)
        if ended:
            self._replay = None
            if aside.error is not None:
                self._fail(self.spec.kind, aside.error)

    def _report(self, name: str, query: StreamingQuery) -> None:
        last = self._seen.get(name, "")
        for progress in query.recentProgress:
            found = _plain(progress)
            key = f"{found.get('timestamp')} {found.get('batchId'):012}"
            if key > last:
                self._seen[name] = key
                self._failures = 0  # it works: should it fail again, that is a new trouble
                self._note(report_of(self.spec.name, name, found))

    def _finish(self, name: str, query: StreamingQuery) -> None:
        archive = self.spec.archive
        if archive is not None and archive.trim:
            self._trim(open_table(archive.table), str(query.id))
        self._note(Report(self.spec.name, name, "finished"))

    def _trim(self, table: LakeTable, query: str) -> None:
        """All that an archive has, because its query has ended in order."""
        folder, identity = table.folder, table.identity
        folder.sync()
        own, archived = read_own(folder, query, identity), read_ranges(folder, identity)
        with self._context.client() as client:
            trim_settled(client, own, None, archived)

    def _fail(self, what: str, error: BaseException, *queries: str) -> None:
        """A query, a job, or before they were started, all of `queries`."""
        self.error = last_words(error)
        self._failures += 1
        pause_s = min(RESTART_LONGEST_S, RESTART_FIRST_S * 2 ** (self._failures - 1))
        self._again_s = time.monotonic() + pause_s
        again = f"; it is started again in {pause_s:g} s" if self._restart else ""
        log.error("%s/%s failed: %s%s", self.spec.name, what, self.error, again)
        for query in queries or (what,):
            self._note(Report(self.spec.name, query, "failed", error=self.error))

    def stop(self) -> None:
        if self._replay is not None:
            self._replay.join()
            self._look_at(self._replay)
        self._stop_queries()
        self._release_session()

    def _stop_queries(self) -> None:
        for name, query in self.queries.items():
            self._report(name, query)
            query.stop()
            self._note(Report(self.spec.name, name, "stopped"))
        self.queries = {}


def _replay(session: SparkSession, spec: Spec, context: Context, note: Note) -> None:
    # Spark finds data sources only in threads with an active session, and this makes it so.
    session.createDataFrame([], "nothing int")
    replay(session, spec, context, note)


class Aside:
    """Work in a thread of its own, so that it does not hold up the pipelines beside it.

    What it reports is kept for whoever looks: sending is the work of one thread.
    """

    def __init__(self, work: Callable[[Note], None]) -> None:
        self.error: Exception | None = None
        self._work = work
        self._reports: SimpleQueue[Report] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._work(self._reports.put)
        except Exception as error:
            self.error = error

    @property
    def ended(self) -> bool:
        return not self._thread.is_alive()

    def reports(self) -> Iterator[Report]:
        """Those that were not given out yet."""
        while not self._reports.empty():
            yield self._reports.get()

    def join(self) -> None:
        self._thread.join()


def _plain(progress: Any) -> Mapping[str, Any]:
    """A progress report as a dict, whichever form this version of Spark gives it."""
    if isinstance(progress, Mapping):
        return progress
    found: Mapping[str, Any] = json.loads(progress.json)
    return found
