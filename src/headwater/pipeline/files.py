"""Pipeline files: found in a folder, read, checked."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from headwater.pipeline.declare import Pipeline
from headwater.pipeline.functions import load_file
from headwater.pipeline.marks import Node, SpecError
from headwater.pipeline.parse import parse
from headwater.pipeline.spec import Spec
from headwater.pipeline.yaml_nodes import read_yaml

YAML = (".yaml", ".yml")
PYTHON = ".py"


class Checked(NamedTuple):
    """A file of a folder: what it says, or what is wrong with it."""

    file: str
    spec: Spec | None
    error: SpecError | None


def load(path: str) -> Spec:
    """Read and check one file. Raises SpecError."""
    if not os.path.exists(path):
        raise SpecError("there is no such file or folder", file=path)
    root = _read(path)
    name = os.path.basename(path).rpartition(".")[0]
    return parse(root, name)


def _read(path: str) -> Node:
    if path.endswith(PYTHON):
        return _run(path)
    if not path.endswith(YAML):
        raise SpecError("a pipeline is a .yaml, .yml or .py file", file=path)
    try:
        with open(path, encoding="utf-8") as source:
            return read_yaml(source.read(), path)
    except OSError as error:
        raise SpecError(f"cannot read it: {error.strerror}", file=path) from None
    except UnicodeDecodeError as error:
        raise SpecError(f"not text in UTF-8: {error.reason}", file=path) from None


def _run(path: str) -> Node:
    module = load_file(path)
    found = [value for value in vars(module).values() if isinstance(value, Pipeline)]
    if len(found) != 1:
        said = "no" if not found else f"{len(found)}"
        raise SpecError(f"{said} variables are a Pipeline; one must be", file=path, line=1)
    return found[0].root


def find(folder: str) -> Iterator[str]:
    """The pipeline files of a folder, in order. Python files that begin with _ are not."""
    if not os.path.isdir(folder):
        return
    for name in sorted(os.listdir(folder)):
        if name.endswith((*YAML, PYTHON)) and not name.startswith(("_", ".")):
            yield os.path.join(folder, name)


def check_all(paths: Iterable[str]) -> list[Checked]:
    """Every file. Two pipelines of one name are an error of the second."""
    found: list[Checked] = []
    names: dict[str, str] = {}
    for path in paths:
        try:
            spec = load(path)
            other = names.setdefault(spec.name, path)
            if other != path:
                raise SpecError(f"{other} has the name {spec.name} already", file=path)
            found.append(Checked(path, spec, None))
        except SpecError as error:
            found.append(Checked(path, None, error))
    return found
