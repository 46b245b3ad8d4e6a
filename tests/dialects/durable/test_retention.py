"""Stream-Retention: what is kept, what is trimmed, what readers are told. PROTOCOL §4, §5.6."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.core.buckets import BucketConfig
from headwater.core.limits import RECORD_BODY_BYTES_MAX
from headwater.core.retention import Retention
from headwater.storage import keys
from headwater.storage.rocks import RocksStore
from tests.support.durable import BYTES, JSON, START, DurableServer, token


def test_records_beyond_the_limit_are_trimmed(server: DurableServer) -> None:
    server.make("s", b"a", b"b", b"c", b"d", stream_retention="records=2")
    server.advance(2)
    assert server.content() == b"cd"
    assert server.head().headers["stream-retention"] == "records=2"


def test_bytes_beyond_the_limit_are_trimmed_by_whole_messages(server: DurableServer) -> None:
    server.make("s", b"aaaa", b"bbbb", b"cccc", stream_retention="bytes=7")
    server.advance(2)
    assert server.content() == b"cccc"


def test_what_is_older_than_the_age_is_trimmed_also_when_nobody_writes(
    server: DurableServer,
) -> None:
    server.make("s", b"a", stream_retention="age=10")
    server.advance(5)
    server.append("s", b"b")
    server.advance(4)
    assert server.content() == b"ab"
    server.advance(3)
    assert server.content() == b"b"
    server.advance(6)
    reply = server.get()
    assert (reply.status, reply.body, reply.next) == (200, b"", token(2, 2))
    server.append("s", b"c")
    assert server.content() == b"c"


def test_an_older_offset_is_410_with_the_first_one_retained(server: DurableServer) -> None:
    server.make("s", b"a", b"b", b"c", stream_retention="records=1")
    server.advance(2)
    for offset in (START, token(1, 1)):
        reply = server.get("s", offset)
        assert (reply.status, reply.error, reply.next) == (410, "offset_trimmed", token(2, 2))
    assert server.get("s", token(2, 2)).body == b"c"
    assert server.get("s", token(3, 3)).status == 200


def test_a_message_in_parts_goes_whole_or_stays_whole(server: DurableServer) -> None:
    long = b"x" * (2 * RECORD_BODY_BYTES_MAX + 5)
    server.make("s", long, b"tail", content_type=BYTES, stream_retention="records=2")
    server.advance(2)
    assert server.content() == b"tail"


def test_retention_can_be_changed_and_taken_away(server: DurableServer) -> None:
    server.make("s", b"a", b"b", b"c")
    assert server.request("PATCH", "s", stream_retention="records=2").status == 204
    server.advance(2)
    assert server.content() == b"bc"
    assert server.request("PATCH", "s", stream_retention="none").status == 204
    server.append("s", b"d", b"e")
    server.advance(5)
    assert server.content() == b"bcde"
    assert "stream-retention" not in server.head().headers


@pytest.mark.parametrize(
    "value", ["", "age", "age=0", "age=-1", "bytes=1k", "records=1, records=2", "weeks=2", "age=1;"]
)
def test_a_malformed_value_is_400_and_changes_nothing(server: DurableServer, value: str) -> None:
    assert server.put("s", stream_retention=value).status == 400
    assert server.head().status == 404
    server.make("s")
    assert server.request("PATCH", "s", stream_retention=value).status == 400


def test_patch_needs_the_header_and_the_stream(server: DurableServer) -> None:
    assert server.request("PATCH", "s", stream_retention="age=1").status == 404
    server.make("s")
    assert server.request("PATCH", "s").status == 400


def test_a_repeated_create_compares_it_when_given(server: DurableServer) -> None:
    server.make("s", stream_retention="age=60, records=5")
    same = {"content_type": "text/plain"}
    assert server.put("s", stream_retention="records=5,age=60", **same).status == 200
    assert server.put("s", **same).status == 200
    assert server.put("s", stream_retention="age=61", **same).status == 409


def test_a_bucket_has_a_default_for_new_streams(server: DurableServer) -> None:
    server.make("before", b"a", b"b")
    server.runner.result(
        server.engine.put_bucket("durable-streams", BucketConfig(retention=Retention(records=1)))
    )
    server.make("s", b"a", b"b")
    server.make("own", b"a", b"b", b"c", stream_retention="records=2")
    server.advance(2)
    assert [server.content(name) for name in ("before", "s", "own")] == [b"ab", b"b", b"bc"]


def test_a_fork_keeps_what_its_source_has_trimmed(server: DurableServer) -> None:
    server.make("s", b"a", b"b", b"c")
    server.fork("f")
    server.request("PATCH", "s", stream_retention="records=1")
    server.append("s", b"d")
    server.advance(2)
    assert server.content("s") == b"d"
    assert server.content("f") == b"abc"


def test_a_slow_live_reader_whose_place_was_trimmed_is_sent_away(server: DurableServer) -> None:
    server.make("s", b"a", stream_retention="records=1")
    follower = server.follow("s", "-1")
    follower.writer.slow = True
    server.append("s", b"b")
    server.append("s", b"c", b"d", b"e")
    server.advance(2)
    assert not follower.ended
    follower.drain()
    assert follower.ended
    assert follower.text == "ab"
    assert server.get("s", follower.controls[-1]["streamNextOffset"]).status == 410


def test_json_reads_begin_at_the_first_retained_message(server: DurableServer) -> None:
    server.make("s", b"[1,2,3]", b"[4]", content_type=JSON, stream_retention="records=2")
    server.advance(2)
    assert server.get().body == b"[3,4]"


def test_trimming_survives_a_restart_and_frees_the_disk(tmp_path: Path) -> None:
    store = RocksStore(tmp_path)
    with DurableServer(store) as server:
        server.make("s", *[b"%04d" % number for number in range(300)])
        server.request("PATCH", "s", stream_retention="records=10")
        server.advance(3)
        left = list(store.scan(keys.RUN_PREFIX, keys.prefix_end(keys.RUN_PREFIX)))
        assert len(left) < 100
        expected = server.content()
        assert expected.endswith(b"0299") and len(expected) == 40
    store.close()
    again = RocksStore(tmp_path)
    with DurableServer(again) as server:
        assert server.content() == expected
        assert server.get("s", START).status == 410
    again.close()
