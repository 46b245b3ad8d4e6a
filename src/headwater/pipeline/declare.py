"""Pipelines in Python: the same as in YAML, with functions as transforms.

    from headwater.pipeline import Pipeline

    pipeline = Pipeline()
    pipeline.source("clicks", streams="clicks/*", json="user string, page string")

    @pipeline.transform
    def pages(clicks):
        return clicks.groupBy("page").count()

    pipeline.sink("out", pages, stream="reports/pages", mode="update")

What is said is only noted, with the line it is said on; it is checked like a YAML file.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, TypeVar

from headwater.pipeline.marks import Node, SpecError, from_plain

F = TypeVar("F", bound=Callable[..., Any])


class Pipeline:
    """One pipeline. A file has one, in a variable of its module."""

    def __init__(self, name: str | None = None, **settings: Any) -> None:
        """`settings` are the keys of a pipeline file, `archive` and `replay` included."""
        self.file, self.line = _caller()
        given = settings if name is None else {"name": name, **settings}
        self._root = from_plain(given, self.file, self.line).value

    def source(self, name: str, **settings: Any) -> None:
        self._add("sources", name, from_plain(_python_names(settings), *_caller()))

    def sql(self, name: str, statement: str) -> None:
        self._add("transforms", name, Node(statement, *_caller()))

    def transform(self, function: F) -> F:
        """A function whose arguments are named as sources and earlier transforms."""
        file, line = _caller()
        self._add("transforms", function.__name__, Node(function, file, line))
        return function

    def sink(self, name: str, source: str | Callable[..., Any], **settings: Any) -> None:
        """`source` is the name of a source or transform, or a transform's function."""
        origin = source if isinstance(source, str) else source.__name__
        self._add("sinks", name, from_plain({"from": origin, **settings}, *_caller()))

    @property
    def root(self) -> Node:
        return Node(self._root, self.file, self.line)

    def _add(self, part: str, name: str, node: Node) -> None:
        entries = self._root.setdefault(part, Node({}, node.file, node.line)).value
        if name in entries:
            raise SpecError(f"{name} is there twice", file=node.file, line=node.line)
        entries[name] = node


def _python_names(settings: dict[str, Any]) -> dict[str, Any]:
    """`from` is a word of Python's own: it is written from_."""
    return {name.rstrip("_"): value for name, value in settings.items()}


def _caller() -> tuple[str, int]:
    """The file and line that called the method that calls this."""
    frame = sys._getframe(2)  # noqa: SLF001
    return frame.f_code.co_filename, frame.f_lineno
