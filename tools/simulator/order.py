"""A client with several requests on their way. Law: a request of a connection sees what those before it did.

Kafka handles the requests of a connection one after the other. KafScale sends them to several services, so its front
door has to keep back what depends on another request. Only requests that were answered without an error are judged.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from kafscale.wire.errors import ErrorCode
from kafscale.wire.records import Record, build_batch
from kafscale.wire.schema import (
    delete_records,
    describe_configs,
    incremental_alter_configs,
    produce,
)

from tools.simulator.churn import asks_committed, asks_to_commit
from tools.simulator.clients import (
    EARLIEST,
    LATEST,
    PRODUCE_V,
    Client,
    Question,
    Records,
    asks_offset,
    create,
)

ORDERLY: Final = "orderly"
PARTITIONS: Final = 4
DELETE_V, ALTER_V, DESCRIBE_V = 2, 1, 4
ALL: Final = -1
"""Of a partition, to DeleteRecords: up to the high watermark."""
TOPIC_RESOURCE, SET = 2, 0
CONFIG: Final = "retention.ms"
CONFIG_FROM: Final = 1_000_000_000
TIMEOUT_MS: Final = 5_000
Asked = tuple[Question, Callable[[Any], tuple[int, int]]]
"""A request, and what gives error code and value of its answer."""


@dataclass(eq=False)
class Orderly:
    """Alone in its topic and in its group."""

    client: Client
    records: Records
    _number: int = 0
    _commits: set[int] = field(default_factory=set)
    _configs: set[int] = field(default_factory=set)
    """Without a known outcome: they may take effect late."""

    async def run(self) -> None:
        await create(self.client, ORDERLY, PARTITIONS)
        while not self.client.world.stopping:
            self._number += 1
            await self.client.chance.choice(STEPS)(self)
            await self.client.pause()

    async def _append_and_list(self) -> None:
        """The records are on their way to several instances when the ends are asked for."""
        places = range(PARTITIONS)
        said = await self._ask([*map(self._append, places), *(self._offset(LATEST, each) for each in places)])
        for appended, end in zip(said[:PARTITIONS], said[PARTITIONS:], strict=True):
            if appended is not None and end is not None and end <= appended:
                self._overtaken(f"the end is {end}, a record was appended at {appended} before")

    async def _append_and_delete(self) -> None:
        questions = [self._append(0), self._delete(), self._offset(EARLIEST, 0)]
        appended, deleted, start = await self._ask(questions)
        if appended is not None and deleted is not None and deleted <= appended:
            self._overtaken(f"deleted up to {deleted}, a record was appended at {appended} before")
        if deleted is not None and start is not None and start < deleted:
            self._overtaken(f"the log starts at {start}, and was deleted up to {deleted} before")

    async def _commit_and_fetch(self) -> None:
        await self._change_and_read(self._commit(), self._committed(), self._commits, "the committed offset")

    async def _alter_and_describe(self) -> None:
        await self._change_and_read(self._alter(), self._described(), self._configs, "a config")

    async def _change_and_read(self, change: Asked, read: Asked, undecided: set[int], what: str) -> None:
        """`undecided`: the changes whose outcome is unknown."""
        undecided.add(self._number)
        changed, found = await self._ask([change, read])
        if changed is None:
            return
        if found is not None and found not in undecided:
            self._overtaken(f"{what} is {found}, {self._number} was written before")
        undecided.discard(self._number)

    async def _ask(self, questions: Sequence[Asked]) -> list[int | None]:
        """What each answer says; None: it has an error, or there is none."""
        answers = await self.client.answers([question for question, _ in questions])
        said: list[int | None] = []
        for (_, read), answer in zip(questions, answers, strict=True):
            code, value = (ErrorCode.UNKNOWN_SERVER_ERROR, 0) if answer is None else read(answer)
            said.append(value if code == ErrorCode.NONE else None)
        self.records.counts["requests in order"] += sum(each is not None for each in said)
        return said

    def _overtaken(self, what: str) -> None:
        self.records.broken.append(f"overtaken: {what}")

    # -- questions, and how their answers are read -------------------------------------------------------

    def _append(self, partition: int) -> Asked:
        data = build_batch([Record(timestamp=1_700_000_000_000, key=None, value=b"%d" % self._number)])
        part = produce.ProduceRequestPartition(index=partition, records=data)
        topic = produce.ProduceRequestTopic(name=ORDERLY, partition_data=[part])
        request = produce.ProduceRequest(
            transactional_id=None, acks=-1, timeout_ms=TIMEOUT_MS, topic_data=[topic]
        )

        def read(answer: Any) -> tuple[int, int]:
            (found,) = answer.responses[0].partition_responses
            return found.error_code, found.base_offset

        return (produce, PRODUCE_V, request), read

    def _offset(self, timestamp: int, partition: int) -> Asked:
        def read(answer: Any) -> tuple[int, int]:
            (found,) = answer.topics[0].partitions
            return found.error_code, found.offset

        return asks_offset(ORDERLY, partition, timestamp), read

    def _delete(self) -> Asked:
        part = delete_records.DeleteRecordsRequestPartition(partition_index=0, offset=ALL)
        topic = delete_records.DeleteRecordsRequestTopic(name=ORDERLY, partitions=[part])
        request = delete_records.DeleteRecordsRequest(topics=[topic], timeout_ms=TIMEOUT_MS)

        def read(answer: Any) -> tuple[int, int]:
            (found,) = answer.topics[0].partitions
            return found.error_code, found.low_watermark

        return (delete_records, DELETE_V, request), read

    def _commit(self) -> Asked:
        def read(answer: Any) -> tuple[int, int]:
            (found,) = answer.topics[0].partitions
            return found.error_code, self._number

        return asks_to_commit(self.client.name, ORDERLY, self._number), read

    def _committed(self) -> Asked:
        def read(answer: Any) -> tuple[int, int]:
            if answer.error_code != ErrorCode.NONE:
                return answer.error_code, 0
            (found,) = answer.topics[0].partitions
            return found.error_code, found.committed_offset

        return asks_committed(self.client.name, ORDERLY), read

    def _alter(self) -> Asked:
        config = incremental_alter_configs.IncrementalAlterConfigsRequestAlterableConfig(
            name=CONFIG, config_operation=SET, value=str(CONFIG_FROM + self._number)
        )
        resource = incremental_alter_configs.IncrementalAlterConfigsRequestResource(
            resource_type=TOPIC_RESOURCE, resource_name=ORDERLY, configs=[config]
        )
        request = incremental_alter_configs.IncrementalAlterConfigsRequest(resources=[resource])

        def read(answer: Any) -> tuple[int, int]:
            return answer.responses[0].error_code, self._number

        return (incremental_alter_configs, ALTER_V, request), read

    def _described(self) -> Asked:
        resource = describe_configs.DescribeConfigsRequestResource(
            resource_type=TOPIC_RESOURCE, resource_name=ORDERLY, configuration_keys=[CONFIG]
        )
        request = describe_configs.DescribeConfigsRequest(resources=[resource])

        def read(answer: Any) -> tuple[int, int]:
            (found,) = answer.results
            value = found.configs[0].value if found.configs else "0"
            return found.error_code, int(value) - CONFIG_FROM

        return (describe_configs, DESCRIBE_V, request), read


STEPS: Final[tuple[Callable[[Orderly], Coroutine[Any, Any, None]], ...]] = (
    Orderly._append_and_list,
    Orderly._append_and_delete,
    Orderly._commit_and_fetch,
    Orderly._alter_and_describe,
)
