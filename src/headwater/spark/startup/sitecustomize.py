"""What Spark's Python processes begin with: `headwater.spark.local` has this folder on their path.

Spark puts a zip file with PySpark first there. Python keeps nothing compiled of what is in a zip
file, so each process would compile PySpark anew: half a second, and a query starts seven of them.
What the zip file is a copy of is installed, and compiled.

Those that plan a query are hung up on when Spark has what it wants, now and then before they are
done, and would print that.
"""

import os.path
import re
import sys
from typing import Any

_LEFT_OUT = re.compile(r"pyspark\.zip|py4j-.*-src\.zip")

here = os.path.dirname(__file__)
sys.path[:] = [
    path for path in sys.path if path != here and not _LEFT_OUT.fullmatch(os.path.basename(path))
]

if sys.orig_argv[1:3] == ["-m", "pyspark.daemon"]:
    import traceback

    _print_exc = traceback.print_exc

    def _print_news(*args: Any, **options: Any) -> None:
        if not isinstance(sys.exception(), (BrokenPipeError, ConnectionResetError)):
            _print_exc(*args, **options)

    traceback.print_exc = _print_news

# Whatever else is to run as Python starts. That there is nothing is seen to by who imports this.
del sys.modules["sitecustomize"]
import sitecustomize  # type: ignore[import-not-found] # noqa: E402, F401
