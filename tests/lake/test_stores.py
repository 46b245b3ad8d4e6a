"""Object stores: options reach every library, and what is wrong is said at once, with its URL."""

from __future__ import annotations

import os
import socket
from dataclasses import replace
from pathlib import Path

import pytest

from headwater.lake.files import write_files
from headwater.lake.locations import Folder
from headwater.lake.stores import (
    advice,
    delta_options,
    from_iceberg,
    iceberg_properties,
    open_filesystem,
)
from headwater.lake.tables import FORMATS, LakeError, Mark, TableRef, open_table, reach_table
from tests.lake.others import seen_by_others
from tests.lake.tables import add, at_url, make_at, offsets, rows
from tests.support.object_store import ObjectStore

KEYS = {"AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s"}


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Nothing of what the machine says."""
    for name in os.environ:
        if name.startswith(("AWS_", "AZURE_", "GOOGLE_")):
            monkeypatch.delenv(name)
    return monkeypatch


# -- options


def test_options_come_before_the_environment(environment: pytest.MonkeyPatch) -> None:
    environment.setenv("AWS_REGION", "from-environment")
    environment.setenv("AWS_ACCESS_KEY_ID", "k")
    assert delta_options("s3://b/t", {"AWS_REGION": "given"}) == {
        "AWS_REGION": "given",
        "AWS_ACCESS_KEY_ID": "k",
    }


@pytest.mark.parametrize(
    ("given", "delta", "iceberg"),
    [
        pytest.param(
            {"AWS_DEFAULT_REGION": "r"}, {"AWS_REGION": "r"}, {"s3.region": "r"}, id="region"
        ),
        pytest.param(
            {**KEYS, "AWS_SESSION_TOKEN": "t"},
            {**KEYS, "AWS_SESSION_TOKEN": "t"},
            {"s3.access-key-id": "k", "s3.secret-access-key": "s", "s3.session-token": "t"},
            id="keys",
        ),
        pytest.param(
            {"AWS_ENDPOINT_URL": "https://store"},
            {"AWS_ENDPOINT_URL": "https://store", "AWS_REGION": "us-east-1"},
            {"s3.endpoint": "https://store", "s3.region": "us-east-1"},
            id="another store",
        ),
        pytest.param(
            {"AWS_ENDPOINT_URL": "http://a", "AWS_ENDPOINT_URL_S3": "http://b", "AWS_REGION": "r"},
            {"AWS_ENDPOINT_URL": "http://b", "AWS_REGION": "r", "AWS_ALLOW_HTTP": "true"},
            {"s3.endpoint": "http://b", "s3.region": "r"},
            id="without TLS",
        ),
    ],
)
def test_every_library_gets_its_own_names(
    environment: pytest.MonkeyPatch,
    given: dict[str, str],
    delta: dict[str, str],
    iceberg: dict[str, str],
) -> None:
    for name, value in given.items():
        environment.setenv(name, value)
    assert delta_options("s3a://b/t", {}) == delta
    assert iceberg_properties({}) == iceberg


def test_a_token_of_the_environment_does_not_go_with_another_key(
    environment: pytest.MonkeyPatch,
) -> None:
    environment.setenv("AWS_SESSION_TOKEN", "t")
    assert delta_options("s3://b/t", KEYS) == KEYS


def test_it_is_not_sent_to_the_store_either(
    environment: pytest.MonkeyPatch, objects: ObjectStore, tmp_path: Path
) -> None:
    """By libraries that look at the environment themselves."""
    environment.setenv("AWS_SESSION_TOKEN", "of another key")
    for format in FORMATS:
        url = f"s3://{objects.make_bucket()}/lake"
        with objects.tokens() as sent:
            table = make_at(at_url(url, tmp_path, format, storage=objects.storage))
            add(table, rows(0), 0)
            assert offsets(open_table(table.ref)) == [0]
        assert set(sent) == {None}
    assert os.environ["AWS_SESSION_TOKEN"] == "of another key"


def test_delta_gets_options_that_only_it_knows() -> None:
    assert delta_options("s3://b/t", {"AWS_S3_LOCKING_PROVIDER": "dynamodb"}) == {
        "AWS_S3_LOCKING_PROVIDER": "dynamodb"
    }


def test_what_a_catalog_gives_out_becomes_storage() -> None:
    given = {"s3.access-key-id": "k", "client.secret-access-key": "s", "s3.endpoint": "e", "x": 1}
    assert from_iceberg(given) == {**KEYS, "AWS_ENDPOINT_URL_S3": "e"}


@pytest.mark.parametrize(
    ("url", "root"),
    [
        ("s3://bucket/a/b", "bucket/a/b"),
        ("s3a://bucket", "bucket"),
        ("gs://bucket/a", "bucket/a"),
        ("abfss://container@account.dfs.core.windows.net/a/b", "container/a/b"),
        ("abfss://container@account.dfs.core.windows.net", "container"),
    ],
)
def test_urls_of_every_store(url: str, root: str) -> None:
    storage = {**KEYS, "AZURE_STORAGE_ACCOUNT_KEY": "a2V5"}
    assert open_filesystem(url, storage)[1] == root
    assert Folder(f"{url}/", storage).url("x") == f"{url}/x"


@pytest.mark.parametrize("url", ["ftp://host/a", "abfss://account.dfs.core.windows.net/a"])
def test_a_url_that_is_none_of_a_store_is_refused(url: str) -> None:
    with pytest.raises(LakeError, match="received='" + url):
        Folder(url)


# -- in use


@pytest.mark.parametrize("format", FORMATS)
def test_the_environment_is_enough(
    environment: pytest.MonkeyPatch, objects: ObjectStore, tmp_path: Path, format: str
) -> None:
    for name, value in objects.storage.items():
        environment.setenv(name, value)
    table = make_at(at_url(f"s3://{objects.make_bucket()}/lake", tmp_path, format))
    add(table, rows(0, 1), 0)
    assert offsets(reach_table(table.ref)) == [0, 1]
    assert seen_by_others(table.ref, objects)["offset"].to_pylist() == [0, 1]


def test_a_catalog_says_itself_how_to_get_at_its_tables(
    objects: ObjectStore, tmp_path: Path
) -> None:
    ref = at_url(f"s3://{objects.make_bucket()}/lake", tmp_path, "iceberg")
    ref = replace(ref, catalog={**ref.catalog, **objects.for_iceberg})
    table = make_at(ref)
    add(table, rows(0), 0)
    assert offsets(reach_table(ref)) == [0]
    assert open_table(ref).layout.open().exists(table.files()[0].path)


def test_two_writers_of_delta_do_not_overwrite_each_others_commits(
    objects: ObjectStore, tmp_path: Path
) -> None:
    ref = at_url(f"s3://{objects.make_bucket()}/lake", tmp_path, "delta", storage=objects.storage)
    make_at(ref)
    late = open_table(replace(ref, version="0"))  # it has not seen what is committed next
    add(open_table(ref), rows(0), 0, "one")
    late.commit(write_files(late.layout, rows(1), "late"), Mark("two", 0))
    assert seen_by_others(ref, objects)["offset"].to_pylist() == [0, 1]


# -- what is wrong


@pytest.mark.parametrize("format", FORMATS)
def test_a_missing_bucket_is_named(objects: ObjectStore, tmp_path: Path, format: str) -> None:
    ref = at_url("s3://nowhere/lake", tmp_path, format, storage=objects.storage)
    with pytest.raises(LakeError, match="cannot reach s3://nowhere/lake.*NO_SUCH_BUCKET.*there mu"):
        reach_table(ref)


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("exists", [True, False], ids=["a table", "no table yet"])
def test_wrong_keys_are_said_to_be_wrong(
    objects: ObjectStore, tmp_path: Path, format: str, exists: bool
) -> None:
    url = f"s3://{objects.make_bucket()}/lake"
    ref = at_url(url, tmp_path, format, storage=objects.storage)
    if exists:
        make_at(ref)
    wanted = f"cannot reach {url}.*AWS_SECRET_ACCESS_KEY.*in the environment or in the table's sto"
    with objects.refusing(), pytest.raises(LakeError, match=wanted):
        reach_table(ref)


def test_a_store_that_does_not_answer_is_named(tmp_path: Path) -> None:
    """Before delta-rs is asked, which would try for minutes."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        endpoint = f"http://127.0.0.1:{taken.getsockname()[1]}"
        storage = {**KEYS, "AWS_ENDPOINT_URL": endpoint}
        ref = at_url("s3://bucket/lake", tmp_path, "delta", storage=storage)
        with pytest.raises(LakeError, match="cannot reach s3://bucket/lake.*AWS_ENDPOINT_URL"):
            reach_table(ref)


def test_every_store_has_its_advice() -> None:
    assert "GOOGLE_APPLICATION_CREDENTIALS" in advice("gs://bucket/a")
    assert "AZURE_STORAGE_ACCOUNT_KEY" in advice("abfss://c@a.dfs.core.windows.net/a")


def test_keys_are_not_printed_with_a_table() -> None:
    ref = TableRef("delta", "s3://b/t", catalog={"token": "hush"}, storage={"KEY": "hush"})
    assert "hush" not in repr(ref)
    assert TableRef.decode(ref.encode()) == ref
