"""Access tokens: issued, listed, revoked, recognised. S2 API: access tokens.

A token is 256 random bits, shown once. What is kept is its SHA-256: with that much chance in it
there is nothing to guess, so a slow hash would only slow the server. Every token is in memory, and
on disk as a document of its own:

    access-token / {id}   MessagePack of StoredToken. Frozen: fields are only ever added.
"""

from __future__ import annotations

import base64
import hashlib
from bisect import bisect_left, bisect_right, insort
from itertools import islice, takewhile
from typing import NamedTuple

import msgspec

from headwater.core.access import EVERYTHING, Grant, Operation, Scope
from headwater.core.errors import (
    Conflict,
    InvalidRequest,
    NotFound,
    PermissionDenied,
    TooManyRequests,
    Unauthenticated,
)
from headwater.core.pending import Pending
from headwater.core.types import TimestampMs
from headwater.engine.engine import Engine

COLLECTION = "access-token"
SECRET_BYTES = 32
SECRET_PREFIX = "hw_"
"""So that scanners for leaked secrets, and people, know one when they see it."""
TOKENS_MAX = 100_000
ID_BYTES_MAX = 96
HEADERS_CACHED_MAX = 10_000
CACHED_HEADER_BYTES_MAX = 256
"""`Authorization` headers that need not be taken apart and hashed again."""


