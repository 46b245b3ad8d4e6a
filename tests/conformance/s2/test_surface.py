"""Every public operation of the official Python SDK has a test here."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import pytest
import s2_sdk
from s2_sdk import CommandRecord

from tests.conformance.s2 import (
    test_access,
    test_account,
    test_restarts,
    test_sessions,
    test_streams,
)

pytestmark = pytest.mark.conformance

MODULES = (test_access, test_account, test_restarts, test_sessions, test_streams)
OPERATORS = ("__getitem__", "__await__", "__aiter__", "__anext__")
"""Special methods that do what only they can do."""
LOCAL = {
    "metered_bytes": "computes",
    "Endpoints.default": "addresses of the cloud",
    "Endpoints.from_env": "reads the environment",
    "SequencedRecord.is_command_record": "looks at a record",
}
"""Public, but nothing that a server takes part in."""


def public_operations() -> Iterator[tuple[str, object]]:
    for name in s2_sdk.__all__:
        value = getattr(s2_sdk, name)
        if inspect.isfunction(value):
            yield name, value
        elif inspect.isclass(value) and not issubclass(value, Exception):
            for method in vars(value):
                if method in OPERATORS or (
                    not method.startswith("_") and callable(getattr(value, method))
                ):
                    yield f"{name}.{method}", getattr(value, method)


def test_every_public_operation_has_a_test() -> None:
    driven = {
        operation
        for module in MODULES
        for test in vars(module).values()
        for operation in getattr(test, "drives", ())
    }
    assert CommandRecord.fence in driven
    missing = [
        name
        for name, operation in public_operations()
        if operation not in driven and name not in LOCAL
    ]
    assert not missing
