"""Who asked, and how, when a proxy stands between: X-Forwarded-For, -Proto and -Host.

Anybody can send these headers, so they count only when the connection comes from a network that
the operator trusts. The dialects see a request as the client made it.
"""

from __future__ import annotations

import re
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from headwater.wire.http import Request

_HOST = re.compile(rb"[A-Za-z0-9._-]+(?::[0-9]{1,5})?|\[[0-9A-Fa-f:.]+\](?::[0-9]{1,5})?")
_HOP_WITH_PORT = re.compile(r"\[([0-9A-Fa-f:.]+)\](?::[0-9]+)?|([0-9.]+):[0-9]+")

HOPS_MAX = 32
"""Proxies in one chain. What lies beyond is not looked at."""

_PEERS_REMEMBERED_MAX = 4096

Address = IPv4Address | IPv6Address


class TrustedProxies:
    """Applies the forwarded headers of requests that come through trusted networks."""

    def __init__(self, networks: str) -> None:
        self._networks: list[IPv4Network | IPv6Network] = [
            ip_network(item, strict=False) for item in networks.split(",") if item
        ]
        self._peers: dict[str, bool] = {}

    def apply(self, request: Request) -> None:
        """Make `peer`, `secure` and the host of `request` those of the client."""
        if not self._is_trusted_peer(request.peer):
            return
        headers = request.headers
        chain = headers.get(b"x-forwarded-for")
        if chain is not None:
            request.peer = self._find_client(chain.decode("latin-1"), request.peer)
        scheme = _last(headers.get(b"x-forwarded-proto")).lower()
        if scheme in (b"http", b"https"):
            request.secure = scheme == b"https"
        host = _last(headers.get(b"x-forwarded-host"))
        if _HOST.fullmatch(host) is not None:
            headers[b"host"] = host

    def _is_trusted_peer(self, peer: str) -> bool:
        known = self._peers.get(peer)
        if known is None:
            address = _parse_address(peer)
            known = address is not None and self._trusts(address)
            if len(self._peers) >= _PEERS_REMEMBERED_MAX:
                self._peers.clear()
            self._peers[peer] = known
        return known

    def _trusts(self, address: Address) -> bool:
        return any(address in network for network in self._networks)

    def _find_client(self, chain: str, peer: str) -> str:
        """The last hop that is no proxy of ours: what stands before it is only a claim."""
        client = peer
        for hop in reversed(chain.rsplit(",", HOPS_MAX)[-HOPS_MAX:]):
            address = _parse_hop(hop.strip())
            if address is None:
                break
            client = str(address)
            if not self._trusts(address):
                break
        return client


def _last(value: bytes | None) -> bytes:
    """What the nearest proxy said, if several added their own."""
    return b"" if value is None else value.rpartition(b",")[2].strip()


def _parse_hop(hop: str) -> Address | None:
    with_port = _HOP_WITH_PORT.fullmatch(hop)
    return _parse_address((with_port[1] or with_port[2]) if with_port else hop)


def _parse_address(text: str) -> Address | None:
    try:
        address = ip_address(text)
    except ValueError:
        return None
    # A socket that serves both families shows IPv4 clients in this form.
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address
