"""Encrypted streams in the engine: read like plain ones, and nothing in clear on disk."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.core import limits
from headwater.core.ciphers import AES_256_GCM
from headwater.core.commands import Append, AppendRecords, Create, Sealed, decode, encode
from headwater.core.errors import (
    CipherExhausted,
    ContentTypeMismatch,
    DecryptionFailed,
    HeadwaterError,
    InvalidRecord,
    InvalidRequest,
    KeyRequired,
    StreamClosed,
    StreamGone,
    StreamNotFound,
)
from headwater.core.pending import Pending
from headwater.core.types import Position, SeqNum
from headwater.engine import reader
from headwater.engine.records import RecordCursor
from headwater.engine.sealing import seal_append
from headwater.storage.memory import MemoryStore
from headwater.storage.rocks import RocksStore
from headwater.storage.store import Store
from tests.support.builders import BUCKET, JSON, TEXT, append, claim, create, delete, fork_of
from tests.support.engines import ALL, EngineRunner, body, small_sizes
from tests.support.keys import CIPHERS, KEY, OTHER_KEY, RAW, encrypt_bucket

Pairs = list[tuple[bytes, bytes]]

TURN_KEY = KEY.encode()
SECRET = b"a secret that must not be found anywhere"


class Encrypted(EngineRunner):
    """An engine whose bucket encrypts."""

    def __init__(self, store: Store | None = None, cipher: str | None = CIPHERS[0]) -> None:
        super().__init__(store)
        encrypt_bucket(self, BUCKET, cipher)

    def make(self, command: Create, key: str = KEY) -> None:
        self.result(self.engine.create(command, key.encode()))

    def add(self, command: Append | AppendRecords, key: str = KEY) -> None:
        self.result(self.engine.append(command, key.encode()))

    def refused(self, command: Append | AppendRecords, key: str | None = KEY) -> HeadwaterError:
        outcome = self.outcome(self.engine.append(command, None if key is None else key.encode()))
        assert isinstance(outcome, HeadwaterError)
        return outcome

    def slice(
        self, name: str, start: Position | None = None, size_max: int = ALL, key: str = KEY
    ) -> reader.Slice:
        stream = self.open(name)
        opener = self.engine.opener(stream, key.encode())
        position = reader.resolve(stream, start)
        return self.result(self.engine.read(stream, position, size_max, opener))

    def text(self, name: str = "s", key: str = KEY) -> bytes:
        return body(self.slice(name, key=key))

    def rows(
        self, name: str = "s", first: int = 0, end: int | None = None, key: str = KEY
    ) -> list[tuple[Pairs, bytes]]:
        stream = self.open(name)
        opener = self.engine.opener(stream, key.encode())
        stop = stream.tail.seq if end is None else SeqNum(end)
        cursor = RecordCursor(self.engine.shard, stream, SeqNum(first), stop, opener)
        found: list[tuple[Pairs, bytes]] = []
        while not cursor.done:
            for span in cursor.step():
                headers, bodies = span.run.record_headers(), span.run.record_bodies()
                found += [
                    (list(headers[at]), bytes(bodies[at])) for at in range(span.start, span.stop)
                ]
        return found


def records(
    *bodies: bytes, headers: Sequence[Pairs] | None = None, commands: bool = False
) -> AppendRecords:
    given = None if headers is None else list(headers)
    return AppendRecords(BUCKET, "s", append().at_ms, list(bodies), given, commands=commands)


# -- it reads like a plain stream


class Twin(NamedTuple):
    """What is done to two streams, of which one is encrypted."""

    bodies: list[list[bytes]]
    packed: bool
    json: bool


@st.composite
def twins(draw: Callable[[st.SearchStrategy[object]], object]) -> Twin:
    json = draw(st.booleans())
    one = st.binary(min_size=1, max_size=60)
    if json:
        one = st.integers(0, 10**30).map(lambda number: str(number).encode())
    bodies = draw(st.lists(st.lists(one, min_size=1, max_size=4), min_size=1, max_size=6))
    return Twin(bodies, bool(draw(st.booleans())), bool(json))  # type: ignore[arg-type]


@pytest.mark.parametrize("cipher", CIPHERS)
@given(twin=twins(), size_max=st.integers(1, 90))
@settings(max_examples=40)
def test_offsets_and_cuts_are_those_of_a_plain_stream(
    cipher: str, twin: Twin, size_max: int
) -> None:
    kind = JSON if twin.json else "application/octet-stream"
    with small_sizes(), Encrypted(cipher=cipher) as server:
        server.engine.packer.enabled = twin.packed
        server.make(create("s", content_type=kind))
        encrypt_bucket(server, BUCKET, None)
        server.make(create("t", content_type=kind))
        for bodies in twin.bodies:
            joined = b"[%b]" % b",".join(bodies) if twin.json else b"".join(bodies)
            server.add(append("s", body=joined))
            server.add(append("t", body=joined))
            server.settle()
        at = None
        while True:
            sealed, plain = (server.slice(name, at, size_max) for name in ("s", "t"))
            assert (sealed.start, sealed.end, sealed.size) == (plain.start, plain.end, plain.size)
            assert body(sealed) == body(plain)
            if plain.at_tail:
                break
            at = plain.end


@pytest.mark.parametrize("cipher", CIPHERS)
def test_headers_and_commands_come_back_as_they_were(cipher: str) -> None:
    fence: Pairs = [(b"", b"fence")]
    given: list[Pairs] = [[(b"a", b"1"), (b"a", b"2")], fence, []]
    with Encrypted(cipher=cipher) as server:
        server.make(create())
        server.add(records(b"x", b"token", b"", headers=given, commands=True))
        assert server.rows() == [(given[0], b"x"), (fence, b"token"), ([], b"")]
        assert server.open("s").state.fencing_token == "token"
        assert server.text() == b"x"


@pytest.mark.parametrize("packed", [False, True])
def test_it_is_there_after_a_restart(packed: bool) -> None:
    store = MemoryStore()
    with Encrypted(store) as server:
        server.engine.packer.enabled = packed
        server.make(create(body=b"first "))
        for number in range(40):
            server.add(append(body=b"%d " % number))
            server.settle()
        expected = server.text()
    with EngineRunner(store) as again:
        stream = again.open("s")
        opener = again.engine.opener(stream, TURN_KEY)
        found = again.result(again.engine.read(stream, stream.state.first, ALL, opener))
        assert body(found) == expected == b"first " + b"".join(b"%d " % n for n in range(40))
        assert stream.state.cipher == CIPHERS[0]


# -- keys


def test_each_record_opens_with_the_key_it_came_with() -> None:
    with Encrypted() as server:
        server.make(create())
        server.add(append(body=b"one"))
        server.add(append(body=b"two"), OTHER_KEY)
        server.settle()
        assert server.rows(end=1) == [([], b"one")]
        assert server.rows(first=1, key=OTHER_KEY) == [([], b"two")]
        assert body(server.slice("s", size_max=3)) == b"one"
        for key in (KEY, OTHER_KEY):
            with pytest.raises(DecryptionFailed):
                server.text(key=key)


def test_a_message_that_does_not_fit_is_not_opened() -> None:
    with small_sizes(), Encrypted() as server:
        server.make(create())
        server.add(append(body=b"1" * 40))
        server.add(append(body=b"2" * 40), OTHER_KEY)
        server.settle()
        assert body(server.slice("s", size_max=50)) == b"1" * 40


def test_a_long_read_gives_way_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "STEP_OPENED", 4)
    with Encrypted() as server:
        server.engine.packer.enabled = False
        server.make(create())
        for _ in range(10):
            server.add(append(body=b"x"))
        stream = server.open("s")
        steps = reader.read(
            server.engine.shard,
            stream,
            stream.state.first,
            ALL,
            server.engine.opener(stream, TURN_KEY),
        )
        assert len(list(steps)) == 2


def test_a_stream_that_is_gone_is_told_as_such() -> None:
    with Encrypted() as server:
        server.make(create(body=b"x"))
        server.make(create("f", content_type=None, fork=fork_of("s")))
        server.delete(delete())
        assert isinstance(server.refused(append(body=b"y"), None), StreamGone)


def test_a_key_on_a_plain_stream_is_ignored() -> None:
    with Encrypted(cipher=None) as server:
        server.make(create(body=b"a"), "no key at all")
        server.add(append(body=b"b"), "no key at all")
        assert server.engine.opener(server.open("s"), b"no key at all") is None
        assert server.content("s") == b"ab"


# -- what core says, whatever happened since a command was sealed


def test_what_is_not_sealed_is_refused() -> None:
    with Encrypted() as server:
        server.make(create())
        for command in (append(body=b"x"), records(b"x")):
            assert isinstance(server.refused(command, None), KeyRequired)
            unseen = server.outcome(server.engine.submit(command))
            assert isinstance(unseen, KeyRequired)
        assert server.open("s").tail.seq == 0


def test_what_was_sealed_for_a_stream_before_is_refused() -> None:
    with Encrypted() as server:
        server.make(create())
        chance = server.clock.random_bytes
        stale = seal_append(server.open("s").state, append(body=b"x"), TURN_KEY, chance)
        batch = seal_append(server.open("s").state, records(b"x"), TURN_KEY, chance)
        server.delete(delete())
        server.make(create())
        for command in (stale, batch):
            assert isinstance(server.outcome(server.engine.submit(command)), StreamNotFound)
        server.delete(delete())
        encrypt_bucket(server, BUCKET, None)
        server.make(create())
        for command in (stale, batch):
            assert isinstance(server.outcome(server.engine.submit(command)), StreamNotFound)
        assert server.content("s") == b""


def test_an_append_may_follow_a_create_that_still_waits() -> None:
    with Encrypted() as server:
        waiting: list[Pending[Any]] = [
            server.engine.create(create(), TURN_KEY),
            server.engine.append(append(body=b"a"), TURN_KEY),
            server.engine.append(records(b"b"), TURN_KEY),
            server.engine.append(append(body=b"c"), b"no key"),
        ]
        outcomes = [server.outcome(pending) for pending in waiting]
        assert isinstance(outcomes[3], KeyRequired)
        assert not any(isinstance(outcome, Exception) for outcome in outcomes[:3])
        assert server.text() == b"ab"
        missing = server.outcome(server.engine.append(append("t", body=b"a"), TURN_KEY))
        assert isinstance(missing, StreamNotFound)


def test_refusals_come_in_the_order_of_a_plain_stream() -> None:
    with Encrypted() as server:
        server.make(create(content_type=JSON))
        assert isinstance(server.refused(append(body=b"{")), InvalidRequest)
        assert isinstance(server.refused(append(body=b"[]")), InvalidRequest)
        mismatch = server.refused(append(body=b"{", content_type=TEXT))
        assert isinstance(mismatch, ContentTypeMismatch)
        assert isinstance(server.refused(records(b"1", b"x")), InvalidRecord)
        server.add(append(body=b"1", close=True))
        for command in (append(body=b"{"), append(body=b"2", content_type=TEXT), records(b"1")):
            assert isinstance(server.refused(command, None), StreamClosed)


def test_a_repeat_is_told_from_a_new_batch() -> None:
    with Encrypted() as server:
        server.make(create())
        first = append(body=b"a", producer=claim(seq=0))
        server.add(first)
        server.add(first)
        server.add(append(body=b"b", producer=claim(seq=1), close=True))
        server.add(append(body=b"b", producer=claim(seq=1), close=True))
        assert server.text() == b"ab"


def test_aes_stops_where_its_nonces_might_repeat(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "AES_RECORDS_MAX", 3)
    with Encrypted(cipher=AES_256_GCM) as server:
        server.make(create())
        server.add(records(b"1", b"2"))
        assert isinstance(server.refused(records(b"3", b"4")), CipherExhausted)
        server.add(append(body=b"3"))
        assert isinstance(server.refused(append(body=b"4")), CipherExhausted)
        assert server.text() == b"123"
    with Encrypted() as server:
        server.make(create())
        server.add(records(b"1", b"2", b"3", b"4"))


def test_sealed_commands_survive_their_encoding() -> None:
    with Encrypted() as server:
        server.make(create())
        state, chance = server.open("s").state, server.clock.random_bytes
        for command in (append(body=SECRET), records(SECRET)):
            sealed = seal_append(state, command, TURN_KEY, chance)
            assert decode(encode(sealed)) == sealed
            assert SECRET not in encode(sealed) and RAW not in encode(sealed)


# -- forks


def test_a_fork_opens_what_it_inherits_and_what_it_adds() -> None:
    with small_sizes(), Encrypted() as server:
        server.make(create(content_type=TEXT))
        server.add(append(body=b"inherited, and longer than one record;"))
        server.add(append(body=b"and more;"))
        encrypt_bucket(server, BUCKET, None)  # the source decides
        server.make(create("f", content_type=None, body=b" forked", fork=fork_of("s")))
        server.add(append("f", body=b" on"))
        server.make(create("g", content_type=None, fork=fork_of("f")))
        server.add(append("g", body=b" and on"))
        server.settle()
        assert server.text("f") == server.text("s") + b" forked on"
        assert server.text("g") == server.text("f") + b" and on"
        ids = [server.open(name).state.seal_id for name in ("s", "f", "g")]
        assert None not in ids and len(set(ids)) == 3
        server.delete(delete("s"))
        server.delete(delete("f"))
        assert server.text("g").endswith(b"forked on and on")


@pytest.mark.parametrize("count", range(1, 40))
def test_a_fork_may_leave_inside_a_sealed_record(count: int) -> None:
    text = b"0123456789" * 4
    with small_sizes(), Encrypted() as server:
        server.make(create(content_type=TEXT))
        server.add(append(body=text))
        start = Position(*server.open("s").state.first)
        server.make(create("f", content_type=None, fork=fork_of("s", start, count)))
        server.add(append("f", body=b"!"))
        assert server.text("f") == text[:count] + b"!"


def test_a_fork_of_a_plain_stream_goes_on_encrypted_where_its_bucket_says_so() -> None:
    with Encrypted(cipher=None) as server:
        server.make(create(body=b"plain "))
        encrypt_bucket(server, BUCKET)
        server.make(create("f", content_type=None, body=b"sealed", fork=fork_of("s")))
        assert server.open("f").state.cipher == CIPHERS[0]
        assert server.text("f") == b"plain sealed"


def test_a_fork_that_was_sealed_after_another_source_is_refused() -> None:
    with Encrypted(cipher=None) as server:
        server.make(create(body=b"plain"))
        unsealed = create("f", content_type=None, body=b"x", fork=fork_of("s"))
        server.delete(delete())
        encrypt_bucket(server, BUCKET)
        server.make(create(body=b"sealed"))
        assert isinstance(server.outcome(server.engine.submit(unsealed)), StreamNotFound)
        sealed = msgspec.structs.replace(
            unsealed,
            body=b"",
            seal_id=b"i",
            sealed=Sealed(b"i", [b"x"], [[(b"\x01", b"")]]),
            sealed_after=server.open("s").state.id,
        )
        server.delete(delete())
        server.make(create())
        assert isinstance(server.outcome(server.engine.submit(sealed)), StreamNotFound)


# -- on disk


def test_neither_text_nor_key_is_on_disk(tmp_path: Path) -> None:
    name, value = b"header-" + SECRET, b"value-" + SECRET
    with Encrypted(RocksStore(tmp_path)) as server:
        server.make(create(body=SECRET))
        server.make(create("f", content_type=None, body=SECRET, fork=fork_of("s")))
        for _ in range(30):
            server.add(append(body=SECRET))
            server.add(records(SECRET, headers=[[(name, value)]]))
            server.settle()
        assert server.text().count(SECRET) == 61
        encrypt_bucket(server, BUCKET, None)
        server.make(create("plain", body=b"anybody may find this"))
        server.close()
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    stored = b"".join(path.read_bytes() for path in files)
    assert b"anybody may find this" in stored
    for hidden in (SECRET, SECRET[2:14], RAW, TURN_KEY, RAW[:12]):
        assert hidden not in stored