class StoredToken(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One token on disk."""

    hash: bytes
    scope: Scope
    created_at_ms: TimestampMs
    expires_at_ms: TimestampMs | None = None
    auto_prefix: bool = False
    expires_finer: str = ""
    """Digits of a second after those of the milliseconds, which only a list shows."""


class Asked(NamedTuple):
    """The token that somebody wants."""

    id: str
    scope: Scope
    expires_at_ms: TimestampMs | None = None
    auto_prefix: bool = False
    expires_finer: str = ""


class Page(NamedTuple):
    """Some tokens in the order of their ids, and whether there are more."""

    tokens: list[tuple[str, StoredToken]]
    has_more: bool


_encode = msgspec.msgpack.Encoder().encode
_decoder = msgspec.msgpack.Decoder(StoredToken)


class Tokens:
    """The tokens of one server."""

    def __init__(self, engine: Engine, *, root_secret: str = "") -> None:
        """`root_secret` is a token that permits everything and is kept nowhere."""
        self._engine = engine
        self._stored: dict[str, StoredToken] = {}
        self._ids: list[str] = []
        """In their order, for lists."""
        self._grants: dict[str, Grant] = {}
        self._by_hash: dict[bytes, Grant] = {}
        self._by_header: dict[bytes, Grant] = {}
        self._being_issued: set[str] = set()
        for token_id, value in engine.shard.documents(COLLECTION):
            self._add(token_id, _decoder.decode(value))
        if root_secret:
            self._by_hash[_hash(root_secret.encode())] = Grant("", EVERYTHING)

    def __len__(self) -> int:
        return len(self._by_hash)

    # -- who asks

    def authenticate(self, header: bytes | None) -> Grant:
        """The grant of an `Authorization` header. Raises Unauthenticated."""
        if header is None:
            raise Unauthenticated("send an access token as Authorization: Bearer <token>")
        grant = self._by_header.get(header)
        if grant is None:
            grant = self._recognise(header)
        # One that was revoked is not found any more.
        if grant.expires_at_ms is not None and grant.is_over(self._engine.clock.now_ms()):
            raise Unauthenticated("the access token has expired")
        return grant

    def _recognise(self, header: bytes) -> Grant:
        scheme, _, secret = header.partition(b" ")
        if scheme.lower() != b"bearer":
            raise Unauthenticated("send an access token as Authorization: Bearer <token>")
        grant = self._by_hash.get(_hash(secret.strip()))
        if grant is None:
            raise Unauthenticated("the access token is not known here, or was revoked")
        if len(self._by_header) >= HEADERS_CACHED_MAX:
            self._by_header.clear()
        if len(header) <= CACHED_HEADER_BYTES_MAX:
            self._by_header[header] = grant
        return grant

    # -- what there is

    def issue(self, asked: Asked, issuer: Grant | None) -> Pending[str]:
        """A new token, durable when it resolves to its text. `issuer` None may issue anything.

        Fails with InvalidRequest, PermissionDenied (it would reach further than its issuer),
        Conflict (the id is taken), TooManyRequests.
        """
        answer: Pending[str] = Pending()
        try:
            expires_at_ms = self._judge(asked, issuer)
        except (InvalidRequest, PermissionDenied, Conflict, TooManyRequests) as error:
            answer.fail(error)
            return answer
        clock = self._engine.clock
        secret = SECRET_PREFIX + _render(clock.random_bytes(SECRET_BYTES))
        token = StoredToken(
            hash=_hash(secret.encode()),
            scope=asked.scope,
            created_at_ms=clock.now_ms(),
            expires_at_ms=expires_at_ms,
            auto_prefix=asked.auto_prefix,
            expires_finer=asked.expires_finer if expires_at_ms == asked.expires_at_ms else "",
        )
        self._being_issued.add(asked.id)

        def saved(outcome: Exception | None) -> None:
            self._being_issued.discard(asked.id)
            if isinstance(outcome, Exception):
                answer.fail(outcome)
                return
            self._add(asked.id, token)
            answer.resolve(secret)

        self._engine.save_document(COLLECTION, asked.id, _encode(token)).deliver(saved)
        return answer

    def page(
        self, *, prefix: str, start_after: str, limit: int, viewer: Grant | None = None
    ) -> Page:
        """Tokens that `viewer` may know of; None may know all."""
        now_ms = self._engine.clock.now_ms()
        start = max(bisect_left(self._ids, prefix), bisect_right(self._ids, start_after))
        named = takewhile(
            lambda token_id: token_id.startswith(prefix), islice(self._ids, start, None)
        )
        seen = (
            token_id
            for token_id in named
            if not self._grants[token_id].is_over(now_ms)
            and (viewer is None or viewer.allows(Operation.LIST_ACCESS_TOKENS, token=token_id))
        )
        found = list(islice(seen, limit + 1))
        return Page(
            [(token_id, self._stored[token_id]) for token_id in found[:limit]],
            has_more=len(found) > limit,
        )

    def revoke(self, token_id: str) -> Pending[None]:
        """Of no use from now on; durably so when it resolves. Fails with NotFound."""
        answer: Pending[None] = Pending()
        if token_id not in self._stored:
            answer.fail(NotFound(f"no such access token. id={token_id}"))
            return answer
        self._remove(token_id)
        return self._engine.save_document(COLLECTION, token_id, None)

    # -- rules

    def _judge(self, asked: Asked, issuer: Grant | None) -> TimestampMs | None:
        """May it be issued? Returns when it expires."""
        now_ms = self._engine.clock.now_ms()
        if not asked.scope.operations():
            # These words, and those below, are S2's: tests of its SDKs compare them.
            raise InvalidRequest("Access token permissions cannot be empty")
        if asked.auto_prefix and not (asked.scope.streams and asked.scope.streams.prefix):
            raise InvalidRequest("Auto prefixing is only allowed for streams with prefix matching")
        if asked.expires_at_ms is not None and asked.expires_at_ms <= now_ms:
            raise InvalidRequest("expires_at has passed")
        expires_at_ms = asked.expires_at_ms
        if issuer is not None:
            if not asked.scope.is_within(issuer.scope):
                raise PermissionDenied("a token cannot reach further than the one that issues it")
            expires_at_ms = _bounded(expires_at_ms, issuer.expires_at_ms)
        known = self._grants.get(asked.id)
        if asked.id in self._being_issued or (known is not None and not known.is_over(now_ms)):
            raise Conflict(f"there is an access token of this id. id={asked.id}")
        if len(self._grants) >= TOKENS_MAX and not self._forget_expired(now_ms):
            raise TooManyRequests(f"there are {TOKENS_MAX} access tokens; revoke some first")
        return expires_at_ms

    # -- in memory

    def _add(self, token_id: str, token: StoredToken) -> None:
        self._remove(token_id)
        grant = Grant(
            token_id,
            token.scope,
            expires_at_ms=token.expires_at_ms,
            auto_prefix=token.auto_prefix,
        )
        self._stored[token_id] = token
        insort(self._ids, token_id)
        self._grants[token_id] = self._by_hash[token.hash] = grant

    def _remove(self, token_id: str) -> None:
        token = self._stored.pop(token_id, None)
        if token is not None:
            del self._ids[bisect_left(self._ids, token_id)]
            self._grants.pop(token_id).revoked = True
            del self._by_hash[token.hash]
            self._by_header.clear()

    def _forget_expired(self, now_ms: TimestampMs) -> int:
        expired = [token_id for token_id, grant in self._grants.items() if grant.is_over(now_ms)]
        for token_id in expired:
            self._remove(token_id)
            self._engine.save_document(COLLECTION, token_id, None).deliver(lambda _: None)
        return len(expired)


def _bounded(asked: TimestampMs | None, bound: TimestampMs | None) -> TimestampMs | None:
    """The issuer's end unless an earlier one is asked for."""
    if asked is None or bound is None:
        return bound if asked is None else asked
    return min(asked, bound)


def check_id(token_id: str) -> str:
    """Return the id of a token, or raise InvalidRequest."""
    size = len(token_id.encode())
    if not 1 <= size <= ID_BYTES_MAX or token_id in (".", "..") or "\0" in token_id:
        raise InvalidRequest(
            f"the id of an access token is 1 to {ID_BYTES_MAX} bytes, not . or .., without NUL"
        )
    return token_id


def _hash(secret: bytes) -> bytes:
    return hashlib.sha256(secret).digest()


def _render(secret: bytes) -> str:
    return base64.urlsafe_b64encode(secret).decode().rstrip("=")
