"""Listening sockets and the TLS context. What can go wrong here is said in one line."""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from typing import cast

CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20"
"""Of TLS 1.2: those that HTTP/2 allows (RFC 9113 §9.2.2, Appendix A). TLS 1.3 has no others."""
BACKLOG = 4096
"""Connections that wait to be accepted; the kernel lowers it to its own limit."""


class StartFailed(Exception):
    """The server cannot start. The message is one line for whoever started it."""


def open_sockets(host: str, port: int) -> list[socket.socket]:
    """Bind every address of `host`, all to one port. They do not listen yet."""
    sockets: list[socket.socket] = []
    unavailable: OSError | None = None
    try:
        for family, address in _resolve(host, port):
            bound_port = sockets[0].getsockname()[1] if sockets else port
            try:
                sockets.append(_bind(family, (address, bound_port)))
            except OSError as error:
                # `localhost` may have an IPv6 address on a machine that has no IPv6.
                if error.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
                    raise
                unavailable = error
        if not sockets and unavailable is not None:
            raise unavailable
    except OSError as error:
        close_sockets(sockets)
        raise cannot_listen(host, port, error) from error
    return sockets


def close_sockets(sockets: list[socket.socket]) -> None:
    for sock in sockets:
        sock.close()


def cannot_listen(host: str, port: int, error: OSError) -> StartFailed:
    if error.errno == errno.EADDRINUSE:
        reason = "the port is in use; choose another with --port, or 0 for any free one"
    else:
        reason = (error.strerror or str(error)).lower()
    return StartFailed(f"cannot listen on {host} port {port}: {reason}")


def render_url(sock: socket.socket, *, secure: bool) -> str:
    """The URL of a bound socket."""
    host, port = sock.getsockname()[:2]
    scheme = "https" if secure else "http"
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def open_tls(cert: str, key: str) -> ssl.SSLContext:
    """A context for HTTPS with TLS 1.2 or newer."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(CIPHERS)
    context.set_alpn_protocols(["h2", "http/1.1"])
    try:
        context.load_cert_chain(cert, key)
    except ssl.SSLError as error:
        reason = error.reason or str(error)
        raise StartFailed(f"cannot use TLS certificate {cert} with key {key}: {reason}") from error
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise StartFailed(f"cannot read TLS certificate {cert} or key {key}: {reason}") from error
    return context


class Refused(asyncio.Protocol):
    """A connection too many: closed at once, before it costs anything."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        cast(asyncio.Transport, transport).abort()  # uvloop's is one without saying so


def _resolve(host: str, port: int) -> list[tuple[int, str]]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    return list(dict.fromkeys((int(family), str(where[0])) for family, _, _, _, where in found))


def _bind(family: int, address: tuple[str, int]) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            # Otherwise `::` and `0.0.0.0` could not be bound beside each other.
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.setblocking(False)
        sock.bind(address)
    except BaseException:
        sock.close()
        raise
    return sock
