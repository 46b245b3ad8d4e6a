"""Records sealed and opened: with the right key for the right stream, or not at all."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.core import limits
from headwater.core.ciphers import SEAL_ID_BYTES
from headwater.core.commands import Append, AppendRecords, Create, Sealed, encode
from headwater.core.errors import DecryptionFailed, KeyRequired
from headwater.core.records import RecordHeaders
from headwater.core.stream import StreamState
from headwater.core.types import StreamId
from headwater.engine import sealing
from headwater.engine.opening import open_record
from headwater.engine.sealing import Cipher, Sealer, seal_append, seal_create, take_key
from tests.support.builders import BUCKET, JSON, TEXT, append, create, fork_of, stream_state
from tests.support.clock import FakeClock
from tests.support.engines import small_sizes
from tests.support.keys import CIPHERS, KEY, OTHER_KEY, RAW

SEAL_ID = b"i" * SEAL_ID_BYTES
HEADERS = [(b"name", b"value"), (b"name", b""), (b"\xff", b"\0" * 9)]
BODY = b"what nobody else may read"

pairs = st.lists(st.tuples(st.binary(min_size=1, max_size=20), st.binary(max_size=20)), max_size=4)


def key_of(name: str, key: str = KEY) -> Cipher:
    return take_key(name, key.encode())


def seal(
    cipher: Cipher, headers: RecordHeaders, body: bytes, seal_id: bytes = SEAL_ID
) -> tuple[sealing.Seal, bytes]:
    nonce = FakeClock().random_bytes(cipher.nonce_bytes)
    return sealing.seal_record(cipher, seal_id, nonce, headers, body)


@pytest.mark.parametrize("name", CIPHERS)
@given(headers=pairs, body=st.binary(max_size=200))
def test_what_is_sealed_opens_as_it_was(
    name: str, headers: list[tuple[bytes, bytes]], body: bytes
) -> None:
    cipher = key_of(name)
    mark, sealed = seal(cipher, headers, body)
    assert len(sealed) == len(body)
    found, opened = open_record(cipher, SEAL_ID, [mark], sealed)
    assert (list(found), bytes(opened)) == (headers, body)


@pytest.mark.parametrize("name", CIPHERS)
def test_another_key_or_another_stream_does_not_open_it(name: str) -> None:
    cipher = key_of(name)
    mark, sealed = seal(cipher, HEADERS, BODY)
    assert BODY[:8] not in mark[1] + sealed and b"value" not in mark[1] + sealed
    with pytest.raises(DecryptionFailed, match=name):
        open_record(key_of(name, OTHER_KEY), SEAL_ID, [mark], sealed)
    with pytest.raises(DecryptionFailed):
        open_record(cipher, b"j" * SEAL_ID_BYTES, [mark], sealed)


@pytest.mark.parametrize("name", CIPHERS)
def test_no_byte_of_it_can_be_changed(name: str) -> None:
    cipher = key_of(name)
    (kind, mark), sealed = seal(cipher, HEADERS, BODY)
    for at in range(len(mark)):
        changed = mark[:at] + bytes([mark[at] ^ 1]) + mark[at + 1 :]
        with pytest.raises(DecryptionFailed):
            open_record(cipher, SEAL_ID, [(kind, changed)], sealed)
    for at in range(len(sealed)):
        changed = sealed[:at] + bytes([sealed[at] ^ 1]) + sealed[at + 1 :]
        with pytest.raises(DecryptionFailed):
            open_record(cipher, SEAL_ID, [(kind, mark)], changed)


@pytest.mark.parametrize("name", CIPHERS)
def test_nothing_can_be_moved_between_headers_and_body(name: str) -> None:
    cipher = key_of(name)
    (kind, mark), sealed = seal(cipher, [], b"\0\0" + BODY)
    tag = mark[-sealing.TAG_BYTES :]
    for count in range(1, len(sealed)):
        moved = mark[: -sealing.TAG_BYTES] + sealed[:count] + tag
        with pytest.raises(DecryptionFailed):
            open_record(cipher, SEAL_ID, [(kind, moved)], sealed[count:])


@pytest.mark.parametrize(
    "headers", [[], [(b"\x01", b"")], [(b"\x03", b"x" * 99)], [(b"a", b"b"), (b"c", b"d")]]
)
@pytest.mark.parametrize("name", CIPHERS)
def test_what_was_never_sealed_does_not_open(name: str, headers: RecordHeaders) -> None:
    with pytest.raises(DecryptionFailed):
        open_record(key_of(name), SEAL_ID, headers, BODY)


@pytest.mark.parametrize(
    ("name", "kind", "nonce_bytes"), [("aegis-256", b"\x01", 32), ("aes-256-gcm", b"\x02", 12)]
)
def test_the_stored_form_is_frozen(name: str, kind: bytes, nonce_bytes: int) -> None:
    mark, sealed = sealing.seal_record(
        key_of(name), SEAL_ID, bytes(nonce_bytes), [(b"n", b"v")], b"body"
    )
    assert (mark[0], mark[1][:nonce_bytes]) == (kind, bytes(nonce_bytes))
    assert len(mark[1]) == nonce_bytes + (2 + 4 + 1 + 4 + 1) + 16
    stored = {
        "aegis-256": (FROZEN_AEGIS, FROZEN_AEGIS_BODY),
        "aes-256-gcm": (FROZEN_AES, FROZEN_AES_BODY),
    }[name]
    assert (mark[1][nonce_bytes:].hex(), sealed.hex()) == stored


FROZEN_AEGIS = "64d9118341078755b540e059ef259c8daf8e7f318893fd7fec46e33f"
FROZEN_AEGIS_BODY = "55f76cf4"
FROZEN_AES = "0fbcb4deb52cedbc08a8a943fe96f74d5698efa87206fc335c8fefb7"
FROZEN_AES_BODY = "7a43f5e0"


# -- keys


@pytest.mark.parametrize("name", CIPHERS)
@pytest.mark.parametrize(
    ("header", "problem"),
    [
        (None, "there is none"),
        (b"", "0 bytes"),
        (b"c2hvcnQ=", "5 bytes"),
        (KEY.encode()[:-1], "not base64"),
        (b"?" * 44, "not base64"),
        (KEY.encode() + KEY.encode(), "not base64"),
        (b"\xff" * 44, "not base64"),
    ],
)
def test_what_is_no_key_is_refused_and_not_told(
    name: str, header: bytes | None, problem: str
) -> None:
    with pytest.raises(KeyRequired, match=name) as raised:
        take_key(name, header)
    assert problem in str(raised.value)
    assert not header or header[:8].decode("latin-1") not in str(raised.value)
    assert raised.value.__context__ is None or raised.value.__suppress_context__


def test_space_around_a_key_is_none_of_it() -> None:
    take_key("aegis-256", f" {KEY} ".encode())


@pytest.mark.parametrize("name", CIPHERS)
def test_a_key_is_not_shown(name: str) -> None:
    cipher = key_of(name)
    shown = repr(cipher) + str(cipher) + repr(Sealer(cipher, SEAL_ID, FakeClock().random_bytes))
    assert KEY not in shown and repr(RAW)[2:10] not in shown


# -- commands


def encrypted_state(content_type: str = TEXT) -> StreamState:
    state = stream_state(content_type)
    state.cipher, state.seal_id = CIPHERS[0], SEAL_ID
    return state


def seal_one(command: Append | AppendRecords, content_type: str = TEXT) -> Append | AppendRecords:
    state = encrypted_state(content_type)
    return seal_append(state, command, KEY.encode(), FakeClock().random_bytes)


def test_an_append_keeps_everything_but_its_body() -> None:
    plain = append(body=BODY, close=True, content_type="text/plain", stream_seq="1")
    sealed = seal_one(plain)
    assert isinstance(sealed, Append) and isinstance(sealed.sealed, Sealed)
    assert msgspec.structs.replace(sealed, body=BODY, sealed=None) == plain
    assert sealed.sealed.seal_id == SEAL_ID and sealed.sealed.refusal is None
    assert sealed.sealed.size == len(BODY)
    assert BODY[:6] not in encode(sealed) and RAW not in encode(sealed)


def test_json_is_flattened_before_and_what_is_wrong_with_it_is_told_later() -> None:
    sealed = seal_one(append(body=b'[1, {"a": 2}]'), JSON)
    assert isinstance(sealed, Append) and sealed.sealed is not None
    assert [len(body) for body in sealed.sealed.bodies] == [1, len(b'{"a": 2}')]
    for wrong in (b"{", b"[]", b"\xff"):
        refused = seal_one(append(body=wrong), JSON)
        assert isinstance(refused, Append) and refused.sealed is not None
        assert refused.sealed.refusal and not refused.sealed.bodies


def test_an_append_has_only_so_many_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "APPEND_RECORDS_MAX", 2)
    for body, refused in ((b"[1,2]", False), (b"[1,2,3]", True)):
        sealed = seal_one(append(body=body), JSON)
        assert isinstance(sealed, Append) and sealed.sealed is not None
        assert (sealed.sealed.refusal is not None) == refused


def test_a_close_needs_no_key() -> None:
    state = encrypted_state()
    close = append(close=True)
    assert seal_append(state, close, None, FakeClock().random_bytes) is close
    with pytest.raises(KeyRequired):
        seal_append(state, append(body=b"x"), None, FakeClock().random_bytes)


def test_what_will_be_refused_needs_no_key_and_is_not_passed_on() -> None:
    state = encrypted_state()
    state.closed = True
    for command in (append(body=BODY), AppendRecords(BUCKET, "s", append().at_ms, [BODY])):
        passed = seal_append(state, command, None, FakeClock().random_bytes)
        assert BODY not in encode(passed)


def test_every_record_of_a_long_message_has_a_seal_of_its_own() -> None:
    with small_sizes():
        size = limits.RECORD_BODY_BYTES_MAX
        sealed = seal_one(append(body=b"x" * (2 * size + 1)))
    assert isinstance(sealed, Append) and sealed.sealed is not None
    (seals,) = sealed.sealed.headers
    assert len(seals) == len(set(seals)) == 3
    cipher, (body,) = key_of(CIPHERS[0]), sealed.sealed.bodies
    parts = [body[at : at + size] for at in range(0, len(body), size)]
    opened = [
        bytes(open_record(cipher, SEAL_ID, [mark], part)[1])
        for mark, part in zip(seals, parts, strict=True)
    ]
    assert b"".join(opened) == b"x" * (2 * size + 1)


def test_command_records_stay_in_clear() -> None:
    fence: list[tuple[bytes, bytes]] = [(b"", b"fence")]
    command = AppendRecords(
        BUCKET, "s", append().at_ms, [b"data", b"token"], [[(b"a", b"b")], fence], commands=True
    )
    sealed = seal_one(command)
    assert isinstance(sealed, AppendRecords) and sealed.headers is not None
    assert (sealed.bodies[1], sealed.headers[1]) == (b"token", fence)
    assert sealed.bodies[0] != b"data" and sealed.headers[0][0][0] == b"\x01"
    assert sealed.seal_id == SEAL_ID


def test_a_record_that_breaks_a_rule_is_refused_when_its_turn_has_come() -> None:
    command = AppendRecords(BUCKET, "s", append().at_ms, [b"1", b"no"])
    sealed = seal_one(command, JSON)
    assert isinstance(sealed, AppendRecords)
    assert sealed.refusal is not None and sealed.refusal[0] == 1 and sealed.bodies == []


# -- new streams


def seal_new(
    command: Create, *, source: StreamState | None = None, cipher: str | None = None
) -> Create:
    return seal_create(command, source, cipher, KEY.encode(), FakeClock().random_bytes)


def test_a_new_stream_is_encrypted_as_its_bucket_says() -> None:
    plain = create(body=BODY)
    assert seal_new(plain) is plain
    sealed = seal_new(plain, cipher="aes-256-gcm")
    assert (sealed.cipher, sealed.body) == ("aes-256-gcm", b"")
    assert sealed.seal_id is not None and len(sealed.seal_id) == SEAL_ID_BYTES
    assert sealed.sealed is not None and sealed.sealed.seal_id == sealed.seal_id
    assert BODY[:6] not in encode(sealed)
    assert seal_new(create(), cipher="aes-256-gcm").sealed is None


def test_a_fork_takes_its_source_s_cipher_first() -> None:
    source = stream_state(JSON)
    source.id = StreamId(7)
    fork = create(content_type=None, body=b"[1,2]", fork=fork_of("s"))
    assert seal_new(fork, source=source) is fork
    of_plain = seal_new(fork, source=source, cipher="aes-256-gcm")
    source.cipher, source.seal_id = "aegis-256", SEAL_ID
    of_sealed = seal_new(fork, source=source, cipher="aes-256-gcm")
    assert (of_plain.cipher, of_sealed.cipher) == ("aes-256-gcm", "aegis-256")
    assert of_sealed.seal_id != SEAL_ID and of_sealed.sealed_after == 7
    assert of_sealed.sealed is not None and len(of_sealed.sealed.bodies) == 2
