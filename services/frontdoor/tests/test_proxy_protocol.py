"""The headers of proxies, whole, cut, and wrong."""

from __future__ import annotations

from ipaddress import ip_address
from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafscale.frontdoor.listeners.proxy_protocol import (
    HEADER_BYTES_MAX,
    LINE_BYTES_MAX,
    LOCAL,
    PROXY,
    SIGNATURE,
    TCP4,
    TCP6,
    ProxyHeader,
    ProxyHeaderWrong,
    parse,
)

PORTS = st.integers(0, 65_535)


def line(source: str, destination: str, port: int) -> bytes:
    family = "TCP6" if ":" in source else "TCP4"
    return f"PROXY {family} {source} {destination} {port} 9092\r\n".encode()


def binary(source: str, destination: str, port: int, fields: bytes = b"") -> bytes:
    family = TCP6 if ":" in source else TCP4
    body = ip_address(source).packed + ip_address(destination).packed + pack(">HH", port, 9092) + fields
    return SIGNATURE + pack(">BBH", PROXY, family, len(body)) + body


HEADERS = st.one_of(
    st.builds(line, st.ip_addresses(v=4).map(str), st.ip_addresses(v=4).map(str), PORTS),
    st.builds(line, st.ip_addresses(v=6).map(str), st.ip_addresses(v=6).map(str), PORTS),
    st.builds(
        binary, st.ip_addresses(v=4).map(str), st.ip_addresses(v=4).map(str), PORTS, st.binary(max_size=900)
    ),
    st.builds(
        binary, st.ip_addresses(v=6).map(str), st.ip_addresses(v=6).map(str), PORTS, st.binary(max_size=900)
    ),
)


@given(st.ip_addresses().map(str), PORTS, st.binary(max_size=40))
def test_both_versions_name_the_client_and_leave_what_follows(source: str, port: int, rest: bytes) -> None:
    for header in (line(source, source, port), binary(source, source, port)):
        assert parse(header + rest) == ProxyHeader(source=(shown(source), port), size=len(header))


def shown(address: str) -> str:
    parsed = ip_address(address)
    return str(getattr(parsed, "ipv4_mapped", None) or parsed)


def test_an_ipv4_address_in_ipv6_is_an_ipv4_address() -> None:
    mapped = "::ffff:203.0.113.7"
    assert [
        one.source for one in map(parse, (line(mapped, mapped, 1), binary(mapped, mapped, 1))) if one
    ] == [("203.0.113.7", 1)] * 2


@given(HEADERS, st.data())
def test_a_header_that_is_cut_is_not_whole_and_never_wrong(header: bytes, data: st.DataObject) -> None:
    assert parse(header[: data.draw(st.integers(0, len(header) - 1))]) is None


@given(st.binary(max_size=3_000))
def test_any_bytes_are_a_header_or_refused_within_the_bound(data: bytes) -> None:
    try:
        found = parse(data)
    except ProxyHeaderWrong:
        return
    if found is None:
        assert len(data) < HEADER_BYTES_MAX
    else:
        assert found.size <= min(len(data), HEADER_BYTES_MAX)


@given(HEADERS, st.data())
def test_a_refusal_stays_whatever_follows(header: bytes, data: st.DataObject) -> None:
    """Else the result would depend on how the bytes were cut."""
    at = data.draw(st.integers(0, len(header) - 1))
    broken = header[:at] + data.draw(st.binary(min_size=1, max_size=1)) + header[at + 1 :]
    outcomes = [outcome(broken[:size]) for size in range(len(broken) + 1)]
    first = next((one for one in outcomes if one is not None), None)
    assert all(one is None for one in outcomes[: outcomes.index(first)])
    assert all(one == first for one in outcomes[outcomes.index(first) :])


def outcome(data: bytes) -> ProxyHeader | str | None:
    try:
        return parse(data)
    except ProxyHeaderWrong:
        return "wrong"


@pytest.mark.parametrize(
    "data",
    [
        b"PROXY UNKNOWN\r\n",
        b"PROXY UNKNOWN ffff::1 ffff::1 1 2\r\n",
        SIGNATURE + pack(">BBH", LOCAL, 0, 0),
        SIGNATURE + pack(">BBH", LOCAL, TCP4, 12) + bytes(12),
        SIGNATURE + pack(">BBH", PROXY, 0, 3) + b"abc",
    ],
)
def test_a_proxy_may_speak_for_itself(data: bytes) -> None:
    assert parse(data) == ProxyHeader(source=None, size=len(data))


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"\x00\x00\x00\x0a", "no PROXY protocol header"),
        (b"\x16\x03\x01", "no PROXY protocol header"),
        (b"\r\n\r\n\x00\r\nQUIT\r", "no PROXY protocol header"),
        (b"PROXY TCP4 1.2.3.4 1.2.3.4 1\r\n", "is not PROXY"),
        (b"PROXY UDP4 1.2.3.4 1.2.3.4 1 2\r\n", "is not PROXY"),
        (b"PROXY TCP4 ::1 ::1 1 2\r\n", "wrong address"),
        (b"PROXY TCP4 1.2.3 1.2.3.4 1 2\r\n", "wrong address"),
        (b"PROXY TCP4 1.2.3.4 1.2.3.4 1 65536\r\n", "wrong port"),
        (b"PROXY TCP4 1.2.3.4 1.2.3.4 01 2\r\n", "wrong port"),
        (b"PROXY TCP4 1.2.3.4 1.2.3.4 -1 2\r\n", "wrong port"),
        (b"PROXY TCP4 1.2.3.4  1.2.3.4 1 2\r\n", "is not PROXY"),
        (b"PROXY UNKNOWN" + bytes(LINE_BYTES_MAX), "more than 107 bytes"),
        (SIGNATURE + pack(">BBH", 0x11, TCP4, 12), "version and command"),
        (SIGNATURE + pack(">BBH", PROXY, 0x12, 12) + bytes(12), "not TCP"),
        (SIGNATURE + pack(">BBH", PROXY, TCP6, 12) + bytes(12), "without addresses"),
        (SIGNATURE + pack(">BBH", PROXY, TCP4, 60_000), "the most is 2048"),
    ],
)
def test_what_is_no_header_is_refused_with_a_reason(data: bytes, says: str) -> None:
    with pytest.raises(ProxyHeaderWrong, match=says):
        parse(data)
