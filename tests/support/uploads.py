"""Incremental appends in process: the test sends the body bit by bit and looks in between."""

from __future__ import annotations

import json

from headwater.core.pending import Pending
from headwater.server.http1_request import Upload
from headwater.wire.http import Request, Route
from tests.support.durable import JSON, DurableServer, Poll, Reply
from tests.support.stores import FaultyStore


class IncrementalPost:
    """One POST with `Stream-Append: incremental`, over the body reader of the real server."""

    def __init__(self, server: DurableServer, name: str = "s", /, **headers: str) -> None:
        self.errors: list[Exception] = []
        self._server = server
        self._outcome = Poll()
        self._upload = Upload(self)
        given = {"stream_append": "incremental", **headers}
        request = Request(
            "POST",
            server.path_of(name),
            "",
            {
                header.replace("_", "-").encode(): value.encode("latin-1")
                for header, value in given.items()
            },
        )
        request.body_reader = self._upload
        route = server.choose(request)
        assert isinstance(route, Route) and route.streams_body
        answer = route.handle(request)
        if isinstance(answer, Pending):
            answer.deliver(self._outcome.settled)
        else:
            self._outcome.settled(answer)
        self._upload.begin()

    # What the upload asks of its connection.

    def upload_paused(self) -> None: ...

    def upload_failed(self, error: Exception) -> None:
        self.errors.append(error)

    # The client's side.

    @property
    def paused(self) -> bool:
        """The server does not read from the client now."""
        return self._upload.paused

    @property
    def answered(self) -> bool:
        return not self._outcome.waiting

    @property
    def reply(self) -> Reply:
        return self._outcome.reply

    def send(self, *pieces: bytes) -> None:
        """Bring more of the body, each piece by a read of its own."""
        for piece in pieces:
            self._upload.add_piece(piece)
            self._server.runner.turn()

    def end(self) -> None:
        self._upload.end()

    def cut(self) -> None:
        """The connection breaks."""
        self._upload.abort()

    def send_settled(self, *pieces: bytes) -> None:
        """Bring more of the body, a read at a time, and let each be committed."""
        for piece in pieces:
            self.send(piece)
            self._server.settle()

    def finish(self, *pieces: bytes) -> Reply:
        """Send the rest of the body, its end included, and return the answer."""
        self.send(*pieces)
        self.end()
        self._server.settle()
        assert not self.errors
        return self.reply


def post(server: DurableServer, content_type: str = JSON, /, **headers: str) -> IncrementalPost:
    return IncrementalPost(server, "s", content_type=content_type, **headers)


def counted(reply: Reply) -> int:
    return int(reply.headers["stream-append-count"])


def messages(server: DurableServer, name: str = "s") -> list[object]:
    """The messages of a JSON stream."""
    found: list[object] = json.loads(server.content(name))
    return found


class SlowServer(DurableServer):
    """A server whose commits the test holds up."""

    def __init__(self) -> None:
        self.store = FaultyStore()
        self._holds = 0
        super().__init__(self.store)

    def hold(self) -> None:
        """From now on commands wait behind a commit that does not end."""
        self.store.hold_syncs()
        self._holds += 1
        self.begin("PUT", f"held-{self._holds}")
        self.runner.turn(2)
        assert not self.queued

    def release(self) -> None:
        self.store.release_syncs()

    @property
    def queued(self) -> int:
        return self.engine.committer.queue_commands
