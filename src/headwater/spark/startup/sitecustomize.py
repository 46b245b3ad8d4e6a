"""What Spark's Python processes begin with: `headwater.spark.local` has this folder on their path.

Spark puts a zip file with PySpark first there. Python keeps nothing compiled of what is in a zip
file, so each process would compile PySpark anew: half a second, and a query starts seven of them.
What the zip file is a copy of is installed, and compiled.
"""

import os.path
import re
import sys

_LEFT_OUT = re.compile(r"pyspark\.zip|py4j-.*-src\.zip")

here = os.path.dirname(__file__)
sys.path[:] = [
    path for path in sys.path if path != here and not _LEFT_OUT.fullmatch(os.path.basename(path))
]

# Whatever else is to run as Python starts. That there is nothing is seen to by who imports this.
del sys.modules["sitecustomize"]
import sitecustomize  # type: ignore[import-not-found] # noqa: E402, F401
