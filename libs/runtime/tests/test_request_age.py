"""A service computes how old a request is from what was left of its budget when it left the front door."""

from __future__ import annotations

import pytest
from kafscale.runtime.stream.age import AGE_MS_MAX, age_ms
from kafscale.runtime.stream.frame import RequestMeta
from kafscale.runtime.stream.inbound import InboundRequest


class NoSink:
    def answer(self, *_: object) -> None:
        raise AssertionError("nothing is answered")


@pytest.mark.parametrize(
    ("budget_ms", "waited_ms", "age"),
    [
        (AGE_MS_MAX, 0, 0),
        (AGE_MS_MAX - 300, 0, 300),
        (AGE_MS_MAX - 300, 50, 350),
        (1, 1, AGE_MS_MAX),
        (60_000, 20, 20),  # of a call without an age limit
        (0, 20, 20),
    ],
)
def test_the_age_is_what_the_request_has_used_of_its_budget_and_its_wait_here(
    budget_ms: int, waited_ms: int, age: int
) -> None:
    meta = RequestMeta(connection_id=1, api_key=26, api_version=4, age_budget_ms=budget_ms)
    request = InboundRequest(meta, memoryview(b""), arrived_ms=1_000, sink=NoSink())
    assert age_ms(request, 1_000 + waited_ms) == age


def test_a_request_that_is_too_old_to_take_effect_is_as_old_as_the_limit() -> None:
    meta = RequestMeta(connection_id=1, api_key=26, api_version=4, age_budget_ms=AGE_MS_MAX - 300)
    request = InboundRequest(meta, memoryview(b""), arrived_ms=0, sink=NoSink())
    for now_ms in (AGE_MS_MAX - 301, AGE_MS_MAX - 300):
        assert request.expired(now_ms) is (age_ms(request, now_ms) >= AGE_MS_MAX)
