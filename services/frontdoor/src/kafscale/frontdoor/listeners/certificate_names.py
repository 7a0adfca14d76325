"""The name of a client certificate as Java prints it: `X500Principal.getName()`, RFC 2253.

ACLs and mapping rules that were made for Apache Kafka contain exactly this text. So it is Java's, also where RFC 4514
and `cryptography` differ: an attribute without a keyword has its value as `#` and the hexadecimal DER, and every `=`
and `#` in a value is escaped. `cryptography` is imported at the first certificate: it is megabytes, which a front door
without TLS does not need.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from cryptography import x509

_KEYWORDS: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.25": "DC",
    "0.9.2342.19200300.100.1.1": "UID",
}
"""RFC 2253, section 2.3."""
_ESCAPED: Final = frozenset(',=+<>#;"\\')
_SPACES: Final = " \r"


class CertificateUnreadable(ValueError):
    """These bytes are not the DER of a certificate."""


def subject_name(certificate: bytes) -> str:
    """`certificate`: DER. Empty for an empty subject. Raises CertificateUnreadable."""
    from cryptography import x509

    try:
        return java_name(x509.load_der_x509_certificate(certificate).subject)
    except ValueError as error:
        raise CertificateUnreadable(f"the certificate cannot be read: {error}") from error


def java_name(name: x509.Name) -> str:
    """The last attribute comes first, as in every text form of a name."""
    return ",".join("+".join(map(_attribute, rdn)) for rdn in reversed(name.rdns))


def _attribute(attribute: x509.NameAttribute[str | bytes]) -> str:
    oid = attribute.oid.dotted_string
    keyword = _KEYWORDS.get(oid)
    if keyword is None or isinstance(attribute.value, bytes):
        return f"{oid}=#{_der_value(attribute).hex()}"
    return f"{keyword}={_escaped(attribute.value)}"


def _escaped(value: str) -> str:
    escaped = [f"\\{each}" if each in _ESCAPED else "\\00" if each == "\0" else each for each in value]
    inner = value.strip(_SPACES)
    lead = len(value) - len(value.lstrip(_SPACES))
    for at in (*range(lead), *range(lead + len(inner), len(value))):
        escaped[at] = f"\\{value[at]}"
    return "".join(escaped)


def _der_value(attribute: x509.NameAttribute[str | bytes]) -> bytes:
    """The value as it is encoded, with its tag: what follows the OID in a name of this attribute alone."""
    from cryptography import x509

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
