"""YAML into values that know their line. See marks.py.

Aliases and `<<` work as elsewhere. A key that is there twice is an error, which YAML does not ask.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import yaml

from headwater.pipeline.marks import Node, SpecError

MERGE = "tag:yaml.org,2002:merge"
"""The tag of the key `<<`."""


def read_yaml(text: str, file: str) -> Node:
    """Raises SpecError for what is not YAML."""
    with _telling(file, text=text):
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    if root is None:
        raise SpecError("the file is empty; see docs/pipelines.md", file=file, line=1)
    return _Converter(file).node(root)


@contextmanager
def _telling(file: str, line: int | None = None, text: str = "") -> Iterator[None]:
    """Raises SpecError for what the YAML library raises, with its line if that says it."""
    try:
        yield
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise _wrong(f"{error.reason} (#x{error.character:04x})", file, line) from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        said = ", ".join(part for part in (error.context, error.problem) if part)
        hint = "; indent with spaces" if r"'\t'" in said else ""
        raise _wrong(f"{said}{hint}", file, line if mark is None else mark.line + 1) from None
    except (yaml.YAMLError, ValueError) as error:  # ValueError: dates and numbers that are none
        raise _wrong(str(error).partition("\n")[0], file, line) from None


def _wrong(message: str, file: str, line: int | None) -> SpecError:
    return SpecError(f"not valid YAML: {message}", file=file, line=line)


class _Converter:
    def __init__(self, file: str) -> None:
        self._file = file
        self._loader = yaml.SafeLoader("")
        self._around: list[yaml.Node] = []

    def node(self, found: yaml.Node) -> Node:
        line = found.start_mark.line + 1
        if any(found is each for each in self._around):
            raise _wrong("an alias for something that it is part of", self._file, line)
        self._around.append(found)
        value: Any
        if isinstance(found, yaml.MappingNode):
            value = self._mapping(found)
        elif isinstance(found, yaml.SequenceNode):
            value = [self.node(item) for item in found.value]
        else:
            with _telling(self._file, line):
                value = self._loader.construct_object(found, deep=True)
        self._around.pop()
        return Node(value, self._file, line)

    def _mapping(self, found: yaml.MappingNode) -> dict[str, Node]:
        own: dict[str, Node] = {}
        merged: dict[str, Node] = {}
        for key, value in found.value:
            line = key.start_mark.line + 1
            if key.tag == MERGE:
                merged = {**self._merged(value, line), **merged}
                continue
            name = str(key.value)
            if not isinstance(key, yaml.ScalarNode):
                raise _wrong("a key is a word", self._file, line)
            if name in own:
                raise SpecError(f"{name} is there twice", file=self._file, line=line)
            # A mapping begins on the line after its key; people look for the key.
            own[name] = Node(self.node(value).value, self._file, line)
        return {**merged, **own}

    def _merged(self, found: yaml.Node, line: int) -> dict[str, Node]:
        """What `<<` stands for: a mapping, or several, of which the first wins."""
        parts = found.value if isinstance(found, yaml.SequenceNode) else [found]
        merged: dict[str, Node] = {}
        for part in reversed(parts):
            value = self.node(part).value
            if not isinstance(value, dict):
                raise _wrong("<< is for mappings", self._file, line)
            merged |= value
        return merged
