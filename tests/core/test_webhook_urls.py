"""Where webhooks may go: the table of what a server must not be made to reach."""

from __future__ import annotations

from ipaddress import ip_address

import pytest

from headwater.core.webhook_urls import (
    Target,
    UrlRejected,
    WebhookPolicy,
    is_public,
    judge_address,
    judge_url,
)

STRICT = WebhookPolicy()
LOCAL = WebhookPolicy(allow_local=True)


@pytest.mark.parametrize(
    "url",
    [
        "http://worker.example/hook",
        "http://93.184.216.34/hook",
        "ftp://worker.example/hook",
        "//worker.example/hook",
        "/hook",
        "worker.example/hook",
        "https://",
        "https:///hook",
        "https://worker.example:0/",
        "https://worker.example:99999/",
        "https://worker.example:port/",
        "https://[::1/",
        "https://user@worker.example/",
        "https://user:secret@worker.example/",
        "https://good.example\\@10.0.0.1/",
        "https://worker.example/a b",
        "https://worker.example/\r\nX: y",
        "https://wörker.example/",
        "https://worker.example/" + "a" * 2048,
        "https://-worker.example/",
        "https://worker..example/",
        "https://10.0.0.1/",
        "https://172.16.0.1/",
        "https://172.31.255.255/",
        "https://192.168.1.1/",
        "https://169.254.169.254/latest/meta-data",
        "https://100.64.0.1/",
        "https://0.0.0.0/",
        "https://224.0.0.1/",
        "https://255.255.255.255/",
        "https://127.0.0.1/",
        "https://localhost/",
        "https://LOCALHOST./",
        "http://localhost/",
        "http://127.0.0.1/",
        "http://[::1]/",
        "https://[::1]/",
        "https://[::]/",
        "https://[fe80::1]/",
        "https://[fc00::1]/",
        "https://[::ffff:10.0.0.1]/",
        "https://[2002:0a00:0001::1]/",
        "https://[64:ff9b::a00:1]/",
        "https://2130706433/",
        "https://0x7f.1/",
        "https://127.1/",
        "https://0177.0.0.1/",
        "https://10.0.0.1./",
    ],
)
def test_these_urls_are_rejected(url: str) -> None:
    with pytest.raises(UrlRejected):
        judge_url(url, STRICT)


@pytest.mark.parametrize(
    ("url", "target"),
    [
        ("https://worker.example", Target(True, "worker.example", 443, "/", False)),
        (
            "HTTPS://Worker.Example:8443/a?b=c#d",
            Target(True, "worker.example", 8443, "/a?b=c", False),
        ),
        ("https://worker.example./", Target(True, "worker.example", 443, "/", False)),
        ("https://93.184.216.34/", Target(True, "93.184.216.34", 443, "/", False)),
        ("https://[2606:2800::1]/", Target(True, "2606:2800::1", 443, "/", False)),
        ("https://[64:ff9b::5db8:d822]/", Target(True, "64:ff9b::5db8:d822", 443, "/", False)),
    ],
)
def test_these_urls_are_taken_apart(url: str, target: Target) -> None:
    assert judge_url(url, STRICT) == target


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("http://localhost:8080/hook", "localhost"),
        ("http://127.0.0.1:8080/hook", "127.0.0.1"),
        ("http://127.8.9.10:8080/hook", "127.8.9.10"),
        ("https://localhost:8080/hook", "localhost"),
    ],
)
def test_this_machine_is_allowed_when_the_operator_says_so(url: str, host: str) -> None:
    target = judge_url(url, LOCAL)
    assert (target.host, target.port, target.local) == (host, 8080, True)


@pytest.mark.parametrize(
    "url", ["http://worker.example/", "http://10.0.0.1/", "http://[::1]/", "https://192.168.0.1/"]
)
def test_allowing_this_machine_allows_nothing_else(url: str) -> None:
    with pytest.raises(UrlRejected):
        judge_url(url, LOCAL)


@pytest.mark.parametrize(
    ("host", "allowed"),
    [
        ("hooks.example", True),
        ("a.worker.example", True),
        ("a.b.worker.example", True),
        ("worker.example", False),
        ("evilworker.example", False),
        ("hooks.example.evil.example", False),
    ],
)
def test_a_list_of_hosts_leaves_out_the_others(host: str, allowed: bool) -> None:
    policy = WebhookPolicy(hosts=("hooks.example", "*.worker.example"))
    if allowed:
        assert judge_url(f"https://{host}/", policy).host == host
    else:
        with pytest.raises(UrlRejected, match="listed"):
            judge_url(f"https://{host}/", policy)


@pytest.mark.parametrize(
    ("address", "public"),
    [
        ("93.184.216.34", True),
        ("100.63.255.255", True),
        ("100.64.0.0", False),
        ("100.127.255.255", False),
        ("100.128.0.0", True),
        ("172.15.255.255", True),
        ("172.32.0.0", True),
        ("192.0.0.8", False),
        ("192.0.2.1", False),
        ("192.88.99.1", False),
        ("198.18.0.1", False),
        ("198.51.100.7", False),
        ("203.0.113.7", False),
        ("240.0.0.1", False),
        ("2606:2800:220:1::1", True),
        ("::", False),
        ("::1", False),
        ("::7f00:1", False),
        ("::ffff:93.184.216.34", True),
        ("::ffff:127.0.0.1", False),
        ("::ffff:169.254.169.254", False),
        ("64:ff9b::5db8:d822", True),
        ("64:ff9b::7f00:1", False),
        ("64:ff9b:1::1", False),
        ("100::1", False),
        ("2001::1", False),
        ("2001:db8::1", False),
        ("2002:5db8:d822::1", True),
        ("2002:c0a8:0101::1", False),
        ("3fff::1", False),
        ("fc00::1", False),
        ("fd12:3456::1", False),
        ("fe80::1", False),
        ("fe80::1%eth0", False),
        ("fec0::1", False),
        ("ff02::1", False),
    ],
)
def test_only_public_addresses_count_however_they_are_spelled(address: str, public: bool) -> None:
    assert is_public(ip_address(address)) is public


@pytest.mark.parametrize(
    ("local", "address", "allowed"),
    [
        (False, "93.184.216.34", True),
        (False, "10.0.0.1", False),
        (False, "127.0.0.1", False),
        (True, "127.0.0.1", True),
        (True, "::1", True),
        (True, "93.184.216.34", False),
        (True, "10.0.0.1", False),
    ],
)
def test_an_address_is_judged_before_it_is_connected_to(
    local: bool, address: str, allowed: bool
) -> None:
    target = Target(not local, "localhost" if local else "worker.example", 443, "/", local)
    if allowed:
        judge_address(target, address)
    else:
        with pytest.raises(UrlRejected):
            judge_address(target, address)


@pytest.mark.parametrize(
    ("target", "authority"),
    [
        (Target(True, "worker.example", 443, "/", False), "worker.example"),
        (Target(True, "worker.example", 80, "/", False), "worker.example:80"),
        (Target(False, "localhost", 80, "/", True), "localhost"),
        (Target(True, "2606:2800::1", 8443, "/", False), "[2606:2800::1]:8443"),
    ],
)
def test_the_host_header_leaves_out_a_port_that_goes_without_saying(
    target: Target, authority: str
) -> None:
    assert target.authority == authority
