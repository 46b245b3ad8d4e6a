"""The official Python SDK of S2, pointed at a server under test.

Tests that use it are coroutines marked with `drives`, which also says what of the SDK they show.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from functools import wraps
from typing import Any, ParamSpec

import pytest
from s2_sdk import (
    S2,
    BasinConfig,
    Endpoints,
    Record,
    S2Basin,
    S2ServerError,
    S2Stream,
    SeqNum,
    SequencedRecord,
)

P = ParamSpec("P")

TOKEN = "any token will do while authentication is off"


def drives(
    *operations: object,
) -> Callable[[Callable[P, Awaitable[None]]], Callable[P, None]]:
    """Run a test that is a coroutine, and note which public operations of the SDK it shows."""

    def decorate(test: Callable[P, Awaitable[None]]) -> Callable[P, None]:
        @wraps(test)
        def run(*args: P.args, **kwargs: P.kwargs) -> None:
            async def main() -> None:
                await test(*args, **kwargs)

            asyncio.run(main())

        run.drives = operations  # type: ignore[attr-defined]
        return run

    return decorate


def connect(url: str, token: str = TOKEN, **options: Any) -> S2:
    client: S2 = S2(token, endpoints=Endpoints(account=url, basin=url), **options)
    return client


def fresh_name(kind: str = "basin") -> str:
    return f"{kind}-{secrets.token_hex(6)}"


@asynccontextmanager
async def fresh_basin(
    url: str, config: BasinConfig | None = None, **options: Any
) -> AsyncIterator[S2Basin]:
    """A basin of its own for one test, and a client that is closed with it."""
    async with connect(url, **options) as s2:
        name = fresh_name()
        await s2.create_basin(name, config=config)
        yield s2.basin(name)


@asynccontextmanager
async def fresh_stream(
    url: str, config: BasinConfig | None = None, **options: Any
) -> AsyncIterator[S2Stream]:
    async with fresh_basin(url, config, **options) as basin:
        await basin.create_stream("stream")
        yield basin.stream("stream")


def records(*bodies: bytes | str) -> list[Record]:
    return [Record(body if isinstance(body, bytes) else body.encode()) for body in bodies]


def bodies(found: Iterable[SequencedRecord]) -> list[bytes]:
    return [record.body for record in found]


async def read_all(stream: S2Stream) -> list[SequencedRecord]:
    """Everything up to the tail, by a session that ends there."""
    found: list[SequencedRecord] = []
    async with stream.read_session(start=SeqNum(0), wait=0) as session:
        async for batch in session:
            found += batch.records
    return found


async def refused(call: Awaitable[object]) -> tuple[int, str]:
    """The status and the code of a call that the server must refuse."""
    with pytest.raises(S2ServerError) as error:
        await call
    return error.value.status_code, error.value.code
