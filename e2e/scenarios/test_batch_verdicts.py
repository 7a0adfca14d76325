"""The check of produced batches against LogValidator of Apache Kafka, over some thousand random batches.

Laws: a batch that Kafka refuses is refused with Kafka's code, and the same records are named. Of a batch that both
accept, both store the same largest timestamp. KafScale is stricter on purpose where readers fail: `read_plain` says
where. What does not decompress is UNKNOWN_SERVER_ERROR in Kafka, and so are wrong offset deltas in compressed batches
(its message fails); both are INVALID_RECORD here."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from random import Random

import lz4.frame  # type: ignore[import-untyped]
import pytest
from kafscale.produce.log.contents import opened
from kafscale.produce.log.intake import check_record_set
from kafscale.produce.log.model import Limits, Rejection
from kafscale.testkit.plain_records import plain_batch, plain_record, read_plain, varint
from kafscale.wire.errors import ErrorCode

from e2e.harness.batch_verdicts import CODECS, NOW_MS, Case, Verdict, drawn_case, kafkas_verdicts
from e2e.harness.kafka_tools import require_java

BATCHES = int(os.environ.get("BATCHES", "6000"))
SEED = int(os.environ.get("SEED", "46"))
REFUSED = int(ErrorCode.INVALID_RECORD)
UNTIMELY = int(ErrorCode.INVALID_TIMESTAMP)
FAILED = int(ErrorCode.UNKNOWN_SERVER_ERROR)

pytestmark = pytest.mark.timeout(600)


def ours(case: Case) -> Verdict:
    limits = Limits(
        keys_required=case.compacted,
        log_append_time=case.append_time,
        past_max_ms=case.past_max_ms,
        future_max_ms=case.future_max_ms,
    )
    batches = check_record_set(memoryview(case.batch), limits, zstd_allowed=True)
    if isinstance(batches, Rejection):
        return Verdict(int(batches.error), -1, [])
    found = opened(batches, limits, NOW_MS)
    if found.rejection is not None:
        return Verdict(int(found.rejection.error), -1, [fault.record for fault in found.rejection.faults])
    return Verdict(0, NOW_MS if case.append_time else found.batches[0].newest_ms, [])


def expected(case: Case, kafka: Verdict) -> Verdict:
    if kafka.code == FAILED or case.body is None:
        return Verdict(REFUSED, -1, [])
    if read_plain(case.body, case.count, case.base_ms) is None:
        return Verdict(REFUSED, -1, [])
    return kafka


def test_random_batches_get_the_verdicts_of_apache_kafka() -> None:
    require_java()
    chance = Random(SEED)
    cases = [drawn_case(chance) for _ in range(BATCHES)]
    seen = Counter[int]()
    for case, kafka in zip(cases, kafkas_verdicts(cases), strict=True):
        found, wanted = ours(case), expected(case, kafka)
        assert (found.code, found.newest_ms) == (wanted.code, wanted.newest_ms), case
        if wanted.named:
            assert found.named == wanted.named, case
        seen[kafka.code] += 1
    for code in (0, REFUSED, UNTIMELY, FAILED):
        assert seen[code] > BATCHES / 25, seen


BODY = b"".join(map(plain_record, range(3)))


def batch(body: bytes = BODY, count: int = 3, **header: int) -> Case:
    data = plain_batch(body, count, base_ms=header.pop("base_ms", NOW_MS), **header)  # type: ignore[arg-type]
    return Case(batch=data, body=body, count=count)


def compressed(codec: int, body: bytes = BODY) -> Case:
    return batch(CODECS[codec](body), attributes=codec)


def lz4_of(*, linked: bool) -> Case:
    """Of several blocks."""
    body = plain_record(0, value=Random(1).randbytes(200_000))
    return replace(batch(lz4.frame.compress(body, block_linked=linked), 1, attributes=3), body=body)


KNOWN: Mapping[str, tuple[Case, int, int]] = {
    "sound": (batch(), 0, 0),
    "records behind the count": (batch(count=2), REFUSED, REFUSED),
    "a record is missing": (batch(count=4), REFUSED, REFUSED),
    "bytes behind the records": (batch(BODY + b"zz"), REFUSED, REFUSED),
    "nothing in gzip": (compressed(1, b""), REFUSED, REFUSED),
    "bytes behind in gzip": (compressed(1, BODY + b"zz"), REFUSED, REFUSED),
    "two members of gzip": (batch(CODECS[1](BODY[:9]) + CODECS[1](BODY[9:]), attributes=1), 0, 0),
    "two frames of zstd": (batch(CODECS[4](BODY[:9]) + CODECS[4](BODY[9:]), attributes=4), 0, 0),
    "two frames of lz4": (batch(CODECS[3](BODY[:9]) + CODECS[3](BODY[9:]), attributes=3), REFUSED, REFUSED),
    "linked blocks of lz4": (lz4_of(linked=True), FAILED, REFUSED),
    "other blocks of lz4": (lz4_of(linked=False), 0, 0),
    "no lz4": (batch(b"garbage", attributes=3), FAILED, REFUSED),
    "offset deltas in gzip": (compressed(1, plain_record(0) * 3), FAILED, REFUSED),
    "count and last offset": (batch(last_delta=7), REFUSED, REFUSED),
    "no records": (batch(b"", 0), REFUSED, REFUSED),
    "base offset": (batch(base_offset=5), REFUSED, REFUSED),
    "control": (batch(attributes=0x20), REFUSED, REFUSED),
    "wrong times in the header": (batch(max_ms=-5), 0, 0),
    "before 1970": (batch(base_ms=-5), 0, 0),
    "a time beyond 64 bits": (
        batch(plain_record(0, time_ms=5), 1, base_ms=(1 << 63) - 1),
        UNTIMELY,
        UNTIMELY,
    ),
    # where KafScale is stricter
    "offset deltas": (batch(plain_record(0) * 3), 0, REFUSED),
    "a null of -2": (batch(varint(7) + b"\x00\x00\x00\x03\x02v\x00", 1), 0, REFUSED),
    "delete horizon": (batch(attributes=0x40), 0, REFUSED),
    "log append time": (batch(attributes=0x08), 0, UNTIMELY),
    "transactional": (batch(attributes=0x10), 0, int(ErrorCode.INVALID_REQUEST)),
    "codec 5": (batch(attributes=5), FAILED, int(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)),
}
"""The case, Kafka's code and ours."""


def test_known_batches_get_the_codes_that_are_written_here() -> None:
    require_java()
    verdicts = kafkas_verdicts([case for case, _, _ in KNOWN.values()])
    kafka = {name: verdict.code for name, verdict in zip(KNOWN, verdicts, strict=True)}
    assert kafka == {name: code for name, (_, code, _) in KNOWN.items()}
    assert {name: ours(case).code for name, (case, _, _) in KNOWN.items()} == {
        name: code for name, (_, _, code) in KNOWN.items()
    }


def test_records_of_a_compacted_topic_are_named_like_kafka_names_them() -> None:
    require_java()
    records = [
        plain_record(0),
        plain_record(1, None),
        plain_record(2, None, time_ms=1 << 40),
        plain_record(3),
    ]
    case = replace(batch(b"".join(records), 4), compacted=True)
    (kafka,) = kafkas_verdicts([case])
    assert ours(case) == kafka
    assert list(kafka.named) == [1, 2]
