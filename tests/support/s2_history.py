"""Records what concurrent S2 clients do to one stream of a real server, and what they are told.

Each client makes one call at a time: an append, a scan of the whole stream, a look at the tail.
Some append on conditions. A call is repeated by nobody: what became of an append whose answer never
came is unknown for good.
"""

from __future__ import annotations

import http.client
import itertools
import json
import threading
import time
from functools import partial
from random import Random  # noqa: TID251
from typing import Any, NamedTuple

from tests.support.linearizability import (
    NEVER,
    Append,
    Operation,
    Saw,
    chain,
    hash_record,
    settle,
)

BATCH_RECORDS_MAX = 6
FENCE_EVERY = 25
"""Operations of a fencing client from one fence to the next."""
RECONNECT_S = 0.01
TIMEOUT_S = 10.0

KINDS = ("plain", "conditional", "fencing")


class Reply(NamedTuple):
    status: int
    json: Any


class NotSent(Exception):
    """There was no server to take the request, so nothing can have come of it."""


class Connection:
    """HTTP to one stream of one basin."""

    def __init__(self, port: int, basin: str, stream: str) -> None:
        self._http = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S)
        self._path = f"/v1/streams/{stream}/records"
        self._headers = {"s2-basin": basin, "content-type": "application/json"}

    def close(self) -> None:
        self._http.close()

    def append(self, body: dict[str, Any]) -> Reply:
        return self._send("POST", "", json.dumps(body))

    def read(self, seq_num: int) -> Reply:
        return self._send("GET", f"?seq_num={seq_num}")

    def scan(self) -> list[int]:
        """The hashes of all records."""
        hashes: list[int] = []
        while True:
            reply = self.read(len(hashes))
            if reply.status == 416:
                tail = reply.json["tail"]["seq_num"]
                break
            assert reply.status == 200, reply
            records = reply.json["records"]
            numbers = range(len(hashes), len(hashes) + len(records))
            assert [record["seq_num"] for record in records] == list(numbers)
            hashes += [hash_record(record["body"].encode()) for record in records]
            tail = reply.json.get("tail", {}).get("seq_num")
            if tail == len(hashes):
                break
        assert tail == len(hashes), f"a scan ended at {len(hashes)}, before its tail {tail}"
        return hashes

    def check_tail(self) -> Reply:
        return self._send("GET", "/tail")

    def _send(self, method: str, rest: str, body: str | None = None) -> Reply:
        """Raises NotSent, or OSError or HTTPException when it may have been done."""
        if self._http.sock is None:
            try:
                self._http.connect()
            except OSError as error:
                raise NotSent from error
        try:
            self._http.request(method, self._path + rest, body, self._headers)
            reply = self._http.getresponse()
            content = reply.read()
        except (OSError, http.client.HTTPException):
            self._http.close()
            raise
        return Reply(reply.status, json.loads(content) if content else None)


