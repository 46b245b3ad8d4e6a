"""docs/pipelines.md names every key of a pipeline file, every action and every metric."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from headwater.cli import pipeline as command
from headwater.cli import query
from headwater.pipeline import files
from headwater.pipeline.marks import Fields
from headwater.pipeline.metrics import Metrics
from headwater.pipeline.progress import Report
from tests.pipeline.test_spec import CLICKS

PAGE = (Path(__file__).parents[2] / "docs/pipelines.md").read_text()


def test_every_key_is_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known: set[str] = set()
    end = Fields.end

    def note(fields: Fields) -> None:
        known.update(fields.known)
        end(fields)

    monkeypatch.setattr(Fields, "end", note)
    table = """
        sources: {s: {streams: a}, t: {table: x}}
        transforms: {j: select * from s join t}
        sinks: {out: {from: j, table: y}}
        """
    archive = "archive: {streams: a, to: b, archive: c}"
    for text in (CLICKS, table, archive, "replay: {table: b}"):
        path = tmp_path / "job.yaml"
        path.write_text(text)
        files.load(str(path))
    assert len(known) > 30
    inline = {"column", "delay", "sql", "python", "transforms", "sinks", "sources"}
    missing = [key for key in sorted(known - inline) if f"`{key}`" not in PAGE]
    assert missing == []


def actions() -> dict[str, argparse.ArgumentParser]:
    parser = argparse.ArgumentParser(prog="x")
    command.add_arguments(parser)
    (found,) = (each for each in parser._actions if each.dest == "action")  # noqa: SLF001
    assert isinstance(found.choices, dict)
    return found.choices


def test_every_action_and_metric_is_listed() -> None:
    for name in actions():
        assert f"`headwater pipeline {name}" in PAGE
    for metric in Metrics().registry.collect():
        suffix = "_total" if metric.type == "counter" else ""
        assert f"`{metric.name}{suffix}`" in PAGE


def test_every_flag_is_named() -> None:
    asked = argparse.ArgumentParser(prog="x")
    query.add_arguments(asked)
    parsers = [*actions().values(), asked]
    flags = {flag for parser in parsers for flag in parser._option_string_actions}  # noqa: SLF001
    assert len(flags) > 30
    inside = ("-h", "--help", "--while-stdin")
    missing = sorted(flag for flag in flags.difference(inside) if f"`{flag}" not in PAGE)
    assert missing == []


def test_every_field_of_a_report_is_named() -> None:
    section = PAGE.partition("## Progress")[2]
    for field in Report.__slots__:
        assert f"`{field}`" in section
