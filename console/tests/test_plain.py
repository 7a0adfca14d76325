"""R7: views of bytes. None hides them, and none changes a number."""

from __future__ import annotations

import json
from base64 import b64decode

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafscale.console.decode.plain import Format, all_views, dump_of, laid_out, view_of

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(VALUES, st.booleans(), st.sampled_from([None, 3]))
def test_json_is_laid_out_without_a_change_of_its_tokens(
    value: object, ascii_: bool, indent: int | None
) -> None:
    text = json.dumps(value, ensure_ascii=ascii_, indent=indent)
    shown = laid_out(text, 1 << 20)
    assert shown == json.dumps(value, ensure_ascii=ascii_, indent=2)


@pytest.mark.parametrize(
    "number", ["9007199254740993", "1.10", "-0.0", "1e400", "123456789012345678901234567890"]
)
def test_a_number_of_json_stays_exact(number: str) -> None:
    view = view_of(f'{{"n":{number}}}'.encode())
    assert (view["format"], view["text"]) == ("json", f'{{\n  "n": {number}\n}}')


@given(st.binary(max_size=40), st.sampled_from(Format))
def test_every_view_says_its_format_and_gives_all_bytes_or_the_reason(data: bytes, wanted: Format) -> None:
    view = view_of(data, wanted)
    assert view["bytes"] == len(data)
    match view["format"]:
        case "hex":
            assert bytes.fromhex(view["text"]) == data
            assert wanted is Format.HEX or view["reason"]
        case "base64":
            assert b64decode(view["text"]) == data
        case "text":
            assert view["text"].encode() == data
        case "number":
            assert int(view["text"]).to_bytes(len(data), "big", signed=True) == data
        case found:
            assert found in ("json", "double")


@pytest.mark.parametrize(
    ("data", "form", "text", "reason"),
    [
        (None, "null", "null", None),
        (b"", "text", "", None),
        ("Grüße".encode(), "text", "Grüße", None),
        (b"42", "text", "42", None),
        (b'{"a": NaN}', "text", '{"a": NaN}', None),
        (b"[" * 5_000 + b"]" * 5_000, "text", "[" * 5_000 + "]" * 5_000, None),
        ((42).to_bytes(8, "big"), "hex", "00 00 00 00 00 00 00 2a", "as a number it is 42"),
        (b"\xff\xfe\xfd", "hex", "ff fe fd", "no UTF-8 text from byte 0 on"),
        (b"a\x1b[2J", "hex", "61 1b 5b 32 4a", "control character 0x1b"),
    ],
)
def test_the_format_is_found_and_hex_has_a_reason(
    data: bytes | None, form: str, text: str, reason: str | None
) -> None:
    view = view_of(data)
    assert (view["format"], view["text"]) == (form, text)
    assert reason is None or reason in view["reason"]


def test_a_format_that_does_not_fit_is_hex_and_says_why() -> None:
    assert view_of(b"hello", Format.NUMBER) == {
        "format": "hex",
        "text": "68 65 6c 6c 6f",
        "bytes": 5,
        "reason": "no number: it has 5 bytes, and not 1, 2, 4 or 8",
    }


@pytest.mark.parametrize(
    "data", [b"x" * 101, b"\x00" * 101, b"[" + b"1," * 60 + b"1]", b"[" * 90 + b"]" * 90]
)
def test_a_long_value_is_cut_and_says_so(data: bytes) -> None:
    view = view_of(data, chars_max=100)
    assert (view["cut"], view["bytes"], len(view["text"])) == (True, len(data), 100)


def test_a_deep_value_costs_no_more_memory_than_is_shown() -> None:
    deep = "[" * 900 + "0," * 500_000 + "0" + "]" * 900
    assert len(laid_out(deep, 1_000)) < 1_200


def test_all_formats_that_fit_are_shown() -> None:
    assert [view["format"] for view in all_views(b"[1, 2, 3]", 100)] == ["json", "text", "hex", "base64"]
    assert [view["format"] for view in all_views((7).to_bytes(4, "big"), 100)] == [
        "text",
        "number",
        "double",
        "hex",
        "base64",
    ]


def test_a_dump_has_offsets_and_ends_at_its_bound() -> None:
    assert dump_of(b"0123456789abcdef\x00\xffz", 17).splitlines() == [
        "00000000  30 31 32 33 34 35 36 37 38 39 61 62 63 64 65 66  0123456789abcdef",
        "00000010  00 ff 7a" + " " * 39 + "  ..z",
    ]
