"""Settings: one frozen value, read from defaults, a TOML file, the environment and flags.

The table of fields below is the only place a setting is described: flags, the names of
variables, messages and `docs/settings.md` are made from it. Only plain values live here; moving
parts are constructor arguments of the classes that need them.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headwater.core.limits import KIB, MIB
from headwater.server import setting_kinds as kinds
from headwater.server.setting_kinds import GIB, TIB, Kind

ENVIRONMENT_PREFIX = "HEADWATER_"
CONFIG_VARIABLE = "HEADWATER_CONFIG"

# Read by the command line's clients, so they may well be set where a server is started.
FOREIGN_VARIABLES = frozenset(
    {
        CONFIG_VARIABLE,
        "HEADWATER_URL",
        "HEADWATER_TOKEN",
        "HEADWATER_ENCRYPTION_KEY",
        "HEADWATER_CA_FILE",
    }
)

DAY_S = 24 * 3600
ROOT_TOKEN_MIN = 16


class SettingsError(Exception):
    """A setting that cannot be used. The message is one line for the person who set it."""


def _setting(group: str, default: object, kind: Kind, doc: str, *, secret: bool = False) -> Any:
    metadata = {"group": group, "kind": kind, "doc": doc, "secret": secret}
    return dataclasses.field(default=default, metadata=metadata, repr=not secret)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Everything an operator can choose. Sizes are in bytes, times in seconds."""

    host: str = _setting(
        "Listening",
        "127.0.0.1",
        kinds.text("HOST", "a host name or an IP address", required=True),
        "Where to listen. `0.0.0.0` is every IPv4 address of the machine, `::` every IPv6 one.",
    )
    port: int = _setting(
        "Listening",
        4437,
        kinds.number(0, 65535),
        "The TCP port; 0 takes any free one, and the line printed at the start says which.",
    )
    connections_max: int = _setting(
        "Listening",
        65_536,
        kinds.number(1, 10_000_000),
        "Open connections; one more is closed at once.",
    )
    tls_cert: str = _setting(
        "Listening",
        "",
        kinds.text("FILE", "the path of a PEM file"),
        "Certificate chain. With it and `tls_key` the server speaks HTTPS only.",
    )
    tls_key: str = _setting(
        "Listening",
        "",
        kinds.text("FILE", "the path of a PEM file"),
        "Private key of the certificate.",
    )

    data_dir: str = _setting(
        "Data",
        "./headwater-data",
        kinds.text("DIR", "the path of a folder", required=True),
        "Where streams are kept. One server at a time can use a folder.",
    )
    memory: bool = _setting(
        "Data",
        False,
        kinds.switch(),
        "Keep streams in memory only: nothing is written to `data_dir`, nothing survives the end.",
    )
    read_only: bool = _setting(
        "Data",
        False,
        kinds.switch(),
        "Refuse writes, serve reads.",
    )
    names: str = _setting(
        "Data",
        "lenient",
        kinds.choice("lenient", "strict"),
        "Which bucket and stream names may be created: `strict` enforces the protocol's own rules "
        "(buckets `[a-z0-9_-]{4,64}`, streams up to 122 bytes).",
    )
    packing: bool = _setting(
        "Data",
        True,
        kinds.switch(),
        "Merge small records in the background. Without it, long reads get slower.",
    )
    hot_streams_max: int = _setting(
        "Data",
        100_000,
        kinds.number(1, 100_000_000),
        "Streams whose state is held in memory; the others are loaded when they are used.",
    )
    cache_bytes: int = _setting(
        "Data",
        256 * MIB,
        kinds.size(MIB, TIB),
        "Memory for blocks read from disk.",
    )
    queue_bytes_max: int = _setting(
        "Data",
        256 * MIB,
        kinds.size(MIB, TIB),
        "Bytes of accepted writes that may wait for their commit; beyond it writes get 503. "
        "At least 1KiB more than `body_bytes_max`.",
    )
    disk_reserve_bytes: int = _setting(
        "Data",
        256 * MIB,
        kinds.size(0, 1024 * TIB),
        "With less free disk space than this, writes get 507 until there is more; reads go on.",
    )

    body_bytes_max: int = _setting(
        "Requests",
        32 * MIB,
        kinds.size(KIB, GIB),
        "The largest body of a request; a larger one gets 413.",
    )
    snapshot_bytes_max: int = _setting(
        "Requests",
        GIB,
        kinds.size(KIB, TIB),
        "The largest snapshot of a stream; a larger one gets 413.",
    )
    chunk_bytes: int = _setting(
        "Requests",
        MIB,
        kinds.size(KIB, 64 * MIB),
        "About how much one read returns before the reader has to ask for the rest.",
    )
    requests_per_second_max: int = _setting(
        "Requests",
        0,
        kinds.number(0, 1_000_000),
        "Requests per second and client address, with a burst of as many; beyond it 429. "
        "IPv6 clients are counted by their /64 network. 0 is no limit.",
    )
    followers_max: int = _setting(
        "Requests",
        100_000,
        kinds.number(1, 10_000_000),
        "Live readers (long-poll and SSE) at a time; one more gets 429.",
    )
    long_poll_timeout_s: float = _setting(
        "Requests",
        30.0,
        kinds.seconds(0, 3600),
        "How long a long-poll waits for data.",
    )
    sse_recycle_s: float = _setting(
        "Requests",
        60.0,
        kinds.seconds(0.1, DAY_S),
        "How long an SSE response lasts; the client then connects again where it was.",
    )
    sse_heartbeat_s: float = _setting(
        "Requests",
        15.0,
        kinds.seconds(0.1, DAY_S),
        "How long an SSE response may be silent before a comment is sent, "
        "so that proxies keep it open.",
    )

    header_timeout_s: float = _setting(
        "Timeouts",
        10.0,
        kinds.seconds(0.1, DAY_S),
        "From the first byte of a request's head to its last; beyond it 408.",
    )
    body_timeout_s: float = _setting(
        "Timeouts",
        30.0,
        kinds.seconds(0.1, DAY_S),
        "Without a byte of an announced body; beyond it 408.",
    )
    incremental_timeout_s: float = _setting(
        "Timeouts",
        300.0,
        kinds.seconds(0.1, DAY_S),
        "The same for an incremental append, whose writer may have to think. "
        "What it brought before stays.",
    )
    keep_alive_timeout_s: float = _setting(
        "Timeouts",
        75.0,
        kinds.seconds(0.1, DAY_S),
        "How long a connection may be idle between requests. "
        "Keep it above the idle timeout of a proxy in front.",
    )
    write_timeout_s: float = _setting(
        "Timeouts",
        60.0,
        kinds.seconds(0.1, DAY_S),
        "How long a client may read nothing of what waits for it, before it is cut off.",
    )
    shutdown_grace_s: float = _setting(
        "Timeouts",
        10.0,
        kinds.seconds(0, 3600),
        "On SIGTERM or SIGINT, how long running requests get to finish.",
    )

    public_url: str = _setting(
        "Proxies and browsers",
        "",
        kinds.url(),
        "The address clients use, for `Location` and callback URLs. "
        "Without it, they are built from each request's own scheme and host.",
    )
    s2_domain: str = _setting(
        "Proxies and browsers",
        "",
        kinds.text("DOMAIN", "a domain name, such as b.example.com"),
        "S2 clients may name their basin by host: `{basin}.DOMAIN`. "
        "Without it, they send the header `s2-basin`.",
    )
    trusted_proxies: str = _setting(
        "Proxies and browsers",
        "",
        kinds.networks(),
        "Proxies whose `X-Forwarded-For`, `-Proto` and `-Host` are believed. "
        "From anybody else these headers are ignored.",
    )
    cors_origins: str = _setting(
        "Proxies and browsers",
        "*",
        kinds.origins(),
        "Web pages of these origins may use the server. Empty allows none but its own.",
    )

    auth: bool = _setting(
        "Access",
        False,
        kinds.switch(),
        "Ask for an access token with every request, except `/health` and `/ready`. "
        "`headwater token init` makes the first one.",
    )
    root_token: str = _setting(
        "Access",
        "",
        kinds.text("TOKEN", f"a secret of your own, of {ROOT_TOKEN_MIN} characters or more"),
        "With `auth`: a token that permits everything and is kept nowhere, besides those that "
        "were issued. Set it in the environment: others can see the flags of a process.",
        secret=True,
    )

    allow_local_webhooks: bool = _setting(
        "Webhooks",
        False,
        kinds.switch(),
        "Deliver webhooks to this machine too (localhost, 127.0.0.0/8), and without TLS. "
        "For development: it lets whoever can subscribe reach what only this machine should.",
    )
    webhook_hosts: str = _setting(
        "Webhooks",
        "",
        kinds.hosts(),
        "Deliver webhooks to these hosts only. Empty is any public one.",
    )

    log_level: str = _setting(
        "Logs",
        "info",
        kinds.choice("debug", "info", "warning", "error"),
        "The least important messages to log.",
    )
    log_format: str = _setting(
        "Logs",
        "text",
        kinds.choice("text", "json"),
        "How log lines on stderr look: for people, or one JSON object per line.",
    )
    access_log: bool = _setting(
        "Logs",
        False,
        kinds.switch(),
        "Log a line per response: method, path, status, bytes, time, client, request id.",
    )

    def __post_init__(self) -> None:
        if self.root_token and not self.auth:
            raise SettingsError("root_token is of use with auth only; switch auth on")
        if self.root_token and len(self.root_token) < ROOT_TOKEN_MIN:
            raise SettingsError(f"root_token has fewer than {ROOT_TOKEN_MIN} characters")
        if bool(self.tls_cert) != bool(self.tls_key):
            missing = "tls_key" if self.tls_cert else "tls_cert"
            raise SettingsError(f"tls_cert and tls_key belong together; {missing} is not set")
        if self.queue_bytes_max < self.body_bytes_max + KIB:  # what waits is more than its body
            raise SettingsError(
                f"queue_bytes_max = {kinds.show_size(self.queue_bytes_max)} is too little for "
                f"body_bytes_max = {kinds.show_size(self.body_bytes_max)}: "
                "the largest bodies could never be written"
            )


