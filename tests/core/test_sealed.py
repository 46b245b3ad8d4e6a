"""What core takes for an encrypted stream: sealed for it, and nothing else."""

from __future__ import annotations

import msgspec
import pytest

from headwater.core import append as rules
from headwater.core import lifecycle, limits
from headwater.core.ciphers import AEGIS_256, AES_256_GCM
from headwater.core.commands import Append, Create, Sealed, decode, encode
from headwater.core.errors import (
    CipherExhausted,
    ContentTypeMismatch,
    InvalidRequest,
    KeyRequired,
    PreconditionFailed,
    ProducerGap,
    StreamClosed,
    StreamNotFound,
)
from headwater.core.lifecycle import ForkPoint
from headwater.core.stream import StreamState
from headwater.core.types import START, SeqNum, StreamId
from tests.support.builders import (
    JSON,
    TEXT,
    append,
    claim,
    create,
    fork_of,
    position,
    stream_state,
)

MINE, OTHERS = b"mine", b"others"
SEAL = (b"\x01", b"seal")


def encrypted(cipher: str = AEGIS_256, content_type: str = TEXT) -> StreamState:
    state = stream_state(content_type)
    state.cipher, state.seal_id = cipher, MINE
    return state


def sealed(*bodies: bytes, seal_id: bytes = MINE, refusal: str | None = None) -> Sealed:
    return Sealed(seal_id, list(bodies), [[SEAL] for _ in bodies], refusal)


def bring(what: Sealed, command: Append | None = None) -> Append:
    return msgspec.structs.replace(command or append(), body=b"", sealed=what)


def test_what_was_sealed_for_the_stream_is_added_as_it_is() -> None:
    assert rules.judge_append(encrypted(), bring(sealed(b"x"))) == [b"x"]
    assert rules.judge_append(encrypted(content_type=JSON), bring(sealed(b"\0", b"x"))) == [
        b"\0",
        b"x",
    ]


@pytest.mark.parametrize("state", [encrypted(), stream_state()], ids=["encrypted", "plain"])
def test_what_was_sealed_for_another_stream_is_not(state: StreamState) -> None:
    with pytest.raises(StreamNotFound):
        rules.judge_append(state, bring(sealed(b"x", seal_id=OTHERS)))


def test_what_is_not_sealed_is_not() -> None:
    with pytest.raises(KeyRequired, match=AEGIS_256):
        rules.judge_append(encrypted(), append(body=b"x"))


def test_what_was_wrong_with_a_body_comes_last() -> None:
    wrong = sealed(refusal="no JSON")
    with pytest.raises(InvalidRequest, match="no JSON"):
        rules.judge_append(encrypted(), bring(wrong))
    with pytest.raises(ContentTypeMismatch):
        rules.judge_append(encrypted(), bring(wrong, append(content_type=JSON)))
    with pytest.raises(ProducerGap):
        rules.judge_append(encrypted(), bring(wrong, append(producer=claim(seq=3))))
    with pytest.raises(PreconditionFailed):
        rules.judge_append(
            encrypted(), bring(wrong, msgspec.structs.replace(append(), expect=position(9, 9)))
        )
    state = encrypted()
    state.closed = True
    with pytest.raises(StreamClosed):
        rules.judge_append(state, bring(wrong))


def test_data_is_no_mere_close() -> None:
    state = encrypted()
    state.closed = True
    assert rules.judge_append(state, append(close=True)) is None
    with pytest.raises(StreamClosed):
        rules.judge_append(state, bring(sealed(b"x"), append(close=True)))


def test_aes_has_room_for_so_many_records() -> None:
    state = encrypted(AES_256_GCM)
    state.tail_seq = SeqNum(limits.AES_RECORDS_MAX - 2)
    assert rules.judge_append(state, bring(sealed(b"1", b"2"))) is not None
    parts = Sealed(MINE, [b"long"], [[SEAL, SEAL, SEAL]])
    with pytest.raises(CipherExhausted, match=AES_256_GCM):
        rules.judge_append(state, bring(parts))
    state.cipher = AEGIS_256
    assert rules.judge_append(state, bring(parts)) is not None


def test_a_sealed_command_survives_its_encoding() -> None:
    made = msgspec.structs.replace(
        create(), cipher=AEGIS_256, seal_id=MINE, sealed=sealed(b"x"), sealed_after=StreamId(3)
    )
    for command in (bring(sealed(b"x", refusal="why")), made):
        assert decode(encode(command)) == command


# -- new streams


def new(command: Create, **fields: object) -> Create:
    return msgspec.structs.replace(command, **fields)


def test_a_new_stream_has_the_cipher_of_its_command() -> None:
    command = new(create(), cipher=AEGIS_256, seal_id=MINE, sealed=sealed(b"x"))
    state = lifecycle.new_stream(command, StreamId(1))
    assert (state.cipher, state.seal_id) == (AEGIS_256, MINE)
    assert lifecycle.first_messages(state, command) == [b"x"]
    assert lifecycle.first_messages(state, new(command, sealed=None)) == []
    with pytest.raises(KeyRequired):
        lifecycle.first_messages(state, new(command, sealed=None, body=b"x"))
    with pytest.raises(InvalidRequest, match="no JSON"):
        lifecycle.first_messages(state, new(command, sealed=sealed(refusal="no JSON")))


def test_a_fork_has_its_source_s_cipher_and_a_seal_id_of_its_own() -> None:
    source = encrypted(AES_256_GCM)
    command = new(create(content_type=None, fork=fork_of("s")), cipher=AEGIS_256, seal_id=OTHERS)
    point = ForkPoint(START, 0)
    state = lifecycle.forked_stream(command, StreamId(2), source, point)
    assert (state.cipher, state.seal_id) == (AES_256_GCM, OTHERS)
    state = lifecycle.forked_stream(command, StreamId(2), stream_state(), point)
    assert (state.cipher, state.seal_id) == (AEGIS_256, OTHERS)


def test_a_fork_is_made_only_of_the_source_it_was_sealed_after() -> None:
    fork = create(content_type=None, fork=fork_of("s"))
    source = encrypted()
    prepared = new(fork, seal_id=OTHERS, sealed_after=source.id)
    assert lifecycle.judge_source(source, prepared) is source
    with pytest.raises(StreamNotFound):
        lifecycle.judge_source(source, fork)
    with pytest.raises(StreamNotFound):
        lifecycle.judge_source(source, new(prepared, sealed_after=StreamId(source.id + 1)))
    assert lifecycle.judge_source(stream_state(), fork) is not None
