"""One table from error class to response, complete, with the codes of the API."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headwater.core import errors
from headwater.core.errors import HeadwaterError
from headwater.core.types import BatchSeq, Epoch
from headwater.dialects.s2.errors import (
    RENDERERS,
    STATUSES,
    Refused,
    Unsatisfiable,
    error_response,
    render_error,
)
from headwater.wire.s2.records import Place
from tests.support.builders import position
from tests.support.s2 import S2Reply

AT = position(7, 42)

EXAMPLES: list[tuple[Exception, str]] = [
    (errors.StreamClosed(AT), "409 stream_closed"),
    (errors.InvalidRecord(3, "no"), "422 invalid"),
    (errors.KeyRequired("aes-256-gcm"), "400 bad_header"),
    (errors.DecryptionFailed("aes-256-gcm"), "400 decryption_failed"),
    (errors.CipherExhausted("aes-256-gcm", 2**32), "422 invalid"),
    (errors.BucketNotFound("b"), "404 basin_not_found"),
    (errors.BucketExists("b"), "409 resource_already_exists"),
    (errors.BucketDeleting("b"), "409 basin_deletion_pending"),
    (errors.ContentTypeMismatch(expected="a/b", received="c/d"), "422 invalid"),
    (errors.SequenceRegression(last="b", received="a"), "422 invalid"),
    (errors.ProducerFenced(Epoch(3)), "422 invalid"),
    (errors.ProducerGap(expected=BatchSeq(2), received=BatchSeq(9)), "422 invalid"),
    (errors.InvalidRequest("no"), "422 invalid"),
    (errors.InvalidOffset("malformed"), "422 invalid"),
    (errors.OffsetTrimmed(AT), "503 unavailable"),
    (errors.StreamNotFound("s"), "404 stream_not_found"),
    (errors.NotFound("no such thing"), "404 basin_not_found"),
    (errors.Conflict("not now"), "409 transaction_conflict"),
    (errors.StreamGone("s"), "409 stream_deletion_pending"),
    (errors.StreamExists("other"), "409 resource_already_exists"),
    (errors.ForkRefused("no"), "422 invalid"),
    (errors.TooManyRequests("slow down", retry_after_s=3), "429 rate_limited"),
    (errors.Overloaded("later"), "502 hot_server"),
    (errors.ReadOnly(), "403 permission_denied"),
    (errors.PermissionDenied("no"), "403 permission_denied"),
    (errors.Unauthenticated("who"), "401 authn"),
    (errors.DiskFull(), "503 unavailable"),
    (errors.StorageFailed(), "500 storage"),
    (errors.Corruption("id=7"), "500 storage"),
    (Refused("bad_path", "no"), "400 bad_path"),
]


@pytest.mark.parametrize(("error", "code"), EXAMPLES, ids=lambda value: type(value).__name__)
def test_an_error_has_its_code(error: Exception, code: str) -> None:
    assert S2Reply(render_error(error)).code == code


def test_three_errors_tell_a_fact_in_place_of_a_code() -> None:
    mismatch = S2Reply(render_error(errors.FencingTokenMismatch("x")))
    assert (mismatch.status, mismatch.json) == (412, {"fencing_token_mismatch": "x"})
    moved = S2Reply(render_error(errors.PreconditionFailed(AT)))
    assert (moved.status, moved.json) == (412, {"seq_num_mismatch": 7})
    beyond = S2Reply(render_error(Unsatisfiable(Place(3, 4))))
    assert (beyond.status, beyond.json) == (416, {"tail": {"seq_num": 3, "timestamp": 4}})


def test_what_is_stored_wrong_is_told_to_the_log_alone(caplog: pytest.LogCaptureFixture) -> None:
    reply = S2Reply(render_error(errors.Corruption("id=7")))

    assert "id=7" not in reply.json["message"]
    assert "id=7" in caplog.text


def test_a_wait_is_told_in_milliseconds_too() -> None:
    reply = S2Reply(render_error(errors.TooManyRequests("slow down", retry_after_s=3)))

    assert (reply.headers["retry-after"], reply.headers["retry-after-ms"]) == ("3", "3000")


def concrete(kind: type[HeadwaterError]) -> Iterator[type[HeadwaterError]]:
    """The errors of core; a class with subclasses is a kind of error, not an error."""
    for each in kind.__subclasses__():
        if each.__subclasses__():
            yield from concrete(each)
        elif each.__module__ == errors.__name__:
            yield each


def test_every_error_is_rendered() -> None:
    assert set(RENDERERS) == {Refused, Unsatisfiable, *concrete(HeadwaterError)}


def test_what_is_not_in_the_table_is_raised_again() -> None:
    with pytest.raises(LookupError):
        render_error(LookupError("a bug"))


def test_every_code_has_a_status() -> None:
    for code, status in STATUSES.items():
        assert error_response(code, "why").status == status
        assert 400 <= status <= 503
