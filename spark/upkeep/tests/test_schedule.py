"""Jobs run when they are due, where they should, and none suffers for another."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from kafscale.runtime.clock import SystemClock
from kafscale.runtime.exposition import expose
from kafscale.runtime.metrics import Metrics
from kafscale.storage.etcd.client import EtcdClient, EtcdUnknown, UnknownKind
from kafscale.storage.job_runs import decode_job_run, encode_job_run
from kafscale.storage.keys import Keyspace
from kafscale.storage.membership.members import InstanceState, LiveView, Registration
from kafscale.storage.objects import StoreUnavailable
from kafscale.store.v1 import store_pb2 as pb
from kafscale.testkit.clock import ManualClock
from kafscale.upkeep import schedule
from kafscale.upkeep.schedule import Job, LowestNode, Schedule

DONE_S = 20.0
SOON_MS = 20
LATER_MS = 3_600_000


class Told:
    """A turn that the test gives and takes."""

    def __init__(self, mine: bool = True) -> None:
        self.mine = mine
        self._changed = asyncio.Event()
        self.waits: list[float | None] = []
        self.waiting = asyncio.Event()

    def give(self, mine: bool) -> None:
        self.mine = mine
        self._changed.set()
        self._changed = asyncio.Event()

    async def changed(self, timeout_s: float | None = None) -> None:
        self.waits.append(timeout_s)
        self.waiting.set()
        try:
            await asyncio.wait_for(self._changed.wait(), timeout_s)
        except TimeoutError:
            return


class Counted:
    """A job's work: it fails on request, and reports when it has run often enough."""

    def __init__(self, *failures: Exception) -> None:
        self.failures = list(failures)
        self.runs = 0
        self._grown = asyncio.Condition()

    async def __call__(self) -> None:
        self.runs += 1
        async with self._grown:
            self._grown.notify_all()
        if self.failures:
            raise self.failures.pop(0)

    async def reaches(self, count: int) -> None:
        async with asyncio.timeout(DONE_S), self._grown:
            await self._grown.wait_for(lambda: self.runs >= count)


@pytest.fixture
def metrics() -> Metrics:
    return Metrics("upkeep")


Running = Callable[..., Awaitable[None]]


@asynccontextmanager
async def running(
    etcd: EtcdClient, keys: Keyspace, metrics: Metrics, *jobs: Job, turn: Told | None = None
) -> AsyncIterator[None]:
    table = Schedule(
        jobs,
        turn=turn or Told(),
        etcd=etcd,
        keys=keys,
        clock=SystemClock(),
        metrics=metrics,
    )
    task = asyncio.create_task(table.run())
    try:
        yield
        assert not task.done(), "the schedule ended"
    finally:
        task.cancel()
        await asyncio.wait({task})


