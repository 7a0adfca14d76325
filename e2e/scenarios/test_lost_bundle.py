"""A bundle is deleted by hand while its partitions and others are written.

Law: partitions that the bundle does not name are written as before, without one refusal, also when the tails of the
named ones are full. DeleteRecords up to the end of the lost slices is the way on: the named partitions take writes
again, no process restarts, and fsck finds etcd and the store in agreement.

The store takes up to a second for each PUT, as a busy one does, so several slices of a partition are on their way. No
slice is kept in memory, where its owner could settle it from.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import quantiles

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from kafscale.log.heads import TAIL_MAX, Head
from kafscale.storage.keys import BundleId, Keyspace
from kafscale.storage.objects.s3 import S3Store
from kafscale.testkit.seaweed import SeaweedServer, require_weed
from kafscale.wire.errors import ErrorCode
from kafscale.wire.records import Record, build_batch

from e2e.harness.cluster import Cluster
from e2e.harness.deployment import s3_env
from e2e.harness.inside import metric
from e2e.harness.raw import Closed, Raw
from e2e.harness.requests import ask_fetch, ask_list_offsets, ask_produce, create, produce_body
from e2e.harness.services import until
from e2e.harness.store_gate import StoreGate

NAMED, BYSTANDER = "named", "bystander"
PARTITIONS = 24
WRITERS_EACH = 2
PUT_MAX_S = 1.0
RECORD_BYTES = 20 << 10
TIMEOUT_MS = 3_000
BYSTANDER_TIMEOUT_MS = 30_000
"""Many times as long as a write takes here: a refusal is no matter of a busy machine."""
LOOKS = 15
ANSWER_S = 30.0
FULL_S = 180.0
HEALED_S = 120.0
"""Longer than the longest wait of a settle plan after failures."""
EARLIEST, LATEST = -2, -1
NONE, TIMED_OUT = ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(600)]
log = logging.getLogger(__name__)


@dataclass(slots=True)
class Writer:
    """One request after the other, to one partition."""

    bootstrap: str
    topic: str
    partition: int
    timeout_ms: int = TIMEOUT_MS
    codes: Counter[int] = field(default_factory=Counter)
    unknown: int = 0
    """Requests whose connection was closed instead of an answer."""
    _stop: threading.Event = field(default_factory=threading.Event)

    @contextmanager
    def running(self) -> Iterator[None]:
        thread = threading.Thread(target=self._run, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._stop.set()
            thread.join(ANSWER_S)

    def _run(self) -> None:
        while not self._stop.is_set():
            with suppress(Closed), Raw.to(self.bootstrap) as raw:
                while not self._stop.is_set():
                    self.codes[self.write(raw)] += 1
            self.unknown += not self._stop.is_set()

    def goes_on(self) -> bool:
        with suppress(Closed), Raw.to(self.bootstrap) as raw:
            return self.write(raw) == NONE
        return False

    def write(self, raw: Raw) -> int:
        records = build_batch([Record(timestamp=1_700_000_000_000, value=b"v" * RECORD_BYTES)])
        body = produce_body((self.topic, self.partition, records), timeout_ms=self.timeout_ms)
        (part,) = ask_produce(raw, body)
        return part.error_code


@dataclass(slots=True)
class Site:
    cluster: Cluster
    server: SeaweedServer
    written: int = 0  # by the bystander

    def heads(self) -> dict[int, Head]:
        return self.cluster.inside().heads(NAMED)

    def lose(self) -> dict[int, int]:
        """Deletes the bundle that most heads name, but not the bystander's. The end of its slice in each of these
        partitions."""
        heads = self.heads()
        spared = {seg.bundle for seg in self.cluster.inside().heads(BYSTANDER)[0].tail}
        slices = [seg for head in heads.values() for seg in head.tail if seg.is_slice]
        naming = Counter(seg.bundle for seg in slices if seg.bundle not in spared)
        lost, count = naming.most_common(1)[0]
        asyncio.run(self._delete(Keyspace().bundle_key(BundleId(lost))))
        ends = {n: seg.end for n, head in heads.items() for seg in head.tail if seg.bundle == lost}
        assert len(ends) == count
        return ends

    async def _delete(self, key: str) -> None:
        store = S3Store(self.server.s3_config())
        try:
            assert await store.delete(key), "it is there"
        finally:
            await store.close()

    def full(self, partitions: dict[int, int]) -> int:
        heads = self.heads()
        return sum(len(heads[number].tail) == TAIL_MAX for number in partitions)

    def look(self, when: str) -> None:
        """The bystander writes, and is never refused."""
        took, writer = [], Writer(self.cluster.bootstrap, BYSTANDER, 0, BYSTANDER_TIMEOUT_MS)
        with Raw.to(self.cluster.bootstrap) as raw:
            for _ in range(LOOKS):
                begun_s = time.monotonic()
                assert writer.write(raw) == NONE, f"the bystander was refused {when}"
                took.append(time.monotonic() - begun_s)
        self.written += LOOKS
        cuts = quantiles(took, n=100)
        log.info("bystander %s: p50 %.2f s, p99 %.2f s, refused 0 of %d", when, cuts[49], cuts[98], LOOKS)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    require_weed()
    server = SeaweedServer(tmp_path / "s3")
    server.start()
    server.wait_ready()
    host, _, port = server.endpoint.removeprefix("http://").partition(":")
    with StoreGate(host, int(port), seed=1) as gate:
        gate.share, gate.hold_max_s = 1.0, PUT_MAX_S
        env = {
            **s3_env(server),
            "KAFSCALE_S3_ENDPOINT": gate.endpoint,
            "KAFSCALE_SETTLE_KEEP_BYTES": "0",
            "KAFSCALE_BUNDLE_GRACE_MS": "1000",
        }
        cluster = Cluster(data_dir=tmp_path / "data", env=env, options=("--store", "s3"))
        cluster.start()
        try:
            yield Site(cluster, server)
        finally:
            cluster.kill()
            server.kill()


def delete_records(site: Site, offsets: dict[int, int]) -> None:
    admin = AdminClient({"bootstrap.servers": site.cluster.bootstrap})
    asked = [TopicPartition(NAMED, number, offset) for number, offset in offsets.items()]
    for place, answer in admin.delete_records(asked, request_timeout=ANSWER_S).items():
        assert answer.result(ANSWER_S).low_watermark == offsets[place.partition]


def check_reads(site: Site, ends: dict[int, int]) -> None:
    """Each named partition is readable from its log start on."""
    with Raw.to(site.cluster.bootstrap) as raw:
        for number, end in ends.items():
            assert ask_list_offsets(raw, EARLIEST, topic=NAMED, part=number) == (NONE, end)
            (part,) = ask_fetch(raw, topic=NAMED, part=number, offset=end)
            assert (part.error_code, part.log_start_offset) == (NONE, end)
        assert ask_list_offsets(raw, LATEST, topic=BYSTANDER) == (NONE, site.written)


def test_a_lost_bundle_stops_only_its_partitions_and_delete_records_is_the_way_on(site: Site) -> None:
    bootstrap = site.cluster.bootstrap
    with Raw.to(bootstrap) as raw:
        assert create(raw, NAMED, partitions=PARTITIONS) == NONE
        assert create(raw, BYSTANDER) == NONE
    pids = {role: site.cluster.pids(role) for role in ("produce", "fetch", "frontdoor", "etcd")}
    writers = [Writer(bootstrap, NAMED, n % PARTITIONS) for n in range(PARTITIONS * WRITERS_EACH)]
    with ExitStack() as running:
        for writer in writers:
            running.enter_context(writer.running())
        until("every partition is written", lambda: all(writer.codes[NONE] > 1 for writer in writers), FULL_S)
        site.look("before the loss")
        ends = site.lose()
        log.info("the lost bundle has slices of %d partitions", len(ends))
        until("the tails are full", lambda: site.full(ends) == len(ends), FULL_S)
        site.look("while the tails are full")
        stopped = [writer for writer in writers if writer.partition in ends]
        until(
            "they wait in vain",
            lambda: all(each.unknown or each.codes[TIMED_OUT] for each in stopped),
            FULL_S,
        )
        site.look("while producers go on")
    site.look("after the producers have stopped")
    assert site.full(ends) == len(ends)
    (produce,) = site.cluster.inside().instances("produce")
    assert sum(metric(produce.http_address, "kafscale_produce_unreadable_slices_total").values()) > 0
    delete_records(site, ends)
    for number in ends:
        until(f"{number} takes writes", Writer(bootstrap, NAMED, number).goes_on, HEALED_S)
    site.look("after the records were deleted")
    check_reads(site, ends)
    assert {role: site.cluster.pids(role) for role in pids} == pids, "a process ended"
    checked = site.cluster.fsck()
    assert checked.returncode == 0, checked.stdout