@dataclass(frozen=True, slots=True)
class Entry:
    """One row of the table."""

    name: str
    group: str
    default: Any
    kind: Kind
    doc: str
    secret: bool

    @property
    def flag(self) -> str:
        return "--" + self.name.removesuffix("_s").replace("_", "-")

    @property
    def variable(self) -> str:
        return ENVIRONMENT_PREFIX + self.name.upper()


ENTRIES: tuple[Entry, ...] = tuple(
    Entry(field.name, default=field.default, **field.metadata)
    for field in dataclasses.fields(Settings)
)
_BY_NAME = {entry.name: entry for entry in ENTRIES}


def load_settings(
    *,
    flags: Mapping[str, object],
    environment: Mapping[str, str],
    config: str | None = None,
) -> Settings:
    """Put the sources together: default, then file, then environment, then flag.

    `flags` holds what was given, by setting name. `config` names the file; without it,
    HEADWATER_CONFIG does. Raises SettingsError.
    """
    values: dict[str, Any] = {}
    path = config if config is not None else environment.get(CONFIG_VARIABLE)
    if path:
        for name, given in _read_file(path).items():
            values[name] = _parse(_find_key(name, path), given, path)
    for name, given in environment.items():
        if name.startswith(ENVIRONMENT_PREFIX) and name not in FOREIGN_VARIABLES:
            entry = _find_variable(name)
            values[entry.name] = _parse(entry, given, name)
    for name, given in flags.items():
        entry = _BY_NAME[name]
        values[name] = _parse(entry, given, entry.flag)
    return Settings(**values)


