"""Values of a pipeline file that know their line, so that what is wrong can be shown there.

YAML is read into these (yaml_nodes.py); a Python file makes them as it is run (declare.py). Whoever
checks them needs not know which it was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, NoReturn


class SpecError(Exception):
    """A pipeline file that cannot be run, with the place: `file:line: what is wrong`."""

    def __init__(self, message: str, *, file: str, line: int | None = None) -> None:
        place = file if line is None else f"{file}:{line}"
        super().__init__(f"{place}: {message}")
        self.file = file
        self.line = line
        self.message = message


@dataclass(frozen=True, slots=True)
class Node:
    """A value and where it is written. Lists and mappings hold nodes again."""

    value: Any
    file: str
    line: int | None

    def fail(self, message: str) -> NoReturn:
        raise SpecError(message, file=self.file, line=self.line)

    @property
    def plain(self) -> Any:
        """The value without its places."""
        if isinstance(self.value, dict):
            return {name: node.plain for name, node in self.value.items()}
        if isinstance(self.value, list):
            return [node.plain for node in self.value]
        return self.value


def from_plain(value: Any, file: str, line: int | None) -> Node:
    """What a call in a Python file says, all of it on the call's line."""
    if isinstance(value, Mapping):
        return Node({str(k): from_plain(v, file, line) for k, v in value.items()}, file, line)
    if isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
        return Node([from_plain(item, file, line) for item in value], file, line)
    return Node(value, file, line)


class Fields:
    """The keys of a mapping, taken one by one; what is left over at the end is unknown."""

    def __init__(self, node: Node, what: str) -> None:
        if not isinstance(node.value, dict):
            node.fail(f"{what} is a mapping of names to values. received={node.plain!r}")
        self.node = node
        self.what = what
        self._left: dict[str, Node] = dict(node.value)
        self.known: list[str] = []

    def has(self, name: str) -> bool:
        return name in self.node.value

    def take(self, name: str) -> Node | None:
        self.known.append(name)
        return self._left.pop(name, None)

    def need(self, name: str) -> Node:
        node = self.take(name)
        if node is None:
            self.node.fail(f"{self.what} needs {name}")
        return node

    def text(self, name: str) -> str | None:
        node = self.take(name)
        return None if node is None else text_of(node, name)

    def flag(self, name: str, default: bool) -> bool:
        node = self.take(name)
        if node is None:
            return default
        if not isinstance(node.value, bool):
            node.fail(f"{name} is true or false. received={node.plain!r}")
        return node.value

    def number(self, name: str, low: int) -> int | None:
        node = self.take(name)
        if node is None:
            return None
        if not isinstance(node.value, int) or isinstance(node.value, bool) or node.value < low:
            node.fail(f"{name} is a whole number from {low}. received={node.plain!r}")
        return node.value

    def choice(self, name: str, known: Sequence[str], default: str) -> str:
        node = self.take(name)
        if node is None:
            return default
        if node.value not in known:
            text = str(node.plain)
            node.fail(f"{name} is one of {', '.join(known)}. received={text!r}{meant(text, known)}")
        return str(node.value)

    def texts(self, name: str) -> list[str]:
        """One text or a list of them."""
        node = self.take(name)
        if node is None:
            return []
        items = node.value if isinstance(node.value, list) else [node]
        if not items:
            node.fail(f"{name} is empty")
        return [text_of(item, name) for item in items]

    def mapping(self, name: str) -> dict[str, str]:
        """Names to texts; numbers and truth are taken as they are written."""
        node = self.take(name)
        if node is None:
            return {}
        if not isinstance(node.value, dict):
            node.fail(f"{name} is a mapping of names to values. received={node.plain!r}")
        return {key: _scalar(value, f"{name}.{key}") for key, value in node.value.items()}

    def one_of(self, *names: str) -> str:
        """Which one of these keys is there; none or two are wrong."""
        found = [name for name in names if name in self.node.value]
        if len(found) != 1:
            said = f"; it has {' and '.join(found)}" if found else ""
            self.node.fail(f"{self.what} needs one of {', '.join(names)}{said}")
        return found[0]

    def end(self) -> None:
        """Raises SpecError for keys that nobody asked for."""
        for name, node in self._left.items():
            hint = meant(name, self.known) or f"; known: {', '.join(self.known)}"
            node.fail(f"{self.what} has no key {name}{hint}")


def text_of(node: Node, name: str) -> str:
    if node.value is None or node.value == "":
        node.fail(f"{name} has no value")
    if not isinstance(node.value, str) or not node.value.strip():
        quote = "" if isinstance(node.value, (dict, list)) else "; write it in quotes"
        node.fail(f"{name} is a text{quote}. received={node.plain!r}")
    return node.value.strip()


def _scalar(node: Node, name: str) -> str:
    if isinstance(node.value, bool):
        return "true" if node.value else "false"
    if isinstance(node.value, (int, float)):
        return str(node.value)
    return text_of(node, name)


def meant(word: str, known: Sequence[str]) -> str:
    close = get_close_matches(word, known, n=1, cutoff=0.6)
    return f"; did you mean {close[0]}?" if close else ""


def named(
    node: Node | None, what: str, parse: Callable[[str, Node], Any]
) -> Iterator[tuple[str, Any]]:
    """The entries of a mapping, each parsed with its name."""
    if node is None:
        return
    if not isinstance(node.value, dict):
        node.fail(f"{what} is a mapping of names to what each is. received={node.plain!r}")
    for name, entry in node.value.items():
        if not name.isidentifier():
            hint = "; inside { } a text with commas is put in quotes" if entry.value is None else ""
            entry.fail(
                f"a name of {what} is a word of letters, digits and _{hint}. received={name!r}"
            )
        yield name, parse(name, entry)
