"""A transaction whose id's record is lost hangs: nobody ends it, and readers of committed records stop there.

Laws: an operator aborts it with WriteTxnMarkers, and readers go on; a transaction that a coordinator has is refused.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema import write_txn_markers as schema

from e2e.harness.cluster import Cluster
from e2e.harness.raw import Raw
from e2e.harness.requests import ask
from e2e.harness.services import until
from e2e.harness.transactional import COMMITTED, CONFLUENT, producer, read, stable_end

pytestmark = pytest.mark.timeout(300)

TOPIC = "hangs"
VERSION = 2


@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    cluster = Cluster(
        data_dir=tmp_path_factory.mktemp("hanging"),
        env={"KAFSCALE_NUM_PARTITIONS": "1"},
    )
    cluster.start()
    yield cluster
    cluster.stop()


def abort(cluster: Cluster, producer_id: int, epoch: int) -> ErrorCode:
    """What `kafka-transactions abort` sends."""
    topics = [schema.WriteTxnMarkersRequestWritableMarkerTopic(TOPIC, [0])]
    marker = schema.WriteTxnMarkersRequestWritableMarker(
        producer_id=producer_id, producer_epoch=epoch, topics=topics, coordinator_epoch=0
    )
    with Raw.to(cluster.bootstrap) as raw:
        answer = ask(raw, schema, VERSION, schema.WriteTxnMarkersRequest([marker]))
    return ErrorCode(answer.markers[0].topics[0].partitions[0].error_code)


def test_an_operator_aborts_what_hangs_and_nothing_that_lives(cluster: Cluster) -> None:
    with producer(CONFLUENT, cluster.bootstrap, "lost") as writer:
        writer.write(TOPIC, 0, "undecided")
        (begun,) = cluster.inside().heads(TOPIC)[0].open
        refused = abort(cluster, begun.producer_id, begun.epoch)
        assert refused is ErrorCode.TRANSACTION_COORDINATOR_FENCED
        cluster.inside().forget_transactional_id("lost")
        cluster.kill_one("coordinator", 0)  # it had the record in memory
        with producer(CONFLUENT, cluster.bootstrap, "other") as other:
            (offset,) = other.write(TOPIC, 0, "committed")
            other.commit()
        assert stable_end(cluster.bootstrap, TOPIC) == begun.first == 0
        assert read(cluster.bootstrap, TOPIC, COMMITTED) == []
        until(
            "it is aborted",
            lambda: abort(cluster, begun.producer_id, begun.epoch) is ErrorCode.NONE,
        )
    until("readers go on", lambda: stable_end(cluster.bootstrap, TOPIC) > offset)
    assert read(cluster.bootstrap, TOPIC, COMMITTED) == [(offset, "committed")]
