"""Keys: signatures that others can check, tokens that only we can make."""

from __future__ import annotations

from base64 import urlsafe_b64decode
from collections.abc import Iterator
from functools import partial

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from headwater.core.subscription_config import Code
from headwater.engine.documents import Documents
from headwater.engine.signing import RETIRED_KEYS_MAX, SigningKeys, Tokens, key_id
from tests.support.engines import EngineRunner
from tests.support.subscriptions import refused


@pytest.fixture
def runner() -> Iterator[EngineRunner]:
    with EngineRunner() as found:
        yield found


def keys(runner: EngineRunner) -> SigningKeys:
    found = SigningKeys(Documents(runner.engine), runner.clock)
    runner.settle()
    return found


def tokens(runner: EngineRunner) -> Tokens:
    found = Tokens(Documents(runner.engine), runner.clock)
    runner.settle()
    return found


def unbase64(text: str) -> bytes:
    assert "=" not in text
    return urlsafe_b64decode(text + "==")


def verify(header: str, body: bytes, jwks: dict[str, list[dict[str, str]]]) -> None:
    """As a receiver does it. Raises InvalidSignature."""
    fields = dict(part.split("=", 1) for part in header.split(","))
    [jwk] = [key for key in jwks["keys"] if key["kid"] == fields["kid"]]
    public = Ed25519PublicKey.from_public_bytes(unbase64(jwk["x"]))
    public.verify(unbase64(fields["ed25519"]), f"{fields['t']}.".encode() + body)


def test_the_key_id_is_the_thumbprint_of_the_key() -> None:
    # RFC 8037, appendix A.2 and A.3.
    public = unbase64("11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo")
    assert key_id(public) == "ds_kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k"


def test_a_signature_can_be_checked_with_what_is_published(runner: EngineRunner) -> None:
    signing = keys(runner)
    header = signing.sign(b"body")
    assert header.startswith(f"t={runner.clock.now_ms() // 1000},kid=ds_")
    verify(header, b"body", signing.jwks())
    with pytest.raises(InvalidSignature):
        verify(header, b"other", signing.jwks())
    [jwk] = signing.jwks()["keys"]
    assert set(jwk) == {"kty", "crv", "kid", "use", "alg", "x"}
    assert (jwk["kty"], jwk["crv"], jwk["use"], jwk["alg"]) == ("OKP", "Ed25519", "sig", "EdDSA")


def test_keys_outlive_a_restart(runner: EngineRunner) -> None:
    before, token = keys(runner), tokens(runner).issue("s", 7)
    after = keys(runner)
    assert (after.kid, after.jwks()) == (before.kid, before.jwks())
    assert tokens(runner).verify(token, "s") == 7


def test_a_rotated_key_is_published_for_a_day(runner: EngineRunner) -> None:
    signing = keys(runner)
    old, header = signing.kid, signing.sign(b"body")
    signing.rotate()
    runner.settle()
    assert signing.kid != old
    verify(header, b"body", signing.jwks())
    verify(signing.sign(b"body"), b"body", signing.jwks())
    assert keys(runner).jwks() == signing.jwks()
    runner.clock.advance(24 * 3600)
    assert [key["kid"] for key in signing.jwks()["keys"]] == [signing.kid]


def test_rotating_often_does_not_publish_without_end(runner: EngineRunner) -> None:
    signing = keys(runner)
    for _ in range(RETIRED_KEYS_MAX + 5):
        signing.rotate()
    assert len({key["kid"] for key in signing.jwks()["keys"]}) == RETIRED_KEYS_MAX + 1


def test_a_token_is_good_for_its_subject_and_a_day(runner: EngineRunner) -> None:
    found = tokens(runner)
    token = found.issue("s", 7)
    assert found.verify(token, "s") == 7
    assert refused(lambda: found.verify(token, "other")) is Code.TOKEN_INVALID
    runner.clock.advance(24 * 3600 - 1)
    assert found.verify(token, "s") == 7
    runner.clock.advance(1)
    assert refused(lambda: found.verify(token, "s")) is Code.TOKEN_EXPIRED


def test_nobody_else_can_make_or_change_a_token(runner: EngineRunner) -> None:
    found = tokens(runner)
    claims, _, mac = found.issue("s", 7).partition(".")
    forged, _, _ = found.issue("s", 8).partition(".")
    for token in ("", ".", mac, f"{claims}.", f"{forged}.{mac}", f"{claims}.{mac}.x", "ü.ü"):
        assert refused(partial(found.verify, token, "s")) is Code.TOKEN_INVALID
