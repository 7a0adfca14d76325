"""The front door's answers for a lost service, over all APIs and versions, beside Apache Kafka's error answers.

Law: no field of ours is null where Kafka's has a value. A Metadata answer always has a cluster id: Kafka never refuses
Metadata as a whole, and librdkafka's process ends at a null.
"""

from __future__ import annotations

import importlib
import pkgutil
from types import ModuleType
from typing import Final

import kafscale.wire.schema
import pytest
from kafscale.frontdoor.api import Api, Forward, ToSlot, ToSlots
from kafscale.frontdoor.apis import SERVED
from kafscale.testkit.requests import nulls, one_of_each
from kafscale.wire.apis import ApiKey
from kafscale.wire.errors import ErrorCode

from e2e.harness.kafka_tools import require_java
from e2e.harness.refusals import Refused, kafkas_refusals

CLUSTER_ID_FROM: Final = 2
CASES_MIN: Final = 200

pytestmark = pytest.mark.timeout(300)


def codecs() -> dict[int, ModuleType]:
    modules = pkgutil.iter_modules(kafscale.wire.schema.__path__)
    found = [importlib.import_module(f"kafscale.wire.schema.{each.name}") for each in modules]
    return {codec.API_KEY: codec for codec in found if hasattr(codec, "API_KEY")}


def codes(api: Api) -> set[ErrorCode]:
    """With which the answers of a lost service are written."""
    match api.dispatch:
        case Forward(unavailable=unavailable, unknown=unknown):
            return {unavailable, unknown}
        case ToSlot(codes=both) | ToSlots(codes=both):
            return {both.not_executed, both.unknown}
        case _:
            return {ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.REQUEST_TIMED_OUT}


def test_no_refusal_has_a_null_where_apache_kafka_has_a_value() -> None:
    require_java()
    modules = codecs()
    cases = [
        Refused(key, version, code, b"".join(map(bytes, codec.encode_request(one_of_each(codec), version))))
        for key, api in SERVED.items()
        for codec in [modules[key]]
        for version in range(api.versions[0], api.versions[1] + 1)
        for code in codes(api)
    ]
    compared = 0
    found: set[tuple[str, int, str]] = set()
    for case, kafkas in zip(cases, kafkas_refusals(cases), strict=True):
        codec = modules[case.key]
        body = memoryview(case.body)
        refusal = b"".join(map(bytes, SERVED[case.key].refuse(body, case.version, case.code)))
        ours = codec.decode_response(refusal, case.version)
        if case.key == ApiKey.METADATA and case.version >= CLUSTER_ID_FROM:
            assert ours.cluster_id is not None
        if kafkas is not None:
            compared += 1
            allowed = set(nulls(codec.decode_response(kafkas, case.version)))
            found |= {(codec.NAME, case.version, name) for name in set(nulls(ours)) - allowed}
    assert compared > CASES_MIN
    assert found == set()
