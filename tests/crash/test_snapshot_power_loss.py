"""The power goes off while snapshots are taken in, published and dropped.

A snapshot's bytes are written before the command that publishes it. Whatever a crash leaves, a
published one is whole, it is the last that was answered or a later one, and nothing else remains.
"""

from __future__ import annotations

from functools import partial
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.core.commands import Command, PublishSnapshot
from headwater.core.errors import StorageFailed
from headwater.core.stream import Snapshot
from headwater.core.types import TimestampMs
from headwater.engine import snapshots
from headwater.engine.snapshots import Upload, read_pieces
from headwater.storage import keys
from headwater.storage.check import check_store
from tests.crash.test_power_loss import draw_crash
from tests.support.builders import BUCKET, append, create, position, trim
from tests.support.clock import START_MS
from tests.support.engines import EngineRunner
from tests.support.stores import PowerLoss, VolatileStore

pytestmark = [pytest.mark.crash, pytest.mark.timeout(60)]

MESSAGES = 6
KIND = "text/plain"

Published = tuple[int, bytes] | None
"""The offset of the latest snapshot, and its bytes."""


def filled() -> VolatileStore:
    store = VolatileStore()
    with EngineRunner(store) as runner:
        runner.create(create())
        for _ in range(MESSAGES):
            runner.append(append(body=b"x"))
    return store


class Writer:
    """Publishes and trims, and knows what the stream must have after each command."""

    def __init__(self, runner: EngineRunner) -> None:
        self.expected: list[Published] = [None]
        """After none of the commands, after the first, and so on."""
        self.answers: dict[int, object] = {}
        self._runner = runner
        self._uploads = 0
        self._stream_id = runner.open("s").state.id

    @property
    def answered(self) -> int:
        good = [n for n, answer in self.answers.items() if not isinstance(answer, StorageFailed)]
        return max(good, default=0)

    def publish(self, at: int, body: bytes, *, abandon: bool) -> None:
        self._uploads += 1
        upload = Upload(self._runner.store, self._uploads, KIND)
        upload.add(body)
        upload.flush(whole=True)
        if abandon:
            return
        snapshot = Snapshot(position(at, at), upload.digest, KIND, upload.size, upload.number)
        now = TimestampMs(START_MS)
        self._send(PublishSnapshot(BUCKET, "s", now, self._stream_id, snapshot), (at, body))

    def trim(self, to: int) -> None:
        latest = self.expected[-1]
        self._send(trim("s", position(to, to)), latest if latest and latest[0] >= to else None)

    def _send(self, command: Command, expected: Published) -> None:
        number = len(self.expected)
        self.expected.append(expected)
        self._runner.submit(command).deliver(partial(self.answers.__setitem__, number))


def run_until_power_loss(writer: Writer, runner: EngineRunner, data: st.DataObject) -> None:
    try:
        for at in range(1, MESSAGES):
            body = data.draw(st.binary(max_size=20))
            writer.publish(at, body, abandon=data.draw(st.booleans()))
            runner.turn(data.draw(st.integers(0, 4)))
            if data.draw(st.booleans()):
                writer.trim(data.draw(st.integers(1, at + 1)))
                runner.turn(data.draw(st.integers(0, 4)))
        runner.settle()
    except PowerLoss:
        pass


def published(store: VolatileStore) -> Published:
    """What is there after a start, with everything else gone."""
    with EngineRunner(store) as runner:
        snapshot = runner.open("s").snapshot
        uploads = {keys.split_piece(key)[0] for key, _ in store.scan(b"p", b"q")}
        assert not list(store.scan(b"u", b"v"))
        if snapshot is None:
            assert not uploads
            return None
        body = b"".join(read_pieces(store, snapshot.upload))
        assert uploads == ({snapshot.upload} if body else set())
        return snapshot.at.seq, body


@settings(max_examples=200, deadline=None)
@given(operations=st.integers(1, 40), data=st.data())
def test_after_a_power_loss_a_snapshot_is_whole_and_nothing_else_is_left(
    operations: int, data: st.DataObject
) -> None:
    with patch.object(snapshots, "PIECE_BYTES", 4):
        store = filled()
        store.cut_power_after(operations)
        with EngineRunner(store, sync_on_loop=True) as runner:
            writer = Writer(runner)
            run_until_power_loss(writer, runner, data)
        store = draw_crash(data, store)
        assert check_store(store).problems == []
        assert published(store) in writer.expected[writer.answered :]
