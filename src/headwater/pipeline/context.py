"""What a run is given from outside the file: which server, which Spark, where progress is kept."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from headwater.client import Client
from headwater.pipeline.spec import Spec

DEFAULT_ENDPOINT = "http://127.0.0.1:4437"
STATE_FOLDER = ".headwater/pipelines"
"""Checkpoints, unless a pipeline says where: in the working directory."""


@dataclass(frozen=True, slots=True)
class Context:
    """Plain values of one run."""

    endpoint: str = DEFAULT_ENDPOINT
    token: str | None = field(default=None, repr=False)
    state_folder: str = STATE_FOLDER
    once: bool = False
    """Read what is there, then end."""
    encryption_key: str | None = field(default=None, repr=False)
    ca_file: str | None = None

    def for_spec(self, spec: Spec) -> Context:
        """A pipeline may name a server of its own."""
        return self if spec.endpoint is None else replace(self, endpoint=spec.endpoint)

    @property
    def connection(self) -> Mapping[str, str]:
        """As options of the data source."""
        given = {
            "endpoint": self.endpoint,
            "token": self.token,
            "encryptionKey": self.encryption_key,
            "caFile": self.ca_file,
        }
        return {name: value for name, value in given.items() if value is not None}

    def client(self, *, retry_timeout_s: float = 60.0) -> Client:
        return Client(
            self.endpoint,
            token=self.token,
            encryption_key=self.encryption_key,
            ca_file=self.ca_file,
            retry_timeout_s=retry_timeout_s,
        )

    def checkpoint(self, spec: Spec) -> str:
        folder = spec.checkpoint or os.path.join(self.state_folder, spec.name)
        return folder if "://" in folder else os.path.abspath(folder)
