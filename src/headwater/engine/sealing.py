"""Sealing: records are encrypted before they are part of a command. S2 API: encryption.

The key comes with a request and goes with it: neither it nor anything in clear is in commands,
state or store. What is encrypted is the envelope of a record: its headers as a run has them, then
its body. The record that is stored instead has

    one header     name    u8       format: 1 AEGIS-256, 2 AES-256-GCM
                   value   nonce    32 or 12 bytes, chance
                           ciphertext of the headers
                           tag      16 bytes
    body           ciphertext of the body, and exactly as long

so that offsets, sizes, limits and cuts are those of the clear text (ADR 0009). The associated data
is the `seal_id` of the stream that writes: no record opens as one of another stream, and those that
a fork inherits open as what they are. Formats are frozen: they are stored.

Opening is in opening.py.
"""

from __future__ import annotations

import binascii
from base64 import b64decode
from collections.abc import Callable
from typing import Protocol

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from pyaegis import Aegis256, DecryptionError

from headwater.core import append, jsonmode, limits
from headwater.core.ciphers import AEGIS_256, AES_256_GCM, KEY_BYTES, SEAL_ID_BYTES
from headwater.core.command_records import find_commands
from headwater.core.commands import Append, AppendRecords, AppendSeries, Create, Sealed
from headwater.core.errors import InvalidRecord, InvalidRequest, KeyRequired
from headwater.core.records import RecordHeaders, split_message
from headwater.core.stream import StreamState
from headwater.storage.runs import encode_headers

TAG_BYTES = 16
_aegis = Aegis256(tag_size=TAG_BYTES)

Chance = Callable[[int], bytes]
"""Gives so many unguessable bytes."""
Seal = tuple[bytes, bytes]


class Cipher(Protocol):
    """One cipher with one key."""

    name: str
    format: bytes
    nonce_bytes: int

    def encrypt(self, nonce: bytes, data: bytes, associated: bytes) -> bytes:
        """The ciphertext and then the tag."""

    def decrypt(self, nonce: bytes, data: bytes, associated: bytes) -> bytes | None:
        """None when key, nonce, data and `associated` are not those of one encryption."""


class _Aegis256:
    name = AEGIS_256
    format = b"\x01"
    nonce_bytes = 32

    def __init__(self, key: bytes) -> None:
        self._key = key

    def encrypt(self, nonce: bytes, data: bytes, associated: bytes) -> bytes:
        return _aegis.encrypt(self._key, nonce, data, associated)

    def decrypt(self, nonce: bytes, data: bytes, associated: bytes) -> bytes | None:
        try:
            return _aegis.decrypt(self._key, nonce, data, associated)
        except DecryptionError:
            return None


class _Aes256Gcm:
    name = AES_256_GCM
    format = b"\x02"
    nonce_bytes = 12

    def __init__(self, key: bytes) -> None:
        self._aes = AESGCM(key)

    def encrypt(self, nonce: bytes, data: bytes, associated: bytes) -> bytes:
        return self._aes.encrypt(nonce, data, associated)

    def decrypt(self, nonce: bytes, data: bytes, associated: bytes) -> bytes | None:
        try:
            return self._aes.decrypt(nonce, data, associated)
        except InvalidTag:
            return None


_CIPHERS: dict[str, Callable[[bytes], Cipher]] = {
    AEGIS_256: _Aegis256,
    AES_256_GCM: _Aes256Gcm,
}


def take_key(cipher: str, header: bytes | None) -> Cipher:
    """The stream's cipher with the key that a request gives. Raises KeyRequired.

    Nothing of the key is told, not even of one that is malformed.
    """
    if header is None:
        raise KeyRequired(cipher)
    try:
        key = b64decode(header.strip(), validate=True)
    except (binascii.Error, ValueError):
        raise KeyRequired(cipher, "what came is not base64") from None
    if len(key) != KEY_BYTES:
        raise KeyRequired(cipher, f"what came has {len(key)} bytes")
    return _CIPHERS[cipher](key)


def seal_record(
    cipher: Cipher, seal_id: bytes, nonce: bytes, headers: RecordHeaders, body: bytes
) -> tuple[Seal, bytes]:
    """The seal and the body that are stored in place of a record's headers and body."""
    known = encode_headers(headers)
    sealed = cipher.encrypt(nonce, known + body, seal_id)
    start, end = len(known), len(known) + len(body)
    return (cipher.format, b"".join((nonce, sealed[:start], sealed[end:]))), sealed[start:end]


