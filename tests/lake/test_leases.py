"""One at a time, with nothing but files that are written and listed."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from headwater.lake import leases
from headwater.lake.leases import LEASE_S, lease
from headwater.lake.locations import Folder
from headwater.lake.tables import LakeError
from tests.support.object_store import ObjectStore


@pytest.fixture
def folder(store: ObjectStore | None, tmp_path: Path) -> Folder:
    if store is None:
        return Folder(str(tmp_path))
    return Folder(f"s3://{store.make_bucket()}/table", store.storage)


def held(folder: Folder) -> list[str]:
    return [file.path for file in folder.walk("_headwater/leases")]


def test_another_is_refused_until_the_first_has_ended(folder: Folder) -> None:
    with lease(folder, "work"):
        with lease(folder, "other work"):
            pass
        with pytest.raises(LakeError, match="somebody else does this"), lease(folder, "work"):
            pass
    with lease(folder, "work"):
        assert len(held(folder)) == 1
    assert held(folder) == []


def test_of_two_that_meet_neither_goes_on(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each writes its file before the other looks."""
    write = folder.write

    def both(path: str, data: bytes) -> None:
        write(path, data)
        write("_headwater/leases/work/met", data)

    monkeypatch.setattr(folder, "write", both)
    with pytest.raises(LakeError, match="_headwater/leases/work/met"), lease(folder, "work"):
        pass
    assert held(folder) == ["_headwater/leases/work/met"]


def test_what_a_process_left_that_was_killed_counts_for_a_while(tmp_path: Path) -> None:
    folder = Folder(str(tmp_path))
    folder.write("_headwater/leases/work/left", b"")
    left = tmp_path / "_headwater" / "leases" / "work" / "left"
    now_s = folder.now_s()
    os.utime(left, (now_s - LEASE_S + 30, now_s - LEASE_S + 30))
    with pytest.raises(LakeError), lease(folder, "work"):
        pass
    os.utime(left, (now_s - LEASE_S - 1, now_s - LEASE_S - 1))
    with lease(folder, "work"):
        assert len(held(folder)) == 1


def test_it_is_renewed_while_the_work_lasts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "RENEW_S", 0.001)
    folder, renewed = Folder(str(tmp_path)), threading.Semaphore(0)
    write = folder.write

    def noted(path: str, data: bytes) -> None:
        write(path, data)
        renewed.release()

    monkeypatch.setattr(folder, "write", noted)
    with lease(folder, "work"):
        for _ in range(3):
            assert renewed.acquire(timeout=10)
    assert held(folder) == []


def test_one_that_waits_comes_after_the_first(tmp_path: Path) -> None:
    order: list[str] = []
    began = threading.Event()

    def first() -> None:
        with lease(Folder(str(tmp_path)), "work"):
            began.set()
            order.append("first")

    thread = threading.Thread(target=first)
    thread.start()
    assert began.wait(10)
    with lease(Folder(str(tmp_path)), "work", wait_s=10):
        order.append("second")
    thread.join()
    assert order == ["first", "second"]
