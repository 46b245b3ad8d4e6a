"""Settings: where each value comes from, and what is said about a wrong one."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.cli import spark, trust
from headwater.core.limits import MIB
from headwater.server.settings import (
    ENTRIES,
    Entry,
    Settings,
    SettingsError,
    load_settings,
    render_docs,
)

DOCS = Path(__file__).parents[2] / "docs" / "settings.md"


def load(
    *,
    flags: dict[str, object] | None = None,
    environment: dict[str, str] | None = None,
    config: Path | str | None = None,
) -> Settings:
    path = None if config is None else str(config)
    return load_settings(flags=flags or {}, environment=environment or {}, config=path)


def toml(tmp_path: Path, content: str) -> Path:
    path = tmp_path / "headwater.toml"
    path.write_text(content)
    return path


def test_without_sources_every_setting_has_its_default() -> None:
    assert load() == Settings()


def test_a_file_changes_a_default(tmp_path: Path) -> None:
    assert load(config=toml(tmp_path, "port = 1")).port == 1


def test_the_environment_goes_before_the_file(tmp_path: Path) -> None:
    found = load(config=toml(tmp_path, "port = 1"), environment={"HEADWATER_PORT": "2"})
    assert found.port == 2


def test_a_flag_goes_before_everything(tmp_path: Path) -> None:
    found = load(
        config=toml(tmp_path, "port = 1\nhost = 'a'"),
        environment={"HEADWATER_PORT": "2"},
        flags={"port": "3"},
    )
    assert (found.port, found.host) == (3, "a")


def test_the_environment_can_name_the_file(tmp_path: Path) -> None:
    path = toml(tmp_path, "port = 1")
    assert load(environment={"HEADWATER_CONFIG": str(path)}).port == 1


def test_a_file_named_by_a_flag_goes_before_one_named_by_the_environment(tmp_path: Path) -> None:
    path = toml(tmp_path, "port = 1")
    assert load(config=path, environment={"HEADWATER_CONFIG": "/nowhere"}).port == 1


def test_a_switch_that_is_on_in_the_file_can_be_turned_off_by_a_flag(tmp_path: Path) -> None:
    assert not load(config=toml(tmp_path, "memory = true"), flags={"memory": False}).memory


def test_variables_of_others_are_left_alone() -> None:
    load(environment={"HEADWATER_URL": "http://a", "PATH": "/bin", "headwater_port": "x"})


@pytest.mark.parametrize(
    "name",
    [
        spark.URL_VARIABLE,
        spark.TOKEN_VARIABLE,
        spark.ENCRYPTION_KEY_VARIABLE,
        trust.CA_FILE_VARIABLE,
    ],
)
def test_what_the_pipelines_beside_a_server_read_does_not_keep_it_from_starting(name: str) -> None:
    load(environment={name: "x"})


@pytest.mark.parametrize(
    ("name", "given", "value"),
    [
        pytest.param("body_bytes_max", "32MiB", 32 * MIB, id="size in powers of 1024"),
        pytest.param("body_bytes_max", "1.5 MiB", 3 * MIB // 2, id="size with a fraction"),
        pytest.param("body_bytes_max", "10MB", 10_000_000, id="size in powers of 1000"),
        pytest.param("body_bytes_max", "2048", 2048, id="size in bytes"),
        pytest.param("long_poll_timeout_s", "0.5", 0.5, id="fraction of a second"),
        pytest.param("access_log", "yes", True, id="switch on"),
        pytest.param("packing", "0", False, id="switch off"),
        pytest.param("names", "Strict", "strict", id="choice in any case"),
        pytest.param("public_url", "https://a.example/", "https://a.example", id="url"),
        pytest.param("trusted_proxies", "10.0.0.0/8, ::1", "10.0.0.0/8,::1", id="networks"),
        pytest.param("cors_origins", "https://a:1, http://b", "https://a:1,http://b", id="origins"),
        pytest.param("cors_origins", "", "", id="no origins"),
        pytest.param("webhook_hosts", "*.A.example,b", "*.a.example,b", id="hosts"),
    ],
)
def test_text_becomes_a_plain_value(name: str, given: str, value: object) -> None:
    variable = f"HEADWATER_{name.upper()}"
    assert getattr(load(environment={variable: given}), name) == value


def test_a_file_may_hold_typed_values_and_lists(tmp_path: Path) -> None:
    content = """
        long_poll_timeout_s = 5
        body_bytes_max = "64KiB"
        trusted_proxies = ["10.0.0.0/8", "127.0.0.1"]
        read_only = true
    """
    found = load(config=toml(tmp_path, content))
    assert found.long_poll_timeout_s == 5.0
    assert found.body_bytes_max == 65536
    assert found.trusted_proxies == "10.0.0.0/8,127.0.0.1"
    assert found.read_only


@pytest.mark.parametrize(
    ("name", "given"),
    [
        pytest.param("port", "65536", id="port too high"),
        pytest.param("port", "-1", id="port below zero"),
        pytest.param("port", "4437.0", id="not a whole number"),
        pytest.param("port", "", id="empty number"),
        pytest.param("long_poll_timeout_s", "nan", id="not a number"),
        pytest.param("long_poll_timeout_s", "inf", id="endless"),
        pytest.param("long_poll_timeout_s", "30s", id="seconds with a unit"),
        pytest.param("body_bytes_max", "32M", id="half a unit"),
        pytest.param("body_bytes_max", "1.0001KiB", id="half a byte"),
        pytest.param("body_bytes_max", "1", id="size too small"),
        pytest.param("memory", "maybe", id="not a switch"),
        pytest.param("names", "loose", id="unknown choice"),
        pytest.param("data_dir", " ", id="no folder"),
        pytest.param("host", "a\nb", id="control character"),
        pytest.param("public_url", "example.com", id="url without scheme"),
        pytest.param("public_url", "https://a?b", id="url with query"),
        pytest.param("public_url", "https://user@a", id="url with a user"),
        pytest.param("public_url", "https://a:99999", id="url with a wrong port"),
        pytest.param("trusted_proxies", "10.0.0.0/33", id="no network"),
        pytest.param("cors_origins", "https://a/path", id="origin with a path"),
        pytest.param("cors_origins", "*,https://a", id="all origins and one"),
        pytest.param("webhook_hosts", "https://a", id="host with a scheme"),
    ],
)
def test_a_wrong_value_is_refused_with_its_name_and_source(name: str, given: str) -> None:
    variable = f"HEADWATER_{name.upper()}"
    with pytest.raises(SettingsError) as caught:
        load(environment={variable: given})
    message = str(caught.value)
    assert message.startswith(f"{name} = {given!r} (from {variable}) is not allowed; use ")
    assert "\n" not in message


def test_a_wrong_secret_is_not_told_to_whoever_reads_the_message() -> None:
    with pytest.raises(SettingsError, match="root_token .from HEADWATER_ROOT_TOKEN.") as caught:
        load(environment={"HEADWATER_ROOT_TOKEN": "swordfish\n"})
    assert "swordfish" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "name"),
    [
        pytest.param("port = '4437x'", "port", id="text for a number"),
        pytest.param("port = true", "port", id="switch for a number"),
        pytest.param("long_poll_timeout_s = true", "long_poll_timeout_s", id="switch for seconds"),
        pytest.param("body_bytes_max = 1.5", "body_bytes_max", id="fraction for a size"),
        pytest.param("memory = 1", "memory", id="number for a switch"),
        pytest.param("host = 1", "host", id="number for text"),
        pytest.param("trusted_proxies = [1]", "trusted_proxies", id="numbers in a list"),
        pytest.param("port = 2026-01-01", "port", id="date"),
    ],
)
def test_a_wrong_type_in_the_file_is_refused(tmp_path: Path, content: str, name: str) -> None:
    with pytest.raises(SettingsError, match=f"{name} = .*headwater.toml.* is not allowed"):
        load(config=toml(tmp_path, content))


def test_an_unknown_key_is_refused_with_the_nearest_name(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="unknown setting 'prot' in .*; did you mean port?"):
        load(config=toml(tmp_path, "prot = 1"))


def test_an_unknown_table_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="unknown setting 'zebra' in [^;]*$"):
        load(config=toml(tmp_path, "[zebra]\nport = 1"))


@pytest.mark.parametrize("variable", ["HEADWATER_LONG_POLL_TIMEOUT", "HEADWATER_PROT"])
def test_an_unknown_variable_is_refused_with_the_nearest_name(variable: str) -> None:
    with pytest.raises(SettingsError, match=f"{variable}; did you mean HEADWATER_"):
        load(environment={variable: "1"})


def test_a_file_that_is_not_there_is_named() -> None:
    with pytest.raises(SettingsError, match="cannot read the config file /nowhere/a.toml: No such"):
        load(config="/nowhere/a.toml")


def test_a_file_that_is_not_toml_is_named_with_the_place(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"headwater.toml is not valid TOML: .*line 1"):
        load(config=toml(tmp_path, "port 1"))


def test_a_file_that_is_not_text_is_named(tmp_path: Path) -> None:
    path = tmp_path / "headwater.toml"
    path.write_bytes(b"host = '\xff'")
    with pytest.raises(SettingsError, match=r"headwater.toml is not UTF-8"):
        load(config=path)


def test_a_certificate_needs_its_key() -> None:
    with pytest.raises(SettingsError, match="tls_key is not set"):
        load(flags={"tls_cert": "cert.pem"})


def test_the_queue_must_hold_the_largest_body() -> None:
    with pytest.raises(SettingsError, match="queue_bytes_max = 32MiB is too little for"):
        load(flags={"queue_bytes_max": "32MiB"})


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_every_default_is_a_value_that_could_be_given(entry: Entry) -> None:
    assert entry.kind.parse(entry.default) == entry.default
    assert entry.kind.parse(entry.kind.show(entry.default)) == entry.default


def test_flags_drop_the_unit_of_time() -> None:
    flags = {entry.name: entry.flag for entry in ENTRIES}
    assert flags["long_poll_timeout_s"] == "--long-poll-timeout"
    assert flags["cors_origins"] == "--cors-origins"


def test_the_page_in_docs_is_the_one_the_table_makes() -> None:
    assert DOCS.read_text() == render_docs(), (
        "python -m headwater.server.settings > docs/settings.md"
    )
