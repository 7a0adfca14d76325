"""Signatures against botocore's, and a body's way to the socket."""

from datetime import UTC, datetime

import pytest
from botocore import auth, awsrequest, credentials  # type: ignore[import-untyped]
from hypothesis import given
from hypothesis import strategies as st
from kafscale.storage.objects.port import Buffer
from kafscale.storage.objects.s3_requests import (
    UNSIGNED,
    Credentials,
    ScatterBody,
    Signer,
    chunks,
    encoded_key,
    encoded_query,
)

HEADERS = {
    "if-none-match": "*",
    "x-amz-meta-kfs-epoch": "3",
    "range": "bytes=1-",
    "x-amz-meta-note": "two  spaces ",
}


@pytest.mark.parametrize("token", [None, "session-token"])
@pytest.mark.parametrize(
    "query",
    [(), (("prefix", "ns/a b\u00e9+"), ("list-type", "2"), ("continuation-token", "1/a+b=="), ("empty", ""))],
)
@pytest.mark.parametrize(
    "key", ["ns/orders/0/segment-1.kfs", "ns/@kafscale/manifest/x", "a b/\u00e9+=&~_-.!'()*"]
)
@pytest.mark.parametrize("method", ["GET", "PUT", "HEAD", "DELETE"])
def test_a_request_is_signed_as_botocore_signs_it(
    monkeypatch: pytest.MonkeyPatch,
    method: str,
    key: str,
    token: str | None,
    query: tuple[tuple[str, str], ...],
) -> None:
    now = datetime(2026, 11, 21, 12, 34, 56, tzinfo=UTC)
    monkeypatch.setattr(auth, "get_current_datetime", lambda remove_tzinfo=True: now.replace(tzinfo=None))
    path = f"/bucket/{encoded_key(key)}"
    request = awsrequest.AWSRequest(
        method=method,
        url=f"http://127.0.0.1:8333{path}?{encoded_query(query)}",
        headers={**HEADERS, "X-Amz-Content-SHA256": UNSIGNED},
    )
    request.context["client_config"] = None
    request.context["payload_signing_enabled"] = False
    signer = auth.S3SigV4Auth(credentials.Credentials("AK", "SK", token), "s3", "eu-west-1")
    monkeypatch.setattr(signer, "payload", lambda request: UNSIGNED)
    signer.add_auth(request)
    ours = Signer("eu-west-1").sign(
        method,
        host="127.0.0.1:8333",
        path=path,
        query=encoded_query(query),
        headers=HEADERS,
        payload_hash=UNSIGNED,
        credentials=Credentials("AK", "SK", token),
        now=now,
    )
    assert ours["authorization"] == request.headers["Authorization"]
    assert ours.get("x-amz-security-token") == token
    assert HEADERS.items() <= ours.items()


def test_the_signing_key_follows_the_day_and_the_secret() -> None:
    signer = Signer("r")

    def sign(day: int, secret: str) -> str:
        return signer.sign(
            "GET",
            host="h",
            path="/",
            headers={},
            payload_hash=UNSIGNED,
            credentials=Credentials("AK", secret),
            now=datetime(2026, 1, day, tzinfo=UTC),
        )["authorization"].rpartition("=")[2]

    first = sign(1, "a")
    assert sign(1, "a") == first
    assert sign(1, "b") != first
    assert sign(2, "a") != first
    assert sign(1, "a") == first


def test_the_secret_is_not_in_the_text_of_credentials() -> None:
    assert "hush" not in repr(Credentials("AK", "hush", "hush"))


@given(st.lists(st.one_of(st.integers(0, 20), st.integers(1 << 15, 1 << 17)), max_size=30))
def test_a_body_is_sent_whole_in_pieces_worth_a_system_call(sizes: list[int]) -> None:
    parts: list[Buffer] = [bytes([n]) * size for n, size in enumerate(sizes)]
    sent = list(chunks(parts))
    assert b"".join(sent) == b"".join(parts)
    assert ScatterBody(parts).size == sum(map(len, parts))
    assert all(sent)
    small = [chunk for chunk in sent if len(chunk) < 1 << 16]
    large = [part for part in parts if len(part) >= 1 << 16]
    assert len(small) <= len(large) + 1
    assert all(any(part is chunk for chunk in sent) for part in large)
