"""By the time that a refusal takes, nobody finds out which users exist.

`make login-timing` measures it: the machine should be quiet, because noise hides a difference, and does not make one.
The tests of the mechanisms count the work instead, on any machine.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
import statistics
from collections.abc import Sequence
from time import perf_counter_ns

import pytest
from door_sockets import framed, on_uvloop, read_answer, running
from kafscale.wire.headers import decode_response_header
from kafscale.wire.schema import sasl_authenticate
from login_harness import ALICE, alice, authenticate_body, handshake_body, plain, scram

log = logging.getLogger(__name__)

SAMPLES = 10_000
P_MIN = 0.01
UNKNOWN = "nobod"  # as long as the name that exists
SETTINGS = {
    "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
    "sasl_enabled_mechanisms": "SCRAM-SHA-256,PLAIN",
    "connection_failed_authentication_delay_ms": 0,
}
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def chance(some: Sequence[float], others: Sequence[float]) -> float:
    """The rank-sum test (Mann and Whitney), two-sided, for many samples: how likely a difference like this is if there
    is none. Single slow samples, as on every machine, count little in it."""
    ranked = sorted([(value, True) for value in some] + [(value, False) for value in others])
    ranks = sum(rank for rank, (_, is_some) in enumerate(ranked, 1) if is_some)
    count, other_count = len(some), len(others)
    expected = count * (count + other_count + 1) / 2
    deviation = math.sqrt(count * other_count * (count + other_count + 1) / 12)
    return math.erfc(abs(ranks - expected) / deviation / math.sqrt(2))


def test_the_statistic_sees_a_difference_of_some_percent() -> None:
    drawn = random.Random(1)
    some, others = ([drawn.lognormvariate(0, 0.2) for _ in range(5_000)] for _ in range(2))
    assert chance(some, others) > P_MIN
    assert chance(some, [value * 1.02 for value in others]) < P_MIN


async def send(streams: Streams, key: int, version: int, body: bytes) -> tuple[int, bytes]:
    """Nanoseconds until the answer, and what follows its correlation id."""
    reader, writer = streams
    began = perf_counter_ns()
    writer.write(framed(key, version, 1, body))
    _, answer = await read_answer(reader)
    return perf_counter_ns() - began, answer


async def refusal_ns(port: int, mechanism: str, user: str) -> list[int]:
    """Of a wrong password: how long each answer to a message of the mechanism took."""
    streams = await asyncio.open_connection("127.0.0.1", port)
    await send(streams, 17, 1, handshake_body(mechanism))
    if mechanism == "PLAIN":
        took, answer = await send(streams, 36, 2, authenticate_body(plain(user, "wrong")))
        found = [took]
    else:
        client = scram(user, "wrong")
        first, answer = await send(streams, 36, 2, authenticate_body(client.first()))
        challenge = authenticated(answer).auth_bytes
        final, answer = await send(streams, 36, 2, authenticate_body(client.final(challenge)))
        found = [first, final]
    assert authenticated(answer).error_code == 58
    streams[1].close()
    return found


def authenticated(answer: bytes) -> sasl_authenticate.SaslAuthenticateResponse:
    _, offset = decode_response_header(bytes(4) + answer, 36, 2)
    return sasl_authenticate.decode_response((bytes(4) + answer)[offset:], 2)


@pytest.mark.deep
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "PLAIN"])
def test_refusals_of_known_and_unknown_users_take_the_same_time(mechanism: str) -> None:
    async def measured() -> dict[str, list[list[int]]]:
        found: dict[str, list[list[int]]] = {ALICE: [], UNKNOWN: []}
        names = [ALICE, UNKNOWN] * (SAMPLES // 2)
        random.shuffle(names)
        async with running(alice(), **SETTINGS) as system:
            for name in names[:200]:  # caches are filled
                await refusal_ns(system.port, mechanism, name)
            for name in names:
                found[name].append(await refusal_ns(system.port, mechanism, name))
        return found

    found: dict[str, list[list[int]]] = {}

    async def run() -> None:
        found.update(await measured())

    on_uvloop(run)()
    known, unknown = (list(zip(*found[name], strict=True)) for name in (ALICE, UNKNOWN))
    for step, (some, others) in enumerate(zip(known, unknown, strict=True), 1):
        likely = chance(some, others)
        medians = [statistics.median(each) / 1_000 for each in (some, others)]
        log.info("%s, message %d: %.1f and %.1f us, p = %.3f", mechanism, step, *medians, likely)
        assert likely > P_MIN / len(known), medians
