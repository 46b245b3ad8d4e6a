"""What may be asked of a subscription."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headwater.core import subscription_config as config
from headwater.core.subscription_config import Code, Config, SubscriptionError


def body(**fields: Any) -> bytes:
    """A webhook subscription, with the given fields changed; None takes one away."""
    whole = {"type": "webhook", "pattern": "events/*", "webhook": {"url": "https://w.example/"}}
    return json.dumps({k: v for k, v in (whole | fields).items() if v is not None}).encode()


def refusal(given: bytes) -> str:
    with pytest.raises(SubscriptionError) as caught:
        config.parse_config(given)
    assert caught.value.code is Code.INVALID_REQUEST
    return str(caught.value)


def test_a_configuration_is_normalised() -> None:
    asked = config.parse_config(
        body(pattern="/events/*/", streams=["b", "/a/", "a"], wake_stream="/wake/", description="d")
    )
    assert asked == Config(
        "webhook", "events/*", ("a", "b"), "https://w.example/", "wake", 30_000, "d"
    )


def test_nulls_are_as_good_as_absent() -> None:
    given = b"""{"type": "pull-wake", "pattern": null, "streams": ["a"], "webhook": null,
        "wake_stream": "w", "lease_ttl_ms": null, "description": null, "unknown": {}}"""
    assert config.parse_config(given) == Config("pull-wake", None, ("a",), None, "w", 30_000, None)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        pytest.param(b"", "JSON", id="empty"),
        pytest.param(b"{", "JSON", id="cut off"),
        pytest.param(b'{"type":"\xff"}', "JSON", id="not UTF-8"),
        pytest.param(b"[]", "object", id="an array"),
        pytest.param(b"[" * 100_000, "JSON", id="nested too deep"),
        pytest.param(body(type=None), "type", id="no type"),
        pytest.param(body(type="email"), "type", id="unknown type"),
        pytest.param(body(pattern=None), "pattern", id="no pattern and no streams"),
        pytest.param(body(pattern="", streams=[]), "pattern", id="nothing in either"),
        pytest.param(body(pattern=7), "pattern", id="pattern is no text"),
        pytest.param(body(pattern="a*"), "whole segment", id="a star within a segment"),
        pytest.param(body(pattern="a" * 1025), "longer", id="long pattern"),
        pytest.param(body(streams="a"), "streams", id="streams is no array"),
        pytest.param(body(streams=[1]), "streams", id="a stream is no text"),
        pytest.param(body(streams=["/"]), "stream", id="a stream without a name"),
        pytest.param(body(streams=["a/../b"]), "'..'", id="an impossible stream"),
        pytest.param(body(streams=["__ds/a"]), "reserved", id="a reserved stream"),
        pytest.param(body(streams=[f"s{n}" for n in range(1001)]), "1000", id="many streams"),
        pytest.param(body(webhook=None), "webhook.url", id="no webhook"),
        pytest.param(body(webhook={}), "url", id="no URL"),
        pytest.param(body(webhook={"url": ""}), "webhook.url", id="empty URL"),
        pytest.param(body(webhook="https://w.example/"), "webhook", id="webhook is no object"),
        pytest.param(body(type="pull-wake"), "wake_stream", id="no wake stream"),
        pytest.param(
            body(type="pull-wake", wake_stream="w", streams=["w"]), "own", id="its own wake stream"
        ),
        pytest.param(body(wake_stream=".."), "stream", id="an impossible wake stream"),
        pytest.param(body(lease_ttl_ms=999), "1000", id="short lease"),
        pytest.param(body(lease_ttl_ms=600_001), "600000", id="long lease"),
        pytest.param(body(lease_ttl_ms=10**30), "600000", id="absurd lease"),
        pytest.param(body(lease_ttl_ms="30000"), "lease_ttl_ms", id="lease is text"),
        pytest.param(body(lease_ttl_ms=True), "lease_ttl_ms", id="lease is a truth"),
        pytest.param(body(lease_ttl_ms=1000.5), "lease_ttl_ms", id="lease is a fraction"),
        pytest.param(body(description="d" * 4097), "description", id="long description"),
    ],
)
def test_what_cannot_be_is_refused_with_a_reason(given: bytes, says: str) -> None:
    assert says in refusal(given)


@pytest.mark.parametrize("lease_ttl_ms", [1000, 600_000])
def test_a_lease_lasts_from_a_second_to_ten_minutes(lease_ttl_ms: int) -> None:
    assert config.parse_config(body(lease_ttl_ms=lease_ttl_ms)).lease_ttl_ms == lease_ttl_ms


def test_equal_configurations_have_equal_hashes() -> None:
    one = config.parse_config(body(streams=["a", "b"], lease_ttl_ms=30_000))
    same = config.parse_config(body(streams=["b", "a", "/b"], pattern="events/*/"))
    assert one.hash() == same.hash()


@pytest.mark.parametrize(
    "changed",
    [
        {"type": "pull-wake", "wake_stream": "w"},
        {"pattern": "events/**"},
        {"streams": ["a"]},
        {"webhook": {"url": "https://w.example/other"}},
        {"wake_stream": "w"},
        {"lease_ttl_ms": 1000},
        {"description": ""},
    ],
    ids=lambda changed: next(iter(changed)),
)
def test_every_part_of_a_configuration_counts(changed: dict[str, Any]) -> None:
    one, other = config.parse_config(body()), config.parse_config(body(**changed))
    assert one.hash() != other.hash()


def test_the_hash_stays_the_same_from_version_to_version() -> None:
    asked = Config("webhook", "events/*", ("a",), "https://w.example/", None, 30_000, None)
    assert asked.hash() == "9ca7ee4ac61fa5e3e3184f7c4c41aae60eba297122d1eb4d385a7c01bba7caf6"


@pytest.mark.parametrize("given", ["", "a\nb", "a\0b", "\ud800", "i" * 257, "ü" * 129])
def test_an_id_is_printable_and_not_long(given: str) -> None:
    with pytest.raises(SubscriptionError):
        config.check_id(given)


@pytest.mark.parametrize("given", ["sub-1", "a/b c", "ü" * 128])
def test_an_id_may_be_any_other_text(given: str) -> None:
    assert config.check_id(given) == given


def test_streams_to_add_are_named_in_an_array() -> None:
    assert config.parse_streams(b'{"streams": ["b", "/a"]}') == ("a", "b")
    assert config.parse_streams(b'{"streams": []}') == ()
    with pytest.raises(SubscriptionError, match="streams"):
        config.parse_streams(b"{}")


def test_a_worker_has_a_name() -> None:
    assert config.parse_worker(b'{"worker": "w1"}') == "w1"
    for given in (b"{}", b'{"worker": ""}', b'{"worker": 1}', b'{"worker": "%b"}' % (b"w" * 257)):
        with pytest.raises(SubscriptionError, match="worker"):
            config.parse_worker(given)


def test_an_ack_may_say_nothing_or_name_streams_by_either_word() -> None:
    assert config.parse_ack(b"") == config.AckBody()
    found = config.parse_ack(
        b'{"acks": [{"stream": "a", "offset": "x"}, {"path": "b", "offset": "y"}], "done": true}'
    )
    assert [(ack.name, ack.offset) for ack in found.acks or ()] == [("a", "x"), ("b", "y")]
    assert found.done is True
    with pytest.raises(SubscriptionError, match="offset"):
        config.parse_ack(b'{"acks": [{"stream": "a"}]}')
