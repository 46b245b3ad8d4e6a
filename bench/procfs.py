"""What processes and the machine used, from Linux's /proc.

CPU time is the figure to trust on a busy machine: it says what a request costs, whoever else runs.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def cpu_s(pid: int) -> float:
    """User and system time of a process, its threads and its children, ended ones included."""
    ticks = 0
    for member in _tree(pid):
        # The name in parentheses may hold spaces; the fields are counted after it.
        fields = Path(f"/proc/{member}/stat").read_text().rpartition(")")[2].split()
        ticks += sum(map(int, fields[11:15]))
    return ticks / _TICKS


def rss_bytes(pid: int) -> int:
    """Resident memory of a process and its children."""
    pages = (int(Path(f"/proc/{member}/statm").read_text().split()[1]) for member in _tree(pid))
    return sum(pages) * _PAGE_BYTES


def peaks(pid: int) -> dict[int, tuple[str, int]]:
    """For a process and each below it: its program and the most memory that it ever had.
    Those that end meanwhile are left out."""
    found = {}
    for member in _tree(pid):
        with suppress(ProcessLookupError, FileNotFoundError, KeyError):
            lines = Path(f"/proc/{member}/status").read_text().splitlines()
            status = dict(line.split(":", 1) for line in lines)
            found[member] = (status["Name"].strip(), int(status["VmHWM"].split()[0]) * 1024)
    return found


def machine_busy_s() -> float:
    """CPU time that anything on this machine has used since it started."""
    with open("/proc/stat") as stat:
        user, nice, system, _, _, irq, softirq, steal = map(int, stat.readline().split()[1:9])
    return (user + nice + system + irq + softirq + steal) / _TICKS


def drop_cached_files(folder: Path) -> None:
    """Ask the kernel to forget the contents of the files, so that reads go to the disk."""
    for path in folder.rglob("*"):
        if path.is_file():
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(descriptor)


def _tree(pid: int) -> Iterator[int]:
    yield pid
    with suppress(ProcessLookupError, FileNotFoundError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                yield from _tree(int(child))


def filesystem_of(path: Path) -> str:
    """The kind of file system that holds `path`, such as ext4."""
    best, kind = "", "unknown"
    with open("/proc/mounts") as mounts:
        for line in mounts:
            _, point, found, *_ = line.split()
            if path.resolve().is_relative_to(point) and len(point) > len(best):
                best, kind = point, found
    return kind
