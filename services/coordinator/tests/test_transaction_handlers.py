"""The handlers of transactional ids: the answers of each version, bad input, and what stays while they are off."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from kafscale.coordinator.handlers import init_producer_id
from kafscale.storage.etcd.client import EtcdClient
from kafscale.storage.keys import Keyspace
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema import init_producer_id as init_schema

from services.coordinator.tests.shell_harness import Coordinator, make_topic, running
from services.coordinator.tests.transaction_harness import NAME, ON, TIMEOUT_MS, add_owner, take_calls

LATEST_INIT = 5


@pytest_asyncio.fixture
async def one(
    etcd: EtcdClient, keyspace: Keyspace, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Coordinator]:
    take_calls(monkeypatch)
    await add_owner(etcd, keyspace)
    await make_topic(etcd, keyspace)
    async with running(etcd, keyspace, ON) as coordinator:
        yield coordinator


async def init(one: Coordinator, version: int = LATEST_INIT, **fields: Any) -> tuple[int, int, int]:
    """The error, the producer id and the epoch."""
    request = init_schema.InitProducerIdRequest(
        **{"transactional_id": NAME, "transaction_timeout_ms": TIMEOUT_MS, **fields}
    )
    answer = await one.ask(init_producer_id, init_schema, request, version)
    return answer.error_code, answer.producer_id, answer.producer_epoch


async def test_init_raises_the_epoch_of_an_id_and_gives_others_a_new_producer_id(one: Coordinator) -> None:
    error, producer_id, epoch = await init(one)
    assert (error, epoch) == (ErrorCode.NONE, 0)
    assert await init(one, 0) == (ErrorCode.NONE, producer_id, 1)
    assert await init(one, producer_id=producer_id, producer_epoch=1) == (ErrorCode.NONE, producer_id, 2)
    assert (await init(one, transactional_id="other"))[1] != producer_id
    assert (await init(one, transactional_id=None))[2] == 0


async def test_before_version_4_a_fenced_producer_hears_of_its_epoch(one: Coordinator) -> None:
    _, producer_id, _ = await init(one)
    await init(one)
    stale = {"producer_id": producer_id, "producer_epoch": 0}
    assert (await init(one, 3, **stale))[0] == ErrorCode.INVALID_PRODUCER_EPOCH
    assert (await init(one, 4, **stale))[0] == ErrorCode.PRODUCER_FENCED


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"transactional_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"transactional_id": "ä" * 513}, ErrorCode.INVALID_REQUEST),
        ({"transaction_timeout_ms": 0}, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ({"transaction_timeout_ms": 900_001}, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ({"producer_id": 5}, ErrorCode.INVALID_REQUEST),
        ({"producer_epoch": 5}, ErrorCode.INVALID_REQUEST),
    ],
    ids=str,
)
async def test_bad_input_of_init(one: Coordinator, wrong: dict[str, Any], error: ErrorCode) -> None:
    assert await init(one, **wrong) == (error, -1, -1)
    assert (await one.etcd.prefix(one.keys.transactions_prefix())).kvs == ()


async def test_while_transactions_are_off_an_id_is_refused_and_no_record_is_read(
    etcd: EtcdClient, keyspace: Keyspace
) -> None:
    async with running(etcd, keyspace) as off:
        assert await init(off) == (ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, -1, -1)
        assert (await init(off, transactional_id=None))[0] == ErrorCode.NONE
        assert off.parts.transactions is None
        assert len(off.parts._contents()) == 1
        assert off.metric("transactions_closing") == 0
        assert off.metric("transactions_decided_total", "commit", "tv2") == 0
