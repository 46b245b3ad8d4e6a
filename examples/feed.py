"""Feeds the examples: `python examples/feed.py clickstream|transcripts|current_state`."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from typing import Any
from urllib.error import URLError
from urllib.request import Request, urlopen

URL = os.environ.get("HEADWATER_URL", "http://127.0.0.1:4437")
TOKEN = os.environ.get("HEADWATER_TOKEN")

Event = tuple[str, dict[str, Any]]
"""A stream, and what is appended to it."""


def clickstream() -> Iterator[Event]:
    for minute in range(0, 240, 7):
        user, page = f"user-{minute % 5}", ("/", "/shop", "/cart")[minute % 3]
        at = f"2026-01-01T{10 + minute // 60:02}:{minute % 60:02}:00Z"
        yield f"clicks/{user}", {"user": user, "page": page, "at": at}


def transcripts() -> Iterator[Event]:
    said = {"chats/1/tokens": "Streams are logs.", "chats/2/tokens": "And logs are streams."}
    for stream, text in said.items():
        words = text.split(" ")
        for number, word in enumerate(words):
            last = number == len(words) - 1
            token = word if last else f"{word} "
            yield (
                stream,
                {"message": "m1", "role": "model", "number": number, "token": token, "last": last},
            )
    yield (
        "chats/1/tokens",
        {"message": "m2", "role": "model", "number": 0, "token": "Unfinished", "last": False},
    )


def current_state() -> Iterator[Event]:
    changes: list[tuple[Any, ...]] = [
        ("insert", 1, "Ada", "London"),
        ("insert", 2, "Grace", "New York"),
        ("update", 1, "Ada", "Paris"),
        ("insert", 3, "Alan", "Wilmslow"),
        ("delete", 2, None, None),
    ]
    for op, id, name, city in changes:
        yield "changes/customers", {"op": op, "id": id, "name": name, "city": city}


FEEDS = {each.__name__: each for each in (clickstream, transcripts, current_state)}


def send(method: str, stream: str, body: bytes) -> None:
    headers = {"Content-Type": "application/json"}
    if TOKEN:
        headers["Authorization"] = f"Bearer {TOKEN}"
    request = Request(f"{URL}/v1/stream/{stream}", data=body, method=method, headers=headers)
    urlopen(request).close()


def feed(name: str) -> None:
    events: dict[str, list[dict[str, Any]]] = {}
    for stream, event in FEEDS[name]():
        events.setdefault(stream, []).append(event)
    for stream, appended in events.items():
        send("PUT", stream, b"")
        send("POST", stream, json.dumps(appended).encode())
        sys.stdout.write(f"{len(appended)} messages to {stream}\n")


def main(arguments: list[str]) -> None:
    if len(arguments) != 1 or arguments[0] not in FEEDS:
        sys.exit(f"usage: python examples/feed.py {'|'.join(FEEDS)}")
    try:
        feed(arguments[0])
    except URLError as error:
        sys.exit(f"{URL} does not take it: {error.reason}. Is there a server? See HEADWATER_URL")


if __name__ == "__main__":
    main(sys.argv[1:])
