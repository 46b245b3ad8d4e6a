"""An S3 that speaks HTTP, in a thread of the tests: moto's. It keeps its objects in memory.

Beside it, what other programs have to be told to read from it: each in its own words, so that a
test sees whether ours are the right ones.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self

import httpx
import pyarrow.fs as pafs
from moto.server import ThreadedMotoServer

KEY, SECRET, REGION = "tester", "testing", "eu-north-1"

_numbers = iter(range(1_000_000))


class ObjectStore:
    """A context manager. Everybody may do everything, but while it is `refusing`."""

    def __init__(self) -> None:
        logging.getLogger("werkzeug").setLevel(logging.WARNING)  # else a line for every request
        self._server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
        self.url = ""

    def __enter__(self) -> Self:
        self._server.start()
        host, port = self._server.get_host_and_port()
        self.url = f"http://{host}:{port}"
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.stop()

    def make_bucket(self) -> str:
        """Its name."""
        name = f"bucket-{next(_numbers)}"
        self.filesystem(allow_bucket_creation=True).create_dir(name)
        return name

    @contextmanager
    def refusing(self) -> Iterator[None]:
        """Nobody's key is known."""
        self._check_keys_after("0")
        try:
            yield
        finally:
            self._check_keys_after("inf")

    def _check_keys_after(self, requests: str) -> None:
        httpx.post(f"{self.url}/moto-api/reset-auth", content=requests).raise_for_status()

    @contextmanager
    def tokens(self) -> Iterator[list[str | None]]:
        """The session token of every request meanwhile."""
        server: Any = self._server._server  # noqa: SLF001
        app, seen = server.app, list[str | None]()

        def noting(environ: Any, start_response: Any) -> Any:
            seen.append(environ.get("HTTP_X_AMZ_SECURITY_TOKEN"))
            return app(environ, start_response)

        server.app = noting
        try:
            yield seen
        finally:
            server.app = app

    # -- for our own code

    @property
    def storage(self) -> Mapping[str, str]:
        return {
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_REGION": REGION,
            "AWS_ENDPOINT_URL": self.url,
        }

    # -- for others

    def filesystem(self, **more: Any) -> Any:
        given = {"access_key": KEY, "secret_key": SECRET, "region": REGION}
        return pafs.S3FileSystem(endpoint_override=self.url, **given, **more)

    @property
    def for_delta(self) -> dict[str, str]:
        return {**self.storage, "AWS_ALLOW_HTTP": "true"}

    @property
    def for_iceberg(self) -> dict[str, str]:
        return {
            "s3.access-key-id": KEY,
            "s3.secret-access-key": SECRET,
            "s3.region": REGION,
            "s3.endpoint": self.url,
        }
