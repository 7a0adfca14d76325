"""Secrets stay out of log lines, wherever in them they stand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafscale.runtime.redaction import HIDDEN, redact, redact_field, redact_text

SECRET = "hunter2+/x"


@pytest.mark.parametrize(
    "text",
    [
        f"http://kafscale:{SECRET.replace('/', '%2F')}@etcd:2379 does not answer",
        "redis://:hunter2+x@cache:6379/0",
        "amqp://user:p@hunter2+x@host/1",
        f"KAFSCALE_S3_SECRET_ACCESS_KEY={SECRET}",
        f"settings: {{'etcd_password': '{SECRET}', 'etcd_user': 'me'}}",
        f'{{"password": "{SECRET} and more"}}',
        f"GET /bucket?X-Amz-Signature={SECRET}&X-Amz-Date=1",
        f"X-Amz-Security-Token: {SECRET}",
        f"Authorization: Bearer {SECRET}",
        f"Authorization: AWS4-HMAC-SHA256 Credential={SECRET}, SignedHeaders=host, Signature={SECRET}",
    ],
)
def test_a_text_loses_its_secrets(text: str) -> None:
    shown = redact_text(text)
    assert "hunter2" not in shown
    assert HIDDEN in shown


@pytest.mark.parametrize(
    "text",
    [
        "PUT outcome unknown",
        "http://127.0.0.1:2379 does not answer",
        "segment default/t/0/segment-00000000000000000000.kfs is lost: etag a@b",
        "KAFSCALE_ETCD_USER and KAFSCALE_ETCD_PASSWORD are given together or not at all",
    ],
)
def test_a_text_without_secrets_stays_as_it_is(text: str) -> None:
    assert redact_text(text) == text


def test_a_field_is_judged_by_its_name_and_nested_ones_too() -> None:
    assert redact_field("s3_secret_access_key", SECRET) == HIDDEN
    assert redact_field("client_id", "me") == "me"
    assert redact_field("settings", {"etcd_password": SECRET, "endpoints": [f"http://u:{SECRET}@h"]}) == {
        "etcd_password": HIDDEN,
        "endpoints": [f"http://u:{SECRET}@h"[:7] + f"{HIDDEN}@h"]
        if "/" not in SECRET
        else [redact_text(f"http://u:{SECRET}@h")],
    }
    assert (
        redact_field("error", OSError(f"cannot reach redis://:p{HIDDEN}@h"))
        == f"cannot reach redis://{HIDDEN}@h"
    )
    assert redact_field("password_given", True) is True


nested = st.recursive(
    st.just(SECRET),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
)


@given(nested)
def test_a_secret_is_hidden_however_deep_it_is_nested(value: object) -> None:
    assert SECRET not in str(redact({"password": value}))


@given(st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False))
def test_numbers_stay_numbers(value: object) -> None:
    assert redact(value) == value
