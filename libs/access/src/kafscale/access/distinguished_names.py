"""The name of a certificate's subject in RFC 2253's form, exactly as Java's `X500Principal.getName()` writes it.

ACLs, super users and mapping rules that were made for Apache Kafka contain this form, so every character counts. The
last attribute of the certificate comes first. Attributes whose type has no keyword in RFC 2253 are written as
`OID=#hex`. Sources: RFC 2253; OpenJDK's AVA.toRFC2253String and X500Name.

Only certificates that OpenSSL has verified come here. Even so every length is checked, and whatever is not DER raises
CertificateUnreadable.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

_KEYWORDS: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
_SEQUENCE: Final = 0x30
_SET: Final = 0x31
_OID: Final = 0x06
_VERSION: Final = 0xA0
_TEXTS: Final = frozenset({0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1E})
"""UTF8String, PrintableString, T61String, IA5String, GeneralString, BMPString."""
_ESCAPED: Final = frozenset(',=+<>#;"\\')
_SPACE: Final = " \r"
_LONG_FORM: Final = 0x80
_BEFORE_SUBJECT: Final = 5
"""Fields of a certificate before its subject: version, serial number, signature algorithm, issuer, validity."""


class CertificateUnreadable(ValueError):
    """These bytes are not the DER of a certificate or of a name."""


def subject_name(certificate: bytes) -> str:
    """`certificate`: DER. Empty for an empty subject. Raises CertificateUnreadable."""
    (_, outer, _) = next(_elements(certificate, 0, len(certificate)), (0, 0, 0))
    (_, fields, end) = next(_elements(certificate, outer, len(certificate)), (0, 0, 0))
    at = 0
    for tag, begin, stop in _elements(certificate, fields, end):
        if at == 0 and tag != _VERSION:
            at += 1  # the certificate is of version 1 and does not say so
        if at == _BEFORE_SUBJECT:
            return rfc2253_name(certificate[begin:stop])
        at += 1
    raise CertificateUnreadable("a certificate without a subject")


def rfc2253_name(sets: bytes) -> str:
    """`sets`: the contents of the name's SEQUENCE, a SET for each relative distinguished name."""
    names = ["+".join(_attributes(sets, begin, end)) for _, begin, end in _elements(sets, 0, len(sets), _SET)]
    return ",".join(reversed(names))


def _attributes(data: bytes, begin: int, end: int) -> Iterator[str]:
    """Those of one relative distinguished name, in the order of the certificate."""
    for _, inner, stop in _elements(data, begin, end, _SEQUENCE):
        parts = list(_elements(data, inner, stop))
        if len(parts) != 2 or parts[0][0] != _OID:
            raise CertificateUnreadable("an attribute is not a type and a value")
        (_, oid_begin, oid_end), (tag, value_begin, value_end) = parts
        oid = _dotted(data[oid_begin:oid_end])
        keyword = _KEYWORDS.get(oid)
        if keyword is None or tag not in _TEXTS:
            yield f"{keyword or oid}=#{data[oid_end:value_end].hex()}"
        else:
            # Java reads all of them as UTF-8, a BMPString too.
            yield f"{keyword}={_escaped(data[value_begin:value_end].decode(errors='replace'))}"


def _escaped(text: str) -> str:
    body = "".join("\\" + one if one in _ESCAPED else "\\00" if one == "\0" else one for one in text)
    inner = body.lstrip(_SPACE)
    lead = len(body) - len(inner)
    inner = inner.rstrip(_SPACE)
    trail = body[lead + len(inner) :]
    return "".join("\\" + one for one in body[:lead]) + inner + "".join("\\" + one for one in trail)


def _dotted(oid: bytes) -> str:
    arcs: list[int] = []
    arc = 0
    for octet in oid:
        arc = arc << 7 | octet & 0x7F
        if octet < 0x80:
            arcs.append(arc)
            arc = 0
    if not arcs or oid[-1] >= 0x80:
        raise CertificateUnreadable("half an object identifier")
    first = min(arcs[0] // 40, 2)
    return ".".join(map(str, (first, arcs[0] - 40 * first, *arcs[1:])))


def _elements(data: bytes, at: int, end: int, expected: int | None = None) -> Iterator[tuple[int, int, int]]:
    """Tag, begin and end of the contents of each element from `at` to `end`."""
    while at < end:
        begin = at + 2
        length = data[begin - 1] if begin <= end else end
        if length > _LONG_FORM:
            begin += length & 0x7F
            length = int.from_bytes(data[at + 2 : begin])
        elif length == _LONG_FORM:
            raise CertificateUnreadable(f"an indefinite length at byte {at}, which DER does not have")
        if begin + length > end or data[at] & 0x1F == 0x1F or expected not in (None, data[at]):
            raise CertificateUnreadable(f"no element at byte {at}")
        yield data[at], begin, begin + length
        at = begin + length
