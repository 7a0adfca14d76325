"""Markers of transactions have the bytes that Apache Kafka writes: of random producers, epochs and outcomes."""

from __future__ import annotations

from random import Random

import pytest
from kafscale.wire.markers import Marker, end_marker

from e2e.harness.batch_verdicts import kafkas_answers
from e2e.harness.kafka_tools import require_java

pytestmark = pytest.mark.timeout(600)


def test_markers_have_the_bytes_of_apache_kafka() -> None:
    require_java()
    chance = Random(49)
    lines, ours = [], []
    for _ in range(500):
        commit, coordinator_epoch = chance.random() < 0.5, chance.choice((0, 1, chance.getrandbits(31)))
        producer_id, producer_epoch = chance.choice((0, chance.getrandbits(62))), chance.getrandbits(15)
        timestamp_ms = chance.getrandbits(42)
        lines.append(f"{commit:d} {coordinator_epoch} {producer_id} {producer_epoch} {timestamp_ms}\n")
        marker = Marker(commit, coordinator_epoch)
        batch = end_marker(
            marker, producer_id=producer_id, producer_epoch=producer_epoch, timestamp_ms=timestamp_ms
        )
        ours.append(batch.hex())
    assert kafkas_answers("Markers.java", lines) == ours
