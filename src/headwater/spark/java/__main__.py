"""`JAVA_HOME=$(python -m headwater.spark.java)`, for Spark that is started in another way."""

from __future__ import annotations

import sys

from headwater.spark.java import NoJava, find_java_home

try:
    sys.stdout.write(f"{find_java_home()}\n")
except NoJava as error:
    sys.exit(str(error))
