"""Pipeline files are checked before anything runs: what is wrong is said, with its line."""

from __future__ import annotations

import os
import textwrap
from pathlib import Path

import pytest

from headwater.lake.tables import TableRef
from headwater.pipeline import files
from headwater.pipeline.marks import SpecError
from headwater.pipeline.spec import Archive, Replay, Sink, Source, Spec, Streams, Watermark

CLICKS = """\
name: clicks
trigger: 10 seconds
sources:
  clicks:
    streams: clicks/*
    bucket: web
    json: user string, at timestamp
    watermark: {column: at, delay: 10 minutes}
transforms:
  hourly: |
    select window(at, '1 hour') as hour, count(*) as clicks from clicks group by 1
sinks:
  out:
    from: hourly
    stream: reports/hourly
"""


def load(folder: Path, text: str, name: str = "job.yaml") -> Spec:
    path = folder / name
    path.write_text(textwrap.dedent(text))
    return files.load(str(path))


def test_a_file_says_what_it_says(tmp_path: Path) -> None:
    spec = load(tmp_path, CLICKS)
    assert (spec.name, spec.kind, spec.trigger) == ("clicks", "transform", "10 seconds")
    assert spec.sources == (
        Source(
            "clicks",
            Streams(("clicks/*",), "web"),
            schema="user string, at timestamp",
            watermark=Watermark("at", "10 minutes"),
        ),
    )
    assert [(each.name, each.inputs) for each in spec.transforms] == [("hourly", ("clicks",))]
    assert spec.sinks == (Sink("out", "hourly", "reports/hourly"),)
    assert spec.dead_letters == ("durable-streams", "dead-letters/clicks")


def test_an_archive_and_a_replay(tmp_path: Path) -> None:
    text = "archive: {streams: [a, b], to: /lake, format: iceberg, trim: true}"
    spec = load(tmp_path, text, "lake.yml")
    table = TableRef("iceberg", "/lake", ("bucket", "stream", "day"))
    assert spec.name == "lake"
    assert spec.archive == Archive(Source("archive", Streams(("a", "b"))), table, trim=True)
    replay = load(tmp_path, "replay: {table: /lake, where: offset < 5, stream: again}")
    assert replay.replay == Replay(TableRef("delta", "/lake"), stream="again", where="offset < 5")


def test_tables_are_found_from_any_working_directory(tmp_path: Path) -> None:
    spec = load(tmp_path, "replay: {table: lake}")
    assert spec.replay is not None and spec.replay.table.location == os.path.abspath("lake")
    spec = load(tmp_path, "replay: {table: a.b, format: iceberg, catalog: {type: rest}}")
    assert spec.replay is not None and spec.replay.table.location == "a.b"


