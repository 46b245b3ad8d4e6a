"""Small files of a table's folder: replaced in one step, and made by one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from headwater.lake.locations import Folder


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(str(tmp_path))


def test_a_file_is_made_once(folder: Folder) -> None:
    assert folder.create("a/b", b"first")
    assert not folder.create("a/b", b"second")
    assert folder.read("a/b") == b"first"
    assert [file.path for file in folder.walk()] == ["a/b"]


def test_a_disk_may_have_no_links(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "link", refused)
    test_a_file_is_made_once(folder)


def test_bytes_are_on_disk_before_their_name(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[bytes | None] = []
    monkeypatch.setattr(os, "fsync", lambda _: seen.append(folder.read("a")))
    folder.create("a", b"first")
    folder.write("a", b"second")
    assert seen == [None, b"first"]
    assert folder.read("a") == b"second"
