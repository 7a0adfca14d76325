"""How listeners are secured, as people write it: nothing is open by mistake."""

from __future__ import annotations

from pathlib import Path

import pytest
from kafscale.access.mapping import MappingRule
from kafscale.access.protocol import SecurityProtocol
from kafscale.frontdoor.listeners.connection_limits import read_overrides
from kafscale.frontdoor.listeners.listener_security import (
    CIPHERS,
    ClientAuth,
    ListenerSecurity,
    TlsVersion,
    read_securities,
    values_by_listener,
)
from kafscale.frontdoor.listeners.listeners import ListenersWrong, address_of, plain_address
from kafscale.frontdoor.settings import FrontdoorSettings
from pydantic import ValidationError

FILES = {"ssl_certificate": "/c", "ssl_key": "/k"}


def securities(*names: str, **settings: str) -> dict[str, ListenerSecurity]:
    """As the settings are read, but before their validation, so that SASL can be looked at."""
    return read_securities(names, dict(FrontdoorSettings.model_construct(**settings)))  # type: ignore[arg-type]


def protocols(*names: str, **settings: str) -> list[str]:
    return [one.protocol.value for one in securities(*names, **{**FILES, **settings}).values()]


def test_the_names_of_protocols_are_listeners_of_that_protocol() -> None:
    assert protocols(*SecurityProtocol.__members__) == list(SecurityProtocol.__members__)


def test_without_a_map_own_names_are_plain_as_they_always_were() -> None:
    assert protocols("SSL", "INSIDE") == ["SSL", "PLAINTEXT"]


def test_the_map_decides_also_for_names_of_protocols_and_in_any_case() -> None:
    text = " inside:ssl , OUTSIDE:SASL_SSL,PLAINTEXT:SSL,"
    found = protocols("INSIDE", "OUTSIDE", "PLAINTEXT", listener_security_protocol_map=text)
    assert found == ["SSL", "SASL_SSL", "SSL"]


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"listener_security_protocol_map": "OTHER:SSL"}, "no security protocol is defined for listener A"),
        ({"listener_security_protocol_map": "A"}, "'A' is not NAME:PROTOCOL"),
        ({"listener_security_protocol_map": "A:TLS"}, "'TLS' is not one of PLAINTEXT, SSL"),
        ({"listener_security_protocol_map": "A:SSL,a:PLAINTEXT"}, "A is there twice"),
        ({"listener_security_protocol_map": "A:SSL"}, "listener A needs KAFSCALE_SSL_CERTIFICATE"),
        ({"listener_security_protocol_map": "A:SSL", "ssl_certificate": "/c"}, "needs KAFSCALE_SSL_KEY"),
        (FILES, "KAFSCALE_SSL_CERTIFICATE is set, but no listener has TLS"),
        ({"ssl_ca": "A=/ca"}, "KAFSCALE_SSL_CA: listener A has no TLS"),
        ({"proxy_protocol": "10.0.0.0/8"}, "write NAME=network"),
        ({"proxy_protocol": "A="}, "write NAME=network"),
        ({"proxy_protocol": "A=10.0.0.1/8"}, "has host bits set"),
        ({"proxy_protocol": "A=10.0.0.0/8,A=11.0.0.0/8"}, "A is there twice"),
    ],
)
def test_a_wrong_setting_is_refused_with_a_sentence(settings: dict[str, str], says: str) -> None:
    with pytest.raises(ListenersWrong, match=says):
        securities("A", **settings)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"ssl_client_auth": "required"}, "KAFSCALE_SSL_CLIENT_AUTH=required needs KAFSCALE_SSL_CA"),
        ({"ssl_client_auth": "maybe"}, "'maybe' is not one of none, requested, required"),
        ({"ssl_principal_mapping_rules": "RULE:(/"}, "KAFSCALE_SSL_PRINCIPAL_MAPPING_RULES"),
        ({"ssl_enabled_protocols": "TLSv1.1,TLSv1.2"}, "'TLSv1.1' is not one of TLSv1.2, TLSv1.3"),
        ({"ssl_cipher_suites": "TLS_RSA_WITH_AES_128_GCM_SHA256"}, "is not one of TLS_ECDHE"),
        ({"ssl_cipher_suites": "TLS_AES_128_GCM_SHA256"}, "belongs to TLS 1.3"),
    ],
)
def test_what_tls_cannot_do_is_refused_with_a_sentence(settings: dict[str, str], says: str) -> None:
    with pytest.raises(ListenersWrong, match=says):
        securities("SSL", **FILES, **settings)


