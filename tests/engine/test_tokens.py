"""Tokens are issued once, recognised by their hash, bounded by their issuer, and survive."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headwater.core.access import EVERY_NAME, EVERYTHING, Grant, Names, Operation, Scope
from headwater.core.errors import (
    Conflict,
    InvalidRequest,
    NotFound,
    PermissionDenied,
    StorageFailed,
    TooManyRequests,
    Unauthenticated,
)
from headwater.core.types import TimestampMs
from headwater.engine import tokens as module
from headwater.engine.tokens import COLLECTION, Asked, Tokens, check_id
from headwater.storage.memory import MemoryStore
from tests.support.clock import FakeClock
from tests.support.engines import EngineRunner
from tests.support.stores import DiskError, FaultyStore

HOUR_MS = 3_600_000
READS = Scope(Names(exact="b"), Names(prefix="s/"), ops=(Operation.READ,))


class TokenRunner(EngineRunner):
    """An engine and its tokens."""

    def __init__(self, store: MemoryStore | None = None, clock: FakeClock | None = None) -> None:
        super().__init__(store, clock)
        self.tokens = Tokens(self.engine)

    def issue(self, asked: Asked, issuer: Grant | None = None) -> str:
        return self.result(self.tokens.issue(asked, issuer))

    def grant(self, text: str) -> Grant:
        return self.tokens.authenticate(b"Bearer " + text.encode())

    def listed(self, **query: object) -> list[str]:
        page = self.tokens.page(**{"prefix": "", "start_after": "", "limit": 100, **query})  # type: ignore[arg-type]
        return [token_id for token_id, _ in page.tokens]

    def in_ms(self, later: int) -> TimestampMs:
        return TimestampMs(self.clock.now_ms() + later)


@pytest.fixture
def runner() -> Iterator[TokenRunner]:
    with TokenRunner() as runner:
        yield runner


def test_a_token_opens_what_it_was_issued_for(runner: TokenRunner) -> None:
    grant = runner.grant(runner.issue(Asked("t", READS)))
    assert grant.id == "t"
    assert grant.allows(Operation.READ, basin="b", stream="s/1")
    assert not grant.allows(Operation.APPEND, basin="b", stream="s/1")


@pytest.mark.parametrize("scheme", [b"Bearer ", b"bearer ", b"BEARER   "])
def test_the_scheme_is_written_in_any_case(runner: TokenRunner, scheme: bytes) -> None:
    text = runner.issue(Asked("t", READS)).encode()
    assert runner.tokens.authenticate(scheme + text).id == "t"
    assert runner.tokens.authenticate(scheme + text + b" ").id == "t"


@pytest.mark.parametrize(
    "header", [None, b"", b"Bearer", b"Bearer ", b"Bearer hw_wrong", b"Basic dDp0"]
)
def test_nothing_else_is_recognised(runner: TokenRunner, header: bytes | None) -> None:
    runner.issue(Asked("t", READS))
    with pytest.raises(Unauthenticated):
        runner.tokens.authenticate(header)


def test_the_id_is_no_token_and_two_tokens_differ(runner: TokenRunner) -> None:
    first, second = runner.issue(Asked("t", READS)), runner.issue(Asked("u", READS))
    assert first != second
    assert len(first) >= 43
    with pytest.raises(Unauthenticated):
        runner.grant("t")


def test_what_is_on_disk_does_not_contain_the_token(runner: TokenRunner) -> None:
    text = runner.issue(Asked("t", READS))
    stored = runner.engine.shard.document(COLLECTION, "t")
    assert stored is not None
    assert text.encode() not in stored
    assert text.removeprefix("hw_").encode() not in stored


def test_tokens_survive_a_restart() -> None:
    store, clock = MemoryStore(), FakeClock()
    with TokenRunner(store, clock) as runner:
        kept = runner.issue(Asked("t", READS, runner.in_ms(HOUR_MS), auto_prefix=True))
        gone = runner.issue(Asked("u", READS))
        runner.result(runner.tokens.revoke("u"))
    with TokenRunner(store, clock) as runner:
        grant = runner.grant(kept)
        assert (grant.scope, grant.stream_prefix) == (READS, "s/")
        assert grant.expires_at_ms == runner.in_ms(HOUR_MS)
        with pytest.raises(Unauthenticated):
            runner.grant(gone)


def test_a_token_is_of_use_only_once_it_is_durable() -> None:
    store = FaultyStore(MemoryStore())
    with EngineRunner(store, on_failed=lambda: None) as runner:
        tokens = Tokens(runner.engine)
        store.sync_error = DiskError()
        outcome = runner.outcome(tokens.issue(Asked("t", READS), None))
        assert isinstance(outcome, StorageFailed)
        assert len(tokens) == 0


# -- its end


def test_a_revoked_token_is_of_no_use_at_once(runner: TokenRunner) -> None:
    text = runner.issue(Asked("t", READS))
    grant = runner.grant(text)
    revoked = runner.tokens.revoke("t")
    assert grant.is_over(runner.clock.now_ms())
    with pytest.raises(Unauthenticated):
        runner.grant(text)
    runner.result(revoked)
    with pytest.raises(NotFound):
        runner.result(runner.tokens.revoke("t"))


def test_a_token_expires(runner: TokenRunner) -> None:
    text = runner.issue(Asked("t", READS, runner.in_ms(1000)))
    runner.clock.advance(0.999)
    runner.grant(text)
    runner.clock.advance(0.001)
    with pytest.raises(Unauthenticated, match="expired"):
        runner.grant(text)
    assert runner.listed() == []


def test_the_id_of_an_expired_token_is_free(runner: TokenRunner) -> None:
    old = runner.issue(Asked("t", READS, runner.in_ms(1000)))
    runner.clock.advance(2)
    new = runner.issue(Asked("t", READS))
    assert runner.grant(new).id == "t"
    with pytest.raises(Unauthenticated):
        runner.grant(old)


def test_an_id_is_taken_from_the_moment_it_is_asked_for(runner: TokenRunner) -> None:
    first = runner.tokens.issue(Asked("t", READS), None)
    second = runner.tokens.issue(Asked("t", READS), None)
    assert isinstance(runner.outcome(second), Conflict)
    assert runner.result(first)
    with pytest.raises(Conflict):
        runner.issue(Asked("t", READS))


# -- rules


def test_a_token_cannot_reach_further_than_its_issuer(runner: TokenRunner) -> None:
    issuer = runner.grant(runner.issue(Asked("issuer", READS)))
    narrower = Scope(Names(exact="b"), Names(exact="s/1"), ops=(Operation.READ,))
    assert runner.grant(runner.issue(Asked("t", narrower), issuer)).scope == narrower
    for wider in (
        Scope(Names(exact="c"), Names(exact="s/1"), ops=(Operation.READ,)),
        Scope(Names(exact="b"), EVERY_NAME, ops=(Operation.READ,)),
        Scope(Names(exact="b"), Names(exact="s/1"), ops=(Operation.READ, Operation.APPEND)),
    ):
        with pytest.raises(PermissionDenied):
            runner.issue(Asked("u", wider), issuer)
    assert runner.listed() == ["issuer", "t"]


@pytest.mark.parametrize(
    ("issuers", "asked", "expected"),
    [(None, None, None), (None, 5, 5), (9, None, 9), (9, 5, 5), (9, 12, 9)],
)
def test_expiry_defaults_to_the_issuers_and_is_bounded_by_it(
    runner: TokenRunner, issuers: int | None, asked: int | None, expected: int | None
) -> None:
    def at(hours: int | None) -> TimestampMs | None:
        return None if hours is None else runner.in_ms(hours * HOUR_MS)

    issuer = Grant("issuer", EVERYTHING, expires_at_ms=at(issuers))
    text = runner.issue(Asked("t", READS, at(asked)), issuer)
    assert runner.grant(text).expires_at_ms == at(expected)


@pytest.mark.parametrize(
    "asked",
    [
        Asked("t", Scope(EVERY_NAME, EVERY_NAME)),
        Asked("t", Scope(ops=())),
        Asked("t", Scope(ops=(Operation.READ,)), auto_prefix=True),
        Asked("t", Scope(streams=EVERY_NAME, ops=(Operation.READ,)), auto_prefix=True),
        Asked("t", Scope(streams=Names(exact="s"), ops=(Operation.READ,)), auto_prefix=True),
        Asked("t", READS, TimestampMs(1)),
    ],
    ids=["no operation", "empty ops", "no streams", "empty prefix", "exact stream", "past"],
)
def test_what_makes_no_sense_is_refused(runner: TokenRunner, asked: Asked) -> None:
    with pytest.raises(InvalidRequest):
        runner.issue(asked)
    assert runner.listed() == []


def test_there_are_only_so_many_but_expired_ones_make_room(
    runner: TokenRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "TOKENS_MAX", 2)
    runner.issue(Asked("a", READS, runner.in_ms(1000)))
    runner.issue(Asked("b", READS))
    with pytest.raises(TooManyRequests):
        runner.issue(Asked("c", READS))
    runner.clock.advance(2)
    runner.issue(Asked("c", READS))
    runner.settle()
    assert [name for name, _ in runner.engine.shard.documents(COLLECTION)] == ["b", "c"]


def test_recognised_headers_are_forgotten_before_they_are_too_many(
    runner: TokenRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "HEADERS_CACHED_MAX", 2)
    texts = [runner.issue(Asked(str(number), READS)) for number in range(5)]
    for number, text in enumerate(texts * 2):
        assert runner.grant(text).id == str(number % 5)


def test_long_headers_are_recognised_and_not_kept(runner: TokenRunner) -> None:
    text = runner.issue(Asked("a", READS)).encode()
    for spaces in (1, 2, 1000, 2000):
        header = b"Bearer" + b" " * spaces + text
        assert runner.tokens.authenticate(header).id == "a"
    assert len(runner.tokens._by_header) == 2  # noqa: SLF001


# -- lists


def test_lists_are_in_order_and_come_in_pages(runner: TokenRunner) -> None:
    for token_id in ("b", "a", "ab", "c"):
        runner.issue(Asked(token_id, READS))
    assert runner.listed() == ["a", "ab", "b", "c"]
    assert runner.listed(prefix="a") == ["a", "ab"]
    assert runner.listed(start_after="ab") == ["b", "c"]
    assert runner.listed(start_after="a", prefix="b") == ["b"]
    first = runner.tokens.page(prefix="", start_after="", limit=3)
    assert ([token_id for token_id, _ in first.tokens], first.has_more) == (["a", "ab", "b"], True)
    rest = runner.tokens.page(prefix="", start_after="b", limit=3)
    assert ([token_id for token_id, _ in rest.tokens], rest.has_more) == (["c"], False)


def test_a_viewer_sees_the_tokens_of_its_scope(runner: TokenRunner) -> None:
    for token_id in ("team-1", "team-2", "other"):
        runner.issue(Asked(token_id, READS))
    scope = Scope(access_tokens=Names(prefix="team-"), ops=(Operation.LIST_ACCESS_TOKENS,))
    assert runner.listed(viewer=Grant("v", scope)) == ["team-1", "team-2"]


@pytest.mark.parametrize("token_id", ["", ".", "..", "a\0b", "x" * 97, "é" * 49])
def test_an_id_that_breaks_a_rule_is_refused(token_id: str) -> None:
    with pytest.raises(InvalidRequest):
        check_id(token_id)


def test_a_root_token_of_the_settings_is_kept_nowhere(runner: TokenRunner) -> None:
    tokens = Tokens(runner.engine, root_secret="a secret of mine")
    grant = tokens.authenticate(b"Bearer a secret of mine")
    assert grant.allows(Operation.DELETE_BASIN, basin="b")
    assert tokens.page(prefix="", start_after="", limit=10).tokens == []
    assert list(runner.engine.shard.documents(COLLECTION)) == []
