"""What an error of Spark says, without the pages around it."""

from __future__ import annotations

import re

CHARS_MAX = 2000

_PAGES = re.compile(r"\n\nJVM stacktrace|\n=== Streaming Query ===|\n\tat |;\n(?='?[A-Z]\w+)")
"""Where the pages begin that only developers of Spark read."""

_TRACEBACK = r"Traceback \(most recent call last\):\n"
_CAUSE = re.compile(
    rf"{_TRACEBACK}(?:(?!Traceback).*\n)*?\n"
    r"(?:The above exception was the direct cause of|During handling of the above exception,).*\n+"
)
"""A traceback of Python that another one follows from."""
_FRAME = re.compile(
    r'[ \t]+File "[^"\n]*/(?:lib/python|pyspark|headwater/(?:spark|client|pipeline|lake)/)'
    r'[^"\n]*", line .*\n(?:    .*\n)*'
)
"""A place in a library. Those in files of the user stay: that is where to look."""
_NO_FRAMES = re.compile(rf"{_TRACEBACK}(?!\s)")

_OURS = re.compile(r"^headwater(?:\.\w+)+: ", re.MULTILINE)
"""How a traceback names an error of ours, whose message is all there is to say."""
_SQL_STATE = re.compile(r"\s*SQLSTATE: \w+\s*\Z")


def last_words(error: BaseException | str) -> str:
    """Without the traces of Java and Python, and the plans of Spark."""
    text = _PAGES.split(str(error) or type(error).__name__, maxsplit=1)[0]
    *around, said = _OURS.split(_CAUSE.sub("", text))
    short = _SQL_STATE.sub("", said) if around else _NO_FRAMES.sub("", _FRAME.sub("", said))
    return short[:CHARS_MAX].strip()
