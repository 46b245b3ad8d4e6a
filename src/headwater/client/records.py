"""Whole ranges of records as Arrow batches, over as many connections as it takes.

pyarrow is asked for here and nowhere else in the client.
"""

from __future__ import annotations

import http.client
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.ipc as ipc

from headwater.client.errors import PastTail, StreamNotFound, Unreachable
from headwater.client.sync import RETRY_TIMEOUT_S, Answer, Client, Retries

_CUT_OFF = (OSError, http.client.HTTPException, pa.ArrowInvalid)


def read_batches(
    client: Client,
    bucket: str,
    name: str,
    *,
    first: int,
    end: int,
    stream_id: str,
    view: str = "messages",
    retry_timeout_s: float = RETRY_TIMEOUT_S,
) -> Iterator[Any]:
    """The records from `first` up to `end` of one stream, as the server's batches.

    An answer that was cut off is taken up where it ended, as long as more records come within the
    time for retries. Raises OffsetTrimmed, PastTail or StreamNotFound when the records have gone,
    the last also when the name is another stream's now. PastTail comes after the records that are
    there: a server that was set back to an older state has fewer than it had.
    """
    tries: Retries | None = None
    while first < end:
        query = {"from": first, "to": end, "view": view}
        answer = client.open_records(bucket, name, query)
        _check_id(client, answer, stream_id, name)
        try:
            with ipc.open_stream(answer.body) as batches:
                for batch in batches:
                    if batch.num_rows:
                        yield batch
                        first = batch.column(0)[-1].as_py() + 1
                        tries = None
            # Pulls in the last bytes; fails if the answer was cut off between two batches.
            answer.body.read()
        except _CUT_OFF as error:
            client.close()
            tries = tries or Retries(retry_timeout_s)
            if not tries.wait():
                raise Unreachable(f"records of {bucket}/{name} are cut off: {error}") from error
        else:
            _check_end(answer, end, name)
            return


def _check_id(client: Client, answer: Answer, stream_id: str, name: str) -> None:
    found = answer.headers.get("log-stream-id")
    if found == stream_id:
        return
    client.close()
    raise StreamNotFound(404, "stream_not_found", f"another stream has the name now. stream={name}")


def _check_end(answer: Answer, end: int, name: str) -> None:
    tail = int(answer.headers["log-to-seq"])
    if tail < end:
        raise PastTail(416, "range_not_satisfiable", f"{name} ends at {tail}, before {end}")
