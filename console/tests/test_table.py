"""Laws of the table of routes."""

from __future__ import annotations

from kafscale.console.rights import Admits, Needs
from kafscale.console.table import ROUTES, served


def test_no_two_rows_are_the_same_route() -> None:
    keys = [(row.method, row.path) for row in ROUTES]
    assert len(keys) == len(set(keys))


def test_read_only_has_no_row_that_changes() -> None:
    assert not [row for row in served(read_only=True, direct=True) if row.changes]
    assert {row.path for row in served(read_only=False, direct=True)} == {row.path for row in ROUTES}


def test_a_get_changes_nothing_and_has_no_body() -> None:
    assert not [row.path for row in ROUTES if row.method == "GET" and (row.changes or row.body is not None)]


def test_only_the_login_is_for_anybody() -> None:
    anybody = {row.path for row in ROUTES if row.needs is Admits.ANYBODY}
    assert anybody == {"/me", "/login"}


def test_the_other_methods_change_but_for_logins_and_questions_with_a_body() -> None:
    questions = {
        "/login",
        "/sql",
        "/damage",
        "/acls/preview",
        "/groups/{group}/reset/preview",
        "/topics/{topic}/delete-records/preview",
    }
    assert {row.path for row in ROUTES if row.method != "GET" and not row.changes} == questions


def test_needs_name_a_parameter_of_the_path() -> None:
    for row in ROUTES:
        if isinstance(row.needs, Needs) and row.needs.parameter is not None:
            assert f"{{{row.needs.parameter}}}" in row.path


def test_without_stores_no_direct_row_exists() -> None:
    assert not [row for row in served(read_only=False, direct=False) if row.direct]


def test_each_direct_read_is_in_the_audit_log() -> None:
    reads_nothing = {"/sql/tables"}
    assert {row.path for row in ROUTES if row.direct and row.audit is None} == reads_nothing
    assert not [row.path for row in ROUTES if row.audit is not None and row.needs is Admits.ANYBODY]
