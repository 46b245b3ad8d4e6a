"""Checks a schema such as `id bigint, tags array<string>` before there is a Spark to ask.

Only what a pipeline file can get wrong early: words, brackets, commas. Spark has the last word.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from headwater.pipeline.marks import meant

SIMPLE = (
    *("boolean", "byte", "tinyint", "short", "smallint", "int", "integer", "long", "bigint"),
    *("float", "real", "double", "decimal", "dec", "numeric", "string", "binary", "variant"),
    *("date", "timestamp", "timestamp_ntz", "timestamp_ltz"),
)
NESTED = ("array", "map", "struct")

_TOKEN = re.compile(r"\s*(?:(`[^`]+`)|([A-Za-z_]\w*)|([<>(),:])|(\d+))")


class DdlError(ValueError):
    """Not a schema. The message says where it stops being one."""


def columns_of(text: str) -> dict[str, str]:
    """The columns of a schema, each with the first word of its type. Raises DdlError."""
    return _Parser(_tokens(text)).fields(())


def _tokens(text: str) -> list[str]:
    found, at = [], 0
    text = text.rstrip()
    while at < len(text):
        token = _TOKEN.match(text, at)
        if token is None:
            raise DdlError(f"cannot read {text[at : at + 20].strip()!r}")
        found.append(token[0].strip())
        at = token.end()
    return found


class _Parser:
    def __init__(self, tokens: Sequence[str]) -> None:
        self._tokens = tokens
        self._at = 0

    def _peek(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""

    def _next(self) -> str:
        token = self._peek()
        self._at += 1
        return token

    def _expect(self, token: str, after: str) -> None:
        found = self._next()
        if found != token:
            raise DdlError(f"expected {token!r} after {after}, found {found or 'the end'!r}")

    def fields(self, closing: Sequence[str]) -> dict[str, str]:
        found: dict[str, str] = {}
        while True:
            token = self._next()
            name = token.strip("`")
            if not token.startswith("`") and not name.isidentifier():
                raise DdlError(f"expected the name of a column, found {name or 'the end'!r}")
            if self._peek() == ":":
                self._next()
            if name.lower() in map(str.lower, found):
                raise DdlError(f"column {name} is there twice")
            found[name] = self._type(name)
            following = self._peek()
            if following != ",":
                if following not in (closing or ("",)):
                    raise DdlError(
                        f"expected a comma after {name}, found {following or 'the end'!r}"
                    )
                return found
            self._next()

    def _type(self, name: str) -> str:
        kind = self._next()
        plain = kind.lower()
        if plain == "array":
            self._expect("<", kind)
            self._type(name)
            self._expect(">", f"the type of {name}")
        elif plain == "map":
            self._expect("<", kind)
            self._type(name)
            self._expect(",", f"the key type of {name}")
            self._type(name)
            self._expect(">", f"the type of {name}")
        elif plain == "struct":
            self._expect("<", kind)
            self.fields((">",))
            self._expect(">", f"the type of {name}")
        elif plain in SIMPLE:
            self._sizes()
        elif not kind.isidentifier():
            raise DdlError(f"column {name} has no type")
        else:
            hint = meant(plain, [*SIMPLE, *NESTED])
            raise DdlError(f"column {name} has no type {kind!r}{hint}")
        while self._peek().lower() in ("not", "null"):
            self._next()
        return plain

    def _sizes(self) -> None:
        """decimal(10, 2)"""
        if self._peek() == "(":
            while self._next() not in (")", ""):
                pass
