"""One object store for all tests here; every table has a bucket of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.object_store import ObjectStore


@pytest.fixture(scope="session")
def objects() -> Iterator[ObjectStore]:
    with ObjectStore() as found:
        yield found


@pytest.fixture(params=("disk", "s3"))
def store(request: pytest.FixtureRequest, objects: ObjectStore) -> ObjectStore | None:
    """Where tables are; None is on disk."""
    return objects if request.param == "s3" else None
