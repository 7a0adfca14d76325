"""A transactional producer on a bare connection, whose every request can have wrong fields."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from kafscale.wire.errors import ErrorCode
from kafscale.wire.records import Record, build_batch
from kafscale.wire.schema import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    end_txn,
    init_producer_id,
    produce,
    txn_offset_commit,
)

from e2e.harness.raw import Raw
from e2e.harness.requests import TOPIC, ask
from e2e.harness.services import until

TIMEOUT_MS = 60_000
NONE = ErrorCode.NONE
RETRY = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.NOT_ENOUGH_REPLICAS,
}


def patiently(once: Callable[[], list[int]]) -> list[int]:
    """As a client does: again, while an error is one to retry on."""
    found: list[int] = []

    def is_final() -> bool:
        found[:] = once()
        return not RETRY & set(found)

    until("the answer is final", is_final)
    return found


@dataclass(slots=True)
class Producer:
    """The requests of a producer. `changes` are fields with other values, which the request alone has."""

    raw: Raw
    name: str
    producer_id: int = -1
    epoch: int = -1

    def _who(self, prefix: str = "", **changes: Any) -> dict[str, Any]:
        who = {
            "transactional_id": self.name,
            "producer_id": self.producer_id,
            "producer_epoch": self.epoch,
            **changes,
        }
        return {f"{prefix}{name}": value for name, value in who.items()}

    def init(self, version: int = 4, **changes: Any) -> int:
        said = {"transactional_id": self.name, "transaction_timeout_ms": TIMEOUT_MS, **changes}
        request = init_producer_id.InitProducerIdRequest(**said)
        return self._become(init_producer_id, version, request)

    def _become(self, api: ModuleType, version: int, request: Any) -> int:
        """An API whose answer may say who the producer is from now on."""

        def once() -> list[int]:
            answer = ask(self.raw, api, version, request)
            if answer.error_code == NONE and answer.producer_id >= 0:
                self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
            return [answer.error_code]

        return patiently(once)[0]

    def add(self, *places: tuple[str, int], version: int = 3, **changes: Any) -> list[int]:
        """The code of each place."""
        topics = [
            add_partitions_to_txn.AddPartitionsToTxnRequestTopic(name=topic, partitions=[index])
            for topic, index in places
        ]
        if version < 4:
            request = add_partitions_to_txn.AddPartitionsToTxnRequest(
                v3_and_below_topics=topics, **self._who("v3_and_below_", **changes)
            )
        else:
            one = add_partitions_to_txn.AddPartitionsToTxnRequestTransaction(
                topics=topics, **self._who(**changes)
            )
            request = add_partitions_to_txn.AddPartitionsToTxnRequest(transactions=[one])

        def once() -> list[int]:
            answer = ask(self.raw, add_partitions_to_txn, version, request)
            results = answer.results_by_topic_v3_and_below
            if version >= 4:
                assert answer.error_code == NONE
                ((results),) = (each.topic_results for each in answer.results_by_transaction)
            return [each.partition_error_code for topic in results for each in topic.results_by_partition]

        return patiently(once)

    def add_group(self, group: str, version: int = 3, **changes: Any) -> int:
        request = add_offsets_to_txn.AddOffsetsToTxnRequest(**self._who(group_id=group, **changes))
        return patiently(lambda: [ask(self.raw, add_offsets_to_txn, version, request).error_code])[0]

    def put(self, group: str, *places: tuple[str, int], version: int = 5, **changes: Any) -> list[int]:
        """TxnOffsetCommit: the code of each place."""
        metadata = changes.pop("committed_metadata", "")
        topics = [
            txn_offset_commit.TxnOffsetCommitRequestTopic(
                name=topic,
                partitions=[
                    txn_offset_commit.TxnOffsetCommitRequestPartition(
                        partition_index=index, committed_offset=5, committed_metadata=metadata
                    )
                ],
            )
            for topic, index in places
        ]
        request = txn_offset_commit.TxnOffsetCommitRequest(
            **self._who(group_id=group, topics=topics, **changes)
        )

        def once() -> list[int]:
            answer = ask(self.raw, txn_offset_commit, version, request)
            return [each.error_code for topic in answer.topics for each in topic.partitions]

        return patiently(once)

    def end(self, *, commit: bool = True, version: int = 5, **changes: Any) -> int:
        request = end_txn.EndTxnRequest(**self._who(committed=commit, **changes))
        return self._become(end_txn, version, request)

    def send(self, *batches: bytes, version: int = 12, part: int = 1, tid: str | None = "same") -> list[int]:
        """Each batch is of a separate entry of the request. Produce 12 adds the partition, 9 does not."""
        topics = [
            produce.ProduceRequestTopic(
                name=TOPIC, partition_data=[produce.ProduceRequestPartition(index=part, records=each)]
            )
            for each in batches
        ]
        request = produce.ProduceRequest(
            transactional_id=self.name if tid == "same" else tid,
            acks=-1,
            timeout_ms=30_000,
            topic_data=topics,
        )

        def once() -> list[int]:
            answer = ask(self.raw, produce, version, request)
            return [each.error_code for topic in answer.responses for each in topic.partition_responses]

        return patiently(once)

    def write(self, part: int = 1) -> None:
        """The first record of a transaction."""
        assert self.send(self.records(), part=part) == [NONE]

    def records(self, sequence: int = 0, **changes: Any) -> bytes:
        said = {
            "producer_id": self.producer_id,
            "producer_epoch": self.epoch,
            "transactional": True,
            **changes,
        }
        return build_batch([Record(timestamp=1_700_000_000_000, value=b"v")], base_sequence=sequence, **said)
