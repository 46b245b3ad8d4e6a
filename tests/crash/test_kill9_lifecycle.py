"""kill -9 in the middle of whole lives: create, append, fork, close, delete.

Each writer takes one stream after another through its life. What was acknowledged before a kill
holds after it; what was not answered happened whole or not at all.
"""

from __future__ import annotations

import http.client
import threading
from dataclasses import dataclass
from pathlib import Path

import pytest

from headwater.cli.main import main
from tests.support.server import ServerProcess

pytestmark = [pytest.mark.crash, pytest.mark.timeout(120)]

WRITERS = 4
STEPS_BEFORE_KILL = [37, 5, 61, 23, 90]
"""Acknowledged requests between a start and the next kill: some early, some late."""
PROGRESS_TIMEOUT_S = 20.0
TEXT = {"Content-Type": "text/plain"}


@dataclass
class Life:
    """What one stream was asked, and what was answered: True, False, or None for not asked."""

    created: bool | None = None
    appended: bool | None = None
    forked: bool | None = None
    closed: bool | None = None
    deleted: bool | None = None


class Writers:
    """Threads that take streams through their lives until they are told to stop."""

    def __init__(self, port: int) -> None:
        self.lives: dict[str, Life] = {}
        self._port = port
        self._acknowledged = 0
        self._progress = threading.Condition()
        self._stopping = False
        self._may_begin = threading.Event()
        self._may_begin.set()
        self._threads = [
            threading.Thread(target=self._write, args=(number,)) for number in range(WRITERS)
        ]
        for thread in self._threads:
            thread.start()

    def wait_for(self, more: int) -> None:
        """Until so many more requests are acknowledged."""
        with self._progress:
            wanted = self._acknowledged + more
            done = self._progress.wait_for(lambda: self._acknowledged >= wanted, PROGRESS_TIMEOUT_S)
            assert done, "the writers do not get on"

    def pause(self) -> None:
        """Begin no new lives: nobody is there to answer."""
        self._may_begin.clear()

    def go_on(self) -> None:
        self._may_begin.set()

    def stop(self) -> None:
        self._stopping = True
        self.go_on()
        for thread in self._threads:
            thread.join()

    def _write(self, writer: int) -> None:
        number = 0
        while self._may_begin.wait() and not self._stopping:
            self._live(f"{writer}-{number}", number)
            number += 1

    def _live(self, name: str, number: int) -> None:
        """One life, until a request gets no answer."""
        life = self.lives[name] = Life()
        steps = [("created", "PUT", name, TEXT, b"x"), ("appended", "POST", name, TEXT, b"y")]
        if number % 4 == 0:
            fork = {"Stream-Forked-From": f"/v1/stream/{name}"}
            steps.append(("forked", "PUT", f"{name}-fork", fork, b""))
        if number % 3 == 0:
            steps.append(("closed", "POST", name, {"Stream-Closed": "true"}, b""))
        if number % 2 == 0:
            steps.append(("deleted", "DELETE", name, {}, b""))
        for step, method, path, headers, body in steps:
            setattr(life, step, False)
            if not self._request(method, path, headers, body):
                return
            setattr(life, step, True)
            with self._progress:
                self._acknowledged += 1
                self._progress.notify_all()

    def _request(self, method: str, name: str, headers: dict[str, str], body: bytes) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=10)
        try:
            connection.request(method, f"/v1/stream/{name}", body, headers)
            reply = connection.getresponse()
            reply.read()
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()
        assert reply.status in (200, 201, 204), (method, name, reply.status)
        return True


@dataclass
class Found:
    """What a server has under a name."""

    status: int
    body: bytes
    closed: bool


def read(connection: http.client.HTTPConnection, name: str) -> Found:
    connection.request("GET", f"/v1/stream/{name}?offset=-1")
    reply = connection.getresponse()
    body = reply.read()
    return Found(reply.status, body, reply.headers["stream-closed"] == "true")


def check(life: Life, found: Found, fork: Found, name: str) -> None:
    """Nothing acknowledged is missing, and nothing is there in part."""
    text = (name, life, found, fork)
    if life.forked:
        assert (fork.status, fork.body) == (200, b"xy"), text
    if life.deleted:
        assert found.status == (410 if life.forked else 404), text
    elif found.status == 200:
        assert found.body == b"xy" if life.appended else found.body in (b"x", b"xy"), text
        assert found.closed if life.closed else not found.closed or life.closed is False, text
    else:
        assert life.deleted is False or not life.created, text


def test_every_acknowledged_step_of_a_life_holds_after_kills(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data") as server:
        writers = Writers(server.port)
        try:
            for steps in STEPS_BEFORE_KILL:
                writers.wait_for(steps)
                server.kill9()
                writers.pause()
                server.start()
                writers.go_on()
            writers.wait_for(20)
        finally:
            writers.stop()
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
        cut_short = 0
        for name, life in writers.lives.items():
            found, fork = read(connection, name), read(connection, f"{name}-fork")
            check(life, found, fork, name)
            cut_short += False in (life.created, life.appended, life.closed, life.deleted)
        connection.close()
        assert cut_short >= 1, "no kill hit a request: the test says nothing"
        assert server.stop() == 0
    assert main(["check", str(tmp_path / "data")]) == 0
