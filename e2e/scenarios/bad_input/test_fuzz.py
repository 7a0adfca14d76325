"""Mutated frames of every version of every API, by the thousand, on many connections at once.

Law: each frame gets an answer that can be decoded, or its connection is closed. No process dies or restarts. A
producer and a consumer see no error during the run, and every record in order. After the first tenth of the frames, the
memory of no service grows by 5%: memory is read after each round, and the median of the last tenth is compared with
that of the first, because malloc sometimes returns megabytes and takes them again. `make fuzz` sends FRAMES=10000 of
each API, the gate a few hundred.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from random import Random
from statistics import median_low

import pytest
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema import api_versions, delete_groups, delete_topics, list_groups, metadata

from e2e.harness.api_requests import ROWS
from e2e.harness.cluster import Cluster
from e2e.harness.fuzz import Fuzz
from e2e.harness.mutation import mutant
from e2e.harness.oracles import request_frame
from e2e.harness.prepared import World
from e2e.harness.raw import Raw
from e2e.harness.requests import TOPIC, ask, create
from e2e.harness.services import until
from e2e.harness.steady import Steady

SEED = os.environ.get("SEED", "kafscale")
GATE_FRAMES, LONG_FRAMES = 200, 10_000
ROUND_FRAMES = 100
SERVICES = ("frontdoor", "produce", "fetch", "coordinator", "admin")
GROWTH_MAX = 1.05
STEADY = "steady"
SETTINGS = {
    "KAFSCALE_AUTO_CREATE_TOPICS_ENABLE": "false",  # else half of all mutants would be topics
    "KAFSCALE_CACHE_BYTES": str(512 << 10),  # the bystander fills it before the first tenth ends
    "KAFSCALE_FETCH_MANIFEST_SEGMENTS": "500",
    "KAFSCALE_FETCH_MAX_WAIT_MS": "500",  # nothing may be held for long: the next mutants stand behind it
    "KAFSCALE_FRONTDOOR_JOIN_WAIT_MS_MAX": "1000",
    "KAFSCALE_GROUP_INITIAL_REBALANCE_DELAY_MS": "0",
    "KAFSCALE_GROUP_MIN_SESSION_TIMEOUT_MS": "100",
    "KAFSCALE_GROUP_MAX_SESSION_TIMEOUT_MS": "6000",
    "KAFSCALE_GROUP_CONSUMER_SESSION_TIMEOUT_MS": "6000",
}

Sizes = dict[str, int]
"""service and process id -> resident KiB"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A separate cluster, so that topics which mutants create do not disturb other tests."""
    cluster = Cluster(data_dir=tmp_path_factory.mktemp("fuzz"), env=SETTINGS)
    cluster.start()
    try:
        with Raw.to(cluster.bootstrap) as raw:
            for topic in (TOPIC, STEADY):
                until(f"{topic} is there", partial(is_there, raw, topic))
        yield cluster
        assert cluster.logged_errors() == []
    finally:
        cluster.kill()


def is_there(raw: Raw, topic: str) -> bool:
    return create(raw, topic) in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)


@pytest.fixture(autouse=True)
def bystander() -> None:
    """The name is `steady` here: an idle connection would be closed in a long run."""


@pytest.fixture
def steady(cluster: Cluster) -> Iterator[Steady]:
    steady = Steady(cluster.bootstrap, STEADY)
    steady.start()
    yield steady
    steady.stop()
    assert steady.errors == []
    assert steady.read == steady.acknowledged == steady.sent


def offered(raw: Raw) -> dict[int, range]:
    """key -> versions, from the server's ApiVersions."""
    rows = ask(raw, api_versions, 0, api_versions.ApiVersionsRequest()).api_keys
    return {row.api_key: range(row.min_version, row.max_version + 1) for row in rows if row.max_version >= 0}


def valid_frames(raw: Raw, number: int) -> dict[int, list[bytes]]:
    """Valid requests of each API in each version; `number` is the round."""
    found = {}
    for key, versions in offered(raw).items():
        names = World(topic=f"fuzz-{key}", group=f"fuzz-{key}-{number}", dry=True, session_ms=100)
        world = ROWS[key].prepare(raw, names)
        found[key] = [request_frame(key, each, 0, ROWS[key].content(world, each)) for each in versions]
    return found


def clean(raw: Raw) -> None:
    """Removes what mutants have created, so that it does not count in the measurement."""
    ours = {TOPIC, STEADY, *(f"fuzz-{key}" for key in ROWS)}
    everything = ask(raw, metadata, 9, metadata.MetadataRequest(topics=None)).topics
    strange = [topic.name for topic in everything if topic.name not in ours]
    doomed = delete_topics.DeleteTopicsRequest(topic_names=strange, timeout_ms=30_000)
    ask(raw, delete_topics, 5, doomed)
    groups = ask(raw, list_groups, 2, list_groups.ListGroupsRequest()).groups
    ask(
        raw,
        delete_groups,
        1,
        delete_groups.DeleteGroupsRequest(groups_names=[each.group_id for each in groups]),
    )


def resident(cluster: Cluster) -> Sizes:
    return {
        f"{role} {pid}": int(line.split()[1])
        for role in SERVICES
        for pid in cluster.pids(role)
        for line in Path(f"/proc/{pid}/status").read_text().splitlines()
        if line.startswith("VmRSS:")
    }


def medians(rounds: Sequence[Sizes]) -> Sizes:
    return {process: median_low(sizes[process] for sizes in rounds) for process in rounds[0]}


def send_rounds(cluster: Cluster, frames: int, say: Callable[[str], None]) -> list[Sizes]:
    """`frames` mutants of each API. Resident memory after each round of them."""
    fuzz, seen, rounds = Fuzz(cluster.bootstrap), list[Sizes](), -(-frames // ROUND_FRAMES)
    for number in range(rounds):
        rng = Random(f"{SEED}-{number}")
        with Raw.to(cluster.bootstrap) as raw:
            valid = valid_frames(raw, number)
            count = min(ROUND_FRAMES, frames - number * ROUND_FRAMES)
            bent = [mutant(rng, own) for own in valid.values() for _ in range(count)]
            rng.shuffle(bent)
            asyncio.run(fuzz.send(bent, rng))
            clean(raw)
        seen.append(resident(cluster))
        assert seen[-1].keys() == seen[0].keys(), "a process died"
        say(f"{number + 1}/{rounds} rounds of {len(valid)} APIs: {summary(fuzz.outcomes)}; {seen[-1]}")
    return seen


def summary(outcomes: Counter[str]) -> str:
    return ", ".join(f"{count} {what}" for what, count in sorted(outcomes.items()))


def report(text: str) -> None:
    os.write(2, f"{text}\n".encode())


@pytest.mark.timeout(400)
def test_hundreds_of_mutated_frames_of_each_api_disturb_nobody(cluster: Cluster, steady: Steady) -> None:
    send_rounds(cluster, GATE_FRAMES, report)


@pytest.mark.chaos
@pytest.mark.timeout(7_200)
def test_ten_thousand_of_each_api_disturb_nobody_and_cost_no_memory(cluster: Cluster, steady: Steady) -> None:
    seen = send_rounds(cluster, int(os.environ.get("FRAMES", LONG_FRAMES)), report)
    tenth = max(1, len(seen) // 10)
    early, late = medians(seen[:tenth]), medians(seen[-tenth:])
    report(f"first tenth {early}, last tenth {late}")
    grown = {
        process: (size, late[process]) for process, size in early.items() if late[process] > GROWTH_MAX * size
    }
    assert grown == {}