def _read_file(path: str) -> dict[str, Any]:
    import tomllib  # only where a file is used

    try:
        content = Path(path).expanduser().read_bytes()
    except OSError as error:
        raise SettingsError(f"cannot read the config file {path}: {error.strerror}") from error
    try:
        return tomllib.loads(content.decode())
    except UnicodeDecodeError as error:
        raise SettingsError(f"the config file {path} is not UTF-8") from error
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"the config file {path} is not valid TOML: {error}") from error


def _parse(entry: Entry, given: object, source: str) -> Any:
    try:
        return entry.kind.parse(given)
    except (ValueError, OverflowError):
        shown = "" if entry.secret else f" = {given!r}"
        raise SettingsError(
            f"{entry.name}{shown} (from {source}) is not allowed; use {entry.kind.allowed}"
        ) from None


def _find_key(name: str, path: str) -> Entry:
    if name not in _BY_NAME:
        hint = suggest(name, _BY_NAME)
        raise SettingsError(f"unknown setting {name!r} in {path}{hint}")
    return _BY_NAME[name]


def _find_variable(variable: str) -> Entry:
    name = variable.removeprefix(ENVIRONMENT_PREFIX).lower()
    if name not in _BY_NAME or variable != _BY_NAME[name].variable:
        hint = suggest(variable.upper(), [entry.variable for entry in ENTRIES])
        raise SettingsError(f"unknown setting in the environment: {variable}{hint}")
    return _BY_NAME[name]


