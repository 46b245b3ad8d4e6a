"""Errors of Spark in a few lines: what went wrong, and where in files of the user."""

from __future__ import annotations

import pytest

from headwater.pipeline.last_words import CHARS_MAX, last_words

FRAMES = """Traceback (most recent call last):
  File "/usr/lib/python3.11/socket.py", line 836, in create_connection
    sock.connect(sa)
ConnectionRefusedError: [Errno 111] Connection refused

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "/env/lib/python3.11/site-packages/pyspark/sql/streaming/runner.py", line 279, in main
    prepare(reader, outfile)
  File "/src/headwater/spark/streams.py", line 31, in find
    streams = _named(client, selection.names, times_ms)
              ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
"""


def test_errors_of_java_are_cut() -> None:
    plan = "[UNRESOLVED_COLUMN] no column x; line 1 pos 7;\n'Project ['x]\n+- Relation"
    assert last_words(plan) == "[UNRESOLVED_COLUMN] no column x; line 1 pos 7"
    assert last_words("no master\n\tat org.apache.spark\n\tat java") == "no master"
    assert last_words("bad record: 4\n=== Streaming Query ===\nIdentifier: out") == "bad record: 4"
    assert last_words("a;\nb") == "a;\nb"
    assert last_words("what went wrong\n\nJVM stacktrace:\n" + "at x\n" * 999) == "what went wrong"
    assert len(last_words("x" * 10_000)) == CHARS_MAX


@pytest.mark.parametrize(
    ("last", "said"),
    [
        ("headwater.client.errors.Unreachable: no answer", "no answer"),
        ("headwater.spark.reader.DataLoss: s is gone.\nNot b", "s is gone.\nNot b"),
        ("ValueError: a row has no value", "[X] Failed: ValueError: a row has no value"),
    ],
)
def test_of_a_traceback_of_libraries_only_the_error_is_told(last: str, said: str) -> None:
    text = f"[X] Failed: {FRAMES}{last}"
    assert last_words(text) == said
    ended = last_words(f"{text}\n SQLSTATE: 38000\n=== Streaming Query ===\nIdentifier: x")
    assert ended.removesuffix("\n SQLSTATE: 38000") == said


def test_places_in_files_of_the_user_stay() -> None:
    own = '  File "/home/me/headwater/jobs.py", line 6, in broken\n    return v["a"]\n'
    text = f"[X] Failed: {FRAMES}{own}TypeError: no index"
    first = "[X] Failed: Traceback (most recent call last):\n"
    assert last_words(text) == f"{first}{own}TypeError: no index"
