"""Group commit: requests are shared, outcomes are not; and an unknown one is asked for again."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import grpc
import pytest
from kafscale.runtime.clock import SystemClock
from kafscale.runtime.committer import (
    JOBS_PER_REQUEST_MAX,
    REQUEST_BYTES_MAX,
    REQUESTS_IN_FLIGHT_MAX,
    Answer,
    CommitMetrics,
    Committer,
    Refused,
    Settled,
)
from kafscale.runtime.etcd_binary import EtcdProcess
from kafscale.runtime.metrics import Metrics
from kafscale.storage.etcd.client import (
    Compare,
    EtcdClient,
    EtcdRejected,
    EtcdUnknown,
    Put,
    Range,
    RangeResult,
    Txn,
    TxnResult,
    UnknownKind,
)
from kafscale.storage.keys import Keyspace
from stream_harness import until

Fate = Callable[[Txn], Exception | None]


class ScriptedEtcd:
    """Applies nothing: remembers what it was asked and answers by script, by default with success."""

    def __init__(self) -> None:
        self.requests: list[Txn] = []
        self.script: deque[Exception | None] = deque()
        self.gate = asyncio.Event()
        self.gate.set()
        self.in_flight_max = 0
        self._in_flight = 0

    async def txn(self, txn: Txn, *, timeout_s: float = 3.0) -> TxnResult:
        self.requests.append(txn)
        self._in_flight += 1
        self.in_flight_max = max(self.in_flight_max, self._in_flight)
        await self.gate.wait()
        self._in_flight -= 1
        fate = self.script.popleft() if self.script else None
        if fate is not None:
            raise fate
        revision = 100 + len(self.requests)
        return TxnResult(True, revision, tuple(TxnResult(True, revision, ()) for _ in txn.success))


def job(key: bytes, revision: int = 0, value: bytes = b"v") -> Txn:
    return Txn(
        compare=(Compare(key, "mod", "=", revision),), success=(Put(key, value),), failure=(Range(key),)
    )


@asynccontextmanager
async def running(etcd: object, history: object = None) -> AsyncIterator[Committer]:
    committer = Committer(
        etcd,  # type: ignore[arg-type]
        clock=SystemClock(),
        metrics=CommitMetrics(Metrics("produce")),
        history=history,  # type: ignore[arg-type]
    )
    task = asyncio.create_task(committer.run())
    yield committer
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def ask(committer: Committer, *jobs: Txn) -> list[Answer]:
    return list(await asyncio.gather(*(committer.ask(txn) for txn in jobs)))


def settled(answer: Answer) -> Settled:
    assert isinstance(answer, Settled), answer
    return answer


UNKNOWN = EtcdUnknown(UnknownKind.TIMEOUT, "no answer")
REJECTED = EtcdRejected(grpc.StatusCode.INVALID_ARGUMENT, "too many operations")


async def test_jobs_of_one_turn_share_a_request() -> None:
    etcd = ScriptedEtcd()
    async with running(etcd) as committer:
        await ask(committer, *(job(b"%d" % n) for n in range(30)))
    assert [len(request.success) for request in etcd.requests] == [30]


async def test_a_request_holds_no_more_jobs_than_etcd_takes() -> None:
    etcd = ScriptedEtcd()
    async with running(etcd) as committer:
        await ask(committer, *(job(b"%d" % n) for n in range(250)))
    assert sorted(len(request.success) for request in etcd.requests) == [50, 100, 100]
    assert JOBS_PER_REQUEST_MAX == 100


async def test_a_request_holds_no_more_bytes_than_etcd_takes() -> None:
    etcd = ScriptedEtcd()
    async with running(etcd) as committer:
        await ask(committer, *(job(b"%d" % n, value=bytes(200_000)) for n in range(12)))
    assert all(sum(len(op.success[0].value) for op in r.success) <= REQUEST_BYTES_MAX for r in etcd.requests)  # type: ignore[union-attr]
    assert [len(request.success) for request in etcd.requests] == [5, 5, 2]


async def test_no_more_than_four_requests_are_in_flight_and_the_rest_gathers() -> None:
    etcd = ScriptedEtcd()
    etcd.gate.clear()
    async with running(etcd) as committer:
        waiting = []
        for n in range(10):
            waiting.append(asyncio.create_task(committer.ask(job(b"%d" % n))))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        await until(lambda: len(etcd.requests) == REQUESTS_IN_FLIGHT_MAX)
        assert committer.backlog == 10 - REQUESTS_IN_FLIGHT_MAX
        etcd.gate.set()
        await asyncio.gather(*waiting)
    assert etcd.in_flight_max == REQUESTS_IN_FLIGHT_MAX
    assert [len(request.success) for request in etcd.requests] == [1, 1, 1, 1, 6]


async def test_two_jobs_of_one_partition_never_share_a_request() -> None:
    etcd = ScriptedEtcd()
    async with running(etcd) as committer:
        await ask(committer, job(b"a"), job(b"b"), job(b"a", 5), job(b"c"))
    assert [[op.compare[0].key for op in r.success] for r in etcd.requests] == [[b"a", b"b"], [b"a", b"c"]]  # type: ignore[union-attr]


async def test_winners_take_the_revision_of_the_request() -> None:
    etcd = ScriptedEtcd()
    async with running(etcd) as committer:
        answers = await ask(committer, job(b"a"), job(b"b"))
    assert [settled(answer).revision for answer in answers] == [101, 101]
    assert not any(settled(answer).ambiguous for answer in answers)


@pytest.mark.parametrize("kind", list(UnknownKind))
async def test_an_unknown_outcome_is_resolved_by_the_identical_request(kind: UnknownKind) -> None:
    etcd = ScriptedEtcd()
    etcd.script.extend([EtcdUnknown(kind, "?"), EtcdUnknown(kind, "?")])
    async with running(etcd) as committer:
        answers = await ask(committer, job(b"a"), job(b"b"))
    assert etcd.requests[0] == etcd.requests[1] == etcd.requests[2]
    assert len(etcd.requests) == 3
    assert all(settled(answer).ambiguous for answer in answers)


async def test_the_next_request_is_not_ambiguous_because_an_earlier_one_was() -> None:
    etcd = ScriptedEtcd()
    etcd.script.append(UNKNOWN)
    async with running(etcd) as committer:
        assert settled((await ask(committer, job(b"a")))[0]).ambiguous
        for _ in range(8):
            assert not settled((await ask(committer, job(b"a")))[0]).ambiguous


async def test_jobs_that_come_during_an_unknown_outcome_do_not_join_its_request() -> None:
    etcd = ScriptedEtcd()
    etcd.script.append(UNKNOWN)
    async with running(etcd) as committer:
        first = asyncio.create_task(committer.ask(job(b"a")))
        await until(lambda: etcd.requests)
        second = await committer.ask(job(b"b"))
        assert not settled(second).ambiguous
        assert settled(await first).ambiguous
    assert all(len(request.success) == 1 for request in etcd.requests)


async def test_a_refusal_is_definite_only_if_nothing_was_unknown_before() -> None:
    etcd = ScriptedEtcd()
    etcd.script.extend([REJECTED, UNKNOWN, REJECTED])
    async with running(etcd) as committer:
        assert isinstance((await ask(committer, job(b"a")))[0], Refused)
        answer = settled((await ask(committer, job(b"b")))[0])
    assert answer.ambiguous
    assert len(etcd.requests) == 4


async def test_what_is_unresolved_is_known_while_it_is() -> None:
    etcd = ScriptedEtcd()
    etcd.script.append(EtcdUnknown(UnknownKind.NOSPACE, "mvcc: database space exceeded"))
    async with running(etcd) as committer:
        waiting = asyncio.create_task(committer.ask(job(b"a")))
        await until(lambda: committer.has_unknown)
        assert committer.out_of_space()
        await waiting
        assert not committer.has_unknown
        assert not committer.out_of_space()
        assert committer.unresolved_ms() == 0


async def test_a_fenced_partition_fails_alone_in_a_real_etcd(etcd: EtcdClient, keyspace: Keyspace) -> None:
    keys = [keyspace.root() + b"%d" % n for n in range(5)]
    revisions = [(await etcd.put(key, b"old")).revision for key in keys]
    await etcd.put(keys[2], b"foreign")
    async with running(etcd) as committer:
        answers = await ask(
            committer, *(job(key, revision, b"new") for key, revision in zip(keys, revisions, strict=True))
        )
    won = [settled(answer).result.succeeded for answer in answers]
    assert won == [True, True, False, True, True]
    seen = settled(answers[2]).result.responses[0]
    assert isinstance(seen, RangeResult)
    assert seen.kvs[0].value == b"foreign"
    for key, answer in zip(keys, answers, strict=True):
        found = await etcd.get(key)
        assert found is not None
        if key != keys[2]:
            assert (found.value, found.mod_revision) == (b"new", settled(answer).revision)


async def test_a_commit_whose_answer_was_lost_is_found_applied(
    etcd: EtcdClient, etcd_server: EtcdProcess, keyspace: Keyspace
) -> None:
    """The first request reaches etcd, its answer does not reach us; the second shows what happened."""

    class Forgetful(EtcdClient):
        lost = 0

        async def txn(self, txn: Txn, *, timeout_s: float = 3.0) -> TxnResult:
            result = await super().txn(txn, timeout_s=timeout_s)
            if not self.lost:
                self.lost += 1
                raise UNKNOWN
            return result

    client = Forgetful.connect([etcd_server.endpoint])
    key = keyspace.root() + b"x"
    async with running(client) as committer:
        answer = settled(await committer.ask(job(key, 0, b"mine")))
    await client.close()
    assert answer.ambiguous
    assert not answer.result.succeeded
    seen = answer.result.responses[0]
    assert isinstance(seen, RangeResult)
    assert seen.kvs[0].value == b"mine"


async def test_a_caller_that_was_cancelled_does_not_hurt_the_others() -> None:
    etcd = ScriptedEtcd()
    etcd.gate.clear()
    async with running(etcd) as committer:
        leaver, stayer = (asyncio.create_task(committer.ask(job(key))) for key in (b"a", b"b"))
        await until(lambda: etcd.requests)
        leaver.cancel()
        etcd.gate.set()
        assert settled(await stayer).revision == 101


async def test_wide_jobs_share_a_request_only_within_etcds_limit_of_operations(
    etcd: EtcdClient, keyspace: Keyspace
) -> None:
    """etcd counts the jobs of a request and the operations of the widest of them together."""
    prefix = keyspace.root()

    def wide(number: int) -> Txn:
        keys = [prefix + b"%d/%d" % (number, one) for one in range(100)]
        return Txn(compare=(Compare(keys[0], "mod", "=", 0),), success=tuple(Put(key, b"v") for key in keys))

    async with running(etcd) as committer:
        narrow = [job(prefix + b"n%d" % number) for number in range(60)]
        answers = await ask(committer, *(wide(number) for number in range(60)), *narrow)
    assert all(settled(answer).result.succeeded for answer in answers)


async def test_operations_of_nested_transactions_count(etcd: EtcdClient, keyspace: Keyspace) -> None:
    prefix = keyspace.root()

    def nested(number: int) -> Txn:
        keys = [prefix + b"%d/%d" % (number, one) for one in range(60)]
        new = tuple(Txn(compare=(Compare(key, "mod", "=", 0),), success=(Put(key, b"v"),)) for key in keys)
        return Txn(compare=(Compare(keys[0], "mod", "=", 0),), success=new)

    async with running(etcd) as committer:
        answers = await ask(committer, *(nested(number) for number in range(100)))
    assert all(settled(answer).result.succeeded for answer in answers)


class ScriptedHistory:
    """Good with the fence, until it is `missed`; then until the test gives another."""

    def __init__(self, fence: Compare) -> None:
        self.fence: Compare | None = fence
        self.good = asyncio.Event()
        self.misses = 0

    def missed(self) -> None:
        self.fence = None
        self.misses += 1

    def give(self, fence: Compare) -> None:
        self.fence = fence
        self.good.set()

    async def until_good(self) -> None:
        self.good.clear()
        await self.good.wait()


async def test_jobs_wait_in_an_etcd_that_went_back(etcd: EtcdClient, keyspace: Keyspace) -> None:
    witness, mine = keyspace.root() + b"h/1", keyspace.root() + b"p/1"
    await etcd.put(witness, b"")
    history = ScriptedHistory(Compare(witness, "version", ">", 0))
    async with running(etcd, history) as committer:
        assert settled((await ask(committer, job(mine)))[0]).result.succeeded
        found = await etcd.get(mine)
        assert found is not None
        await etcd.delete(witness)
        waiting = asyncio.create_task(ask(committer, job(mine, found.mod_revision, b"later")))
        await until(lambda: history.misses == 1)
        assert not waiting.done()
        assert await etcd.get(mine) == found, "nothing was written"
        await etcd.put(witness, b"")
        history.give(Compare(witness, "version", ">", 0))
        assert settled((await waiting)[0]).result.succeeded


async def test_an_unknown_outcome_stays_unknown_while_etcd_is_not_the_one_that_was_asked() -> None:
    """The older etcd would refuse the job, although the lost one may have applied it."""
    etcd = ScriptedEtcd()
    etcd.script.extend([UNKNOWN])
    history = ScriptedHistory(Compare(b"h/1", "version", ">", 0))

    async def went_back(txn: Txn, *, timeout_s: float = 3.0) -> TxnResult:
        if len(etcd.requests) == 1:
            etcd.requests.append(txn)
            return TxnResult(False, 5, ())
        return await ScriptedEtcd.txn(etcd, txn, timeout_s=timeout_s)

    etcd.txn = went_back  # type: ignore[method-assign]
    async with running(etcd, history) as committer:
        waiting = asyncio.create_task(ask(committer, job(b"a")))
        await until(lambda: history.misses == 1)
        assert (waiting.done(), committer.has_unknown) == (False, True)
        history.give(Compare(b"h/2", "version", ">", 0))
        assert settled((await waiting)[0]).ambiguous
    assert [request.compare[0].key for request in etcd.requests] == [b"h/1", b"h/1", b"h/2"]
    assert len({request.success for request in etcd.requests}) == 1, "the same jobs"
