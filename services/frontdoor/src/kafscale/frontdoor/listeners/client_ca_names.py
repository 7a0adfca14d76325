"""The names of CAs that a listener sends when it asks a client for a certificate.

Kafka sends the names of all CAs in its truststore. A client that has several certificates chooses one by these names.
Python's `ssl` has no function for it, so this module calls the OpenSSL library that Python itself has loaded. It needs
the address of OpenSSL's context, which is the first field of CPython's SSLContext. With a Python that it does not know,
or whose OpenSSL does not export the functions, no names are sent: then the client chooses without them.
"""

import _ssl
import ctypes
import ssl
import sys
from pathlib import Path
from typing import Final

KNOWN: Final = ((3, 11), (3, 14))
"""The oldest and the newest CPython whose SSLContext begins with the address."""


def send_names(context: ssl.SSLContext, ca: Path) -> bool:
    """Whether handshakes of the context name the CAs of this PEM file from now on. Blocks."""
    known = sys.implementation.name == "cpython" and KNOWN[0] <= sys.version_info[:2] <= KNOWN[1]
    path = getattr(_ssl, "__file__", None)  # None: it is part of the interpreter
    if not known or path is None:
        return False
    library = ctypes.CDLL(path)
    try:
        load, use = library.SSL_load_client_CA_file, library.SSL_CTX_set_client_CA_list
    except AttributeError:
        return False
    load.argtypes, load.restype = [ctypes.c_char_p], ctypes.c_void_p
    use.argtypes, use.restype = [ctypes.c_void_p, ctypes.c_void_p], None
    names = load(bytes(ca))
    if names:
        address = ctypes.c_void_p.from_address(id(context) + object.__basicsize__)
        use(address, names)  # which owns the names from now on
    return bool(names)
