"""What a run is given from outside the file: which server, which Spark, where progress is kept."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

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

    def for_spec(self, spec: Spec) -> Context:
        """A pipeline may name a server of its own."""
        if spec.endpoint is None:
            return self
        return Context(spec.endpoint, self.token, self.state_folder, self.once)

    @property
    def connection(self) -> Mapping[str, str]:
        """As options of the data source."""
        found = {"endpoint": self.endpoint}
        return found if self.token is None else {**found, "token": self.token}

    def client(self, *, retry_timeout_s: float = 60.0) -> Client:
        return Client(self.endpoint, token=self.token, retry_timeout_s=retry_timeout_s)

    def checkpoint(self, spec: Spec) -> str:
        folder = spec.checkpoint or os.path.join(self.state_folder, spec.name)
        return folder if "://" in folder else os.path.abspath(folder)
