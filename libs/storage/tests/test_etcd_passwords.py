"""A password that changes while the process runs: the file first, then etcd, or the other way round."""

from __future__ import annotations

from pathlib import Path

import grpc
import pytest
from kafscale.storage.etcd.errors import EtcdRejected, EtcdUnknown, UnknownKind
from kafscale.storage.etcd.passwords import BYTES_MAX, Passwords, read_password
from kafscale.storage.etcd.transport import Access

REFUSED = EtcdRejected(
    grpc.StatusCode.INVALID_ARGUMENT, "etcdserver: authentication failed, invalid user ID", "a:1"
)


def test_the_files_password_is_tried_first_and_the_accepted_one_after_it(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("old\n")
    passwords = Passwords(file)
    assert passwords.to_try() == ("old",)
    passwords.accepted("old")
    assert passwords.to_try() == ("old",)
    file.write_text("new\n")
    assert passwords.to_try() == ("new", "old")
    passwords.accepted("new")
    assert passwords.to_try() == ("new",)
    file.unlink()
    assert passwords.to_try() == ("new",), "the file is being replaced"


def test_a_refusal_is_an_outage_only_for_a_client_that_was_logged_in_by_a_file(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("old")
    never, once, fixed = Passwords(file), Passwords(file), Passwords("old")
    once.accepted("old")
    fixed.accepted("old")
    assert never.all_refused(REFUSED) is REFUSED
    assert fixed.all_refused(REFUSED) is REFUSED
    waiting = once.all_refused(REFUSED)
    assert isinstance(waiting, EtcdUnknown)
    assert waiting.kind is UnknownKind.LOGIN
    assert str(file) in waiting.detail
    assert "old" not in str(waiting)


@pytest.mark.parametrize("content", [None, b"", b"\n", b"x" * (BYTES_MAX + 1), b"secret\xff"])
def test_a_file_without_a_password_is_a_sentence_without_its_content(
    content: bytes | None, tmp_path: Path
) -> None:
    file = tmp_path / "password"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(EtcdRejected, match=f"the password file {file}") as refused:
        Passwords(file).to_try()
    assert "secret" not in str(refused.value)


def test_spaces_belong_to_the_password_and_the_lines_end_does_not(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_bytes(b" a b \r\n")
    assert read_password(file) == " a b "


def test_no_repr_has_the_password() -> None:
    access = Access.parse(["a:1"], user="me", password="hush")
    passwords = Passwords("hush")
    passwords.accepted("hush")
    assert "hush" not in f"{access!r} {passwords!r}"