# What is wrong, the line it is on, and what is said.
WRONG = [
    pytest.param("", 1, "the file is empty", id="nothing"),
    pytest.param("a: [1", 1, "not valid YAML", id="no YAML"),
    pytest.param("- 1\n", 1, "a pipeline is a mapping", id="a list"),
    pytest.param(
        "archive: {streams: a, to: b}\narchive: {}", 2, "archive is there twice", id="twice"
    ),
    pytest.param("name: x\n", 1, "needs one of archive, replay, sources", id="no kind"),
    pytest.param(
        "archive: {streams: a, to: b}\nreplay: {table: c}", 1, "it has archive and replay", id="two"
    ),
    pytest.param(
        "name: x\narchive:\n  streams: a\n  to: b\n  formatx: delta\n",
        5,
        "archive has no key formatx; did you mean format?",
        id="misspelt key",
    ),
    pytest.param(
        "archive:\n  streams: a\n  to: b\n  format: detla\n",
        4,
        "format is one of delta, iceberg, parquet. received='detla'; did you mean delta?",
        id="misspelt choice",
    ),
    pytest.param("archive:\n  to: b\n", 1, "archive needs streams", id="no streams"),
    pytest.param("archive:\n  streams: a\n", 1, "archive needs to", id="no table"),
    pytest.param(
        "archive:\n  streams: [a, 'b/*']\n  to: b", 2, "a list of names, or one pattern", id="mixed"
    ),
    pytest.param(
        "archive:\n  streams: a\n  bucket: '*'\n  to: b", 2, "name the bucket", id="all buckets"
    ),
    pytest.param(
        "archive:\n  streams: a\n  to: s3://x/y\n  format: iceberg\n",
        3,
        "needs a catalog",
        id="iceberg elsewhere",
    ),
    pytest.param(
        "archive:\n  streams: a\n  to: x\n  catalog: {type: rest}\n",
        4,
        "delta tables have no catalog",
        id="a catalog for delta",
    ),
    pytest.param(
        "archive:\n  streams: a\n  to: x\n  partition_by: [hour]\n",
        4,
        "some of bucket, stream, day",
        id="partition",
    ),
    pytest.param(
        "archive:\n  streams: a\n  to: b\n  trim: perhaps\n", 4, "trim is true or false", id="truth"
    ),
    pytest.param(
        "archive: {streams: a, to: b}\nsinks:\n  out: {}\n", 2, "sinks go with sources", id="sinks"
    ),
    pytest.param(
        "trigger: soon\narchive: {streams: a, to: b}", 1, "such as '10 seconds'", id="time"
    ),
    pytest.param("name: a b\narchive: {streams: a, to: b}", 1, "name is 1 to 64", id="name"),
    pytest.param(
        "endpoint: localhost\narchive: {streams: a, to: b}", 1, "endpoint is a URL", id="endpoint"
    ),
    pytest.param("replay: {table: a, order_by: []}", 1, "order_by is empty", id="no order"),
    pytest.param(
        CLICKS.replace("user string", "user strnig"),
        7,
        "column user has no type 'strnig'; did you mean string?",
        id="type",
    ),
    pytest.param(
        CLICKS.replace("user string", "user struct<a int"), 7, "json is a schema", id="bracket"
    ),
    pytest.param(
        CLICKS.replace("user string", "offset bigint"), 7, "has a column offset", id="taken"
    ),
    pytest.param(
        CLICKS.replace("column: at", "column: att"), 8, "no column att; did you mean at?", id="late"
    ),
    pytest.param(CLICKS.replace("10 minutes", "10"), 8, "delay is a time", id="delay"),
    pytest.param(
        CLICKS.replace("from clicks", "from clickz"),
        10,
        "reads none of clicks; did you mean clicks?",
        id="SQL",
    ),
    pytest.param(CLICKS.replace("from: hourly", "from: horly"), 14, "mean hourly?", id="from"),
    pytest.param(
        CLICKS.replace("from: hourly", "from: clicks"), 10, "nothing uses hourly", id="idle"
    ),
    pytest.param(
        CLICKS.replace("    stream: reports/hourly", "    mode: append"),
        13,
        "sink out needs one of stream, streams, table",
        id="no target",
    ),  # fmt: skip
    pytest.param(CLICKS + "    mode: complete\n", 16, "complete is for tables", id="mode"),
    pytest.param(
        CLICKS.replace("  hourly: |", "  clicks: |"), 10, "a source already", id="name again"
    ),
    pytest.param(CLICKS.replace("  clicks:\n", "  my clicks:\n"), 4, "is a word", id="no word"),
    pytest.param(
        CLICKS.replace("bucket: web", "from: yesterday"), 6, "earliest, latest", id="start"
    ),
    pytest.param(
        CLICKS.replace("bucket: web", "options: {maxOffsetPerTriger: 5}"),
        6,
        "no option maxOffsetPerTriger; did you mean maxOffsetsPerTrigger?",
        id="misspelt option",
    ),
    pytest.param(
        CLICKS.replace(
            "bucket: web", "options:\n      includeHeaders: true\n      minPartitions: many"
        ),
        8,
        "minPartitions is a whole number from 1",
        id="value of an option",
    ),
    pytest.param(
        CLICKS.replace("bucket: web", "options: {endingOffsets: latest}"),
        6,
        "endingOffsets is for batch reads",
        id="option of batches",
    ),
    pytest.param(
        CLICKS + "    options: {order: kept, closeOnFinish: true}\n",
        16,
        "closeOnFinish is for batch writes",
        id="option of a sink",
    ),
    pytest.param(
        CLICKS.replace("stream: reports/hourly", "table: t\n    options: {order: kept}"),
        16,
        "a table has none",
        id="options of a table",
    ),
    pytest.param(CLICKS.replace("clicks/*", "cl*ks"), 5, "a pattern", id="pattern"),
    pytest.param(
        "sources:\n  s:\n    streams: a\n    bad_records: fail\nsinks: {out: {from: s, stream: b}}",
        4,
        "without json there are no bad records",
        id="bad records of bytes",
    ),
    pytest.param(
        "archive:\n  streams: a\n  to: b\n  bad_records: keep\n",
        4,
        "archive has no key bad_records",
        id="bad records of an archive",
    ),
    pytest.param(
        "archive:\n  streams: a\n  to: b\n  watermark: {column: timestamp, delay: 1 hour}\n",
        4,
        "archive has no key watermark",
        id="watermark of an archive",
    ),
    pytest.param(
        "archive:\n  streams: a\n  to: b\n  options:\n    failOnDataLoss: false\n",
        5,
        "an archive has all records, without gaps",
        id="archive with gaps",
    ),
    pytest.param(
        "archive:\n  streams: a\n  to: b\n  options: {includeCommands: true}\n",
        4,
        "an archive has messages, no commands",
        id="archive with commands",
    ),
    pytest.param(
        "archive:\n  streams: a\n  to: b\n  trim: true\n  from: latest\n",
        5,
        "trim needs the whole streams in the table: leave out from",
        id="trim from the end",
    ),
    pytest.param(
        "archive:\n  streams: a\n  to: b\n  trim: true\n"
        "  options:\n    minPartitions: 2\n    startingOffsets: latest\n",
        7,
        "leave out startingOffsets",
        id="trim from a number",
    ),
    pytest.param(
        "archive:\n  streams: a\n  to: b\n  trim: true\n  options: {startingTimestamp: 5}\n",
        5,
        "leave out startingTimestamp",
        id="trim from a time",
    ),
    pytest.param(
        "archive:\n  streams: a\n  to: b\n  trim: true\n  archive: c\n",
        5,
        "is read from the table",
        id="trim and another archive",
    ),
    pytest.param(
        "dead_letters: x\narchive: {streams: a, to: b}\n", 1, "go with sources", id="dead letters"
    ),
    pytest.param(
        "replay: {table: a}\ndead_letter_bucket: x\n", 2, "go with sources", id="dead bucket"
    ),
    pytest.param("replay: {table: a}\ntrigger: 5 seconds\n", 2, "it runs once", id="trigger"),
    pytest.param("a:\n\tb: 1\n", 2, "indent with spaces", id="tab"),
    pytest.param(
        "sources: {a: {streams: a}}\ntransforms: {t: select 1, 2 from a}\n"
        "sinks: {out: {from: t, stream: b}}",
        2,
        "inside { } a text with commas is put in quotes",
        id="commas",
    ),
    pytest.param("a: 1\n---\na: 1\n", 2, "but found another document", id="two documents"),
    pytest.param("name: x\nb: \0\n", 2, "special characters", id="no characters"),
    pytest.param("name: x\na: 2030-13-45\n", 2, "month must be in 1..12", id="no date"),
    pytest.param("name: x\na: !own x\n", 2, "could not determine a constructor", id="tag"),
    pytest.param("name: x\na: &a [*a]\n", 2, "an alias for something that it is", id="circle"),
    pytest.param("name: x\n? [a]\n: b\n", 2, "a key is a word", id="key"),
    pytest.param("name: x\n<<: 5\n", 2, "<< is for mappings", id="merge"),
    pytest.param(CLICKS.replace("clicks/*", ""), 5, "streams has no value", id="no value"),
    pytest.param(CLICKS.replace("clicks/*", "5"), 5, "write it in quotes", id="number"),
    pytest.param(
        CLICKS.replace("clicks/*", "[a, b, a]"), 5, "streams has a twice", id="streams twice"
    ),
    pytest.param(CLICKS.replace("clicks/*", "a/../b"), 5, "no '.' or '..' segment", id="dots"),
    pytest.param(CLICKS.replace("web", "we b"), 6, "a bucket name is", id="bucket"),
    pytest.param(
        CLICKS.replace("reports/hourly", "reports/*"), 15, "no pattern", id="pattern to write to"
    ),
    pytest.param(
        CLICKS.replace("bucket: web", "from: '2030-02-30T12:00:00Z'"),
        6,
        "from is earliest, latest, or a time",
        id="no day",
    ),
    pytest.param(
        CLICKS.replace("at timestamp", "at string"), 8, "at is none", id="watermark of a text"
    ),
    pytest.param(CLICKS.replace("  json: user", "  json: [user]\n#"), 7, "a schema", id="json"),
    pytest.param(
        "spark:\n  spark.sql.shuffle.partitions: 2\n  spark.executor.memory: 4g\n" + CLICKS,
        3,
        "--conf spark.executor.memory=4g",
        id="setting of Spark",
    ),
    pytest.param(
        CLICKS.replace("bucket: web", "options: {subscribePrefix: x}"),
        6,
        "use the key streams",
        id="option for a key",
    ),
    pytest.param(
        CLICKS + "    options: {contentType: text/plain}\n",
        16,
        "use the key content_type",
        id="option of a sink for a key",
    ),
    pytest.param(
        "sources: {a: {streams: a}}\ntransforms:\n  t: 5\nsinks: {out: {from: t, stream: b}}",
        3,
        "a statement of SQL",
        id="no SQL",
    ),
    pytest.param(
        CLICKS.replace("from clicks", "from later").replace(
            "sinks:", "  later: select * from clicks\nsinks:"
        ),
        10,
        "later comes later",
        id="order",
    ),
    pytest.param(
        "sources:\n  a: {streams: a}\n  A: {streams: b}\n"
        "sinks:\n  x: {from: a, stream: c}\n  y: {from: A, stream: c}\n",
        3,
        "A and a are one name to SQL",
        id="one name to SQL",
    ),
    pytest.param(
        "sources:\n  t: {table: a}\nsinks:\n  out: {from: t, stream: b}\n",
        4,
        "gets rows of tables only",
        id="tables only",
    ),
    pytest.param(
        CLICKS.replace("reports/hourly", "clicks/hourly\n    bucket: web"),
        13,
        "sink out writes to clicks/hourly, which source clicks reads",
        id="rows in a circle",
    ),
    pytest.param(
        CLICKS.replace("clicks/*", "dead-letters/*").replace("    bucket: web\n", ""),
        4,
        "go to dead-letters/clicks, which it reads itself",
        id="dead letters in a circle",
    ),
    pytest.param(
        "sources: {a: {streams: a}}\ntransforms: {n: select count(*) from a}\n"
        "sinks:\n  x: {from: a, table: t}\n  y: {from: n, table: t, mode: complete}\n",
        5,
        "give the other sink another table",
        id="a table of two sinks",
    ),
]


