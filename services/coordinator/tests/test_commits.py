"""Committed offsets: in order, shared, fenced; what was acknowledged is read back, and only it goes that is due."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from kafscale.coordinator.groups import commits as commits_module
from kafscale.coordinator.groups.commits import Stored
from kafscale.coordinator.groups.line import KEYS_WAITING_MAX
from kafscale.storage.etcd.client import Delete, EtcdClient, EtcdUnknown, Put, Txn, UnknownKind
from kafscale.storage.groups import CommittedOffset
from kafscale.storage.keys import Keyspace, TopicId
from kafscale.wire.errors import ErrorCode

from services.coordinator.tests.shell_harness import Coordinator, running, turns

T = TopicId(b"t".ljust(16, b"."))
UNKNOWN = EtcdUnknown(UnknownKind.TIMEOUT, "no answer")


@pytest_asyncio.fixture
async def one(etcd: EtcdClient, keyspace: Keyspace) -> AsyncIterator[Coordinator]:
    async with running(etcd, keyspace) as coordinator:
        coordinator.door.sent.clear()
        yield coordinator


def offsets(offset: int, count: int = 1, metadata: str = "") -> dict[tuple[TopicId, int], CommittedOffset]:
    value = CommittedOffset(offset=offset, commit_ms=1, metadata=metadata)
    return {(T, partition): value for partition in range(count)}


def write(one: Coordinator, offset: int, count: int = 1) -> asyncio.Future[ErrorCode]:
    return one.parts.commits.write(one.parts.groups.slot("g"), "g", offsets(offset, count))


async def read(one: Coordinator) -> dict[int, int]:
    found = await one.parts.commits.read(one.parts.groups.slot("g"), "g")
    assert not isinstance(found, ErrorCode)
    return {partition: offset.offset for (_, partition), offset in found.items()}


def jobs(sent: list[Any]) -> list[Txn]:
    return [job for request in sent for job in request.success if isinstance(job, Txn)]


async def test_an_acknowledged_offset_is_read_back(one: Coordinator) -> None:
    assert await write(one, 7) is ErrorCode.NONE
    assert await read(one) == {0: 7}


async def test_commits_that_wait_share_a_transaction_and_the_last_offset_wins(one: Coordinator) -> None:
    one.door.gate.clear()
    answers = [write(one, offset) for offset in range(100)]
    await turns()
    one.door.gate.set()
    assert set(await asyncio.gather(*answers)) == {ErrorCode.NONE}
    assert len(jobs(one.door.sent)) == 2
    assert await read(one) == {0: 99}


async def test_a_commit_whose_client_has_gone_is_not_sent(one: Coordinator) -> None:
    one.door.gate.clear()
    first, gone, other = write(one, 1), write(one, 2, 2), write(one, 3)
    await turns()
    gone.cancel()
    one.door.gate.set()
    assert [await first, await other] == [ErrorCode.NONE] * 2
    assert await read(one) == {0: 3}


async def test_five_hundred_partitions_are_written_in_chunks_that_etcd_takes(one: Coordinator) -> None:
    held = one.parts.groups.slot("g")
    others = [one.parts.commits.write(held, f"g{number}", offsets(1)) for number in range(60)]
    assert await write(one, 5, 500) is ErrorCode.NONE
    assert set(await asyncio.gather(*others)) == {ErrorCode.NONE}
    assert len(await read(one)) == 500
    assert max(len(job.success) for job in jobs(one.door.sent)) == 100


async def test_many_wide_commits_at_once_are_within_etcds_limit_of_operations(one: Coordinator) -> None:
    held = one.parts.groups.slot("g")
    answers = [one.parts.commits.write(held, f"g{number}", offsets(1, 100)) for number in range(60)]
    assert set(await asyncio.gather(*answers)) == {ErrorCode.NONE}


async def test_long_metadata_makes_smaller_chunks(one: Coordinator) -> None:
    held = one.parts.groups.slot("g")
    long = offsets(1, 60, metadata="m" * 60_000)
    assert await one.parts.commits.write(held, "g", long) is ErrorCode.NONE
    assert len(await read(one)) == 60


async def test_a_deleted_range_is_alone_in_its_transaction_and_in_its_place(one: Coordinator) -> None:
    held = one.parts.groups.slot("g")
    one.door.gate.clear()
    first = write(one, 1, 3)
    second = write(one, 2, 3)
    deleted = asyncio.ensure_future(one.parts.commits.delete_all(held, "g"))
    await turns()
    third = write(one, 4)
    one.door.gate.set()
    assert set(await asyncio.gather(first, second, deleted, third)) == {ErrorCode.NONE}
    for job in jobs(one.door.sent):
        if any(isinstance(op, Delete) for op in job.success):
            assert len(job.success) == 1
    assert await read(one) == {0: 4}


async def test_under_a_claim_that_is_gone_nothing_is_written_or_read(one: Coordinator) -> None:
    assert await write(one, 7) is ErrorCode.NONE
    zombie = one.parts.groups.slot("g")
    zombie.revision -= 1
    assert await write(one, 8) is ErrorCode.NOT_COORDINATOR
    assert await one.parts.commits.read(zombie, "g") is ErrorCode.NOT_COORDINATOR
    await one.has(64)
    assert await read(one) == {0: 7}


async def test_a_commit_with_an_unknown_outcome_is_asked_for_again_before_the_next(one: Coordinator) -> None:
    one.door.after.append(UNKNOWN)
    first = write(one, 1)
    await asyncio.sleep(0)
    second = write(one, 2)
    assert [await first, await second] == [ErrorCode.NONE] * 2
    assert await read(one) == {0: 2}
    puts = [op for job in jobs(one.door.sent) for op in job.success if isinstance(op, Put)]
    assert len(puts) == 3


async def test_what_expires_goes_only_as_it_was_read(one: Coordinator) -> None:
    held = one.parts.groups.slot("g")
    await write(one, 1, 2)
    page = await one.parts.commits.read_page(held)
    assert not isinstance(page, ErrorCode)
    due = dict(page.groups["g"])
    await write(one, 2)  # partition 0 meanwhile
    assert not await one.parts.commits.expire(held, "g", due)
    assert await read(one) == {0: 2, 1: 1}
    assert await one.parts.commits.expire(held, "g", {(T, 1): due[(T, 1)]})
    assert await read(one) == {0: 2}
    assert isinstance(due[(T, 1)], Stored)


async def test_what_waits_is_bounded(one: Coordinator) -> None:
    one.door.gate.clear()
    first = write(one, 1)
    second = write(one, 2, KEYS_WAITING_MAX)
    assert await write(one, 3) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    second.cancel()
    one.door.gate.set()
    assert await first is ErrorCode.NONE


async def test_offsets_that_cannot_be_read_are_no_offsets(one: Coordinator) -> None:
    one.door.before.append(UNKNOWN)
    held = one.parts.groups.slot("g")
    assert await one.parts.commits.read(held, "g") is ErrorCode.COORDINATOR_NOT_AVAILABLE


async def test_offsets_are_read_in_pages_of_bounded_size(
    one: Coordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = one.parts.groups.slot("g")
    for group in ("a", "g", "z"):
        await one.parts.commits.write(held, group, offsets(7, 5))
    monkeypatch.setattr(commits_module, "OFFSETS_PER_PAGE", 4)
    one.door.sent.clear()
    assert await read(one) == dict.fromkeys(range(5), 7)
    assert [read.limit for txn in one.door.sent for read in txn.success] == [4, 4]
    seen: dict[str, int] = {}
    page = await one.parts.commits.read_page(held)
    while not isinstance(page, ErrorCode):
        for group, found in page.groups.items():
            assert len(found) <= 4
            seen[group] = seen.get(group, 0) + len(found)
        if page.rest is None:
            break
        page = await one.parts.commits.read_page(held, page.rest)
    assert seen == {"a": 5, "g": 5, "z": 5}
