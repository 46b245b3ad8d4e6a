"""The official TypeScript SDK of S2 against a real server. The tests are JavaScript, in vitest."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from tests.conformance.test_conformance import explain, run_vitest
from tests.support.server import ServerProcess

pytestmark = [pytest.mark.conformance, pytest.mark.timeout(360)]


def test_the_official_sdk_works(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data") as server:
        report = run_vitest("s2.test.mjs", server.url, tmp_path)
        if not report.clean or report.passed == 0:
            pytest.fail(explain(report, server), pytrace=False)
        assert server.stop() == 0


def test_the_official_sdk_goes_on_after_restarts(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data") as server, control(server) as control_url:
        file = "s2-restarts.test.mjs"
        report = run_vitest(file, server.url, tmp_path, HEADWATER_CONTROL=control_url)
        if not report.clean or report.passed == 0:
            pytest.fail(explain(report, server), pytrace=False)
        assert server.stop() == 0


@contextmanager
def control(server: ServerProcess) -> Iterator[str]:
    """Where the tests ask for `/kill` and `/stop`: answered when the server is back."""

    class Control(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            if self.path == "/kill":
                server.kill9()
            server.restart()
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Nothing to say."""

    with HTTPServer(("127.0.0.1", 0), Control) as listener:
        thread = threading.Thread(target=listener.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.server_port}"
        finally:
            listener.shutdown()
            thread.join()
