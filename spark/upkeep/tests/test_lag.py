"""The sampler as a job: history grows, gauges show the last sample, and none that is old."""

from __future__ import annotations

import pytest
from kafscale.lake.catalog import Lake
from kafscale.lake.lag.history import read_samples
from kafscale.lake.lag.prometheus import gauges
from kafscale.lake.lag.report import Report
from kafscale.runtime.exposition import expose
from kafscale.runtime.metric_table import LAG
from kafscale.runtime.metrics import Metrics
from kafscale.storage.etcd.client import EtcdClient
from kafscale.storage.groups import CommittedOffset, encode_committed
from kafscale.storage.keys import Keyspace
from kafscale.storage.objects import MemoryStore
from kafscale.storage.slots import slot_of
from kafscale.testkit.clock import ManualClock
from kafscale.testkit.logbuilder import LogBuilder, create_topic, records
from kafscale.upkeep import lag
from kafscale.upkeep.lag import MISSED_MAX, LagJob

STEP = 30_000
DAY = 86_400_000


@pytest.fixture
def lake(etcd: EtcdClient, keyspace: Keyspace) -> Lake:
    return Lake(etcd, keyspace, MemoryStore())


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


async def behind(lake: Lake, offset: int) -> None:
    topic = await create_topic(lake.etcd, lake.keys, "orders")
    await LogBuilder(lake.etcd, lake.keys, lake.store, topic).append(records(20))
    key = lake.keys.committed(slot_of("readers"), "readers", topic.topic_id, 0)
    await lake.etcd.put(key, encode_committed(CommittedOffset(offset=offset, commit_ms=1)))


def shown(metrics: Metrics, name: str) -> list[float]:
    lines = expose(metrics.read()).decode().splitlines()
    return [
        float(line.split()[-1]) for line in lines if line.startswith(f"kafka_consumergroup_group_{name}{{")
    ]


def test_the_table_of_metrics_says_what_the_report_measures() -> None:
    measured = gauges(Report(cluster="c", at_ms=0), ())
    assert [(gauge.name, gauge.text, tuple(gauge.labels)) for gauge in measured] == [
        (row.name, row.text, row.labels) for row in LAG
    ]


async def test_a_run_writes_a_sample_and_shows_it_until_it_is_old(lake: Lake, clock: ManualClock) -> None:
    metrics = Metrics("upkeep")
    await behind(lake, 5)
    job = LagJob(lake, metrics, clock, every_ms=STEP, keep_ms=DAY)
    assert (shown(metrics, "lag"), shown(metrics, "sum_lag")) == ([], [])
    await job.run()
    assert (shown(metrics, "lag"), shown(metrics, "sum_lag")) == ([15], [15])
    assert b"kafscale_upkeep_lag_samples_total 1.0" in expose(metrics.read())
    assert len(await read_samples(lake, 0, clock.wall_ms())) == 1
    clock.advance(MISSED_MAX * STEP)
    assert shown(metrics, "lag") == [15]
    clock.advance(1)
    assert shown(metrics, "lag") == [], "another instance may have the turn by now"


async def test_gauges_are_bounded_and_what_is_left_out_is_counted(
    lake: Lake, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    metrics = Metrics("upkeep")
    await behind(lake, 5)
    job = LagJob(lake, metrics, clock, every_ms=STEP, keep_ms=DAY)
    await job.run()
    assert b"kafscale_upkeep_lag_left_out_series 0.0" in expose(metrics.read())
    monkeypatch.setattr(lag, "SERIES_MAX", 0)
    await job.run()
    assert shown(metrics, "lag") == []
    assert b"kafscale_upkeep_lag_left_out_series 0.0" not in expose(metrics.read())


async def test_a_status_is_known_once_the_window_is_full(lake: Lake, clock: ManualClock) -> None:
    metrics = Metrics("upkeep")
    await behind(lake, 5)
    job = LagJob(lake, metrics, clock, every_ms=STEP, keep_ms=DAY)
    told = []
    for _ in range(12):
        await job.run()
        told += shown(metrics, "status")
        clock.advance(STEP)
    assert told == [0] * 10 + [4] * 2, "unknown, then STOP: it has not committed since 1970"


async def test_old_history_goes(lake: Lake, clock: ManualClock) -> None:
    metrics = Metrics("upkeep")
    await behind(lake, 5)
    job = LagJob(lake, metrics, clock, every_ms=STEP, keep_ms=DAY)
    await job.run()
    clock.advance(2 * DAY)
    await job.run()
    await job.expire()
    assert b"kafscale_upkeep_lag_files_expired_total 1.0" in expose(metrics.read())
    assert len(await read_samples(lake, clock.wall_ms() - 3 * DAY, clock.wall_ms())) == 1
