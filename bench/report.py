"""What comes out: progress lines, one table at the end, and the same as JSON."""

from __future__ import annotations

import json
import os
import platform
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Target:
    """What the project asks for: of the ratio of ours to theirs, or of our figure alone."""

    text: str
    least: float | None = None
    most: float | None = None
    of_ratio: bool = False

    def is_met(self, row: Row) -> bool | None:
        value = row.ratio if self.of_ratio else row.ours
        if value is None:
            return None
        return (self.least is None or value >= self.least) and (
            self.most is None or value <= self.most
        )


def ratio_at_least(least: float, aim: str = "") -> Target:
    return Target(f"ratio >= {least:g}{aim}", least=least, of_ratio=True)


def ratio_at_most(most: float) -> Target:
    return Target(f"ratio <= {most:g}", most=most, of_ratio=True)


def at_least(least: float, aim: str = "") -> Target:
    return Target(f">= {least:g}{aim}", least=least)


def at_most(most: float, aim: str = "") -> Target:
    return Target(f"<= {most:g}{aim}", most=most)


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table. `peer` is what ours is compared with, None for nothing."""

    scenario: str
    measure: str
    ours: float
    peer: float | None = None
    cpu_us: float | None = None
    """Our server's CPU per append, delivery, megabyte: whatever `measure` counts."""
    peer_cpu_us: float | None = None
    target: Target | None = None
    ours_samples: Sequence[float] = ()
    peer_samples: Sequence[float] = ()
    note: str = ""

    @property
    def ratio(self) -> float | None:
        return self.ours / self.peer if self.peer else None

    @property
    def met(self) -> bool | None:
        return None if self.target is None else self.target.is_met(self)


def compare(
    scenario: str,
    measure: str,
    ours: Sequence[float],
    peer: Sequence[float] = (),
    *,
    cpu_us: Sequence[float] = (),
    peer_cpu_us: Sequence[float] = (),
    target: Target | None = None,
    note: str = "",
) -> Row:
    """A row of the medians of several rounds."""
    return Row(
        scenario,
        measure,
        statistics.median(ours),
        statistics.median(peer) if peer else None,
        statistics.median(cpu_us) if cpu_us else None,
        statistics.median(peer_cpu_us) if peer_cpu_us else None,
        target,
        tuple(ours),
        tuple(peer),
        note,
    )


def say(message: str) -> None:
    print(message, flush=True)


def render_table(rows: Sequence[Row]) -> str:
    """The table, for a terminal; its lines are also valid Markdown."""
    head = (
        "scenario",
        "measure",
        "ours",
        "peer",
        "ratio",
        "our CPU us",
        "peer CPU us",
        "target",
        "met",
        "range",
    )
    lines = [head, *(_cells(row) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    rule = tuple("-" * width for width in widths)
    aligned = (
        " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        for line in (head, rule, *lines[1:])
    )
    return "\n".join(f"| {line} |" for line in aligned)


def _cells(row: Row) -> tuple[str, ...]:
    met = {True: "yes", False: "NO", None: ""}[row.met]
    return (
        row.scenario,
        row.measure,
        show(row.ours),
        show(row.peer),
        show(row.ratio),
        show(row.cpu_us),
        show(row.peer_cpu_us),
        row.target.text if row.target else "",
        met,
        _range(row),
    )


def show(value: float | None) -> str:
    """Three significant digits, thousands apart."""
    if value is None:
        return ""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def _range(row: Row) -> str:
    ours, peer = row.ours_samples, row.peer_samples
    found = []
    if len(ours) > 1:
        found.append(f"{show(min(ours))}-{show(max(ours))}")
        if len(peer) > 1:
            found.append(f"{show(min(peer))}-{show(max(peer))}")
    return " vs ".join(found)


def describe_machine() -> dict[str, Any]:
    """Where the figures come from."""
    return {
        "cpus": os.cpu_count(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "load_average": os.getloadavg()[0],
    }


def save(path: Path, rows: Sequence[Row], about: dict[str, Any]) -> None:
    found = [asdict(row) | {"ratio": row.ratio, "met": row.met} for row in rows]
    path.write_text(json.dumps({"about": about, "rows": found}, indent=2) + "\n")
