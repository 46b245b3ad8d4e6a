"""The control plane of the S2 API: basins, streams and locations. S2 API: account endpoints,
stream management.

A basin is a bucket. Those whose names S2 could not have given are not listed.
"""

from __future__ import annotations

import hashlib
import re

import msgspec

from headwater.core.access import Operation
from headwater.core.buckets import BucketConfig
from headwater.core.commands import Delete, ProvisionMode, Reconfigure, ReconfigureBucket
from headwater.core.errors import BucketNotFound, InvalidRequest, StreamGone
from headwater.core.names import DURABLE_STREAMS_BUCKET, check_stream
from headwater.core.provisioning import BucketProvisioned, Provisioned, Result, config_of
from headwater.core.stream_config import StreamConfig, resolve
from headwater.core.types import TimestampMs
from headwater.dialects.access import narrow
from headwater.dialects.compression import Compressor
from headwater.dialects.s2 import configs
from headwater.dialects.s2.access import (
    own_stream,
    require,
    sees_basin,
    shown,
    stream_prefix,
)
from headwater.dialects.s2.bodies import decode_json, parse_page
from headwater.dialects.s2.configs import BasinBody, StreamBody
from headwater.dialects.s2.errors import Refused
from headwater.dialects.s2.responses import JSON_HEADERS
from headwater.dialects.s2.routes import Handler, S2Options
from headwater.dialects.s2.streams import find_basin, make_stream
from headwater.dialects.s2.targets import BASIN_RULE, Target, is_basin
from headwater.engine.engine import Engine
from headwater.engine.listing import BucketPage, Name, Selection, list_buckets, list_streams
from headwater.engine.steps import follow
from headwater.engine.streams import Stream
from headwater.wire.headers import render_rfc3339
from headwater.wire.http import Answer, Header, Request, Response

REQUEST_TOKEN_BYTES_MAX = 36
LOCATION = "local"
"""There is one place: here."""

_LOCATION_NAME = re.compile(r"[A-Za-z0-9:.-]{1,64}\Z")

_encode = msgspec.json.Encoder().encode
_encode_sorted = msgspec.json.Encoder(order="deterministic").encode

Json = configs.Json


class _CreateBasin(msgspec.Struct):
    basin: str
    config: BasinBody | None = None
    location: str | None = None


class _EnsureBasin(msgspec.Struct):
    config: BasinBody | None = None
    location: str | None = None


class _CreateStream(msgspec.Struct):
    stream: str
    config: StreamBody | None = None


