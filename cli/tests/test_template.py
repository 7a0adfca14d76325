"""The format string of consume means what it means to kcat and rpk."""

from __future__ import annotations

import pytest
from kafscale.cli.records.template import TemplateWrong, compiled
from kafscale.client.json_lines import Record

RECORD = Record(
    topic="orders",
    partition=3,
    offset=42,
    timestamp_ms=1_769_846_400_123,
    key=b"k\xff",
    value=b"v",
    headers=(("a", b"1"), ("b", None)),
)
TOMBSTONE = Record(topic="t", partition=0, offset=0)


@pytest.mark.parametrize(
    ("template", "written"),
    [
        ("", b""),
        ("%t/%p@%o", b"orders/3@42"),
        ("%k=%v %s\n", b"k\xff=v v\n"),
        ("%K %V %S %H", b"2 1 1 2"),
        ("%h", b"a=1,b="),
        ("%T %d", b"1769846400123 1769846400123"),
        ("%T{iso}", b"2026-01-31T08:00:00.123+00:00"),
        ("%k{hex} %k{base64}", b"6bff a/8="),
        (r"100%% \t\n\r\\\x00\xfF", b"100% \t\n\r\\\x00\xff"),
        ("ü{%v}", "ü{v}".encode()),
    ],
)
def test_a_record_in_a_form(template: str, written: bytes) -> None:
    assert compiled(template)(RECORD) == written


def test_null_is_nothing_or_named_and_its_length_is_minus_one() -> None:
    assert compiled("%k|%v|%K %V|%T|%T{iso}|%h|%v{hex}")(TOMBSTONE) == b"||-1 -1|-1|||"
    assert compiled("%k|%v|%v{hex}", shows_null=True)(TOMBSTONE) == b"NULL|NULL|NULL"
    assert compiled("%v|%V", shows_null=True)(Record(value=b"")) == b"|0", "an empty value is no tombstone"


def test_a_time_outside_the_calendar_is_its_number() -> None:
    assert compiled("%T{iso}")(Record(timestamp_ms=1 << 62)) == str(1 << 62).encode()


@pytest.mark.parametrize("template", ["%", "%x", "a\\", r"\q", r"\x1", "%v{xml}", "%o{hex}", "%v{}"])
def test_what_is_no_format_is_refused(template: str) -> None:
    with pytest.raises(TemplateWrong):
        compiled(template)
