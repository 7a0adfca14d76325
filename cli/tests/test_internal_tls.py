"""The certificates of `kafscale up`."""

from __future__ import annotations

import datetime
import ssl
from pathlib import Path

from cryptography import x509
from kafscale.cli.internal_tls import EphemeralAuthority, environment
from kafscale.operations.services import ROLES
from kafscale.runtime.grpc_identity import GrpcIdentity, PemFiles

NOW = datetime.datetime(2026, 11, 25, tzinfo=datetime.UTC)


def shaken_hands(server: PemFiles, client: PemFiles, name: str) -> bool:
    """TLS in memory, with both certificates checked. Raises SSLError."""
    theirs, ours = (ssl.SSLContext(each) for each in (ssl.PROTOCOL_TLS_SERVER, ssl.PROTOCOL_TLS_CLIENT))
    for context, files in ((theirs, server), (ours, client)):
        context.load_cert_chain(files.certificate, files.key)
        context.load_verify_locations(files.ca)
        context.verify_mode = ssl.CERT_REQUIRED
    a_in, a_out, b_in, b_out = (ssl.MemoryBIO() for _ in range(4))
    ends = [
        (ours.wrap_bio(a_in, a_out, server_hostname=name), a_out, b_in),
        (theirs.wrap_bio(b_in, b_out, server_side=True), b_out, a_in),
    ]
    done = [False, False]
    for _ in range(6):
        for number, (end, out, other) in enumerate(ends):
            try:
                end.do_handshake()
                done[number] = True
            except ssl.SSLWantReadError:
                done[number] = False
            other.write(out.read())
    return all(done)


def test_processes_of_one_start_know_each_other(tmp_path: Path) -> None:
    authority = EphemeralAuthority(tmp_path, datetime.datetime.now(datetime.UTC))
    issued = {role: authority.issue(role) for role in ROLES}
    for role, files in issued.items():
        GrpcIdentity(files)
        assert shaken_hands(files, issued["frontdoor"], f"{role}.kafscale.internal")


def test_nobody_else_can_read_the_keys_and_no_key_of_the_ca_is_there(tmp_path: Path) -> None:
    authority = EphemeralAuthority(tmp_path / "tls", NOW)
    first = authority.issue("produce")
    old = first.key.read_bytes()
    EphemeralAuthority(tmp_path / "tls", NOW).issue("produce")
    assert first.key.read_bytes() != old, "the next start has keys of its own"
    assert {path.name for path in (tmp_path / "tls").iterdir()} == {"ca.pem", "produce.pem", "produce.key"}
    assert {path.stat().st_mode & 0o077 for path in (tmp_path / "tls").iterdir()} == {0}
    assert (tmp_path / "tls").stat().st_mode & 0o077 == 0


def test_a_certificate_is_good_for_as_long_as_a_start_may_run(tmp_path: Path) -> None:
    files = EphemeralAuthority(tmp_path, NOW).issue("admin")
    certificate = x509.load_pem_x509_certificate(files.certificate.read_bytes())
    assert certificate.not_valid_before_utc <= NOW - datetime.timedelta(minutes=30), "clocks differ a little"
    assert certificate.not_valid_after_utc >= NOW + datetime.timedelta(days=365 * 9)
    assert environment(files) == {
        "KAFSCALE_GRPC_CERTIFICATE": str(files.certificate),
        "KAFSCALE_GRPC_KEY": str(files.key),
        "KAFSCALE_GRPC_CA": str(tmp_path / "ca.pem"),
    }


def test_a_certificate_of_an_earlier_start_can_be_read_beside_the_ca_of_this_one(tmp_path: Path) -> None:
    """All these CAs have one name."""
    old, new = (EphemeralAuthority(tmp_path / each, NOW).issue("produce") for each in ("old", "new"))
    mixed = PemFiles(old.certificate, old.key, new.ca)
    assert mixed.read().ends_s == old.read().ends_s > NOW.timestamp()