class Sealer:
    """Seals what one request adds to one stream."""

    def __init__(self, cipher: Cipher, seal_id: bytes, chance: Chance) -> None:
        self._cipher = cipher
        self._seal_id = seal_id
        self._chance = chance

    def seal(
        self, message: bytes, headers: RecordHeaders = (), *, whole: bool = False
    ) -> tuple[list[Seal], bytes]:
        """The seals of the records that a message becomes, only one if it is `whole`, and its
        body. Headers go with the first record."""
        seals, bodies = [], []
        for part in [message] if whole else split_message(message):
            nonce = self._chance(self._cipher.nonce_bytes)
            seal, body = seal_record(self._cipher, self._seal_id, nonce, headers, part)
            seals.append(seal)
            bodies.append(body)
            headers = ()
        return seals, bodies[0] if len(bodies) == 1 else b"".join(bodies)

    def seal_body(self, split: Callable[[], list[bytes]]) -> Sealed:
        """What `split` makes of a body; that it was no good, if that is so."""
        try:
            messages = split()
            if len(messages) > limits.APPEND_RECORDS_MAX:
                raise InvalidRequest(
                    f"an append to an encrypted stream has at most {limits.APPEND_RECORDS_MAX} "
                    f"messages. received={len(messages)}"
                )
            pairs = [self.seal(message) for message in messages]
        except InvalidRequest as error:
            return Sealed(self._seal_id, [], [], str(error))
        return Sealed(self._seal_id, [body for _, body in pairs], [seals for seals, _ in pairs])


def seal_append(
    state: StreamState, command: Append | AppendRecords, key: bytes | None, chance: Chance
) -> Append | AppendRecords:
    """The same append, sealed for an encrypted stream. Raises KeyRequired.

    What is wrong with it otherwise is told by core when its turn has come.
    """
    assert state.cipher is not None and state.seal_id is not None
    if isinstance(command, Append) and not command.body:
        return command
    if state.closed or state.deleted:  # refused, or a repeat: what it brings is of no use
        if isinstance(command, AppendRecords):
            return _without_records(state, command)
        return msgspec.structs.replace(command, body=b"", sealed=Sealed(state.seal_id, [], []))
    sealer = Sealer(take_key(state.cipher, key), state.seal_id, chance)
    if isinstance(command, AppendRecords):
        return _seal_records(state, command, sealer)
    body = command.body
    sealed = sealer.seal_body(lambda: append.split_body(body, json=state.json))
    return msgspec.structs.replace(command, body=b"", sealed=sealed)


def _without_records(
    state: StreamState, command: AppendRecords, refusal: tuple[int, str] | None = None
) -> AppendRecords:
    """What core will refuse in any case, it need not see."""
    return msgspec.structs.replace(
        command, bodies=[], headers=None, seal_id=state.seal_id, refusal=refusal
    )


def seal_series(
    state: StreamState, command: AppendSeries, key: bytes | None, chance: Chance
) -> AppendSeries:
    """The same appends, sealed. Raises KeyRequired."""
    assert state.cipher is not None and state.seal_id is not None
    sealer = Sealer(take_key(state.cipher, key), state.seal_id, chance)
    parts = [_seal_records(state, part, sealer) for part in command.parts]
    return msgspec.structs.replace(command, parts=parts)


def _seal_records(state: StreamState, command: AppendRecords, sealer: Sealer) -> AppendRecords:
    """Command records stay in clear: the server obeys them."""
    try:
        commands = find_commands(command.bodies, command.headers) if command.commands else {}
        clear = append.check_records(command, commands, json=state.json)
    except InvalidRecord as error:
        return _without_records(state, command, (error.index, error.problem))
    bodies: list[bytes] = []
    headers: list[list[tuple[bytes, bytes]]] = []
    for index, body in enumerate(clear):
        own = command.headers[index] if command.headers is not None else []
        if index not in commands:
            own, body = sealer.seal(body, own, whole=command.commands)
        bodies.append(body)
        headers.append(own)
    return msgspec.structs.replace(command, bodies=bodies, headers=headers, seal_id=state.seal_id)


def seal_create(
    command: Create,
    source: StreamState | None,
    bucket_cipher: str | None,
    key: bytes | None,
    chance: Chance,
) -> Create:
    """The same create if the stream is to be encrypted: with a `seal_id`, and what it begins with
    sealed for that. `source` is what it forks, if that is there. Raises KeyRequired."""
    cipher = bucket_cipher
    if source is not None and source.cipher is not None:
        cipher = source.cipher
    if cipher is None:
        return command
    seal_id, sealed, body = chance(SEAL_ID_BYTES), None, command.body
    if body:
        sealer = Sealer(take_key(cipher, key), seal_id, chance)
        json = _is_json(command, source)
        sealed = sealer.seal_body(lambda: jsonmode.flatten(body) if json else [body])
    return msgspec.structs.replace(
        command,
        body=b"",
        cipher=cipher,
        seal_id=seal_id,
        sealed=sealed,
        sealed_after=None if source is None else source.id,
    )


def _is_json(command: Create, source: StreamState | None) -> bool:
    if command.content_type is None:
        return source is not None and source.json
    return jsonmode.media_type(command.content_type) == jsonmode.JSON_MEDIA_TYPE
