"""Names of certificates, character by character as OpenJDK 17 prints them, and bytes that are no certificate."""

from __future__ import annotations

import contextlib
import datetime

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.name import _ASN1Type
from cryptography.x509.oid import NameOID, ObjectIdentifier
from hypothesis import given
from hypothesis import strategies as st
from kafscale.access.distinguished_names import CertificateUnreadable, rfc2253_name, subject_name

KEY = ec.generate_private_key(ec.SECP256R1())
NOW = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
Attributes = list[tuple[ObjectIdentifier, str] | tuple[ObjectIdentifier, str, _ASN1Type]]


def certificate(*sets: Attributes) -> bytes:
    """DER, with a relative distinguished name for each list of attributes."""
    names = [x509.RelativeDistinguishedName(x509.NameAttribute(*one) for one in each) for each in sets]
    builder = (
        x509.CertificateBuilder()
        .subject_name(x509.Name(names))
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "issuer")]))
        .public_key(KEY.public_key())
        .serial_number(1)
        .not_valid_before(NOW)
        .not_valid_after(NOW + datetime.timedelta(days=1))
    )
    return builder.sign(KEY, hashes.SHA256()).public_bytes(serialization.Encoding.DER)


CN, O, OU = NameOID.COMMON_NAME, NameOID.ORGANIZATION_NAME, NameOID.ORGANIZATIONAL_UNIT_NAME  # noqa: E741


@pytest.mark.parametrize(
    ("sets", "java"),
    [
        ([], ""),
        (
            [
                [(NameOID.COUNTRY_NAME, "DE")],
                [(NameOID.STATE_OR_PROVINCE_NAME, "BY")],
                [(NameOID.LOCALITY_NAME, "Muc")],
                [(NameOID.STREET_ADDRESS, "S 1")],
                [(O, "Acme, Inc.")],
                [(OU, "a+b")],
                [(CN, "alice")],
            ],
            r"CN=alice,OU=a\+b,O=Acme\, Inc.,STREET=S 1,L=Muc,ST=BY,C=DE",
        ),
        ([[(CN, ' #a,=+<>#;"\\b ')]], r"CN=\ \#a\,\=\+\<\>\#\;\"\\b" + "\\ "),
        ([[(CN, "  ")]], "CN=\\ \\ "),
        ([[(CN, "#x")]], r"CN=\#x"),
        ([[(CN, "a\0b")]], r"CN=a\00b"),
        ([[(CN, "\ra\r")]], "CN=\\\ra\\\r"),
        ([[(CN, "Jürgen 日本")]], "CN=Jürgen 日本"),
        ([[(O, "o" * 64)], [(OU, "u" * 64)], [(CN, "c" * 64)]], f"CN={'c' * 64},OU={'u' * 64},O={'o' * 64}"),
        ([[(NameOID.EMAIL_ADDRESS, "a@b.c")], [(CN, "x")]], "CN=x,1.2.840.113549.1.9.1=#16056140622e63"),
        (
            [
                [(NameOID.DOMAIN_COMPONENT, "example")],
                [(NameOID.USER_ID, "u1")],
                [(NameOID.SERIAL_NUMBER, "42")],
                [(NameOID.TITLE, "Dr")],
            ],
            "2.5.4.12=#0c024472,2.5.4.5=#13023432,UID=u1,DC=example",
        ),
        ([[(ObjectIdentifier("2.999.300"), "own")]], "2.999.300=#0c036f776e"),
        ([[(CN, "a"), (NameOID.USER_ID, "b")], [(O, "o")]], "O=o,CN=a+UID=b"),
        ([[(CN, "AB", _ASN1Type.BMPString)]], r"CN=\00A\00B"),
        ([[(CN, "t61", _ASN1Type.T61String)]], "CN=t61"),
        ([[(CN, "123", _ASN1Type.NumericString)]], "CN=#1203313233"),
        ([[(CN, "U", _ASN1Type.UniversalString)]], "CN=#1c0400000055"),
    ],
)
def test_a_name_is_what_java_prints(sets: list[Attributes], java: str) -> None:
    assert subject_name(certificate(*sets)) == java


@given(st.binary(max_size=200))
def test_other_bytes_are_unreadable_and_nothing_else(data: bytes) -> None:
    for read in (subject_name, rfc2253_name):
        with contextlib.suppress(CertificateUnreadable):
            read(data)


@given(st.data())
def test_a_certificate_that_is_cut_is_unreadable(data: st.DataObject) -> None:
    with pytest.raises(CertificateUnreadable):
        subject_name(WHOLE[: data.draw(st.integers(0, len(WHOLE) - 1))])


WHOLE = certificate([(O, "o")], [(CN, "c" * 60)])


def test_an_indefinite_length_is_not_der() -> None:
    with pytest.raises(CertificateUnreadable, match="indefinite"):
        rfc2253_name(b"\x31\x80\x00\x00")
