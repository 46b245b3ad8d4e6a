"""The kinds of values a setting can have: how each is read, and what is allowed.

A kind reads what a TOML file holds (typed) and what a variable or a flag holds (text) into the
same plain value. It raises ValueError without words; who asked knows the setting and its source.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, TypeVar
from urllib.parse import SplitResult, urlsplit

from headwater.core.limits import KIB, MIB

T = TypeVar("T", int, float)

GIB = 1024 * MIB
TIB = 1024 * GIB

_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?([A-Za-z]*)")
_SIZE_UNITS = {
    "": 1,
    "b": 1,
    "kib": KIB,
    "mib": MIB,
    "gib": GIB,
    "tib": TIB,
    "kb": 1000,
    "mb": 1000**2,
    "gb": 1000**3,
    "tb": 1000**4,
}
_NUMBER = re.compile(r"-?[0-9]+")
_HOST_PATTERN = re.compile(r"(?:\*\.)?[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*\.?")
_SWITCH_WORDS = {
    "true": True,
    "1": True,
    "yes": True,
    "on": True,
    "false": False,
    "0": False,
    "no": False,
    "off": False,
}


@dataclass(frozen=True, slots=True)
class Kind:
    """How one sort of value is read, and described."""

    metavar: str
    """What a flag's help calls the value; empty for a switch."""
    allowed: str
    """Finishes the sentence "use …" in messages, and stands in the documentation."""
    parse: Callable[[object], Any]
    show: Callable[[Any], str] = str
    """A value as a person would write it."""


def switch() -> Kind:
    """On or off."""

    def parse(given: object) -> bool:
        if isinstance(given, bool):
            return given
        if not isinstance(given, str) or given.strip().lower() not in _SWITCH_WORDS:
            raise ValueError
        return _SWITCH_WORDS[given.strip().lower()]

    return Kind("", "true or false", parse, lambda value: str(value).lower())


def text(metavar: str, allowed: str, *, required: bool = False) -> Kind:
    """Any text without control characters."""

    def parse(given: object) -> str:
        value = _text(given)
        if required and not value:
            raise ValueError
        return value

    return Kind(metavar, allowed, parse)


def choice(*names: str) -> Kind:
    """One of a few words."""

    def parse(given: object) -> str:
        value = _text(given).lower()
        if value not in names:
            raise ValueError
        return value

    return Kind("|".join(names), _join_words(names), parse)


def number(low: int, high: int) -> Kind:
    """A whole number."""

    def parse(given: object) -> int:
        if isinstance(given, str):
            if _NUMBER.fullmatch(given.strip()) is None:
                raise ValueError
            given = int(given)
        if not isinstance(given, int) or isinstance(given, bool):
            raise ValueError
        return _within(given, low, high)

    return Kind("NUMBER", f"a whole number from {low} to {high}", parse)


def seconds(low: float, high: float) -> Kind:
    """A time in seconds, fractions allowed."""

    def parse(given: object) -> float:
        if isinstance(given, str):
            given = float(given)
        if not isinstance(given, (int, float)) or isinstance(given, bool):
            raise ValueError
        if not math.isfinite(given):
            raise ValueError
        return _within(float(given), low, high)

    return Kind("SECONDS", f"seconds from {low:g} to {high:g}", parse, lambda value: f"{value:g}")


def size(low: int, high: int) -> Kind:
    """A number of bytes, as a number or with a unit."""

    def parse(given: object) -> int:
        if isinstance(given, str):
            found = _SIZE.fullmatch(given.strip())
            if found is None or found[2].lower() not in _SIZE_UNITS:
                raise ValueError
            given = _whole(Fraction(found[1]) * _SIZE_UNITS[found[2].lower()])
        if not isinstance(given, int) or isinstance(given, bool):
            raise ValueError
        return _within(given, low, high)

    allowed = f"a size from {show_size(low)} to {show_size(high)}, such as 32MiB"
    return Kind("SIZE", allowed, parse, show_size)


def networks() -> Kind:
    """Addresses and networks, separated by commas; a list in TOML."""

    def check(item: str) -> None:
        import ipaddress  # takes longer to load than the rest of this module

        ipaddress.ip_network(item, strict=False)

    allowed = "addresses or networks separated by commas, such as 10.0.0.0/8,127.0.0.1"
    return Kind("NETWORKS", allowed, lambda given: _parse_list(given, check))


def origins() -> Kind:
    """Browser origins, separated by commas; a list in TOML."""

    def check(item: str) -> None:
        if item == "*":
            return
        parts = _split_url(item)
        if item != f"{parts.scheme}://{parts.netloc}":
            raise ValueError

    def parse(given: object) -> str:
        value = _parse_list(given, check)
        if "*" in value.split(",") and value != "*":
            raise ValueError
        return value

    allowed = "* for all, or origins separated by commas, such as https://app.example.com"
    return Kind("ORIGINS", allowed, parse)


def hosts() -> Kind:
    """Host names, separated by commas; a list in TOML."""

    def check(item: str) -> None:
        if _HOST_PATTERN.fullmatch(item) is None:
            raise ValueError

    allowed = "host names separated by commas, such as hooks.example.com,*.internal.example"
    return Kind("HOSTS", allowed, lambda given: _parse_list(given, check).lower())


def url() -> Kind:
    """An absolute http or https URL without query, or nothing."""

    def parse(given: object) -> str:
        value = _text(given).rstrip("/")
        if not value:
            return value
        parts = _split_url(value)
        if parts.query or parts.fragment:
            raise ValueError
        return value

    return Kind("URL", "an http or https URL without query, such as https://example.com", parse)


def show_size(value: int) -> str:
    """A size in its largest whole unit."""
    for unit, factor in (("TiB", TIB), ("GiB", GIB), ("MiB", MIB), ("KiB", KIB)):
        if value and value % factor == 0:
            return f"{value // factor}{unit}"
    return str(value)


def _split_url(value: str) -> SplitResult:
    """The parts of an absolute URL with a host, without user information."""
    parts = urlsplit(value)
    if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc:
        raise ValueError
    if not value.isascii() or " " in value or parts.port == 0:  # a bad port raises ValueError
        raise ValueError
    return parts


def _whole(value: Fraction) -> int:
    if value.denominator != 1:
        raise ValueError
    return value.numerator


def _text(given: object) -> str:
    if not isinstance(given, str) or not given.isprintable():
        raise ValueError
    return given.strip()


def _parse_list(given: object, check: Callable[[str], None]) -> str:
    items = given if isinstance(given, list) else _text(given).split(",")
    kept = [item for item in map(_text, items) if item]
    for item in kept:
        check(item)
    return ",".join(kept)


def _within(value: T, low: T, high: T) -> T:
    if not low <= value <= high:
        raise ValueError
    return value


def _join_words(words: tuple[str, ...]) -> str:
    return f"{', '.join(words[:-1])} or {words[-1]}"
