"""The rate limiter: a second's worth at once, then as the bucket fills, and bounded memory."""

from __future__ import annotations

import pytest

from headwater.server.limits import RateLimiter, client_key
from tests.support.clock import FakeClock


def limiter(clock: FakeClock, per_second: float = 10, addresses_max: int = 100) -> RateLimiter:
    return RateLimiter(per_second, monotonic_s=clock.monotonic_s, addresses_max=addresses_max)


def admitted(limits: RateLimiter, count: int, address: str = "1.1.1.1") -> int:
    return sum(1 for _ in range(count) if not limits.admit(address))


def test_a_burst_of_one_second_is_admitted_and_no_more() -> None:
    limits = limiter(FakeClock(), per_second=10)
    assert admitted(limits, 15) == 10
    assert limits.refused_total == 5


def test_the_bucket_fills_at_the_rate() -> None:
    clock = FakeClock()
    limits = limiter(clock, per_second=10)
    admitted(limits, 10)
    clock.advance(0.3)
    assert admitted(limits, 10) == 3


def test_the_bucket_holds_one_second_however_long_the_pause() -> None:
    clock = FakeClock()
    limits = limiter(clock, per_second=10)
    admitted(limits, 10)
    clock.advance(3600)
    assert admitted(limits, 100) == 10


def test_a_refusal_says_how_long_to_wait() -> None:
    clock = FakeClock()
    limits = limiter(clock, per_second=10)
    admitted(limits, 10)
    wait_s = limits.admit("1.1.1.1")
    assert wait_s == pytest.approx(0.1)
    clock.advance(wait_s)
    assert not limits.admit("1.1.1.1")


def test_refused_requests_do_not_put_off_the_next_admission() -> None:
    clock = FakeClock()
    limits = limiter(clock, per_second=1)
    assert admitted(limits, 100) == 1
    clock.advance(1)
    assert admitted(limits, 100) == 1


def test_clients_are_limited_each_on_its_own() -> None:
    limits = limiter(FakeClock(), per_second=1)
    assert admitted(limits, 2, "1.1.1.1") == 1
    assert admitted(limits, 2, "1.1.1.2") == 1


def test_the_client_unseen_for_longest_is_forgotten_first() -> None:
    limits = limiter(FakeClock(), per_second=1, addresses_max=2)
    for address in ("1.1.1.1", "1.1.1.2", "1.1.1.1", "1.1.1.3"):
        limits.admit(address)
    assert len(limits) == 2
    assert admitted(limits, 1, "1.1.1.1") == 0
    assert admitted(limits, 1, "1.1.1.2") == 1


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        pytest.param("10.0.0.1", "10.0.0.2", False, id="two IPv4 addresses"),
        pytest.param("2001:db8::1", "2001:db8::2", True, id="one IPv6 network"),
        pytest.param("2001:db8::1", "2001:db8:0:1::1", False, id="two IPv6 networks"),
        pytest.param("::ffff:10.0.0.1", "10.0.0.1", True, id="IPv4 in IPv6 form"),
        pytest.param("fe80::1%eth0", "not:an:address", False, id="what cannot be parsed"),
    ],
)
def test_what_counts_as_one_client(one: str, other: str, same: bool) -> None:
    assert (client_key(one) == client_key(other)) is same
