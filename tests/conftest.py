"""Settings of Hypothesis: the same examples every time in CI, new ones on a desk. And the end."""

from __future__ import annotations

import gc
import os

from hypothesis import settings

settings.register_profile("ci", derandomize=True, deadline=None, print_blob=True)
settings.register_profile("desk", deadline=None, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "desk")


def pytest_unconfigure() -> None:
    """Tests that do what Spark's workers do set aside what is loaded. Left so, it would not be
    freed at the end, and libraries that count would print a page about that."""
    gc.unfreeze()
