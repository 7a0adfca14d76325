"""Principals are read as in Kafka, and hosts are printed as in Java."""

from __future__ import annotations

from ipaddress import IPv6Address

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafscale.access.principals import PrincipalWrong, java_host, parse_principal, parse_super_users, user

HOSTS = [
    ("10.0.0.1", "10.0.0.1"),
    ("::1", "0:0:0:0:0:0:0:1"),
    ("::", "0:0:0:0:0:0:0:0"),
    ("2001:db8::A:0b", "2001:db8:0:0:0:0:a:b"),
    ("::ffff:10.1.2.3", "10.1.2.3"),
    ("fe80::1%eth0", "fe80:0:0:0:0:0:0:1%eth0"),
]


@pytest.mark.parametrize(("address", "printed"), HOSTS)
def test_a_host_is_printed_as_java_prints_it(address: str, printed: str) -> None:
    assert java_host(address) == printed


@given(st.ip_addresses(v=6))
def test_a_printed_host_has_eight_groups_and_is_the_same_address(address: IPv6Address) -> None:
    printed = java_host(str(address))
    if address.ipv4_mapped is None:
        assert printed.count(":") == 7
        assert "::" not in printed
        assert IPv6Address(printed) == address


def test_a_host_name_is_no_address() -> None:
    with pytest.raises(ValueError, match="does not appear to be"):
        java_host("localhost")


def test_a_principal_is_a_type_and_a_name_which_may_contain_colons() -> None:
    assert parse_principal("User:CN=a:b") == user("CN=a:b")
    with pytest.raises(PrincipalWrong, match="format principalType:principalName but got alice"):
        parse_principal("alice")


def test_super_users_are_separated_by_semicolons() -> None:
    assert parse_super_users(" User:CN=a,O=b ; User:admin;; ") == {user("CN=a,O=b"), user("admin")}
    assert parse_super_users("") == frozenset()
    with pytest.raises(PrincipalWrong):
        parse_super_users("User:admin;root")