def test_a_value_may_be_for_one_listener_or_for_all_of_them() -> None:
    found = securities(
        "IN",
        "OUT",
        "THIRD",
        listener_security_protocol_map="IN:SSL,OUT:SSL,THIRD:PLAINTEXT",
        ssl_certificate="/all.pem,out=/out.pem",
        ssl_key="IN=/in.key, OUT=/out.key",
        ssl_key_password_file="OUT=/password",
        ssl_ca="/ca.pem",
        ssl_client_auth="OUT=Required",
        ssl_principal_mapping_rules="OUT=RULE:^CN=(.*?),.*$/$1/L,DEFAULT",
        ssl_enabled_protocols="TLSv1.2,TLSv1.3,OUT=TLSv1.3",
        ssl_cipher_suites="IN=TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,ECDHE-RSA-CHACHA20-POLY1305",
    )
    inner, outer = found["IN"].tls, found["OUT"].tls
    assert inner is not None
    assert outer is not None
    assert found["THIRD"].tls is None
    assert (inner.certificate, inner.key, inner.key_password_file) == (
        Path("/all.pem"),
        Path("/in.key"),
        None,
    )
    assert outer.files == (Path("/out.pem"), Path("/out.key"), Path("/password"), Path("/ca.pem"))
    assert (inner.client_auth, outer.client_auth) == (ClientAuth.NONE, ClientAuth.REQUIRED)
    assert (len(inner.rules), len(outer.rules)) == (1, 2)
    assert inner.versions == frozenset(TlsVersion)
    assert outer.versions == {TlsVersion.V1_3}
    assert inner.ciphers == ("ECDHE-RSA-AES128-GCM-SHA256", "ECDHE-RSA-CHACHA20-POLY1305")
    assert outer.ciphers == tuple(CIPHERS.values())


def test_only_names_of_listeners_divide_a_value() -> None:
    text = "RULE:^CN=(.*?),OU=x$/$1/,DEFAULT,B=DEFAULT,C=x"
    assert values_by_listener("S", text, ("A", "B")) == {
        None: "RULE:^CN=(.*?),OU=x$/$1/,DEFAULT",
        "B": "DEFAULT,C=x",
    }
    assert values_by_listener("S", " ", ("A",)) == {}
    assert values_by_listener("S", "a.b=1", ("A.B",)) == {"A.B": "1"}
    assert values_by_listener("S", "aXb=1", ("A.B",)) == {None: "aXb=1"}


def test_a_network_is_trusted_for_its_listener_alone() -> None:
    found = securities("A", "B", proxy_protocol="A=10.0.0.0/8;fd00::/8")
    assert [one.proxy_protocol for one in found.values()] == [True, False]
    trusted = ("10.1.2.3", "fd00::1", "fd00::1%eth0")
    assert all(found["A"].trusts(address) for address in trusted)
    assert not any(found["A"].trusts(address) for address in ("11.1.2.3", "fe80::1", "", "x"))
    assert not found["B"].trusts("10.1.2.3")


def test_the_principal_of_a_client_without_a_certificate_is_anonymous() -> None:
    tls = securities("SSL", **FILES)["SSL"].tls
    assert tls is not None
    assert tls.rules == (MappingRule(),)
    assert tls.principal(None) == "User:ANONYMOUS"


@pytest.mark.parametrize(
    ("protocol", "has_logins"),
    [("PLAINTEXT", False), ("SSL", False), ("SASL_PLAINTEXT", True), ("SASL_SSL", True)],
)
def test_clients_log_in_on_listeners_with_sasl(protocol: str, has_logins: bool) -> None:
    files = FILES if protocol.endswith("SSL") else {}
    settings = FrontdoorSettings(
        listeners="A://h:1,B://h:2",
        listener_security_protocol_map=f"A:{protocol},B:PLAINTEXT",
        **files,  # type: ignore[arg-type]
    )
    assert settings.has_logins is has_logins


def test_a_listener_with_sasl_needs_a_mechanism() -> None:
    with pytest.raises(ValidationError, match="names no mechanism for listener A"):
        FrontdoorSettings(
            listeners="A://h:1",
            listener_security_protocol_map="A:SASL_PLAINTEXT",
            sasl_enabled_mechanisms="OTHER=PLAIN",
        )


def test_with_sasl_no_rule_is_asked_about_a_certificate() -> None:
    """A rule that matches no name would refuse the client, which the login names."""
    tls = securities("SASL_SSL", ssl_principal_mapping_rules="RULE:^none$/x/", **FILES)["SASL_SSL"].tls
    assert tls is not None
    assert tls.principal(b"not even a certificate") == "User:ANONYMOUS"


def test_overrides_are_addresses_with_counts() -> None:
    assert read_overrides("") == {}
    found = read_overrides("127.0.0.1:5, ::1:6,[2001:db8::1]:7,::ffff:10.0.0.1:0")
    assert found == {"127.0.0.1": 5, "::1": 6, "2001:db8::1": 7, "10.0.0.1": 0}


@pytest.mark.parametrize("text", ["localhost:5", "127.0.0.1", "127.0.0.1:", "127.0.0.1:x", "127.0.0.1:-1"])
def test_other_overrides_are_refused(text: str) -> None:
    with pytest.raises(ListenersWrong, match="MAX_CONNECTIONS_PER_IP_OVERRIDES"):
        read_overrides(text)
    with pytest.raises(ValidationError):
        FrontdoorSettings(max_connections_per_ip_overrides=text)


@pytest.mark.parametrize(
    ("shown", "plain"),
    [("::ffff:1.2.3.4", "1.2.3.4"), ("1.2.3.4", "1.2.3.4"), ("::1", "::1"), ("::ffff:1", "::ffff:1")],
)
def test_an_address_is_the_same_on_a_socket_of_both_families(shown: str, plain: str) -> None:
    assert plain_address(shown) == plain
    assert address_of((shown, 1)) == plain


def test_a_peer_that_has_left_has_no_address() -> None:
    assert address_of(None) == ""
