"""Streams for the commands to work on."""

from __future__ import annotations

import json

from headwater.client import Client
from tests.support.log import encode_records


def append_json(client: Client, name: str, *values: object) -> None:
    """Into a stream of the bucket that everybody has; it is made if need be."""
    client.create("durable-streams", name, "application/json")
    bodies = [json.dumps(value).encode() for value in values]
    client.append("durable-streams", name, encode_records(bodies))
