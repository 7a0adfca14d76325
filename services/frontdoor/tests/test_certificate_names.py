"""The names of client certificates are those that Java prints: the table is the output of X500Principal.getName()."""

from __future__ import annotations

import subprocess
import sys

import pytest
from cryptography import x509
from kafscale.frontdoor.listeners.certificate_names import java_name

PRINTED_BY_JAVA = (
    ("300c310a3008060355042a0c0128", "2.5.4.42=#0c0128"),
    ("300c310a300806035504090c0162", "STREET=b"),
    ("300c310a300806035504030c013d", "CN=\\="),
    ("300c310a300806035504070c015c", "L=\\\\"),
    ("300c310a300806035504080c012c", "ST=\\,"),
    ("300c310a3008060355040b0c0120", "OU=\\ "),
    ("300c310a3008060355040a0c0100", "O=\\00"),
    ("300d310b300906035504030c02237c", "CN=\\#|"),
    ("300d310b300906035504030c02225e", 'CN=\\"^'),
    ("300d310b300906042a0304050c0139", "1.2.3.4.5=#0c0139"),
    ("300d310b300906035504090c02c3a4", "STREET=ä"),
    ("300d310b300906035504030c022e3e", "CN=.\\>"),
    ("300e310c300a06035504080c03292b21", "ST=)\\+!"),
    ("300e310c300a06035504030c03206220", "CN=\\ b\\ "),
    ("300f310d300b06035504070c0430395c3c", "L=09\\\\\\<"),
    ("300f310d300b06035504080c043b5d273a", "ST=\\;]':"),
    ("300f310d300b06035504080c0422e6bca2", 'ST=\\"漢'),
    ("3011310f300d06035504090c06f09f98805e3d", "STREET=😀^\\="),
    ("30123110300e06092a864886f70d01090116015f", "1.2.840.113549.1.9.1=#16015f"),
    ("30133111300f060a0992268993f22c6401010c017d", "UID=}"),
    ("30133111300f060a0992268993f22c64011916015d", "DC=]"),
    (
        "302e310d300b060355040a130441636d65310d300b060355040b1304612c2062310e300c06035504031305616c696365",
        "CN=alice,OU=a\\, b,O=Acme",
    ),
    (
        "3029310a3008060355040a130163311b30080603550403130161300f060a0992268993f22c640101130162",
        "CN=a+UID=b,O=c",
    ),
)
"""DER and text. With Java 17; some 3,000 random names were compared when this was written."""


@pytest.mark.parametrize(("der", "text"), PRINTED_BY_JAVA)
def test_a_name_is_printed_as_java_does(der: str, text: str) -> None:
    assert java_name(x509.Name.from_bytes(bytes.fromhex(der))) == text


def test_a_front_door_without_tls_and_logins_does_not_import_the_libraries_for_them() -> None:
    """They are megabytes in each of its processes."""
    code = (
        "import sys, kafscale.frontdoor.__main__, kafscale.frontdoor.worker\n"
        "from kafscale.frontdoor.settings import FrontdoorSettings\n"
        "from kafscale.frontdoor.listeners.tls_contexts import open_all\n"
        "assert open_all(FrontdoorSettings().securities().values()) == {}\n"
        "print(*sorted({'cryptography', 'jwt'} & {*sys.modules}))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "\n"
