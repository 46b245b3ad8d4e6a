"""How many requests per second one client may make.

Each address has a token bucket that fills at the limit's rate and holds one second of it. The
number of buckets is bounded; time comes in from outside.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from ipaddress import IPv6Address

ADDRESSES_MAX = 100_000
"""Clients remembered, about 20 MB. The one unseen for longest is forgotten, that is: forgiven."""

_IPV6_CLIENT_BITS = 64
"""A client is given at least this much of the IPv6 space, so its addresses count as one."""


class RateLimiter:
    """`per_second` requests for each client address, with a burst of as many."""

    def __init__(
        self,
        per_second: float,
        *,
        monotonic_s: Callable[[], float],
        addresses_max: int = ADDRESSES_MAX,
    ) -> None:
        assert per_second > 0
        self.refused_total = 0
        self._monotonic_s = monotonic_s
        self._addresses_max = addresses_max
        self._interval_s = 1 / per_second
        self._slack_s = 1 - self._interval_s if per_second > 1 else 0.0
        # When the bucket will be full again; a time that has passed is a full bucket. One number
        # says it all, since the bucket fills by itself (the "generic cell rate" form).
        self._full_at_s: OrderedDict[str, float] = OrderedDict()

    def __len__(self) -> int:
        return len(self._full_at_s)

    def admit(self, address: str) -> float:
        """0 if the request may go on; otherwise the seconds after which one may."""
        now = self._monotonic_s()
        key = client_key(address)
        buckets = self._full_at_s
        full_at = max(buckets.get(key, now), now)
        wait_s = full_at - now - self._slack_s
        if wait_s > 1e-9:  # less is rounding
            self.refused_total += 1
            buckets.move_to_end(key)
            return wait_s
        buckets[key] = full_at + self._interval_s
        buckets.move_to_end(key)
        if len(buckets) > self._addresses_max:
            buckets.popitem(last=False)
        return 0.0


def client_key(address: str) -> str:
    """What counts as one client: an IPv4 address, or an IPv6 network."""
    if ":" not in address:
        return address
    try:
        parsed = IPv6Address(address)
    except ValueError:
        return address
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return f"{int(parsed) >> 128 - _IPV6_CLIENT_BITS:x}"