@pytest.mark.parametrize(("text", "line", "said"), WRONG)
def test_what_is_wrong_is_said_with_its_line(
    tmp_path: Path, text: str, line: int, said: str
) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(text)
    with pytest.raises(SpecError) as wrong:
        files.load(str(path))
    assert said in wrong.value.message
    assert str(wrong.value).startswith(f"{path}:{line}: ")


def test_tables_are_named_as_sql_does(tmp_path: Path) -> None:
    for name in ("CLICKS", "`clicks`"):
        (transform,) = load(tmp_path, CLICKS.replace("from clicks", f"from {name}")).transforms
        assert (transform.inputs, transform.line) == (("clicks",), 10)


def test_a_stream_may_be_written_by_one_part_and_read_by_another(tmp_path: Path) -> None:
    text = """
        sources:
          raw: {streams: raw}
          clean: {streams: clean}
        sinks:
          first: {from: raw, stream: clean}
          second: {from: clean, table: lake}
        """
    assert len(load(tmp_path, text).sinks) == 2


def test_what_is_written_once_can_be_used_again(tmp_path: Path) -> None:
    text = """
        sources:
          a: &a {streams: a, from: latest}
          b: {<<: *a, streams: b}
          c: {<<: [{from: earliest}, *a]}
        sinks:
          x: {from: a, stream: out}
          y: {from: b, stream: out}
          z: {from: c, stream: out}
        """
    found = [(source.streams, source.start) for source in load(tmp_path, text).sources]
    assert found == [
        (Streams(("a",)), "latest"),
        (Streams(("b",)), "latest"),
        (Streams(("a",)), "earliest"),
    ]