class ControlPlane:
    """Basins, streams and locations, over one engine."""

    def __init__(self, engine: Engine, options: S2Options) -> None:
        self.engine = engine
        self.options = options
        self._compressor = Compressor(engine.loop)

    def handlers(self) -> dict[tuple[str, str], Handler]:
        """The rows of the table of routes that are answered here."""
        return {
            ("GET", "basins"): self.list_basins,
            ("POST", "basins"): self.create_basin,
            ("PUT", "basins/{basin}"): self.ensure_basin,
            ("GET", "basins/{basin}"): self.get_basin_config,
            ("PATCH", "basins/{basin}"): self.reconfigure_basin,
            ("DELETE", "basins/{basin}"): self.delete_basin,
            ("GET", "streams"): self.list_streams,
            ("POST", "streams"): self.create_stream,
            ("PUT", "streams/{stream}"): self.ensure_stream,
            ("GET", "streams/{stream}"): self.get_stream_config,
            ("PATCH", "streams/{stream}"): self.reconfigure_stream,
            ("DELETE", "streams/{stream}"): self.delete_stream,
            ("GET", "locations"): self.list_locations,
            ("GET", "locations/default"): self.get_default_location,
            ("PUT", "locations/default"): self.set_default_location,
        }

    # -- basins

    def list_basins(self, request: Request, target: Target) -> Answer:
        """GET /basins."""
        page = parse_page(request)
        found = list_buckets(
            self.engine,
            prefix=page.prefix,
            after=page.start_after,
            limit=page.limit,
            admits=lambda name: is_basin(name) and sees_basin(request, name),
        )
        return self._compressor.apply(request, follow(found, _render_basins))

    def create_basin(self, request: Request, target: Target) -> Answer:
        """POST /basins."""
        token = _parse_request_token(request)
        sent = decode_json(request, _CreateBasin)
        name = sent.basin
        if not is_basin(name):
            raise Refused("bad_json", BASIN_RULE)
        require(request, Operation.CREATE_BASIN, basin=name)
        config = _new_basin(sent.config, sent.location, _creation_token(token, sent.config))
        answer = self.engine.provision_bucket(name, ProvisionMode.CREATE, config)
        return answer.then(lambda made: _render_provisioned_basin(name, made, 201))

    def ensure_basin(self, request: Request, target: Target) -> Answer:
        """PUT /basins/{basin}: there with exactly this configuration."""
        sent = decode_json(request, _EnsureBasin) if request.body else _EnsureBasin()
        config = _new_basin(sent.config, sent.location, None)
        answer = self.engine.provision_bucket(target.basin, ProvisionMode.ENSURE, config)
        return answer.then(lambda made: _render_provisioned_basin(target.basin, made))

    def get_basin_config(self, request: Request, target: Target) -> Answer:
        """GET /basins/{basin}, also while it is being deleted."""

        def look() -> Response:
            config = self.engine.bucket(target.basin)
            if config is None:
                raise BucketNotFound(target.basin)
            return _render(configs.render_bucket_config(config))

        return self.engine.at_rest(look)

    def reconfigure_basin(self, request: Request, target: Target) -> Answer:
        """PATCH /basins/{basin}."""
        fields, defaults = configs.bucket_changes(decode_json(request, BasinBody))
        now = self.engine.clock.now_ms()
        command = ReconfigureBucket(target.basin, "", now, fields, defaults)
        answer = self.engine.reconfigure_bucket(command)
        return answer.then(lambda config: _render(configs.render_bucket_config(config)))

    def delete_basin(self, request: Request, target: Target) -> Answer:
        """DELETE /basins/{basin}. Its streams go in the background."""
        if target.basin == DURABLE_STREAMS_BUCKET:
            raise Refused("permission_denied", f"{target.basin} is always there")
        return self.engine.delete_bucket(target.basin).then(lambda _: _accepted())

    # -- streams

    def list_streams(self, request: Request, target: Target) -> Answer:
        """GET /streams."""
        self._check_basin(target.basin)
        page, hidden = parse_page(request), stream_prefix(request)
        after = (target.basin, hidden + page.start_after) if page.start_after else None
        streams: list[Json] = []

        def show(stream: Stream) -> None:
            state = stream.state
            name = shown(request, state.name)
            streams.append(_describe_stream(name, state.created_at_ms, state.cipher))

        def render(last: Name | None) -> Response:
            return _render({"streams": streams, "has_more": last is not None})

        selection = Selection(
            bucket=target.basin,
            prefix=hidden + page.prefix,
            after=after,
            limit=page.limit,
        )
        listed = list_streams(self.engine, narrow(selection, request.grant), show)
        found = follow(listed, render)
        return self._compressor.apply(request, found)

    def create_stream(self, request: Request, target: Target) -> Answer:
        """POST /streams."""
        token = _parse_request_token(request)
        sent = decode_json(request, _CreateStream)
        try:
            check_stream(sent.stream, self.options.names)
        except InvalidRequest as error:
            raise Refused("bad_json", str(error)) from None
        config = configs.stream_config(sent.config or StreamBody())
        whole = own_stream(request, Operation.CREATE_STREAM, basin=target.basin, name=sent.stream)
        answer = make_stream(
            self.engine,
            target._replace(name=whole),
            find_basin(self.engine, target.basin),
            config,
            ProvisionMode.CREATE,
            _creation_token(token, sent.config),
        )
        return answer.then(lambda made: _render_provisioned_stream(sent.stream, made, 201))

    def ensure_stream(self, request: Request, target: Target) -> Answer:
        """PUT /streams/{stream}: there with exactly this configuration."""
        sent = decode_json(request, StreamBody) if request.body else StreamBody()
        basin = find_basin(self.engine, target.basin)
        config = configs.stream_config(sent)
        answer = make_stream(self.engine, target, basin, config, ProvisionMode.ENSURE)
        name = shown(request, target.name)
        return answer.then(lambda made: _render_provisioned_stream(name, made))

    def get_stream_config(self, request: Request, target: Target) -> Answer:
        """GET /streams/{stream}."""

        def look() -> Response:
            self._check_basin(target.basin)
            return _render_stream_config(config_of(self.engine.open(*target).state))

        return self.engine.at_rest(look)

    def reconfigure_stream(self, request: Request, target: Target) -> Answer:
        """PATCH /streams/{stream}. What is taken back is as the basin says at this moment."""
        changes = configs.stream_changes(decode_json(request, StreamBody))
        basin = find_basin(self.engine, target.basin)
        defaults = msgspec.structs.asdict(resolve(basin.stream_defaults))
        config = msgspec.convert(
            {name: defaults[name] if said is None else said for name, said in changes.items()},
            StreamConfig,
        )
        command = Reconfigure(*target, self.engine.clock.now_ms(), config)
        return self.engine.reconfigure(command).then(_render_stream_config)

    def delete_stream(self, request: Request, target: Target) -> Answer:
        """DELETE /streams/{stream}; again has no effect while its forks keep it."""
        find_basin(self.engine, target.basin)
        answer = self.engine.delete(Delete(*target, self.engine.clock.now_ms()))
        return answer.catch(_forget_gone).then(lambda _: _accepted())

    def _check_basin(self, basin: str) -> None:
        if self.engine.bucket(basin) is None:
            raise BucketNotFound(basin)

    # -- locations

    def list_locations(self, request: Request, target: Target) -> Answer:
        """GET /locations."""
        return _render([_describe_location()])

    def get_default_location(self, request: Request, target: Target) -> Answer:
        """GET /locations/default."""
        return _render(_describe_location())

    def set_default_location(self, request: Request, target: Target) -> Answer:
        """PUT /locations/default. There is no other to choose."""
        _check_location(decode_json(request, str))
        return _render(_describe_location())


