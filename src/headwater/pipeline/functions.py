"""Transforms that are Python: where a function is, and what it takes."""

from __future__ import annotations

import importlib.util
import inspect
import os
import sys
import traceback
from collections.abc import Callable
from types import ModuleType
from typing import Any

from headwater.pipeline.marks import Node, SpecError

_NO_SPARK = "SESSION_OR_CONTEXT_NOT_EXISTS"


def find(text: str, node: Node) -> Callable[..., Any]:
    """`file.py:function`, the file beside the pipeline's, or `package.module:function`."""
    place, colon, name = text.rpartition(":")
    if not colon or not name.isidentifier():
        node.fail(f"python is file.py:function or module:function. received={text!r}")
    try:
        module = _load(place, node) if place.endswith(".py") else importlib.import_module(place)
    except ImportError as error:
        node.fail(f"cannot import {place}: {error}")
    function = getattr(module, name, None)
    if not callable(function):
        node.fail(f"{place} has no function {name}")
    found: Callable[..., Any] = function
    return found


def _load(place: str, node: Node) -> ModuleType:
    path = os.path.join(os.path.dirname(node.file), place)
    if not os.path.exists(path):
        node.fail(f"there is no file {path}")
    return load_file(path)


def load_file(path: str) -> ModuleType:
    """Run a Python file. Raises SpecError with the line in it where it failed.

    Its module is known only while it runs. Functions of modules that are known reach Spark's
    workers by name, and these could not import one that is a file somewhere.
    """
    name = "headwater_pipeline_" + os.path.basename(path).removesuffix(".py")
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except SyntaxError as error:
        raise SpecError(f"not valid Python: {error.msg}", file=path, line=error.lineno) from None
    except SpecError:
        raise
    except (Exception, SystemExit) as error:
        raise _failed(error, path) from error
    finally:
        del sys.modules[name]
    return module


def _failed(error: BaseException, path: str) -> SpecError:
    own = os.path.abspath(path)
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == own]
    message = f"{type(error).__name__}: {error}"
    if _NO_SPARK in message:
        message += " But files are read before Spark is started: do this in a transform"
    return SpecError(message, file=path, line=lines[-1] if lines else None)


def arguments_of(function: Callable[..., Any], node: Node) -> tuple[str, ...]:
    """The names of a function's arguments: each is a source or an earlier transform."""
    names = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            node.fail("a transform names its arguments: each is a source or an earlier transform")
        names.append(parameter.name)
    if not names:
        node.fail("a transform takes at least one source or earlier transform as an argument")
    return tuple(names)