async def test_when_a_job_is_due_is_a_metric(etcd: EtcdClient, keyspace: Keyspace, metrics: Metrics) -> None:
    turn = Told()
    await etcd.put(keyspace.job_run("j"), encode_job_run(SystemClock().wall_ms() - LATER_MS // 2))
    async with (
        running(etcd, keyspace, metrics, Job(name="j", every_ms=LATER_MS, run=Counted()), turn=turn),
        asyncio.timeout(DONE_S),
    ):
        await turn.waiting.wait()
    sample = re.search(rb'kafscale_upkeep_next_run_timestamp_seconds{task="j"} (\S+)', expose(metrics.read()))
    assert sample is not None
    assert float(sample[1]) * 1000 == pytest.approx(
        SystemClock().wall_ms() + LATER_MS // 2, abs=LATER_MS // 4
    )


async def test_a_job_runs_again_and_again(etcd: EtcdClient, keyspace: Keyspace, metrics: Metrics) -> None:
    work = Counted()
    async with running(etcd, keyspace, metrics, Job(name="j", every_ms=SOON_MS, run=work)):
        await work.reaches(3)
    kv = await etcd.get(keyspace.job_run("j"))
    assert kv is not None
    assert decode_job_run(kv.value) > 1_700_000_000_000
    assert b'kafscale_upkeep_runs_total{task="j"} ' in expose(metrics.read())


async def test_a_cluster_counts_from_its_first_start_and_a_restart_does_not_count_anew(
    etcd: EtcdClient, keyspace: Keyspace, metrics: Metrics
) -> None:
    early, due, turn = Counted(), Counted(), Told()
    now_ms = SystemClock().wall_ms()
    await etcd.put(keyspace.job_run("due"), encode_job_run(now_ms - 2 * LATER_MS))
    jobs = (Job(name="new", every_ms=LATER_MS, run=early), Job(name="due", every_ms=LATER_MS, run=due))
    async with running(etcd, keyspace, metrics, *jobs, turn=turn):
        await due.reaches(1)
        async with asyncio.timeout(DONE_S):
            while len(turn.waits) < 2:
                turn.waiting.clear()
                await turn.waiting.wait()
    assert (early.runs, due.runs) == (0, 1)
    assert all(wait is not None and 3_590 < wait <= 3_600 for wait in turn.waits), turn.waits
    kv = await etcd.get(keyspace.job_run("new"))
    assert kv is not None, "the first start is remembered"
    assert decode_job_run(kv.value) >= now_ms


async def test_a_clock_that_went_back_puts_no_job_off_for_longer_than_its_interval(
    etcd: EtcdClient, keyspace: Keyspace, metrics: Metrics
) -> None:
    work = Counted()
    await etcd.put(keyspace.job_run("j"), encode_job_run(SystemClock().wall_ms() + 10 * LATER_MS))
    async with running(etcd, keyspace, metrics, Job(name="j", every_ms=SOON_MS, run=work)):
        await asyncio.wait_for(work.reaches(0), DONE_S)
        table = Schedule(
            (),
            turn=Told(),
            etcd=etcd,
            keys=keyspace,
            clock=ManualClock(),
            metrics=Metrics("upkeep"),
        )
        job = Job(name="j", every_ms=SOON_MS, run=work)
        assert await table._due_in_ms(job) == SOON_MS


async def test_what_fails_is_tried_again_and_harms_no_other(
    etcd: EtcdClient, keyspace: Keyspace, metrics: Metrics
) -> None:
    bad = Counted(
        StoreUnavailable("k"), EtcdUnknown(UnknownKind.TIMEOUT, "late"), TimeoutError(), ValueError("our bug")
    )
    good = Counted()
    jobs = (Job(name="bad", every_ms=SOON_MS, run=bad), Job(name="good", every_ms=SOON_MS, run=good))
    async with running(etcd, keyspace, metrics, *jobs):
        await bad.reaches(6)
        await good.reaches(2)
    text = expose(metrics.read())
    assert b'kafscale_upkeep_failures_total{task="bad"} 4.0' in text
    assert b'kafscale_upkeep_failures_total{task="good"} 0.0' in text, (
        "a rise from nothing is one that nobody sees"
    )


async def test_a_run_that_got_nowhere_has_failed_however_it_ended(
    etcd: EtcdClient, keyspace: Keyspace, metrics: Metrics
) -> None:
    work = Counted(TimeoutError())
    job = Job(name="j", every_ms=SOON_MS, run=work, stands_still=lambda: work.runs < 3)
    async with running(etcd, keyspace, metrics, job):
        await work.reaches(3)
        assert b'kafscale_upkeep_stalled_runs{task="j"} 2.0' in expose(metrics.read())
        assert b'kafscale_upkeep_failures_total{task="j"} 2.0' in expose(metrics.read())
        await work.reaches(5)
    assert b'kafscale_upkeep_stalled_runs{task="j"} 0.0' in expose(metrics.read())


async def test_a_run_without_end_is_cut_off_at_its_deadline(
    etcd: EtcdClient, keyspace: Keyspace, metrics: Metrics, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schedule, "DEADLINE_MIN_MS", SOON_MS)
    begun, cut = 0, asyncio.Event()

    async def endless() -> None:
        nonlocal begun
        begun += 1
        if begun == 3:
            cut.set()
        await asyncio.Event().wait()

    async with running(etcd, keyspace, metrics, Job(name="j", every_ms=SOON_MS, run=endless)):
        await asyncio.wait_for(cut.wait(), DONE_S)
    assert b'kafscale_upkeep_failures_total{task="j"} 2.0' in expose(metrics.read())


async def test_who_does_not_have_the_turn_stands_by_until_it_comes(
    etcd: EtcdClient, keyspace: Keyspace, metrics: Metrics
) -> None:
    work, turn = Counted(), Told(mine=False)
    async with running(etcd, keyspace, metrics, Job(name="j", every_ms=1, run=work), turn=turn):
        await asyncio.wait_for(turn.waiting.wait(), DONE_S)
        assert (work.runs, turn.waits[0]) == (0, 0.001)
        turn.give(True)
        await work.reaches(2)


async def test_the_turn_is_the_lowest_ready_nodes(etcd: EtcdClient, keyspace: Keyspace) -> None:
    async def joined(node_id: int) -> tuple[Registration, LowestNode]:
        me = await Registration.join(
            etcd, keyspace, role="upkeep", address=f"127.0.0.1:{node_id}", node_id=node_id
        )
        live = LiveView(etcd, keyspace, "upkeep")
        tasks.append(asyncio.create_task(live.run()))
        await live.loaded()
        return me, LowestNode(live, me)

    async def becomes(turn: LowestNode, mine: bool) -> None:
        async with asyncio.timeout(DONE_S):
            while turn.mine is not mine:
                await turn.changed()

    tasks: list[asyncio.Task[None]] = []
    (one, turn_one), (two, turn_two) = await joined(1), await joined(2)
    try:
        assert (turn_one.mine, turn_two.mine) == (False, False), "nobody is ready"
        await two.set_state(InstanceState.READY)
        await becomes(turn_two, True)
        assert not turn_one.mine
        await one.set_state(InstanceState.READY)
        await becomes(turn_two, False)
        await becomes(turn_one, True)
        await one.leave()
        await becomes(turn_two, True)
    finally:
        for task in tasks:
            task.cancel()
        await two.leave()


@pytest.mark.parametrize("steps", range(4))
async def test_who_is_told_to_end_just_as_the_turn_changes_ends(
    etcd: EtcdClient, keyspace: Keyspace, steps: int
) -> None:
    """SIGTERM soon after the start: `asyncio.wait_for` would have swallowed it, and the process stood for good."""
    me = await Registration.join(etcd, keyspace, role="upkeep", address="127.0.0.1:1", node_id=1)
    turn = LowestNode(LiveView(etcd, keyspace, "upkeep"), me)

    async def forever() -> None:
        while True:
            await turn.changed(LATER_MS / 1000)

    waiting = asyncio.create_task(forever())
    try:
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        turn._wake()
        for _ in range(steps):
            await asyncio.sleep(0)
        waiting.cancel()
        async with asyncio.timeout(DONE_S):
            await asyncio.wait({waiting})
        assert waiting.cancelled()
    finally:
        waiting.cancel()
        await me.leave()


def test_an_instance_that_does_not_work_has_not_loaded_what_reads_records() -> None:
    """Half of a start and 60 MB."""
    program = "import sys, kafscale.upkeep.__main__; print(*{'numpy', 'pyarrow', 'duckdb'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


@pytest.mark.parametrize("value", [b"\xff\xff", pb.JobRun(schema=2, ended_ms=1).SerializeToString()])
async def test_a_record_of_the_last_run_that_cannot_be_read_makes_its_job_due_and_ends_no_other(
    etcd: EtcdClient, keyspace: Keyspace, metrics: Metrics, value: bytes
) -> None:
    await etcd.put(keyspace.job_run("j"), value)
    work, other = Counted(), Counted()
    jobs = Job(name="j", every_ms=LATER_MS, run=work), Job(name="k", every_ms=SOON_MS, run=other)
    async with running(etcd, keyspace, metrics, *jobs):
        await work.reaches(1)
        await other.reaches(3)
        async with asyncio.timeout(DONE_S):
            while (kv := await etcd.get(keyspace.job_run("j"))) is None or kv.value == value:
                await asyncio.sleep(0.01)
        assert decode_job_run(kv.value) > 1_700_000_000_000
    assert work.runs == 1


async def test_a_turn_that_comes_without_a_change_of_the_view_is_noticed(
    etcd: EtcdClient, keyspace: Keyspace, metrics: Metrics
) -> None:
    """After a lost lease the view shows the new registration, and only then the process knows its own id."""
    work, turn = Counted(), Told(mine=False)
    async with running(etcd, keyspace, metrics, Job(name="j", every_ms=SOON_MS, run=work), turn=turn):
        await turn.waiting.wait()
        turn.mine = True
        await work.reaches(1)
