"""`python -m bench.s2_writer URL BASIN STREAM RECORDS BYTES SECONDS`: the official Python SDK.

Keeps an append session busy for that long and prints how many batches were acknowledged, how many
seconds it took, and how much CPU this process used.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time

from s2_sdk import S2, AppendInput, Endpoints, Record


async def write(
    url: str, basin: str, stream: str, *, records: int, record_bytes: int, seconds: float
) -> tuple[int, float]:
    batch = AppendInput([Record(os.urandom(record_bytes)) for _ in range(records)])
    sent = 0
    async with S2("any", endpoints=Endpoints(account=url, basin=url)) as s2:
        started = time.perf_counter()
        async with s2[basin][stream].append_session() as session:
            while time.perf_counter() - started < seconds:
                await session.submit(batch)
                sent += 1
        return sent, time.perf_counter() - started


def main() -> None:
    url, basin, stream, records, record_bytes, seconds = sys.argv[1:]
    sent, elapsed_s = asyncio.run(
        write(
            *(url, basin, stream),
            records=int(records),
            record_bytes=int(record_bytes),
            seconds=float(seconds),
        )
    )
    print(sent, elapsed_s, time.process_time())


if __name__ == "__main__":
    main()
