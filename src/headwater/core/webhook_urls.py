"""Where webhooks may be sent: which URLs, which addresses. PROTOCOL §6.2, §12.8.

A webhook makes this server send requests for somebody else, so only public addresses are allowed,
and plain HTTP only to this very machine when the operator says so. The URL is judged when it is
given, the addresses its host resolves to before every connection. Pure: nothing is resolved here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
)
from urllib.parse import SplitResult, urlsplit

from headwater.core.limits import KIB

URL_BYTES_MAX = 2 * KIB
PORTS = {"http": 80, "https": 443}

_URL_CHARACTERS = re.compile(r"[!-~]+\Z")
_HOST_NAME = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?:\.[a-z0-9_-]{1,63})*\Z")
_ENDS_IN_NUMBER = re.compile(r"(?:.*\.)?(?:[0-9]+|0x[0-9a-f]*)\Z")
"""Resolvers take such a host for an IPv4 address in one of its many spellings."""

# The IANA registries of special-purpose addresses, plus multicast. Spelled out because the lists
# in `ipaddress` differ between Python versions.
_SPECIAL_V4 = tuple(
    IPv4Network(text)
    for text in (
        "0.0.0.0/8",
        "10.0.0.0/8",
        "100.64.0.0/10",
        "127.0.0.0/8",
        "169.254.0.0/16",
        "172.16.0.0/12",
        "192.0.0.0/24",
        "192.0.2.0/24",
        "192.88.99.0/24",
        "192.168.0.0/16",
        "198.18.0.0/15",
        "198.51.100.0/24",
        "203.0.113.0/24",
        "224.0.0.0/4",
        "240.0.0.0/4",
    )
)
_GLOBAL_V6 = IPv6Network("2000::/3")
_SPECIAL_V6 = tuple(IPv6Network(text) for text in ("2001::/23", "2001:db8::/32", "3fff::/20"))
_NAT64 = IPv6Network("64:ff9b::/96")
_LOOPBACK_V4 = IPv4Network("127.0.0.0/8")


class UrlRejected(Exception):
    """The server will not send webhooks there. The message says which rule forbids it."""


@dataclass(frozen=True, slots=True)
class WebhookPolicy:
    """What the operator allows."""

    allow_local: bool = False
    """Also this machine itself, and then without TLS: for development."""
    hosts: tuple[str, ...] = ()
    """Only these hosts; `*.example.com` stands for every host below it. Empty: any."""


@dataclass(frozen=True, slots=True)
class Target:
    """A webhook URL, taken apart and allowed."""

    tls: bool
    host: str
    port: int
    path: str
    """Path and query, as they go into the request line."""
    local: bool
    """It names this machine, so it must resolve to nothing else."""

    @property
    def authority(self) -> str:
        """The value of the Host header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return (
            host if self.port == PORTS["https" if self.tls else "http"] else f"{host}:{self.port}"
        )


def judge_url(url: str, policy: WebhookPolicy) -> Target:
    """Take a URL apart if webhooks may go there as far as the text tells. Raises UrlRejected."""
    parts = _split(url)
    tls = parts.scheme == "https"
    host = (parts.hostname or "").rstrip(".")
    literal = _judge_host(host)
    local = _names_this_machine(host, literal)
    if local and not policy.allow_local:
        raise UrlRejected(
            "webhooks to this machine are off; start the server with --allow-local-webhooks"
        )
    if not tls and not local:
        raise UrlRejected("a webhook URL uses https")
    if literal is not None and not local and not is_public(literal):
        raise UrlRejected("a webhook URL leads to a public address, not to a private or local one")
    if policy.hosts and not local and not _is_listed(host, policy.hosts):
        raise UrlRejected("this server sends webhooks to hosts its operator has listed only")
    path = parts.path or "/"
    if parts.query:
        path = f"{path}?{parts.query}"
    return Target(tls, host, _port(parts), path, local)


def judge_address(target: Target, address: str) -> None:
    """May we connect to what the target's host resolved to? Raises UrlRejected."""
    found = ip_address(address)
    allowed = is_loopback(found) if target.local else is_public(found)
    if not allowed:
        raise UrlRejected("the host of the webhook URL resolves to an address that is not allowed")


def is_public(address: IPv4Address | IPv6Address) -> bool:
    """Reachable for everybody, and nobody's inner network, however it is spelled."""
    if isinstance(address, IPv4Address):
        return not any(address in network for network in _SPECIAL_V4)
    inner = _inner_v4(address)
    if inner is not None:
        return is_public(inner)
    return address in _GLOBAL_V6 and not any(address in network for network in _SPECIAL_V6)


def is_loopback(address: IPv4Address | IPv6Address) -> bool:
    if isinstance(address, IPv6Address):
        return address.is_loopback
    return address in _LOOPBACK_V4


def _inner_v4(address: IPv6Address) -> IPv4Address | None:
    """The IPv4 address that a mapped, 6to4 or NAT64 address leads to."""
    if address in _NAT64:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour


def _split(url: str) -> SplitResult:
    if not _URL_CHARACTERS.match(url) or len(url) > URL_BYTES_MAX:
        raise UrlRejected(
            f"a webhook URL is at most {URL_BYTES_MAX} printable ASCII characters; "
            "write host names in punycode and percent-encode the rest"
        )
    try:
        parts = urlsplit(url)
        _port(parts)
    except ValueError:
        raise UrlRejected("webhook.url is not a valid URL") from None
    if parts.scheme not in PORTS or not parts.hostname:
        raise UrlRejected("a webhook URL is absolute and uses https")
    if parts.username is not None or parts.password is not None:
        raise UrlRejected("a webhook URL holds no user name or password; signatures prove us")
    return parts


def _port(parts: SplitResult) -> int:
    port = PORTS.get(parts.scheme, 0) if parts.port is None else parts.port
    if not port:
        raise ValueError("no such port")
    return port


def _judge_host(host: str) -> IPv4Address | IPv6Address | None:
    """The address, if the host is one. Raises UrlRejected when it is neither address nor name."""
    try:
        return ip_address(host)
    except ValueError:
        pass
    if not _HOST_NAME.match(host) or _ENDS_IN_NUMBER.match(host):
        raise UrlRejected("the host of the webhook URL is neither a name nor a plain address")
    return None


def _names_this_machine(host: str, literal: IPv4Address | IPv6Address | None) -> bool:
    if literal is None:
        return host == "localhost"
    return isinstance(literal, IPv4Address) and is_loopback(literal)


def _is_listed(host: str, hosts: tuple[str, ...]) -> bool:
    return any(
        host == entry or (entry.startswith("*.") and host.endswith(entry[1:])) for entry in hosts
    )
