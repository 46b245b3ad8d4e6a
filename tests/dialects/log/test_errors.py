"""One table from error class to response, complete."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headwater.core import errors
from headwater.core.errors import HeadwaterError
from headwater.core.types import BatchSeq, Epoch
from headwater.dialects.log.errors import RENDERERS, render_error
from headwater.wire.arrow_check import TooLarge
from tests.support.builders import position
from tests.support.log import LogReply

AT = position(7, 42)

EXAMPLES: list[tuple[Exception, int, str, dict[str, str]]] = [
    (errors.StreamClosed(AT), 409, "stream_closed", {"log-tail-seq": "7"}),
    (errors.ContentTypeMismatch(expected="a/b", received="c/d"), 409, "content_type_mismatch", {}),
    (errors.PreconditionFailed(AT), 412, "precondition_failed", {"log-tail-seq": "7"}),
    (errors.InvalidRecord(3, "no"), 422, "invalid_record", {}),
    (errors.FencingTokenMismatch("a"), 412, "fencing_token_mismatch", {}),
    (errors.KeyRequired("aes-256-gcm"), 400, "key_required", {}),
    (errors.DecryptionFailed("aes-256-gcm"), 400, "decryption_failed", {}),
    (errors.CipherExhausted("aes-256-gcm", 2**32), 422, "cipher_exhausted", {}),
    (errors.BucketNotFound("b"), 404, "bucket_not_found", {}),
    (errors.BucketExists("b"), 409, "bucket_exists", {}),
    (errors.BucketDeleting("b"), 409, "bucket_deleting", {}),
    (errors.SequenceRegression(last="b", received="a"), 409, "sequence_regression", {}),
    (errors.ProducerFenced(Epoch(3)), 403, "producer_fenced", {"producer-epoch": "3"}),
    (
        errors.ProducerGap(expected=BatchSeq(2), received=BatchSeq(9)),
        409,
        "producer_gap",
        {"producer-expected-seq": "2", "producer-received-seq": "9"},
    ),
    (errors.InvalidRequest("no"), 400, "invalid_request", {}),
    (errors.InvalidOffset("malformed"), 400, "invalid_request", {}),
    (
        errors.InvalidOffset("past the tail", tail=AT),
        416,
        "range_not_satisfiable",
        {"log-tail-seq": "7"},
    ),
    (errors.OffsetTrimmed(AT), 410, "offset_trimmed", {"log-first-seq": "7"}),
    (errors.StreamNotFound("s"), 404, "stream_not_found", {}),
    (errors.NotFound("no such thing"), 404, "not_found", {}),
    (errors.Conflict("not now"), 409, "conflict", {}),
    (errors.StreamGone("s"), 410, "stream_gone", {}),
    (errors.StreamExists("other"), 409, "stream_exists", {}),
    (errors.ForkRefused("no"), 409, "fork_refused", {}),
    (errors.NotFound("no"), 404, "not_found", {}),
    (errors.Conflict("no"), 409, "conflict", {}),
    (errors.Unauthenticated("who"), 401, "unauthenticated", {"www-authenticate": "Bearer"}),
    (errors.PermissionDenied("no", bucket="b", stream="s"), 404, "stream_not_found", {}),
    (errors.PermissionDenied("no", bucket="b"), 404, "not_found", {}),
    (errors.PermissionDenied("no"), 404, "not_found", {}),
    (
        errors.TooManyRequests("slow down", retry_after_s=5),
        429,
        "too_many_requests",
        {"retry-after": "5"},
    ),
    (errors.Overloaded("later"), 503, "overloaded", {"retry-after": "1"}),
    (errors.ReadOnly(), 405, "read_only", {"allow": "GET, HEAD, OPTIONS"}),
    (errors.DiskFull(), 507, "disk_full", {}),
    (errors.StorageFailed(), 503, "storage_failed", {}),
    (errors.Corruption("stream_id=1 seq=2"), 500, "corruption", {}),
    (TooLarge("no"), 413, "body_too_large", {}),
]


def concrete_subclasses(base: type[HeadwaterError]) -> Iterator[type[HeadwaterError]]:
    """The errors of core; a class with subclasses is a kind of error, not an error."""
    for found in base.__subclasses__():
        if found.__subclasses__():
            yield from concrete_subclasses(found)
        elif found.__module__ == errors.__name__:
            yield found


def test_every_error_is_rendered() -> None:
    assert RENDERERS.keys() == {*concrete_subclasses(HeadwaterError), TooLarge}


def test_every_renderer_has_an_example_here() -> None:
    assert {type(error) for error, *_ in EXAMPLES} == RENDERERS.keys()


@pytest.mark.parametrize(
    ("error", "status", "code", "headers"),
    EXAMPLES,
    ids=[f"{type(error).__name__} {status}" for error, status, *_ in EXAMPLES],
)
def test_an_error_has_its_status_its_code_and_its_facts(
    error: Exception, status: int, code: str, headers: dict[str, str]
) -> None:
    reply = LogReply(render_error(error))
    assert (reply.status, reply.error) == (status, code)
    common = LogReply(render_error(errors.InvalidRequest("no"))).headers
    assert reply.headers == {**common, **headers}


def test_what_is_corrupt_is_for_the_log_not_for_the_client() -> None:
    reply = LogReply(render_error(errors.Corruption("stream_id=17 seq=4")))
    assert b"17" not in reply.body


def test_what_is_no_error_of_ours_is_raised() -> None:
    with pytest.raises(ZeroDivisionError):
        render_error(ZeroDivisionError())
