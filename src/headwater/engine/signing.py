"""The server's keys: Ed25519 for webhooks, a secret for tokens. PROTOCOL §6.5, §7.1, §12.9.

Both are documents, so that signatures and tokens outlive a restart. A token is what a wake's
worker shows: base64url of {sub, gen, exp} as JSON, a dot, base64url of its HMAC-SHA256.
"""

from __future__ import annotations

import hashlib
import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from headwater.core.subscription_config import Code, SubscriptionError
from headwater.core.types import TimestampMs
from headwater.engine.clock import Clock
from headwater.engine.documents import Documents

COLLECTION = "keys"
SIGNING_KEYS = "webhook-signing"
TOKEN_SECRET = "subscription-tokens"

SECRET_BYTES = 32
TOKEN_TTL_MS = 24 * 3600 * 1000
"""A lease fences far sooner; this bounds what a token found in a log years later can do."""
RETIRED_KEY_MS = 24 * 3600 * 1000
"""Receivers refuse signatures older than minutes, so by then nobody needs the key. §6.5."""
RETIRED_KEYS_MAX = 32


class _Retired(msgspec.Struct, frozen=True, array_like=True):
    public: bytes
    at_ms: TimestampMs


class _Stored(msgspec.Struct, frozen=True, array_like=True):
    """The document of the signing keys. Frozen: fields are only ever added at the end."""

    private: bytes
    retired: tuple[_Retired, ...] = ()


class _Claims(msgspec.Struct, frozen=True):
    sub: str
    gen: int
    exp: int


class SigningKeys:
    """The key that signs webhooks, and the ones that did until recently."""

    def __init__(self, documents: Documents, clock: Clock) -> None:
        """Loads the keys, or makes them: durable before anything that is saved later."""
        self._documents = documents
        self._clock = clock
        found = documents.read(COLLECTION, SIGNING_KEYS)
        if found is None:
            self._use(_Stored(clock.random_bytes(SECRET_BYTES)))
            self._save()
        else:
            self._use(msgspec.msgpack.decode(found, type=_Stored))

    def _use(self, stored: _Stored) -> None:
        self._stored = stored
        self._private = Ed25519PrivateKey.from_private_bytes(stored.private)
        self._public = self._private.public_key().public_bytes_raw()
        self.kid = key_id(self._public)

    def _save(self) -> None:
        self._documents.save(COLLECTION, SIGNING_KEYS, msgspec.msgpack.encode(self._stored))

    def rotate(self) -> None:
        """Sign with a new key from now on; publish the old one until it cannot matter."""
        retired = (_Retired(self._public, self._clock.now_ms()), *self._fresh())
        private = self._clock.random_bytes(SECRET_BYTES)
        self._use(_Stored(private, retired[:RETIRED_KEYS_MAX]))
        self._save()

    def _fresh(self) -> list[_Retired]:
        oldest = self._clock.now_ms() - RETIRED_KEY_MS
        return [key for key in self._stored.retired if key.at_ms > oldest]

    def sign(self, body: bytes) -> str:
        """The value of `Webhook-Signature` for a body that leaves now. PROTOCOL §7.1."""
        seconds = self._clock.now_ms() // 1000
        signature = self._private.sign(b"%d.%b" % (seconds, body))
        return f"t={seconds},kid={self.kid},ed25519={_base64(signature)}"

    def jwks(self) -> dict[str, list[dict[str, str]]]:
        """The public keys. PROTOCOL §6.5."""
        publics = [self._public, *(key.public for key in self._fresh())]
        return {"keys": [_jwk(public) for public in publics]}


def key_id(public: bytes) -> str:
    """`ds_` and the key's thumbprint. RFC 7638, RFC 8037 appendix A.3."""
    thumbprint = b'{"crv":"Ed25519","kty":"OKP","x":"%b"}' % _base64(public).encode()
    return f"ds_{_base64(hashlib.sha256(thumbprint).digest())}"


def _jwk(public: bytes) -> dict[str, str]:
    return {
        "kty": "OKP",
        "crv": "Ed25519",
        "kid": key_id(public),
        "use": "sig",
        "alg": "EdDSA",
        "x": _base64(public),
    }


class Tokens:
    """Makes and checks the tokens of wakes."""

    def __init__(self, documents: Documents, clock: Clock) -> None:
        self._clock = clock
        found = documents.read(COLLECTION, TOKEN_SECRET)
        if found is None:
            found = clock.random_bytes(SECRET_BYTES)
            documents.save(COLLECTION, TOKEN_SECRET, found)
        self._secret = found

    def issue(self, subject: str, generation: int) -> str:
        expires_at_ms = self._clock.now_ms() + TOKEN_TTL_MS
        claims = _base64(msgspec.json.encode(_Claims(subject, generation, expires_at_ms // 1000)))
        return f"{claims}.{self._mac(claims)}"

    def verify(self, token: str, subject: str) -> int:
        """The generation a token was issued for. Raises TOKEN_INVALID or TOKEN_EXPIRED."""
        claims, _, mac = token.partition(".")
        if not hmac.compare_digest(mac.encode(), self._mac(claims).encode()):
            raise _invalid()
        # What carries our signature is what we wrote: no need to check its form.
        found = msgspec.json.decode(_unbase64(claims), type=_Claims)
        if found.sub != subject:
            raise _invalid()
        if self._clock.now_ms() // 1000 >= found.exp:
            raise SubscriptionError(Code.TOKEN_EXPIRED, "the token has expired")
        return found.gen

    def _mac(self, claims: str) -> str:
        return _base64(hmac.digest(self._secret, claims.encode(), "sha256"))


def _invalid() -> SubscriptionError:
    return SubscriptionError(Code.TOKEN_INVALID, "the token is not one of this subscription")


def _base64(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()


def _unbase64(text: str) -> bytes:
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))
