"""What a person writes becomes exactly these bytes, or is refused with a sentence."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafscale.console.answers import Problem
from kafscale.console.api.produce import HEADERS_MAX, GivenHeader, GivenRecord, record_of
from kafscale.console.decode.plain import Format, view_of
from kafscale.console.routes import decoded


def given_record(form: str, text: str) -> GivenRecord:
    body = decoded(b'{"key": null, "value": {"format": "%b", "text": ""}}' % form.encode(), GivenRecord)
    assert isinstance(body, GivenRecord)
    assert body.value is not None
    body.value.text = text
    return body


@given(st.binary(max_size=20), st.sampled_from([Format.TEXT, Format.NUMBER, Format.HEX, Format.BASE64]))
def test_a_view_of_bytes_that_is_sent_again_is_the_same_bytes(data: bytes, form: Format) -> None:
    view = view_of(data, form)
    if view["format"] == "number" and len(data) != 8:
        return  # of a shorter serializer; the page sends it again as base64
    assert record_of(given_record(view["format"], view["text"])).value == data


def test_json_is_sent_as_it_was_written() -> None:
    text = ' {"n": 9007199254740993.10,\n "n": 1e400} '
    assert record_of(given_record("json", text)).value == text.encode()


@pytest.mark.parametrize(
    ("form", "text", "sentence"),
    [
        ("json", "{", "the value is not json"),
        ("json", "[NaN]", "NaN is no number"),
        ("json", "[" * 100_000, "the value is not json: too many levels"),
        ("text", "\ud800", "the value is not text"),
        ("number", "9223372036854775808", "does not fit into 64 bits"),
        ("number", "1.5", "the value is not number"),
        ("hex", "0g", "the value is not hex"),
        ("base64", "A", "the value is not base64"),
    ],
)
def test_what_is_not_of_its_format_is_refused(form: str, text: str, sentence: str) -> None:
    with pytest.raises(Problem, match=sentence) as refused:
        record_of(given_record(form, text))
    assert refused.value.status == 400


def test_the_bounds_of_a_record() -> None:
    with pytest.raises(Problem, match="partition is a whole number"):
        record_of(GivenRecord(key=None, value=None, partition=-1))
    many = [GivenHeader(name="a", value=None)] * (HEADERS_MAX + 1)
    with pytest.raises(Problem, match="256 headers at most"):
        record_of(GivenRecord(key=None, value=None, headers=many))
    assert record_of(GivenRecord(key=None, value=None, headers=many[:2])).headers == (("a", None),) * 2


def test_a_mistyped_field_is_refused() -> None:
    """Without this a `valeu` would write a tombstone."""
    with pytest.raises(Problem, match="valeu"):
        decoded(b'{"key": null, "value": null, "valeu": null}', GivenRecord)
    with pytest.raises(Problem, match="value"):
        decoded(b'{"key": null}', GivenRecord)