def test_the_name_of_a_file_has_to_be_one_of_a_pipeline(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="give it a name"):
        load(tmp_path, "archive: {streams: a, to: b}", "my job.yaml")
    assert load(tmp_path, "name: x\narchive: {streams: a, to: b}", "my job.yaml").name == "x"


def test_options_go_to_the_data_source(tmp_path: Path) -> None:
    text = """
        archive:
          streams: a
          to: /lake
          trim: true
          options: {maxOffsetsPerTrigger: 40, startingOffsets: earliest, failOnDataLoss: true}
        """
    spec = load(tmp_path, text)
    assert spec.archive is not None and spec.archive.source.options == {
        "maxOffsetsPerTrigger": "40",
        "startingOffsets": "earliest",
        "failOnDataLoss": "true",
    }
    (sink,) = load(tmp_path, CLICKS + "    options: {order: kept}\n").sinks
    assert sink.options == {"order": "kept"}


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="there is no such file or folder"):
        files.load(str(tmp_path / "none.yaml"))
    with pytest.raises(SpecError, match="there is no such file or folder"):
        files.load(str(tmp_path / "none.py"))
    (tmp_path / "job.toml").touch()
    with pytest.raises(SpecError, match=r"a \.yaml, \.yml or \.py file"):
        files.load(str(tmp_path / "job.toml"))
    (tmp_path / "job.yaml").write_bytes(b"name: \xff\n")
    with pytest.raises(SpecError, match="not text in UTF-8"):
        files.load(str(tmp_path / "job.yaml"))


