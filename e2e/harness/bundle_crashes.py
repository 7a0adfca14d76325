"""Services on an etcd and a store, and produce instances behind a gate that kills them at a point of the protocol."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeVar

from kafscale.etcd.v3 import rpc_pb2 as pb
from kafscale.lake.catalog import Lake
from kafscale.lake.retention.bundles import Sweep, SweepReport
from kafscale.log.heads import Head, decode_head
from kafscale.storage.etcd.client import EtcdClient
from kafscale.storage.keys import BundleId, Keyspace, TopicId, prefix_end
from kafscale.wire.errors import ErrorCode
from kafscale.wire.records import Record, build_batch
from kafscale.wire.schema import produce

from e2e.harness.deployment import Deployment
from e2e.harness.etcd_gate import EtcdGate, Matches, Request, Side, Trap
from e2e.harness.load import read_everything
from e2e.harness.raw import Closed, Raw
from e2e.harness.requests import PRODUCE_V, ask_produce, create, init_pid
from e2e.harness.services import Service, until

KEYS: Final = Keyspace()
ROLES: Final = ("fetch", "coordinator", "admin", "frontdoor")
LONG_MS: Final = 600_000
"""Longer than the test. With such a grace an instance deletes no bundle, so the sweep must."""
SETTLE_MS: Final = 1_000
ACKNOWLEDGED_S: Final = 60.0
AGAIN_S: Final = 0.1
TIMESTAMP_MS: Final = 1_700_000_000_000

T = TypeVar("T")


@dataclass(slots=True)
class Site:
    """One for all tests of a store."""

    deployment: Deployment
    gate: EtcdGate
    instances: dict[int, Service] = field(default_factory=dict)
    """Node id -> a produce instance or upkeep that was not killed."""
    started: int = 100

    @classmethod
    @contextmanager
    def opened(cls, folder: Path, *, on_s3: bool) -> Iterator[Site]:
        deployment = Deployment(folder, 1, on_s3)
        try:
            deployment.start_etcd()
            if on_s3:
                deployment.start_s3()
            deployment.start_services(roles=ROLES)
            deployment.wait_ready()
            with EtcdGate(deployment.etcd.endpoint) as gate:
                site = cls(deployment, gate)
                yield site
                site.kill_all()
        finally:
            deployment.kill()

    # -- processes ---------------------------------------------------------------------------------

    def start(
        self, role: str = "produce", *, settle_ms: int = SETTLE_MS, grace_ms: int = LONG_MS
    ) -> tuple[int, Service]:
        """A ready instance behind the gate, and its node id."""
        self.started += 1
        env = {
            **self.deployment.env,
            "KAFSCALE_ETCD_ENDPOINTS": self.gate.endpoint,
            "KAFSCALE_NODE_ID": str(self.started),
            "KAFSCALE_SETTLE_MS": str(settle_ms),
            "KAFSCALE_BUNDLE_GRACE_MS": str(grace_ms),
            "KAFSCALE_BUNDLES_EVERY_MS": "300",
            "KAFSCALE_BUNDLES_MIN_AGE_MS": "0",
            "KAFSCALE_BUNDLES_UNCOMMITTED_KEEP_MS": "0",
        }
        service = Service.start(role, env, self.deployment.folder / "log" / f"{role}-{self.started}.log")
        self.instances[self.started] = service
        service.wait_ready()
        return self.started, service

    def kill(self, node: int) -> None:
        """kill -9, unless it is dead already. Its registration goes at once, which saves the wait for its lease."""
        service = self.instances.pop(node)
        service.kill()
        self.gate.clear()
        self._in_etcd(lambda etcd: _forget(etcd, service.role, node))

    def kill_all(self) -> None:
        for node in list(self.instances):
            self.kill(node)

    def trap(self, node: int, matches: Matches, side: Side = Side.BEFORE, passing: int = 0) -> Trap:
        """Kills the instance at a request to etcd."""
        return self.gate.set(Trap(matches, self.instances[node].process.kill, side, passing))

    # -- what is there -----------------------------------------------------------------------------

    def _in_etcd(self, ask: Callable[[EtcdClient], Awaitable[T]]) -> T:
        async def run() -> T:
            etcd = EtcdClient.connect([self.deployment.etcd.endpoint])
            try:
                return await ask(etcd)
            finally:
                await etcd.close()

        return asyncio.run(run())

    def named(self) -> set[str]:
        """The bundles that heads of any topic name."""

        async def ask(etcd: EtcdClient) -> set[str]:
            heads = [decode_head(kv.value) for kv in (await etcd.prefix(KEYS.heads_prefix())).kvs]
            return {KEYS.bundle_key(BundleId(s.bundle)) for head in heads for s in head.tail if s.is_slice}

        return self._in_etcd(ask)

    def objects(self, prefix: str) -> set[str]:
        async def ask() -> set[str]:
            store = self.deployment.open_store()
            try:
                return {info.key async for info in store.list(prefix)}
            finally:
                await store.close()

        return asyncio.run(ask())

    def bundles(self) -> set[str]:
        return self.objects(KEYS.bundles_prefix())

    def delete_object(self, key: str) -> None:
        async def ask() -> None:
            store = self.deployment.open_store()
            try:
                await store.delete(key)
            finally:
                await store.close()

        asyncio.run(ask())

    def sweep(self) -> SweepReport:
        """One run over bundles of any age."""

        async def ask(etcd: EtcdClient) -> SweepReport:
            store = self.deployment.open_store()
            try:
                sweep = Sweep(Lake(etcd, KEYS, store), min_age_ms=0, keep_ms=0, grace_s=0, now_ms=_now_ms)
                return await sweep.run()
            finally:
                await store.close()

        return self._in_etcd(ask)

    def swept(self) -> SweepReport:
        """While no produce instance lives, a sweep leaves exactly what heads name."""
        report = self.sweep()
        assert self.bundles() == self.named(), report
        return report

    def nothing_is_left(self, written: Written) -> None:
        """A live instance settles every slice; then the sweep leaves no bundle, and every record is read once."""
        until("every slice is settled", lambda: written.slices() == 0)
        report = self.sweep()
        assert self.bundles() == set(), report
        written.is_read_once_in_order()
        done = self.deployment.fsck()
        assert done.returncode == 0, done.stdout + done.stderr


def _now_ms() -> int:
    return int(time.time() * 1000) + 1


async def _forget(etcd: EtcdClient, role: str, node: int) -> None:
    """As `kafscale up` does after a death."""
    await etcd.delete(KEYS.node(role, node))
    prefix = KEYS.live_node_prefix(role, node)
    await etcd.delete(prefix, range_end=prefix_end(prefix))


# -- what is written ---------------------------------------------------------------------------------


@dataclass(slots=True)
class Written:
    """A topic and its idempotent producer: one request has a record for every partition, so it is one bundle."""

    site: Site
    topic: str
    partitions: int
    producer_id: int
    topic_id: TopicId
    sent: int = 0
    _thread: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1))

    @classmethod
    def to(cls, site: Site, topic: str, partitions: int = 3) -> Written:
        with Raw.to(site.deployment.bootstrap) as raw:
            assert create(raw, topic, partitions=partitions) == ErrorCode.NONE
            topic_id = TopicId(site.deployment.inside().topic_id(topic))
            return cls(site, topic, partitions, init_pid(raw), topic_id)

    def send(self) -> Future[None]:
        """Done when every record is acknowledged; until then it is sent again."""
        body = _request(self.topic, self.partitions, self.producer_id, self.sent)
        self.sent += 1
        return self._thread.submit(self._acknowledge, body)

    def write(self) -> None:
        self.send().result(ACKNOWLEDGED_S)

    def _acknowledge(self, body: bytes) -> None:
        deadline = time.monotonic() + ACKNOWLEDGED_S
        while True:
            codes = self._ask(body)
            if codes <= {ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER}:
                return
            assert all(code.retriable for code in codes), codes
            assert time.monotonic() < deadline, codes
            threading.Event().wait(AGAIN_S)  # a producer's retry.backoff.ms

    def _ask(self, body: bytes) -> set[ErrorCode]:
        try:
            with Raw.to(self.site.deployment.bootstrap) as raw:
                return {ErrorCode(part.error_code) for part in ask_produce(raw, body)}
        except (Closed, OSError):
            return {ErrorCode.REQUEST_TIMED_OUT}

    def heads(self) -> dict[int, Head]:
        return self.site.deployment.inside().heads(self.topic)

    def ends(self) -> list[int]:
        return [head.next for _, head in sorted(self.heads().items())]

    def slices(self) -> int:
        return self.site.deployment.inside().slices(self.topic)

    def is_read_once_in_order(self) -> None:
        log = read_everything(self.site.deployment.bootstrap, self.topic, self.partitions)
        expected = [(number, b"%d" % number) for number in range(self.sent)]
        assert log == dict.fromkeys(range(self.partitions), expected)

    # -- requests to etcd that a trap waits for ------------------------------------------------------

    def commits(self) -> Matches:
        """A commit of records that no head has yet."""
        ends = dict(enumerate(self.ends()))
        return self._puts_head(lambda partition, head: head.next > ends[partition])

    def swaps(self) -> Matches:
        """A settled segment takes the place of slices."""
        return self._puts_head(lambda _, head: any(not seg.is_slice for seg in head.tail))

    def bumps(self) -> Matches:
        """The sweep raises an epoch."""
        return self._puts_head(lambda _, head: not head.owner)

    def _puts_head(self, matches: Callable[[int, Head], bool]) -> Matches:
        prefix = KEYS.heads_prefix(self.topic_id)

        def any_matches(request: Request) -> bool:
            return any(
                put.key.startswith(prefix) and matches(KEYS.parse_head(put.key)[1], decode_head(put.value))
                for put in _puts(request)
            )

        return any_matches


def asks_for_the_cluster(request: Request) -> bool:
    """An instance does so between the seal of its first bundle and the PUT of it (`puts.py`)."""
    return isinstance(request, pb.RangeRequest) and request.key == KEYS.cluster()


def _puts(request: Request) -> Iterator[pb.PutRequest]:
    if not isinstance(request, pb.TxnRequest):
        return
    for operation in request.success:
        if operation.HasField("request_put"):
            yield operation.request_put
        elif operation.HasField("request_txn"):
            yield from _puts(operation.request_txn)


def _request(topic: str, partitions: int, producer_id: int, number: int) -> bytes:
    records = build_batch(
        [Record(timestamp=TIMESTAMP_MS, value=b"%d" % number)],
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=number,
    )
    parts = [produce.ProduceRequestPartition(index=index, records=records) for index in range(partitions)]
    message = produce.ProduceRequest(
        acks=-1,
        timeout_ms=5_000,
        topic_data=[produce.ProduceRequestTopic(name=topic, partition_data=parts)],
    )
    return b"".join(produce.encode_request(message, PRODUCE_V))
