"""The throttle time is written into the answer of every API, whatever else it says."""

from __future__ import annotations

from typing import Any

import pytest
from kafscale.frontdoor.apis import DEFERRED, REFUSED, SERVED, NotServed
from kafscale.frontdoor.quotas.metering import FIELD, throttle_time_of, with_throttle_time
from kafscale.wire.schema import fetch, module_of, produce

VERSIONS = [
    (key, version) for key, api in SERVED.items() for version in range(api.versions[0], api.versions[1] + 1)
]


def joined(buffers: Any) -> bytes:
    return b"".join(map(bytes, buffers))


def answer_of(key: int, throttle_ms: int = 0) -> Any:
    """An empty one."""
    codec = module_of(key)
    response = getattr(codec, f"{codec.NAME}Response")
    return response(throttle_time_ms=throttle_ms) if FIELD in response.__struct_fields__ else response()


@pytest.mark.parametrize(("key", "version"), VERSIONS)
def test_an_answer_says_the_throttle_time_if_its_version_can(key: int, version: int) -> None:
    codec = module_of(key)
    before = joined(codec.encode_response(answer_of(key), version))
    wanted = joined(codec.encode_response(answer_of(key, 1_234), version))
    assert joined(with_throttle_time(key, version, [before], 1_234)) == wanted
    assert joined(with_throttle_time(key, version, [before[:2], before[2:]], 1_234)) == wanted
    has_field = FIELD in type(answer_of(key)).__struct_fields__
    assert not has_field or (wanted == before) is (
        codec.decode_response(wanted, version).throttle_time_ms == 0
    )


def test_a_longer_time_of_the_service_stays() -> None:
    body = fetch.encode_response(fetch.FetchResponse(throttle_time_ms=500), 12)
    assert throttle_time_of(1, 12, body) == 500
    assert joined(with_throttle_time(1, 12, body, 400)) == joined(body)
    assert fetch.decode_response(joined(with_throttle_time(1, 12, body, 600)), 12).throttle_time_ms == 600
    answer = produce.encode_response(produce.ProduceResponse(throttle_time_ms=500), 9)
    assert joined(with_throttle_time(0, 9, answer, 400)) == joined(answer)
    assert produce.decode_response(joined(with_throttle_time(0, 9, answer, 600)), 9).throttle_time_ms == 600


@pytest.mark.parametrize("api", [*DEFERRED, *REFUSED], ids=lambda api: api.name)
def test_the_refusal_of_an_api_that_is_not_served_stays(api: NotServed) -> None:
    assert joined(with_throttle_time(int(api.key), api.versions[1], [bytes(6)], 7)) == bytes(6)


def test_records_are_not_copied() -> None:
    records = bytearray(b"records of a segment")
    head = joined(fetch.encode_response(fetch.FetchResponse(), 12))
    changed = with_throttle_time(1, 12, [head, memoryview(records)], 7)
    records[:] = b"RECORDS OF A SEGMENT"
    assert joined(changed).endswith(b"RECORDS OF A SEGMENT")


@pytest.mark.parametrize("body", [b"", b"\x00", b"\x00\x23\x00\x00\x00\x00"])
def test_an_answer_that_cannot_be_read_stays(body: bytes) -> None:
    """ApiVersions in a version that is not served is answered in version 0."""
    assert joined(with_throttle_time(18, 99, [body], 5)) == body
    assert joined(with_throttle_time(0, 9, [body], 5)) == body
