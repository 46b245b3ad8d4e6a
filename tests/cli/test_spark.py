"""What the commands on Spark share: the session that they open, without Spark."""

from __future__ import annotations

import argparse
import logging
import signal
from typing import Any

import pytest

from headwater.cli.spark import end_at_once, is_news, open_session


def test_a_session_has_the_name_of_its_command(monkeypatch: pytest.MonkeyPatch) -> None:
    names: list[str] = []
    monkeypatch.setattr("headwater.spark.session", lambda name, **_: names.append(name))
    before = signal.getsignal(signal.SIGINT)
    arguments = argparse.Namespace(conf=[], cores=None, master=None)
    try:
        open_session(arguments, "headwater query")
        assert signal.getsignal(signal.SIGINT) is end_at_once
    finally:
        signal.signal(signal.SIGINT, before)
        logging.getLogger().removeFilter(is_news)
    assert names == ["headwater query"]


def test_what_py4j_says_when_it_is_broken_off_is_no_news() -> None:
    def record(path: str) -> Any:
        return logging.LogRecord("root", logging.ERROR, path, 1, "x", (), None)

    assert not is_news(record("/env/site-packages/py4j/clientserver.py"))
    assert is_news(record("/home/me/jobs.py"))
