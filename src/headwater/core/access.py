"""Who may do what: operations, the scope of a token, and what it grants.

Operations are named as in the S2 API; the verbs of the other dialects are mapped to them (see
dialects/access.py). Pure: whether a token is the right one is engine/tokens.py's business.
S2 API: access tokens.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

import msgspec

from headwater.core.types import TimestampMs


class Operation(Enum):
    """Everything that a token can permit. The values are stored: frozen."""

    LIST_BASINS = "list-basins"
    CREATE_BASIN = "create-basin"
    DELETE_BASIN = "delete-basin"
    RECONFIGURE_BASIN = "reconfigure-basin"
    GET_BASIN_CONFIG = "get-basin-config"
    ISSUE_ACCESS_TOKEN = "issue-access-token"
    REVOKE_ACCESS_TOKEN = "revoke-access-token"
    LIST_ACCESS_TOKENS = "list-access-tokens"
    LIST_STREAMS = "list-streams"
    CREATE_STREAM = "create-stream"
    DELETE_STREAM = "delete-stream"
    GET_STREAM_CONFIG = "get-stream-config"
    RECONFIGURE_STREAM = "reconfigure-stream"
    CHECK_TAIL = "check-tail"
    APPEND = "append"
    READ = "read"
    TRIM = "trim"
    FENCE = "fence"
    ACCOUNT_METRICS = "account-metrics"
    BASIN_METRICS = "basin-metrics"
    STREAM_METRICS = "stream-metrics"
    LIST_LOCATIONS = "list-locations"
    GET_DEFAULT_LOCATION = "get-default-location"
    SET_DEFAULT_LOCATION = "set-default-location"


class Group(Enum):
    """Operations that a token can permit all at once, for reading or for writing."""

    ACCOUNT = "account"
    BASIN = "basin"
    STREAM = "stream"


class About(Enum):
    """What an operation names, and so which names of a scope decide."""

    NOTHING = "nothing"  # lists are filtered instead
    BASIN = "basin"
    STREAM = "stream"
    TOKEN = "token"


class Traits(NamedTuple):
    """One row of the table of operations."""

    group: Group
    writes: bool
    about: About


READS, WRITES = False, True

TRAITS: dict[Operation, Traits] = {
    Operation.LIST_BASINS: Traits(Group.ACCOUNT, READS, About.NOTHING),
    Operation.CREATE_BASIN: Traits(Group.ACCOUNT, WRITES, About.BASIN),
    Operation.DELETE_BASIN: Traits(Group.ACCOUNT, WRITES, About.BASIN),
    Operation.RECONFIGURE_BASIN: Traits(Group.ACCOUNT, WRITES, About.BASIN),
    Operation.GET_BASIN_CONFIG: Traits(Group.ACCOUNT, READS, About.BASIN),
    Operation.ISSUE_ACCESS_TOKEN: Traits(Group.ACCOUNT, WRITES, About.TOKEN),
    Operation.REVOKE_ACCESS_TOKEN: Traits(Group.ACCOUNT, WRITES, About.TOKEN),
    Operation.LIST_ACCESS_TOKENS: Traits(Group.ACCOUNT, READS, About.NOTHING),
    Operation.LIST_STREAMS: Traits(Group.BASIN, READS, About.BASIN),
    Operation.CREATE_STREAM: Traits(Group.BASIN, WRITES, About.STREAM),
    Operation.DELETE_STREAM: Traits(Group.BASIN, WRITES, About.STREAM),
    Operation.GET_STREAM_CONFIG: Traits(Group.BASIN, READS, About.STREAM),
    Operation.RECONFIGURE_STREAM: Traits(Group.BASIN, WRITES, About.STREAM),
    Operation.CHECK_TAIL: Traits(Group.STREAM, READS, About.STREAM),
    Operation.APPEND: Traits(Group.STREAM, WRITES, About.STREAM),
    Operation.READ: Traits(Group.STREAM, READS, About.STREAM),
    Operation.TRIM: Traits(Group.STREAM, WRITES, About.STREAM),
    Operation.FENCE: Traits(Group.STREAM, WRITES, About.STREAM),
    Operation.ACCOUNT_METRICS: Traits(Group.ACCOUNT, READS, About.NOTHING),
    Operation.BASIN_METRICS: Traits(Group.BASIN, READS, About.BASIN),
    Operation.STREAM_METRICS: Traits(Group.STREAM, READS, About.STREAM),
    Operation.LIST_LOCATIONS: Traits(Group.ACCOUNT, READS, About.NOTHING),
    Operation.GET_DEFAULT_LOCATION: Traits(Group.ACCOUNT, READS, About.NOTHING),
    Operation.SET_DEFAULT_LOCATION: Traits(Group.ACCOUNT, WRITES, About.NOTHING),
}
"""A group has the operations of one of S2's services: the account's, a basin's, a stream's."""


# Stored in tokens, and sent as they are: fields are only ever added, with a default.
class Names(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Some names: one exact name (empty is none), or all with a prefix (empty is every one)."""

    exact: str | None = None
    prefix: str | None = None

    def has(self, name: str) -> bool:
        if self.prefix is not None:
            return name.startswith(self.prefix)
        return self.exact == name != ""

    def has_all(self, prefix: str) -> bool:
        """Is every name with this prefix one of these?"""
        return self.prefix is not None and prefix.startswith(self.prefix)

    def narrow(self, prefix: str) -> str:
        """The longest prefix known of all those of these names that have the given one."""
        own = (self.exact or "") if self.prefix is None else self.prefix
        return own if own.startswith(prefix) else prefix

    def is_within(self, other: Names) -> bool:
        if self.prefix is not None:
            return other.has_all(self.prefix)
        return not self.exact or other.has(self.exact)


