"""Random histories of commands, each with what it does to the model."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from hypothesis import strategies as st

from headwater.core.commands import Command
from tests.support.builders import (
    JSON,
    TEXT,
    append,
    append_records,
    claim,
    create,
    delete,
    fork_of,
    trim,
)
from tests.support.clock import START_MS
from tests.support.model import (
    RECORD_BYTES,
    Expected,
    Model,
    ModelStream,
    Row,
    body_of,
    messages_of,
    s2_command,
)

NAMES = ["a", "b", "c"]


class Operation(NamedTuple):
    """A command, and what it does to the model."""

    command: Command
    act: Callable[[Model], Expected]
    kind_of: str | None = None
    """Its body is right only for a stream of the kind that this one was."""
    json: bool = False

    def fits(self, model: Model) -> bool:
        """May it be sent again, whatever has happened since?"""
        stream = None if self.kind_of is None else model.streams.get(self.kind_of)
        return stream is None or stream.json == self.json


texts = st.integers(1, 40).flatmap(
    lambda size: st.sampled_from("abcdefgh").map(lambda letter: letter.encode() * size)
)
text_lists = st.lists(texts, min_size=1, max_size=4)
TOKENS = ["", "x", "y"]
KINDS = [
    "records",
    *["s2"] * 3,
    "create",
    *["append"] * 3,
    *["produce"] * 6,
    "close",
    "close",
    "delete",
    "fork",
    "trim",
]


def draw_operation(data: st.DataObject, model: Model) -> Operation:
    """A command that fits what the streams would be if everything so far were done."""
    kind = data.draw(st.sampled_from(KINDS))
    name = data.draw(st.sampled_from(NAMES))
    stream = model.streams.get(name)
    if stream is None and kind != "fork":
        kind = "create"
    texts_drawn = data.draw(text_lists)
    json = stream is not None and stream.json
    if kind == "create":
        json = data.draw(st.booleans())
        bodies = messages_of(texts_drawn, json=json)
        return Operation(
            create(name, content_type=JSON if json else TEXT, body=body_of(bodies, json=json)),
            lambda m: m.create(name, json=json, bodies=bodies, closed=False),
        )
    if kind == "delete":
        return Operation(delete(name), lambda m: m.delete(name))
    if kind == "trim":
        assert stream is not None
        settled = [at for at in stream.starts if at.seq <= stream.settled_records]
        to = data.draw(st.sampled_from(settled))
        return Operation(trim(name, to), lambda m: m.trim(name, to))
    if kind == "fork":
        return _draw_fork(data, model, name, texts_drawn)
    if kind == "s2":
        return _draw_s2(data, stream, name, texts_drawn)
    batch = None
    if kind in ("produce", "records"):
        producer = data.draw(st.sampled_from(["p", "q"]))
        batch = (producer, stream.next_batch.get(producer, 0) if stream else 0)
    if kind == "records":
        return _records(name, texts_drawn, batch, json=json)
    close = kind == "close"
    bodies = [] if close and data.draw(st.booleans()) else messages_of(texts_drawn, json=json)
    return Operation(
        append(
            name,
            body_of(bodies, json=json),
            close=close,
            producer=None if batch is None else claim(batch[0], seq=batch[1]),
        ),
        lambda m: m.append(name, bodies, close=close, batch=batch),
        name,
        json,
    )


def _records(
    name: str, texts_drawn: list[bytes], batch: tuple[str, int] | None, *, json: bool
) -> Operation:
    """One message each, also in a stream of bytes, and headers that no model needs to know."""
    bodies = [b'"%b"' % text if json else text for text in texts_drawn]
    command = append_records(
        name,
        bodies,
        headers=[[(b"n", b"%d" % number)] * (number % 2) for number in range(len(bodies))],
        producer=None if batch is None else claim(batch[0], seq=batch[1]),
    )
    return Operation(command, lambda m: m.append_records(name, bodies, batch=batch), name, json)


def draw_rows(data: st.DataObject, texts_drawn: list[bytes], *, json: bool) -> list[Row]:
    """Records as S2 sends them, a fence or a trim here and there."""
    rows = []
    for text in texts_drawn:
        time_ms = data.draw(st.sampled_from([0, START_MS - 7, START_MS]))
        kind = data.draw(st.sampled_from(["body"] * 4 + ["fence", "trim"]))
        if kind == "fence":
            rows.append(Row(b"", time_ms, fence=data.draw(st.sampled_from(TOKENS))))
        elif kind == "trim":
            rows.append(Row(b"", time_ms, trim=data.draw(st.sampled_from([0, 2, 5, 2**64 - 1]))))
        else:
            rows.append(Row(b'"%b"' % text if json else text, time_ms))
    return rows


def _draw_s2(
    data: st.DataObject, stream: ModelStream | None, name: str, texts_drawn: list[bytes]
) -> Operation:
    """With the conditions of S2, which hold more often than not.

    The number of the next record is always expected: whoever got no answer sends it again, and
    must not add it twice.
    """
    assert stream is not None
    rows = draw_rows(data, texts_drawn, json=stream.json)
    tokens = [None, stream.fencing_token, *TOKENS]
    token = data.draw(st.sampled_from(tokens))
    seq = stream.tail.seq
    return Operation(
        s2_command(name, rows, token=token, seq=seq),
        lambda m: m.append_s2(name, rows, token=token, seq=seq),
        name,
        stream.json,
    )


def _draw_fork(data: st.DataObject, model: Model, name: str, texts_drawn: list[bytes]) -> Operation:
    source_name = data.draw(st.sampled_from(NAMES))
    source = model.streams.get(source_name)
    at, sub_offset, json = None, 0, False
    if source is not None:
        json = source.json
        at = source.position(data.draw(st.integers(0, len(source.messages))))
        sub_offset = data.draw(st.sampled_from([0, 0, 1, RECORD_BYTES]))
    bodies = messages_of(texts_drawn, json=json)
    return Operation(
        create(
            name,
            content_type=None,
            fork=fork_of(source_name, at, sub_offset),
            body=body_of(bodies, json=json),
        ),
        lambda m: m.fork(name, source_name, at, sub_offset, bodies),
        source_name,
        json,
    )


def replay(operations: list[Operation]) -> Model:
    """The streams as they are after these commands."""
    model = Model()
    for operation in operations:
        operation.act(model)
    return model
