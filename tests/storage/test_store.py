"""What every Store promises, on RocksDB and in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rocksdict import Options, Rdict, WriteBatch, WriteOptions

from headwater.core.limits import MIB
from headwater.storage.memory import MemoryStore
from headwater.storage.rocks import RocksStore
from headwater.storage.store import Store, StoreBusy


def open_rocks(folder: Path) -> RocksStore:
    return RocksStore(folder, cache_bytes=MIB)


@pytest.fixture(params=["memory", "rocks"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    opened: Store = MemoryStore() if request.param == "memory" else open_rocks(tmp_path / "db")
    yield opened
    opened.close()


def put(store: Store, *pairs: tuple[bytes, bytes]) -> None:
    batch = store.batch()
    for key, value in pairs:
        batch.put(key, value)
    store.write(batch)


def everything(store: Store) -> list[tuple[bytes, bytes]]:
    return list(store.scan(b"", b"\xff" * 64))


def test_what_was_written_is_read_at_once(store: Store) -> None:
    put(store, (b"a", b"1"), (b"b", b""))
    assert store.get(b"a") == b"1"
    assert store.get(b"b") == b""
    assert store.get(b"c") is None


def test_a_batch_is_nothing_until_it_is_written_and_applies_in_order(store: Store) -> None:
    put(store, (b"a", b"1"), (b"b", b"1"))
    batch = store.batch()
    batch.put(b"a", b"2")
    batch.delete(b"b")
    batch.put(b"c", b"2")
    batch.delete(b"c")
    batch.delete(b"unknown")
    batch.put(b"b", b"3")
    assert everything(store) == [(b"a", b"1"), (b"b", b"1")]
    store.write(batch)
    assert everything(store) == [(b"a", b"2"), (b"b", b"3")]


def test_an_unlogged_batch_is_read_like_any_other(store: Store) -> None:
    batch = store.batch()
    batch.put(b"a", b"1")
    store.write_unlogged(batch)
    assert store.get(b"a") == b"1"


def test_a_range_is_deleted_from_its_start_up_to_its_end(store: Store) -> None:
    put(store, *[(b"%d" % n, b"x") for n in range(6)])
    batch = store.batch()
    batch.delete_range(b"1", b"4")
    batch.put(b"2", b"again")
    store.write(batch)
    assert everything(store) == [(b"0", b"x"), (b"2", b"again"), (b"4", b"x"), (b"5", b"x")]


def test_a_scan_goes_from_its_start_up_to_its_end_in_order(store: Store) -> None:
    put(store, (b"b", b"2"), (b"a\0", b"1"), (b"a", b"0"), (b"\xff", b"3"))
    assert list(store.scan(b"a", b"b")) == [(b"a", b"0"), (b"a\0", b"1")]
    assert list(store.scan(b"a\0\0", b"c")) == [(b"b", b"2")]
    assert list(store.scan(b"c", b"d")) == []
    assert list(store.scan(b"b", b"a")) == []


def test_a_scan_sees_the_store_as_it_was_when_it_began(store: Store) -> None:
    put(store, (b"a", b"1"), (b"c", b"1"), (b"d", b"1"))
    scan = store.scan(b"", b"\xff")
    first = next(scan)
    batch = store.batch()
    batch.put(b"b", b"new")
    batch.put(b"c", b"changed")
    batch.delete(b"d")
    store.write(batch)
    assert [first, *scan] == [(b"a", b"1"), (b"c", b"1"), (b"d", b"1")]


@pytest.mark.parametrize(
    ("key", "floor", "found"),
    [
        pytest.param(b"c", b"a", b"c", id="the key itself"),
        pytest.param(b"d", b"a", b"c", id="the one before"),
        pytest.param(b"c\0", b"c", b"c", id="at the floor"),
        pytest.param(b"d", b"c\0", None, id="below the floor"),
        pytest.param(b"a", b"", None, id="nothing before"),
        pytest.param(b"z", b"f", None, id="nothing after the floor"),
        pytest.param(b"z", b"", b"e", id="the last"),
    ],
)
def test_the_last_entry_before_a_key_is_not_below_the_floor(
    store: Store, key: bytes, floor: bytes, found: bytes | None
) -> None:
    put(store, (b"b", b"-b"), (b"c", b"-c"), (b"e", b"-e"))
    expected = None if found is None else (found, b"-" + found)
    assert store.last_before(key, floor) == expected


def test_figures_are_numbers(store: Store) -> None:
    put(store, (b"a", b"1" * 1000))
    store.sync()
    store.compact()
    assert store.size_bytes() >= 1000
    assert all(isinstance(figure, float) for figure in store.stats().values())
    assert store.get(b"a") == b"1" * 1000


operations = st.lists(
    st.tuples(
        st.sampled_from(["put", "delete", "delete_range"]),
        st.binary(min_size=1, max_size=2),
        st.binary(max_size=2),
        st.booleans(),
    ),
    max_size=12,
)


@settings(
    deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(given_operations=operations, key=st.binary(max_size=2), floor=st.binary(max_size=2))
def test_every_store_is_the_same_sorted_map(
    tmp_path_factory: pytest.TempPathFactory,
    given_operations: list[tuple[str, bytes, bytes, bool]],
    key: bytes,
    floor: bytes,
) -> None:
    model: dict[bytes, bytes] = {}
    rocks = open_rocks(tmp_path_factory.mktemp("store"))
    stores: list[Store] = [MemoryStore(), rocks]
    for kind, first, second, logged in given_operations:
        if kind == "put":
            model[first] = second
        elif kind == "delete":
            model.pop(first, None)
        else:
            low, high = sorted((first, second))
            model = {k: v for k, v in model.items() if not low <= k < high}
        for store in stores:
            batch = store.batch()
            if kind == "put":
                batch.put(first, second)
            elif kind == "delete":
                batch.delete(first)
            else:
                batch.delete_range(*sorted((first, second)))
            (store.write if logged else store.write_unlogged)(batch)
    before = [entry for entry in sorted(model.items()) if floor <= entry[0] <= key]
    for store in stores:
        assert everything(store) == sorted(model.items())
        assert store.last_before(key, floor) == (before[-1] if before else None)
    rocks.close()


def test_rocksdb_keeps_everything_over_a_close(tmp_path: Path) -> None:
    store = open_rocks(tmp_path / "db")
    put(store, (b"logged", b"1"))
    batch = store.batch()
    batch.put(b"unlogged", b"2")
    store.write_unlogged(batch)
    store.close()
    store = open_rocks(tmp_path / "db")
    assert everything(store) == [(b"logged", b"1"), (b"unlogged", b"2")]
    store.close()


def test_memory_keeps_nothing_over_a_close() -> None:
    store = MemoryStore()
    put(store, (b"a", b"1"))
    store.close()
    assert everything(store) == []
    assert store.size_bytes() == 0


def test_memory_counts_the_bytes_it_holds() -> None:
    store = MemoryStore()
    put(store, (b"a", b"123"), (b"b", b"1"))
    put(store, (b"a", b"1"))
    batch = store.batch()
    batch.delete_range(b"b", b"c")
    store.write(batch)
    assert store.size_bytes() == 2


def test_a_write_that_rocksdb_would_stall_is_refused_as_busy(tmp_path: Path) -> None:
    """Against the text of a real stall: rocksdict has no class of its own for it."""
    refusal = _stall(tmp_path / "stalls")
    store = open_rocks(tmp_path / "db")
    batch = store.batch()
    real = store._db  # noqa: SLF001
    store._db = _Raises(refusal)  # type: ignore[assignment]  # noqa: SLF001
    with pytest.raises(StoreBusy):
        store.write(batch)
    with pytest.raises(StoreBusy):
        store.write_unlogged(batch)
    store._db = real  # noqa: SLF001
    store.close()


def test_any_other_failure_of_a_write_is_not_busy(tmp_path: Path) -> None:
    store = open_rocks(tmp_path / "db")
    real = store._db  # noqa: SLF001
    store._db = _Raises(Exception("IO error: No space left on device"))  # type: ignore[assignment]  # noqa: SLF001
    with pytest.raises(Exception, match="IO error") as caught:
        store.write(store.batch())
    assert not isinstance(caught.value, StoreBusy)
    store._db = real  # noqa: SLF001
    store.close()


class _Raises:
    """A database whose writes fail."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def write(self, batch: WriteBatch, options: WriteOptions) -> None:
        raise self._error


def _stall(folder: Path) -> Exception:
    """Write faster than RocksDB flushes, until it refuses."""
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.set_write_buffer_size(64 * 1024)
    options.set_max_write_buffer_number(2)
    database = Rdict(str(folder), options)
    impatient = WriteOptions()
    impatient.no_slowdown = True
    value = bytes(range(256)) * 128
    try:
        for number in range(100_000):
            batch = WriteBatch(raw_mode=True)
            batch.put(b"%d" % number, value)
            database.write(batch, impatient)
    except Exception as refusal:
        return refusal
    finally:
        database.close()
    raise AssertionError("RocksDB never stalled")


def test_a_database_cannot_be_opened_twice(tmp_path: Path) -> None:
    store = open_rocks(tmp_path / "db")
    reopen: Callable[[], RocksStore] = lambda: open_rocks(tmp_path / "db")  # noqa: E731
    with pytest.raises(Exception, match="lock"):
        reopen()
    store.close()
