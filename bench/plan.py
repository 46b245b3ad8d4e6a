"""How much to measure: the full run, and the quick one for a first look."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from bench.report import say
from bench.servers import Server

MB = 1_000_000

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Plan:
    """Sizes and times of one run. `folder` is where the servers keep their data."""

    folder: Path
    rounds: int = 5
    """Times that each server has its turn."""
    seconds: int = 4
    """Of load per turn."""
    warmup_seconds: int = 2
    catch_up_bytes: int = 100 * MB
    followers: int = 500
    idle_followers: int = 2000
    streams: int = 1_000_000
    records: int = 1_000_000
    listed_streams: int = 10_000
    archived_bytes: int = 1000 * MB

    def workspace(self, scenario: str) -> Path:
        """An empty folder for the servers of one scenario."""
        folder = self.folder / scenario
        folder.mkdir(parents=True)
        return folder


def quick(folder: Path) -> Plan:
    """About a minute: good enough to see a large change, not to quote."""
    return Plan(
        folder,
        rounds=2,
        seconds=1,
        warmup_seconds=1,
        idle_followers=1000,
        streams=20_000,
        records=200_000,
        archived_bytes=100 * MB,
    )


def alternate(
    plan: Plan,
    servers: Sequence[Server],
    measure: Callable[[Server], T],
    show: Callable[[T], str],
) -> list[list[T]]:
    """Give the servers their turns, A B A B, so that a busy minute of the machine hits both.

    Returns the measurements of each server.
    """
    found: list[list[T]] = [[] for _ in servers]
    for number in range(plan.rounds):
        for server, samples in zip(servers, found, strict=True):
            sample = measure(server)
            samples.append(sample)
            say(f"  {number + 1}/{plan.rounds} {server.label:<12} {show(sample)}")
    return found
