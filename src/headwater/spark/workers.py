"""The Python processes that run Spark's tasks."""

from __future__ import annotations

import gc
from functools import cache


@cache
def settle() -> None:
    """Call this when a task begins: its worker then needs less between tasks.

    Spark keeps a worker for task after task, and collects garbage after each, which takes 25 ms
    with everything loaded that a task needs. What is loaded is there to stay, so it is set aside.
    """
    gc.freeze()
