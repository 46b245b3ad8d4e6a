"""Object stores: one set of options, in the words of every library that needs them.

Options have the names of the environment variables that a store's own tools read. They are given
as the `storage` of a table; what is not there is taken from the environment. From them pyarrow gets
a file system (for our own files), delta-rs its storage options, and pyiceberg its properties.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.fs as pafs

from headwater.lake.errors import LakeError

REGION_ELSEWHERE = "us-east-1"
"""What stores that are not Amazon's take for a region, unless told another."""


class _Option(NamedTuple):
    """What everybody calls one option. Of several names, the first that is given counts."""

    environment: tuple[str, ...]
    arrow: str
    delta: str
    iceberg: tuple[str, ...]


_REGION = _Option(
    ("AWS_REGION", "AWS_DEFAULT_REGION"), "region", "AWS_REGION", ("s3.region", "client.region")
)
_ENDPOINT = _Option(
    ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"),
    "endpoint_override",
    "AWS_ENDPOINT_URL",
    ("s3.endpoint",),
)


def _identity(environment: str, arrow: str, iceberg: str) -> _Option:
    names = (f"s3.{iceberg}", f"client.{iceberg}")
    return _Option((environment,), arrow, environment, names)


def _azure(environment: str, arrow: str, iceberg: str) -> _Option:
    return _Option((environment,), arrow, environment, (f"adls.{iceberg}",))


_S3 = (
    _identity("AWS_ACCESS_KEY_ID", "access_key", "access-key-id"),
    _identity("AWS_SECRET_ACCESS_KEY", "secret_key", "secret-access-key"),
    _identity("AWS_SESSION_TOKEN", "session_token", "session-token"),
    _REGION,
    _ENDPOINT,
)
_AZURE = (
    _azure("AZURE_STORAGE_ACCOUNT_NAME", "account_name", "account-name"),
    _azure("AZURE_STORAGE_ACCOUNT_KEY", "account_key", "account-key"),
    _azure("AZURE_STORAGE_SAS_TOKEN", "sas_token", "sas-token"),
)
_GOOGLE: tuple[_Option, ...] = ()
"""Its libraries all read GOOGLE_APPLICATION_CREDENTIALS themselves."""

_SCHEMES = {"s3": _S3, "s3a": _S3, "gs": _GOOGLE, "abfs": _AZURE, "abfss": _AZURE}

_ONE_IDENTITY = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
"""They belong together: a token from the environment does not fit a key from the options."""

_ENVIRONMENT = threading.RLock()
"""Held by whoever changes it for a moment."""

_ADVICE = {
    _S3: "AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_REGION (or a profile or role) must give "
    "access to it, and AWS_ENDPOINT_URL name the store if it is not Amazon's; set them",
    _AZURE: "AZURE_STORAGE_ACCOUNT_KEY or AZURE_STORAGE_SAS_TOKEN must give access to it; set one",
    _GOOGLE: "GOOGLE_APPLICATION_CREDENTIALS must give access to it; set it",
}


def advice(location: str) -> str:
    """What to look at when a store does not let us in."""
    access = _ADVICE[_options(location)]
    return f"there must be such a bucket; {access} in the environment or in the table's storage"


def _options(location: str) -> tuple[_Option, ...]:
    scheme = location.partition("://")[0]
    if scheme not in _SCHEMES:
        known = ", ".join(f"{each}://" for each in _SCHEMES)
        raise LakeError(f"a table is in a folder, or has a URL of {known}. received={location!r}")
    return _SCHEMES[scheme]


def _resolve(options: Iterable[_Option], storage: Mapping[str, str]) -> dict[_Option, str]:
    own = _is_own(storage)
    environment = {
        name: value
        for name, value in os.environ.items()
        if value and not (own and name in _ONE_IDENTITY)
    }
    found = {}
    for option in options:
        value = _first(storage, option.environment) or _first(environment, option.environment)
        if value is not None:
            found[option] = value
    if _ENDPOINT in found:
        found.setdefault(_REGION, REGION_ELSEWHERE)
    return found


def _is_own(storage: Mapping[str, str]) -> bool:
    return any(name in storage for name in _ONE_IDENTITY)


def _first(given: Mapping[str, Any], names: Iterable[str]) -> str | None:
    return next((str(given[name]) for name in names if name in given), None)


# -- pyarrow


def open_filesystem(location: str, storage: Mapping[str, str]) -> tuple[Any, str]:
    """A file system, and the path of this URL in it."""
    options = _options(location)
    given: dict[str, Any] = {
        option.arrow: value for option, value in _resolve(options, storage).items()
    }
    place = location.partition("://")[2]
    if options is _S3:
        # A small file is then one request, which cannot leave half of it behind.
        return pafs.S3FileSystem(**given, allow_delayed_open=True), place
    if options is _AZURE:
        host, _, folder = place.partition("/")
        container, _, account = host.rpartition("@")
        if not container:
            raise LakeError(
                "a URL of Azure is abfss://container@account.dfs.core.windows.net/folder. "
                f"received={location!r}"
            )
        given["account_name"] = account.partition(".")[0]
        return pafs.AzureFileSystem(**given), f"{container}/{folder}".rstrip("/")
    try:
        filesystem, root = pafs.FileSystem.from_uri(location)
    except pa.ArrowException as error:
        raise LakeError(f"{location} is not a URL of an object store: {error}") from error
    return filesystem, root.rstrip("/")


# -- delta-rs


def delta_options(location: str, storage: Mapping[str, str]) -> dict[str, str]:
    """With all else that is given: delta-rs knows more options than the other two."""
    found = {option.delta: value for option, value in _resolve(_options(location), storage).items()}
    if found.get(_ENDPOINT.delta, "").startswith("http://"):
        found["AWS_ALLOW_HTTP"] = "true"
    return {**storage, **found}


@contextmanager
def own_identity(storage: Mapping[str, str]) -> Iterator[None]:
    """While delta-rs opens a store: it takes from the environment what it is not given, even a
    token that belongs to another key."""
    hidden = [name for name in _ONE_IDENTITY if _is_own(storage) and name not in storage]
    with _ENVIRONMENT:
        kept = {name: os.environ.pop(name) for name in hidden if name in os.environ}
        try:
            yield
        finally:
            os.environ.update(kept)


# -- pyiceberg


def iceberg_properties(storage: Mapping[str, str]) -> dict[str, str]:
    """For a catalog: which store its tables are in is not known before it is opened."""
    found = _resolve((*_S3, *_AZURE), storage)
    return {option.iceberg[0]: value for option, value in found.items()}


def from_iceberg(properties: Mapping[str, Any]) -> dict[str, str]:
    """What a catalog was given, or itself gave out for a table, as `storage`."""
    options = (*_S3, *_AZURE)
    found = {option.environment[0]: _first(properties, option.iceberg) for option in options}
    return {name: value for name, value in found.items() if value is not None}
