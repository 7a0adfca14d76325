"""The settings of a client: a file means what it means to Kafka's tools; no error and no repr shows a secret."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from kafscale.client.properties import PropertiesWrong, parse_jaas, parse_properties
from kafscale.client.security import OPEN, ClientSecurity, PasswordLogin, read_security, security_of
from kafscale.client.tokens import TokenSource
from kafscale.testkit.authority import Authority

SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
SECRET = "hush-hush"
LOGIN = {
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "SCRAM-SHA-512",
    "sasl.jaas.config": f'{SCRAM} required username="alice" password="{SECRET}";',
}
TLS = {"security.protocol": "SSL"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=b", {"a": "b"}),
        ("  a = b c  \n\n# no=thing\n ! neither\nd:e", {"a": "b c  ", "d": "e"}),
        ("a b", {"a": "b"}),
        ("a\t:\tb", {"a": "b"}),
        ("a==b", {"a": "=b"}),
        ("a = = b", {"a": "= b"}),
        ("a", {"a": ""}),
        ("a=1\na=2", {"a": "2"}),
        ("a=b\\\n   c\r\nd=e\rf=g", {"a": "bc", "d": "e", "f": "g"}),
        ("a=b\\\\\nc=d", {"a": "b\\", "c": "d"}),
        ("a=b\\\n# c", {"a": "b# c"}),
        (r"a\ b\=c=d\te", {"a b=c": "d\te"}),
        (r"a=\u00fc\q\:", {"a": "üq:"}),
        ("a=b\\", {"a": "b"}),
        ("a=\x0bb\x1cc", {"a": "\x0bb\x1cc"}),
    ],
)
def test_a_file_is_read_as_java_reads_it(text: str, expected: dict[str, str]) -> None:
    assert parse_properties(text) == expected


@pytest.mark.parametrize(
    ("text", "name", "options"),
    [
        (
            f'{SCRAM} required username="a" password="b";',
            "ScramLoginModule",
            {"username": "a", "password": "b"},
        ),
        (
            f"{PLAIN} REQUIRED\n  username='a'\n  password = b ;",
            "PlainLoginModule",
            {"username": "a", "password": "b"},
        ),
        (
            f'{PLAIN} required password="q\\"u\\\\o;te\\t\\101=";',
            "PlainLoginModule",
            {"password": 'q"u\\o;te\tA='},
        ),
        ("Module required /* a */ b='it\"s' // c\n;", "Module", {"b": 'it"s'}),
        ("Module required;", "Module", {}),
    ],
)
def test_a_jaas_line_is_read_as_java_reads_it(text: str, name: str, options: dict[str, str]) -> None:
    found = parse_jaas(text)
    assert (found.name, found.options) == (name, options)


@pytest.mark.parametrize(
    "text",
    [
        "",
        f"{SCRAM} required password={SECRET}",
        f'{SCRAM} required password="{SECRET};',
        f'{SCRAM} password="{SECRET}";',
        f'{SCRAM} required password "{SECRET}";',
        f"{SCRAM} required password==;",
        f"{SCRAM} required password=;",
        f'{SCRAM} required; {SCRAM} required password="{SECRET}";',
        f"{SCRAM} required password=@{SECRET};",
    ],
)
def test_a_jaas_line_that_java_refuses_is_refused_without_its_password(text: str) -> None:
    with pytest.raises(PropertiesWrong) as wrong:
        parse_jaas(text)
    assert "sasl.jaas.config" in str(wrong.value)
    assert SECRET not in str(wrong.value)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, {"security.protocol": "PLAINTEXT"}),
        (
            {**TLS, "ssl.truststore.type": "PEM", "ssl.truststore.location": "ca.crt"},
            {
                "security.protocol": "SSL",
                "ssl.endpoint.identification.algorithm": "https",
                "ssl.ca.location": "ca.crt",
            },
        ),
        (
            {
                **TLS,
                "ssl.truststore.type": "PEM",
                "ssl.truststore.certificates": "pem",
                "ssl.keystore.type": "PEM",
                "ssl.keystore.location": "alice.pem",
                "ssl.key.password": SECRET,
                "ssl.endpoint.identification.algorithm": "",
                "request.timeout.ms": "5",
                "ssl.enabled.protocols": "TLSv1.3",
            },
            {
                "security.protocol": "SSL",
                "ssl.endpoint.identification.algorithm": "none",
                "ssl.ca.pem": "pem",
                "ssl.certificate.location": "alice.pem",
                "ssl.key.location": "alice.pem",
                "ssl.key.password": SECRET,
            },
        ),
        (
            {
                **TLS,
                "ssl.keystore.type": "PEM",
                "ssl.keystore.certificate.chain": "c",
                "ssl.keystore.key": "k",
            },
            {
                "security.protocol": "SSL",
                "ssl.endpoint.identification.algorithm": "https",
                "ssl.certificate.pem": "c",
                "ssl.key.pem": "k",
            },
        ),
        (
            {**LOGIN, "security.protocol": "sasl_plaintext"},
            {
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "SCRAM-SHA-512",
                "sasl.username": "alice",
                "sasl.password": SECRET,
            },
        ),
        ({**LOGIN, "security.protocol": "PLAINTEXT"}, {"security.protocol": "PLAINTEXT"}),
    ],
)
def test_each_setting_reaches_librdkafka_by_its_own_name(
    settings: dict[str, str], expected: dict[str, Any]
) -> None:
    security = security_of(settings)
    assert security.librdkafka() == expected
    assert SECRET not in repr(security)


def test_the_options_of_a_token_are_jaas_or_settings() -> None:
    wanted = TokenSource(url="https://issuer/token", client_id="id", client_secret=SECRET, scope="kafka")
    common = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token.endpoint.url": wanted.url,
        "sasl.login.callback.handler.class": OAUTH.replace("Module", "CallbackHandler"),
    }
    by_jaas = f'{OAUTH} required clientId="id" clientSecret="{SECRET}" scope="kafka";'
    by_settings = {
        "sasl.oauthbearer.client.credentials.client.id": "id",
        "sasl.oauthbearer.client.credentials.client.secret": SECRET,
        "sasl.oauthbearer.scope": "kafka",
    }
    for more in ({"sasl.jaas.config": by_jaas}, {**by_settings, "sasl.jaas.config": f"{OAUTH} required ;"}):
        security = security_of({**common, **more})
        assert security.login == wanted
        assert SECRET not in repr(security)
        assert security.librdkafka()["sasl.mechanism"] == "OAUTHBEARER"


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"security.protocol": "TLS"}, "security.protocol"),
        ({**TLS, "ssl.truststore.location": "ca.jks"}, "ssl.truststore.type must be PEM"),
        (
            {**TLS, "ssl.keystore.location": "a.p12", "ssl.keystore.type": "PKCS12"},
            "ssl.keystore.type must be",
        ),
        (
            {**TLS, "ssl.keystore.type": "PEM", "ssl.keystore.certificate.chain": "c"},
            "needs ssl.keystore.key",
        ),
        ({**TLS, "ssl.engine.factory.class": "org.acme.Engine"}, "ssl.engine.factory.class"),
        ({**TLS, "ssl.endpoint.identification.algorithm": "LDAPS"}, "ssl.endpoint.identification"),
        ({**LOGIN, "sasl.mechanism": "GSSAPI"}, "sasl.mechanism"),
        ({"security.protocol": "SASL_SSL"}, "sasl.mechanism"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}, "sasl.jaas.config is missing"),
        ({**LOGIN, "sasl.mechanism": "PLAIN"}, "PLAIN needs PlainLoginModule"),
        ({**LOGIN, "sasl.jaas.config": f'{SCRAM} required password="{SECRET}";'}, "no username"),
        ({**LOGIN, "sasl.jaas.config": f'{SCRAM} required username="a" password="";'}, "no password"),
        (
            {**LOGIN, "sasl.jaas.config": f'{SCRAM} required username="a" password="b" tokenauth="true";'},
            "tokenauth",
        ),
        ({**LOGIN, "sasl.client.callback.handler.class": "org.acme.Handler"}, "sasl.client.callback"),
        ({**LOGIN, "sasl.login.callback.handler.class": "org.acme.Handler"}, "only for OAUTHBEARER"),
        (
            {**LOGIN, "sasl.mechanism": "OAUTHBEARER", "sasl.jaas.config": f"{OAUTH} required;"},
            "sasl.oauthbearer.token.endpoint.url must be",
        ),
        (
            {
                **LOGIN,
                "sasl.mechanism": "OAUTHBEARER",
                "sasl.jaas.config": f"{OAUTH} required;",
                "sasl.oauthbearer.token.endpoint.url": "https://issuer/token",
            },
            "clientId and clientSecret",
        ),
    ],
)
def test_what_decides_who_is_trusted_is_honoured_or_refused(settings: dict[str, str], reason: str) -> None:
    with pytest.raises(PropertiesWrong, match=reason) as wrong:
        security_of(settings)
    assert SECRET not in str(wrong.value)


def test_certificates_are_read_from_files_and_from_texts(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "tls")
    files = authority.client("alice")
    together = tmp_path / "alice.pem"
    together.write_text(files.key.read_text() + files.certificate.read_text())

    def read(**settings: str) -> ClientSecurity:
        path = tmp_path / "client.properties"
        lines = {"ssl.truststore.type": "PEM", "ssl.keystore.type": "PEM", **TLS, **settings}
        path.write_text("\n".join(f"{name}={value}" for name, value in lines.items()))
        return read_security(path)

    def escaped(path: Path) -> str:
        return path.read_text().replace("\n", "\\n")

    by_file = {"ssl.truststore.location": str(authority.ca), "ssl.keystore.location": str(together)}
    by_text = {
        "ssl.truststore.certificates": escaped(authority.ca),
        "ssl.keystore.certificate.chain": escaped(files.certificate),
        "ssl.keystore.key": escaped(files.key),
    }
    for settings in (by_file, by_text):
        context = read(**settings).context()
        assert context is not None
        assert len(context.get_ca_certs()) == 1
    with pytest.raises(PropertiesWrong, match="certificates cannot be used"):
        read(**{"ssl.truststore.location": str(tmp_path / "nowhere")})
    other = Authority(tmp_path / "other").client("bob")
    with pytest.raises(PropertiesWrong, match="certificates cannot be used"):
        read(**{**by_text, "ssl.keystore.key": escaped(other.key)})


def test_a_file_that_is_absent_or_too_large_is_named(tmp_path: Path) -> None:
    with pytest.raises(PropertiesWrong, match="nowhere: No such file"):
        read_security(tmp_path / "nowhere")
    large = tmp_path / "large"
    large.write_bytes(b"#" * (2 << 20))
    with pytest.raises(PropertiesWrong, match="large: more than"):
        read_security(large)


def test_without_a_file_nothing_is_encrypted() -> None:
    assert OPEN.context() is None
    assert OPEN.librdkafka() == {"security.protocol": "PLAINTEXT"}
    assert security_of({"bootstrap.servers": "kafka:9094"}).bootstrap == "kafka:9094"
    assert isinstance(security_of(LOGIN).login, PasswordLogin)
