"""The header with which a proxy names the client of a connection: PROXY protocol, versions 1 and 2. Pure.

Laws: the result does not depend on how the bytes were cut. Bytes that cannot become a header are refused at the first
byte that shows it or at the end of the line, and a header never takes more than `HEADER_BYTES_MAX`. Nothing after the
header is looked at. Source: HAProxy's proxy-protocol.txt, sections 2.1 and 2.2.
"""

from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from struct import Struct
from typing import Final

HEADER_BYTES_MAX: Final = 2_048
"""Of version 2, whose optional fields are skipped. Balancers send less than 600 bytes."""
LINE_BYTES_MAX: Final = 107
SIGNATURE: Final = b"\r\n\r\n\x00\r\nQUIT\n"
START: Final = b"PROXY "
END: Final = b"\r\n"
FIXED: Final = Struct(">12sBBH")
LOCAL: Final = 0x20
PROXY: Final = 0x21
UNSPECIFIED: Final = 0x00
TCP4: Final = 0x11
TCP6: Final = 0x21
PORTS: Final = Struct(">HH")
PORT_MAX: Final = 65_535


class ProxyHeaderWrong(ValueError):
    """The connection must be closed: it does not begin with a header."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxyHeader:
    """`source`: the client's address and port; None if the proxy speaks for itself, as in its health checks.
    `size`: the header's bytes."""

    source: tuple[str, int] | None
    size: int


def parse(data: bytes) -> ProxyHeader | None:
    """The header at the beginning of `data`; None if it is not whole yet. Raises ProxyHeaderWrong."""
    if data.startswith(SIGNATURE[:1]):
        return _binary(data)
    return _line(data)


def _line(data: bytes) -> ProxyHeader | None:
    if not START.startswith(data[: len(START)]):
        raise ProxyHeaderWrong("no PROXY protocol header")
    end = data.find(END, 0, LINE_BYTES_MAX)
    if end < 0:
        if len(data) >= LINE_BYTES_MAX:
            raise ProxyHeaderWrong(f"a header line of more than {LINE_BYTES_MAX} bytes")
        return None
    size = end + len(END)
    words = data[len(START) : end].split(b" ")
    if words[0] == b"UNKNOWN":
        return ProxyHeader(source=None, size=size)
    if len(words) != 5 or words[0] not in (b"TCP4", b"TCP6"):
        raise ProxyHeaderWrong("a header line that is not PROXY TCP4|TCP6 source destination port port")
    family = IPv4Address if words[0] == b"TCP4" else IPv6Address
    try:
        source, _ = (family(word.decode("ascii")) for word in words[1:3])
    except ValueError:
        raise ProxyHeaderWrong("a header line with a wrong address") from None
    port, _ = (_port(word) for word in words[3:])
    return ProxyHeader(source=(_text(source), port), size=size)


def _port(word: bytes) -> int:
    number = int(word) if word.isdigit() else -1
    if not 0 <= number <= PORT_MAX or word != str(number).encode():
        raise ProxyHeaderWrong("a header line with a wrong port")
    return number


def _binary(data: bytes) -> ProxyHeader | None:
    if not SIGNATURE.startswith(data[: len(SIGNATURE)]):
        raise ProxyHeaderWrong("no PROXY protocol header")
    if len(data) < FIXED.size:
        return None
    _, command, family, length = FIXED.unpack_from(data)
    size = FIXED.size + length
    if size > HEADER_BYTES_MAX:
        raise ProxyHeaderWrong(f"a header of {size} bytes; the most is {HEADER_BYTES_MAX}")
    if command not in (LOCAL, PROXY):
        raise ProxyHeaderWrong(f"version and command are {command:#x}")
    if len(data) < size:
        return None
    if command == LOCAL or family == UNSPECIFIED:
        return ProxyHeader(source=None, size=size)
    return ProxyHeader(source=_source(data[FIXED.size : size], family), size=size)


def _source(addresses: bytes, family: int) -> tuple[str, int]:
    if family not in (TCP4, TCP6):
        raise ProxyHeaderWrong(f"address family and protocol are {family:#x}, not TCP over IPv4 or IPv6")
    width = 4 if family == TCP4 else 16
    if len(addresses) < 2 * width + PORTS.size:
        raise ProxyHeaderWrong("a header without addresses")
    source = IPv4Address(addresses[:width]) if family == TCP4 else IPv6Address(addresses[:width])
    port, _ = PORTS.unpack_from(addresses, 2 * width)
    return _text(source), port


def _text(address: IPv4Address | IPv6Address) -> str:
    """As a socket for IPv4 shows it, also if the proxy listens on a socket for both families."""
    return str(getattr(address, "ipv4_mapped", None) or address)