def suggest(given: str, known: Mapping[str, object] | list[str]) -> str:
    """The end of a message: what may have been meant, if anything comes close."""
    import difflib  # only where somebody erred

    close = difflib.get_close_matches(given, list(known), n=1)
    return f"; did you mean {close[0]}?" if close else ""


_DOCS_HEAD = """\
# Settings

Every setting of `headwater serve` can be given in four places. The later one wins:

1. the default below;
2. a TOML file, named by `--config FILE` or `HEADWATER_CONFIG`: `long_poll_timeout_s = 5`;
3. the environment, as `HEADWATER_` and the name in capitals: `HEADWATER_LONG_POLL_TIMEOUT_S=5`;
4. a flag: `--long-poll-timeout 5`.

A key or a `HEADWATER_` variable that is not a setting is refused, so a misspelt one cannot go
unnoticed. Those that [other commands](cli.md) read are left to them.

- Sizes are numbers of bytes, or have a unit: `64KiB`, `32MiB`, `2GiB` (powers of 1024), `10MB`
  (powers of 1000).
- Times are seconds; the name of the setting ends in `_s`, the flag does not.
- Switches are `true` or `false`; as flags, `--name` or `--no-name`.
- Lists are separated by commas, or are arrays in the file.

This page is made from the table in `src/headwater/server/settings.py`:
`python -m headwater.server.settings > docs/settings.md`.
"""


def render_docs() -> str:
    """`docs/settings.md`, from the table."""
    return _DOCS_HEAD + "".join(_render_groups())


def _render_groups() -> Iterator[str]:
    group = ""
    for entry in ENTRIES:
        if entry.group != group:
            group = entry.group
            yield f"\n## {group}\n\n| Setting | Flag | Default | Allowed | What it does |\n"
            yield "|---|---|---|---|---|\n"
        shown = entry.kind.show(entry.default)
        default = f"`{shown}`" if shown else "empty"
        cells = (f"`{entry.name}`", f"`{entry.flag}`", default, entry.kind.allowed, entry.doc)
        yield f"| {' | '.join(cells)} |\n"


if __name__ == "__main__":
    sys.stdout.write(render_docs())
