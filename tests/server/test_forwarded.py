"""Forwarded headers count from trusted networks only, and only as far as trust reaches."""

from __future__ import annotations

import pytest

from headwater.server.forwarded import TrustedProxies
from headwater.wire.http import Request

PROXIES = TrustedProxies("10.0.0.0/8,2001:db8::/32")


def seen(peer: str = "10.0.0.1", **headers: str) -> Request:
    given = {name.replace("_", "-").encode(): value.encode() for name, value in headers.items()}
    request = Request("GET", "/", "", {b"host": b"inside:4437", **given}, peer=peer)
    PROXIES.apply(request)
    return request


@pytest.mark.parametrize(
    ("chain", "client"),
    [
        pytest.param("9.9.9.9", "9.9.9.9", id="one client"),
        pytest.param("8.8.8.8, 9.9.9.9", "9.9.9.9", id="what the client claims is not believed"),
        pytest.param("9.9.9.9, 10.0.0.7", "9.9.9.9", id="through two proxies"),
        pytest.param("10.0.0.9, 10.0.0.7", "10.0.0.9", id="a client inside"),
        pytest.param("9.9.9.9:1234", "9.9.9.9", id="with a port"),
        pytest.param("[2003::1]:1234", "2003::1", id="IPv6 with a port"),
        pytest.param("2003::1", "2003::1", id="IPv6"),
        pytest.param("::ffff:9.9.9.9", "9.9.9.9", id="IPv4 in IPv6 form"),
        pytest.param("unknown", "10.0.0.1", id="nothing usable"),
        pytest.param("9.9.9.9, unknown", "10.0.0.1", id="what lies behind the unusable"),
        pytest.param("", "10.0.0.1", id="empty"),
        pytest.param(", ".join(["9.9.9.9", *["10.0.0.2"] * 50]), "10.0.0.2", id="too long a chain"),
    ],
)
def test_the_client_is_the_last_hop_that_is_no_proxy_of_ours(chain: str, client: str) -> None:
    assert seen(x_forwarded_for=chain).peer == client


def test_scheme_and_host_are_those_the_client_used() -> None:
    request = seen(x_forwarded_proto="https", x_forwarded_host="streams.example:8443")
    assert request.secure
    assert request.headers[b"host"] == b"streams.example:8443"


def test_the_nearest_proxy_is_believed() -> None:
    request = seen(x_forwarded_proto="http, https", x_forwarded_host="a.example, b.example")
    assert request.secure
    assert request.headers[b"host"] == b"b.example"


@pytest.mark.parametrize("host", ["a/b", "user@a", "a b", "a\\b", "", "a:b", "[::1"])
def test_a_host_that_could_bend_a_url_is_ignored(host: str) -> None:
    assert seen(x_forwarded_host=host).headers[b"host"] == b"inside:4437"


def test_an_unknown_scheme_is_ignored() -> None:
    assert not seen(x_forwarded_proto="gopher").secure


@pytest.mark.parametrize("peer", ["9.9.9.9", "", "2003::1"])
def test_nothing_is_believed_from_anybody_else(peer: str) -> None:
    request = seen(
        peer, x_forwarded_for="1.2.3.4", x_forwarded_proto="https", x_forwarded_host="evil"
    )
    assert (request.peer, request.secure) == (peer, False)
    assert request.headers[b"host"] == b"inside:4437"


@pytest.mark.parametrize("peer", ["::ffff:10.1.2.3", "2001:db8::5"])
def test_proxies_are_known_in_every_form(peer: str) -> None:
    assert seen(peer, x_forwarded_for="9.9.9.9").peer == "9.9.9.9"


def test_peers_are_remembered_in_bounds() -> None:
    for number in range(10_000):
        seen(f"11.0.{number // 256}.{number % 256}")
    assert seen(x_forwarded_for="9.9.9.9").peer == "9.9.9.9"
