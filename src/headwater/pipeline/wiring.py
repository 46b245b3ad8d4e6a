"""How the parts of a pipeline go together: all are used, and rows do not go in circles."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from headwater.pipeline.marks import Node
from headwater.pipeline.spec import Sink, Source, Spec


def check_wiring(spec: Spec, root: Node) -> None:
    """Raises SpecError with the line of the part that does not fit."""
    if not spec.sources or not spec.sinks:
        root.fail("a pipeline needs a source and a sink at least")
    parts: dict[str, Node] = root.value
    sources, sinks = parts["sources"].value, parts["sinks"].value
    transforms = parts["transforms"].value if "transforms" in parts else {}
    tables = {**sources, **transforms}
    _check_names(tables)
    _check_names(sinks)
    _check_used(spec, tables)
    for sink in spec.sinks:
        _check_rows(sink, list(_sources_of(spec, sink)), sinks[sink.name])
    for source in spec.sources:
        _check_dead_letters(source, spec, sources[source.name])
    _check_owners(spec, sinks)


def _check_names(written: Mapping[str, Node]) -> None:
    """To SQL, and to some file systems, `Orders` and `orders` are one name."""
    seen: dict[str, str] = {}
    for name, node in written.items():
        other = seen.setdefault(name.lower(), name)
        if other != name:
            node.fail(f"{name} and {other} are one name to SQL; rename one of them")


def _check_used(spec: Spec, written: Mapping[str, Node]) -> None:
    used = {sink.input for sink in spec.sinks}
    used.update(name for each in spec.transforms for name in each.inputs)
    for name, node in written.items():
        if name not in used:
            node.fail(f"nothing uses {name}")


def _sources_of(spec: Spec, sink: Sink) -> Iterator[Source]:
    """The sources whose rows, or what is made of them, get to a sink."""
    reached = {sink.input}
    for transform in reversed(spec.transforms):
        if transform.name in reached:
            reached.update(transform.inputs)
    return (source for source in spec.sources if source.name in reached)


def _check_rows(sink: Sink, sources: list[Source], node: Node) -> None:
    if all(source.streams is None for source in sources):
        node.fail(
            f"sink {sink.name} gets rows of tables only, which do not go on: give it some of "
            "streams too, or write the table to streams with replay"
        )
    for source in sources:
        if sink.stream is not None and _reads(source, sink.bucket, sink.stream):
            node.fail(
                f"sink {sink.name} writes to {sink.stream}, which source {source.name} reads, and "
                "would never come to rest: write to another stream"
            )


def _check_dead_letters(source: Source, spec: Spec, node: Node) -> None:
    bucket, stream = spec.dead_letters
    if source.has_dead_letters and _reads(source, bucket, stream):
        node.fail(
            f"bad records of source {source.name} go to {stream}, which it reads itself: name "
            "another stream with dead_letters or dead_letter_bucket, or set bad_records"
        )


def _reads(source: Source, bucket: str, stream: str) -> bool:
    streams = None if source.is_elsewhere else source.streams
    return streams is not None and streams.selects(bucket, stream)


def _check_owners(spec: Spec, written: Mapping[str, Node]) -> None:
    """A table that is all results of one sink cannot have those of another."""
    tables = [sink.table.location for sink in spec.sinks if sink.table is not None]
    for sink in spec.sinks:
        shared = sink.table is not None and tables.count(sink.table.location) > 1
        if shared and sink.mode == "complete":
            written[sink.name].fail(
                f"with mode complete the table is all results of sink {sink.name}: give the other "
                "sink another table"
            )