# -- Python

PYTHON = """\
from headwater.pipeline import Pipeline

pipeline = Pipeline("counts", trigger="5 seconds")
pipeline.source("clicks", streams="clicks/*", from_="latest")


@pipeline.transform
def pages(clicks):
    return clicks.groupBy("stream").count()


pipeline.sql("loud", "select upper(stream) as stream from pages")
pipeline.sink("out", pages, stream="reports", mode="update")
pipeline.sink("second", "loud", stream="shouts", mode="update")
"""


def test_a_pipeline_in_python(tmp_path: Path) -> None:
    spec = load(tmp_path, PYTHON, "counts.py")
    assert (spec.name, spec.trigger, spec.sources[0].start) == ("counts", "5 seconds", "latest")
    assert [(each.name, each.inputs) for each in spec.transforms] == [
        ("pages", ("clicks",)),
        ("loud", ("pages",)),
    ]
    assert [(sink.name, sink.input) for sink in spec.sinks] == [
        ("out", "pages"),
        ("second", "loud"),
    ]


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        pytest.param(
            PYTHON.replace("def pages(", "def pages)"), 8, "not valid Python", id="syntax"
        ),
        pytest.param(PYTHON + "1 / 0\n", 15, "ZeroDivisionError", id="it fails"),
        pytest.param("x = 1\n", 1, "no variables are a Pipeline", id="none"),
        pytest.param(
            PYTHON.replace("(clicks):", "(clikcs):"), 7, "did you mean clicks?", id="argument"
        ),
        pytest.param(PYTHON.replace("(clicks):", "(*all):"), 7, "names its arguments", id="stars"),
        pytest.param(
            PYTHON.replace('streams="clicks/*"', 'stream="clicks/*"'),
            4,
            "source clicks needs one of streams, table",
            id="key",
        ),
        pytest.param(PYTHON.replace('"out", pages', '"second", pages'), 14, "twice", id="twice"),
    ],
)
def test_what_is_wrong_in_python(tmp_path: Path, text: str, line: int, said: str) -> None:
    with pytest.raises(SpecError) as wrong:
        load(tmp_path, text, "job.py")
    assert said in wrong.value.message
    assert wrong.value.line == line


def test_yaml_may_name_a_function_of_a_file_beside_it(tmp_path: Path) -> None:
    (tmp_path / "_steps.py").write_text("def double(clicks): return clicks.union(clicks)\n")
    text = CLICKS.replace("hourly: |", "hourly: {python: '_steps.py:double'}").replace(
        "    select window(at, '1 hour') as hour, count(*) as clicks from clicks group by 1\n", ""
    )
    (transform,) = load(tmp_path, text).transforms
    assert transform.inputs == ("clicks",)
    for wrong, said in (
        ("_steps.py:triple", "has no function triple"),
        ("none.py:double", "there is no file"),
        ("no.such.module:f", "cannot import no.such.module"),
        ("double", "file.py:function"),
    ):
        with pytest.raises(SpecError, match=said):
            load(tmp_path, text.replace("_steps.py:double", wrong))


def test_every_table_of_a_pipeline_is_known(tmp_path: Path) -> None:
    text = """
        sources:
          live: {streams: a, archive: /old}
          fixed: {table: /fixed, format: parquet}
        transforms:
          both: select * from live join fixed using (stream)
        sinks:
          kept: {from: live, table: /kept, partition_by: [stream]}
          sent: {from: both, stream: b}
        """
    found = [(table.format, table.location) for table in load(tmp_path, text).tables]
    assert found == [("delta", "/old"), ("parquet", "/fixed"), ("delta", "/kept")]
    assert load(tmp_path, CLICKS).tables == ()
    assert [table.location for table in load(tmp_path, "replay: {table: /t}").tables] == ["/t"]


def test_a_folder_is_checked_file_by_file(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(CLICKS)
    (tmp_path / "b.yaml").write_text(CLICKS)
    (tmp_path / "c.yaml").write_text("name: x\n")
    (tmp_path / "_helpers.py").write_text("1 / 0\n")
    (tmp_path / "notes.txt").write_text("")
    found = files.check_all(files.find(str(tmp_path)))
    assert [(Path(each.file).name, each.spec is not None) for each in found] == [
        ("a.yaml", True),
        ("b.yaml", False),
        ("c.yaml", False),
    ]
    assert "has the name clicks already" in str(found[1].error)
    assert files.check_all(files.find(str(tmp_path / "none"))) == []