# -- requests


def _parse_request_token(request: Request) -> bytes | None:
    token = request.headers.get(b"s2-request-token")
    if token is not None and len(token) > REQUEST_TOKEN_BYTES_MAX:
        raise Refused("bad_header", f"s2-request-token is at most {REQUEST_TOKEN_BYTES_MAX} bytes")
    return token


def _creation_token(token: bytes | None, config: BasinBody | StreamBody | None) -> bytes | None:
    """The same for a repeat of a request, and for nothing else."""
    if token is None:
        return None
    return hashlib.sha256(token + b"\0" + _encode_sorted(config)).digest()


def _new_basin(
    sent: BasinBody | None, location: str | None, creation_token: bytes | None
) -> BucketConfig:
    if location is not None:
        _check_location(location)
    config = configs.bucket_config(sent)
    return msgspec.structs.replace(config, location=LOCATION, creation_token=creation_token)


def _check_location(name: str) -> None:
    if not _LOCATION_NAME.match(name):
        raise Refused("bad_json", "a location is 1 to 64 characters of [A-Za-z0-9:.-]")
    if name != LOCATION:
        raise Refused("invalid", f"there is one location, {LOCATION}. received={name}")


def _forget_gone(error: Exception) -> None:
    if not isinstance(error, StreamGone):
        raise error


# -- responses


def _render(value: object, status: int = 200, *headers: Header) -> Response:
    return Response(status, headers, _encode(value), base=JSON_HEADERS)


def _accepted() -> Response:
    return Response(202, base=JSON_HEADERS)


def _render_provisioned(info: Json, result: Result, status: int | None) -> Response:
    if status is None:
        status = 201 if result is Result.CREATED else 200
    return _render(info, status, (b"s2-provision-result", result.encode()))


def _render_provisioned_basin(
    name: str, made: BucketProvisioned, status: int | None = None
) -> Response:
    return _render_provisioned(_describe_basin(name, made.config), made.result, status)


def _render_provisioned_stream(name: str, made: Provisioned, status: int | None = None) -> Response:
    info = _describe_stream(name, made.created_at_ms, made.cipher)
    return _render_provisioned(info, made.result, status)


def _render_basins(page: BucketPage) -> Response:
    basins = [_describe_basin(name, config) for name, config in page.buckets]
    return _render({"basins": basins, "has_more": page.has_more})


def _render_stream_config(config: StreamConfig) -> Response:
    return _render(configs.render_stream_config(config))


def _describe_basin(name: str, config: BucketConfig) -> Json:
    deleted_at_ms = config.deleted_at_ms
    return {
        "name": name,
        "location": config.location or LOCATION,
        "created_at": _time(config.created_at_ms),
        "deleted_at": None if deleted_at_ms is None else _time(deleted_at_ms),
        "state": "active" if deleted_at_ms is None else "deleting",
    }


def _describe_stream(name: str, created_at_ms: TimestampMs, cipher: str | None) -> Json:
    return {
        "name": name,
        "created_at": _time(created_at_ms),
        "deleted_at": None,
        "cipher": cipher,
    }


def _describe_location() -> Json:
    return {
        "name": LOCATION,
        "is_private": False,
        "storage_classes": configs.STORAGE_CLASSES,
        "default_storage_class": configs.STORAGE_CLASSES[0],
    }


def _time(at_ms: TimestampMs) -> str:
    return render_rfc3339(at_ms).decode()