NO_NAMES = Names(exact="")
EVERY_NAME = Names(prefix="")


class Permissions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is permitted of one group."""

    read: bool = False
    write: bool = False


class Groups(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Permissions by group; None permits nothing."""

    account: Permissions | None = None
    basin: Permissions | None = None
    stream: Permissions | None = None


class Scope(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """What a token was issued for. Names that are not given are none."""

    basins: Names | None = None
    streams: Names | None = None
    access_tokens: Names | None = None
    op_groups: Groups | None = None
    ops: tuple[Operation, ...] | None = None

    def operations(self) -> frozenset[Operation]:
        """The union of groups and operations."""
        permitted = {} if self.op_groups is None else _by_group(self.op_groups)
        return frozenset(self.ops or ()) | {
            operation
            for operation, traits in TRAITS.items()
            if _permits(permitted.get(traits.group), writes=traits.writes)
        }

    def is_within(self, other: Scope) -> bool:
        """Does it reach no further than the other?"""
        pairs = (
            (self.basins, other.basins),
            (self.streams, other.streams),
            (self.access_tokens, other.access_tokens),
        )
        return self.operations() <= other.operations() and all(
            (own or NO_NAMES).is_within(theirs or NO_NAMES) for own, theirs in pairs
        )


def _by_group(groups: Groups) -> dict[Group, Permissions | None]:
    return {
        Group.ACCOUNT: groups.account,
        Group.BASIN: groups.basin,
        Group.STREAM: groups.stream,
    }


def _permits(permissions: Permissions | None, *, writes: bool) -> bool:
    return permissions is not None and (permissions.write if writes else permissions.read)


_ALL = Permissions(read=True, write=True)

EVERYTHING = Scope(EVERY_NAME, EVERY_NAME, EVERY_NAME, Groups(_ALL, _ALL, _ALL))
"""The scope of a root token."""


class Grant:
    """What the bearer of one token may do, until it is revoked or expires."""

    __slots__ = (
        "_basins",
        "_operations",
        "_streams",
        "_tokens",
        "expires_at_ms",
        "id",
        "revoked",
        "scope",
        "stream_prefix",
    )

    def __init__(
        self,
        token_id: str,
        scope: Scope,
        *,
        expires_at_ms: TimestampMs | None = None,
        auto_prefix: bool = False,
    ) -> None:
        self.id = token_id
        self.scope = scope
        self.expires_at_ms = expires_at_ms
        self.revoked = False
        self._operations = scope.operations()
        self._basins = scope.basins or NO_NAMES
        self._streams = scope.streams or NO_NAMES
        self._tokens = scope.access_tokens or NO_NAMES
        self.stream_prefix = (self._streams.prefix or "") if auto_prefix else ""
        """What stands before every stream name this token sends or gets over S2."""

    def is_over(self, now_ms: TimestampMs) -> bool:
        return self.revoked or (self.expires_at_ms is not None and self.expires_at_ms <= now_ms)

    def allows(
        self,
        operation: Operation,
        *,
        basin: str | None = None,
        stream: str | None = None,
        token: str | None = None,
    ) -> bool:
        """A name that is not given is not judged: something of that kind may be allowed."""
        return (
            operation in self._operations
            and (basin is None or self._basins.has(basin))
            and (stream is None or self._streams.has(stream))
            and (token is None or self._tokens.has(token))
        )

    def allows_all(self, operation: Operation, *, basin: str, prefix: str) -> bool:
        """Is the operation allowed on every stream whose name has this prefix?"""
        return self.allows(operation, basin=basin) and self._streams.has_all(prefix)

    @property
    def only_basin(self) -> str | None:
        """The one basin that its scope has, empty if it has none; None if there may be more."""
        return (self._basins.exact or "") if self._basins.prefix is None else None

    def narrow(self, prefix: str) -> str:
        """The longest prefix known of the streams that it may see among those with a prefix."""
        return self._streams.narrow(prefix)

    def sees_basin(self, basin: str) -> bool:
        """May its bearer know of this basin at all?"""
        return self._basins.has(basin)

    def sees(self, basin: str, stream: str) -> bool:
        """Is this stream shown in lists?"""
        return self._basins.has(basin) and self._streams.has(stream)
