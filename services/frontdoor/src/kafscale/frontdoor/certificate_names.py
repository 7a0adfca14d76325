"""The name of a client certificate as Java prints it: `X500Principal.getName()`, RFC 2253.

ACLs and mapping rules that were made for Apache Kafka contain exactly this text. So it is Java's, also where RFC 4514
and `cryptography` differ: an attribute without a keyword has its value as `#` and the hexadecimal DER, and every `=`
and `#` in a value is escaped.
"""

from __future__ import annotations

from typing import Final

from cryptography import x509
from cryptography.x509.oid import NameOID, ObjectIdentifier

_KEYWORDS: Final = {
    NameOID.COMMON_NAME: "CN",
    NameOID.COUNTRY_NAME: "C",
    NameOID.LOCALITY_NAME: "L",
    NameOID.STATE_OR_PROVINCE_NAME: "ST",
    NameOID.STREET_ADDRESS: "STREET",
    NameOID.ORGANIZATION_NAME: "O",
    NameOID.ORGANIZATIONAL_UNIT_NAME: "OU",
    NameOID.DOMAIN_COMPONENT: "DC",
    NameOID.USER_ID: "UID",
}
_ESCAPED: Final = frozenset(',=+<>#;"\\')
_SPACES: Final = " \r"


class CertificateUnreadable(ValueError):
    """These bytes are not the DER of a certificate."""


def subject_name(certificate: bytes) -> str:
    """`certificate`: DER. Empty for an empty subject. Raises CertificateUnreadable."""
    try:
        return java_name(x509.load_der_x509_certificate(certificate).subject)
    except ValueError as error:
        raise CertificateUnreadable(f"the certificate cannot be read: {error}") from error


def java_name(name: x509.Name) -> str:
    """The last attribute comes first, as in every text form of a name."""
    return ",".join("+".join(map(_attribute, rdn)) for rdn in reversed(name.rdns))


def _attribute(attribute: x509.NameAttribute[str | bytes]) -> str:
    keyword = _KEYWORDS.get(attribute.oid)
    if keyword is None or isinstance(attribute.value, bytes):
        return f"{_dotted(attribute.oid)}=#{_der_value(attribute).hex()}"
    return f"{keyword}={_escaped(attribute.value)}"


def _dotted(oid: ObjectIdentifier) -> str:
    return oid.dotted_string


def _escaped(value: str) -> str:
    escaped = [f"\\{each}" if each in _ESCAPED else "\\00" if each == "\0" else each for each in value]
    inner = value.strip(_SPACES)
    lead = len(value) - len(value.lstrip(_SPACES))
    for at in (*range(lead), *range(lead + len(inner), len(value))):
        escaped[at] = f"\\{value[at]}"
    return "".join(escaped)


def _der_value(attribute: x509.NameAttribute[str | bytes]) -> bytes:
    """The value as it is encoded, with its tag: what follows the OID in a name of this attribute alone."""
    data = x509.Name([attribute]).public_bytes()
    for _ in ("the name", "its only set", "its only attribute"):
        data = _content(data)[0]
    return _content(data)[1]


def _content(data: bytes) -> tuple[bytes, bytes]:
    """Of the first DER element: its content, and what follows it."""
    length, begin = data[1], 2
    if length & 0x80:
        begin += length & 0x7F
        length = int.from_bytes(data[2:begin])
    return data[begin : begin + length], data[begin + length :]
