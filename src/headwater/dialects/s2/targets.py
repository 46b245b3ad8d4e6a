"""Which basin and which stream a request is about. S2 API: addressing.

The basin is named by the header `s2-basin`, or by the first label of the host under a configured
domain. A basin is a bucket: names that S2 could not have given are taken when the bucket exists.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

from headwater.core.errors import InvalidRequest
from headwater.core.names import NameRules, check_bucket
from headwater.dialects.names import NAMES_CACHED_MAX, decode_name, unescape
from headwater.dialects.s2.errors import Refused
from headwater.wire.http import Request

_BASIN = re.compile(r"[a-z0-9][a-z0-9-]{6,46}[a-z0-9]\Z")

BASIN_CHARS_MAX = 48
BASIN_RULE = "a basin name is 8 to 48 characters of [a-z0-9-], the first and last of [a-z0-9]"


class Target(NamedTuple):
    """What a request is about. Empty where its path names no such thing."""

    basin: str = ""
    name: str = ""
    """Of the stream, or the id of an access token."""


def is_basin(name: str) -> bool:
    """Is this a name that S2 gives a basin?"""
    return _BASIN.match(name) is not None


@lru_cache(maxsize=NAMES_CACHED_MAX)
def _legal(given: bytes) -> str | None:
    """A header's value, if S2 gives basins such names."""
    name = given.decode("latin-1").strip()
    return name if is_basin(name) else None


class Basins:
    """Finds the basin of a request."""

    def __init__(self, *, domain: str, exists: Callable[[str], bool]) -> None:
        self._suffix = f".{domain.lower().strip('.')}" if domain else ""
        self._exists = exists

    def of_request(self, request: Request) -> str:
        """By header, or by host. Raises Refused."""
        given = request.headers.get(b"s2-basin")
        if given is not None:
            known = _legal(given) if len(given) <= BASIN_CHARS_MAX else None
            return known or self._check(request, given.decode("latin-1").strip(), "bad_header")
        label = self._host_label(request)
        if label is None:
            raise Refused("bad_header", "name the basin in the header s2-basin")
        return self._check(request, label, "bad_header")

    def _host_label(self, request: Request) -> str | None:
        if not self._suffix:
            return None
        host = request.headers.get(b"host", b"").decode("latin-1").lower()
        host = host.rpartition(":")[0] if ":" in host else host
        label = host.removesuffix(self._suffix)
        return label if label != host and label else None

    def of_path(self, request: Request, raw: str) -> str:
        """A segment of the raw path."""
        try:
            return self._check(request, unescape(raw, "the basin name"), "bad_path")
        except InvalidRequest as error:
            raise Refused("bad_path", str(error)) from None

    def _check(self, request: Request, name: str, code: str) -> str:
        """A legal basin name, or the name of a bucket that is there. Raises Refused, also for one
        that the client's token has nothing to do with: nobody can tell whether it is there."""
        if is_basin(name):
            return name
        try:
            check_bucket(name)
        except InvalidRequest:
            raise Refused(code, BASIN_RULE) from None
        hidden = request.grant is not None and not request.grant.sees_basin(name)
        if hidden or not self._exists(name):
            raise Refused(code, BASIN_RULE)
        return name


def stream_of_path(raw: str, rules: NameRules) -> str:
    """A segment of the raw path, in which `%2F` is part of the name. Raises Refused."""
    try:
        return decode_name(raw, rules)
    except InvalidRequest as error:
        raise Refused("bad_path", str(error)) from None


def id_of_path(raw: str) -> str:
    """A segment of the raw path. Raises Refused."""
    try:
        return unescape(raw, "the id")
    except InvalidRequest as error:
        raise Refused("bad_path", str(error)) from None