class Client(threading.Thread):
    """One client, choosing by its own seed until it is told to stop."""

    def __init__(self, history: History, number: int, kind: str, connection: Connection) -> None:
        super().__init__(name=f"{kind}-{number}")
        self._history = history
        self._number = number
        self._kind = kind
        self._connection = connection
        self._chance = Random(f"{history.seed} {number}")
        self._tail = 0
        self._bodies = (f"{number}.{count}" for count in itertools.count())

    def run(self) -> None:
        try:
            for count in itertools.count():
                if self._history.stopping.is_set():
                    return
                self._step(count)
        except BaseException as error:
            self._history.errors.append(error)
        finally:
            self._connection.close()

    def _step(self, count: int) -> None:
        call = self._chance.choices((self._append, self._read, self._check_tail), (6, 1, 3))[0]
        if self._kind == "fencing" and count % FENCE_EVERY == 0:
            call = self._fence
        try:
            call()
        except NotSent:
            time.sleep(RECONNECT_S)
        except (OSError, http.client.HTTPException):
            self._tail = 0  # whatever it was, it tells nothing now

    def _append(self) -> None:
        size = self._chance.randint(1, BATCH_RECORDS_MAX)
        bodies = list(itertools.islice(self._bodies, size))
        body: dict[str, Any] = {"records": [{"body": text} for text in bodies]}
        if self._kind == "conditional":
            body["match_seq_num"] = self._tail
        if self._kind == "fencing":
            body["fencing_token"] = self.name
        hashes = tuple(hash_record(text.encode()) for text in bodies)
        self._send_append(
            body, Append(hashes, body.get("match_seq_num"), body.get("fencing_token"))
        )

    def _fence(self) -> None:
        """Politely, if the tail is where it was last seen, or by force."""
        fence = {"headers": [["", "fence"]], "body": self.name}
        body: dict[str, Any] = {"records": [fence]}
        if self._chance.random() < 0.5:
            body["match_seq_num"] = self._tail
        hashes = (hash_record(self.name.encode()),)
        self._send_append(body, Append(hashes, body.get("match_seq_num"), sets_token=self.name))

    def _send_append(self, body: dict[str, Any], append: Append) -> None:
        called = self._history.tick()
        try:
            reply = self._connection.append(body)
        except (OSError, http.client.HTTPException):
            self._history.add(Operation(self._number, called, NEVER, append))
            raise
        returned = self._history.tick()
        if reply.status == 200:
            saw = Saw(reply.json["end"]["seq_num"])
            self._history.add(Operation(self._number, called, returned, append, saw))
            self._saw(called, returned, Saw(reply.json["tail"]["seq_num"]), shadow=True)
        else:
            assert reply.status == 412, reply
            saw = Saw(
                reply.json.get("seq_num_mismatch"), token=reply.json.get("fencing_token_mismatch")
            )
            self._saw(called, returned, saw)

    def _read(self) -> None:
        called = self._history.tick()
        hashes = self._connection.scan()
        self._saw(called, self._history.tick(), Saw(len(hashes), chain(0, hashes)))

    def _check_tail(self) -> None:
        called = self._history.tick()
        reply = self._connection.check_tail()
        assert reply.status == 200, reply
        self._saw(called, self._history.tick(), Saw(reply.json["tail"]["seq_num"]))

    def _saw(self, called: int, returned: int, saw: Saw, *, shadow: bool = False) -> None:
        """`shadow`: seen by the same call as something else, so by a client at its side."""
        client = -self._number if shadow else self._number
        self._history.add(Operation(client, called, returned, saw=saw))
        if saw.tail is not None:
            self._tail = max(self._tail, saw.tail)


class History:
    """What happened so far, and the clients that go on."""

    def __init__(self, seed: int, port: int, *, basin: str, stream: str, of_each: int) -> None:
        self.seed = seed
        self.operations: list[Operation] = []
        self.errors: list[BaseException] = []
        self.stopping = threading.Event()
        self._ticks = itertools.count()
        self._connect = partial(Connection, port, basin, stream)
        kinds = [kind for kind in KINDS for _ in range(of_each)]
        self._clients = [
            Client(self, number, kind, self._connect())
            for number, kind in enumerate(kinds, start=1)
        ]

    def tick(self) -> int:
        """Now, as all clients agree on it."""
        return next(self._ticks)

    def add(self, operation: Operation) -> None:
        self.operations.append(operation)

    def start(self) -> None:
        for client in self._clients:
            client.start()

    def wait_for(self, more: int, timeout_s: float) -> None:
        """Until this many more operations were made, or the time is over."""
        target, deadline = len(self.operations) + more, time.monotonic() + timeout_s
        while len(self.operations) < target and time.monotonic() < deadline and not self.errors:
            time.sleep(RECONNECT_S)

    def finish(self) -> list[Operation]:
        """All operations, and a scan after them that tells what came of those cut off."""
        connection, called = self._connect(), self.tick()
        hashes = connection.scan()
        connection.close()
        self.add(Operation(0, called, self.tick(), saw=Saw(len(hashes), chain(0, hashes))))
        return settle(self.operations, hashes)

    def stop(self) -> None:
        self.stopping.set()
        for client in self._clients:
            if client.is_alive():
                client.join()
