"""Storage, damage and cost, as the process of a question answers them; and the limits of that process."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafscale.console.direct.batch import answer_batch
from kafscale.console.direct.cost import cost_rows, shares
from kafscale.console.direct.damage import answer_damage
from kafscale.console.direct.health import answer_health
from kafscale.console.direct.questions import target_to_json
from kafscale.console.direct.storage import CLASSES, answer_storage, size_classes
from kafscale.operations.clusters import Cluster
from kafscale.operations.cost.load import Prices, Requests
from kafscale.operations.cost.measure import Measured
from kafscale.operations.target import Target
from kafscale.storage.membership.records import Instance, encode_live

from .asked import Row, children, cluster, here

__all__ = ["children", "cluster"]

names = st.sampled_from(["orders", "payments", "payroll"])
amounts = st.dictionaries(names, st.floats(0.001, 1e6))


def merged(lines: list[Row]) -> Row:
    return {name: value for line in lines for name, value in line.items()}


async def test_storage_names_only_the_topics_that_are_seen_and_sums_the_others(cluster: Cluster) -> None:
    found = merged(await here(answer_storage, cluster, {"topics": ["orders"]}))
    mine, others = found["topics"]
    assert (mine["topic"], mine["segments"], others["topic"], others["segments"]) == ("orders", 3, None, 1)
    assert mine["bytes"] > others["bytes"] > 0
    assert "payroll" not in str(found)
    assert found["unreadable"] == 0
    assert (found["sizes"]["seen"], found["sizes"]["segments"]) == (4, 4)
    assert found["bundles"]["bundles"] == 0
    families = {row["family"]: row["keys"] for row in found["etcd"]["families"]}
    assert (families["heads of partitions"], families["topics"]) == (2, 2)
    assert found["upkeep"] == {"jobs": [], "answers": False}


async def test_a_batch_is_shown_with_its_object(cluster: Cluster) -> None:
    place = {"topic": "orders", "partition": 0, "offset": 150}
    (line,) = await here(answer_batch, cluster, place)
    batch = line["batch"]
    assert (batch["base_offset"], batch["last_offset"], batch["records"]) == (100, 199, 100)
    assert (batch["codec"], batch["producer_id"], batch["is_transactional"]) == ("none", None, False)
    assert batch["object_kind"] == "segment"
    stored = {info.key: info.size async for info in cluster.store.list(cluster.keys.topic_prefix("orders"))}
    assert stored[batch["object"]] == batch["object_bytes"]
    for missing in ({"offset": 300}, {"partition": 1}, {"topic": "none"}):
        assert await here(answer_batch, cluster, place | missing) == [{"batch": None}]


async def test_damage_in_one_value_is_counted_and_the_rest_is_shown(cluster: Cluster) -> None:
    heads = await cluster.etcd.prefix(cluster.keys.heads_prefix())
    await cluster.etcd.put(heads.kvs[0].key, b"\xff")
    found = merged(await here(answer_storage, cluster, {"topics": ["orders", "payroll"]}))
    assert found["unreadable"] == 1
    assert len(found["topics"]) == 1


async def test_a_check_finds_what_is_lost_in_the_topics_that_were_chosen(cluster: Cluster) -> None:
    lost = next(iter([info.key async for info in cluster.store.list(cluster.keys.topic_prefix("orders"))]))
    await cluster.store.delete(lost)
    seen = ["orders", "payroll"]
    found = merged(await here(answer_damage, cluster, {"topics": ["orders"], "seen": seen}))
    assert [each["where"] for each in found["problems"]] == [lost]
    assert (found["end"]["clean"], found["end"]["topics"], found["end"]["all"]) == (False, 1, False)
    whole = merged(await here(answer_damage, cluster, {"topics": ["payroll"], "seen": seen}))
    assert whole["end"]["clean"] is True
    every = merged(await here(answer_damage, cluster, {"topics": None, "seen": seen}))
    assert (every["end"]["topics"], every["end"]["all"]) == (2, True)


async def test_a_check_of_everything_leaves_out_the_topics_that_are_not_seen(cluster: Cluster) -> None:
    lost = [info.key async for info in cluster.store.list(cluster.keys.topic_prefix("payroll"))]
    for key in lost:
        await cluster.store.delete(key)
    found = merged(await here(answer_damage, cluster, {"topics": None, "seen": ["orders"]}))
    assert (found["end"]["clean"], found["end"]["topics"], found["end"]["all"]) == (True, 1, False)
    assert "payroll" not in str(found)


async def test_an_instance_that_does_not_answer_is_a_row_with_what_is_not_known(cluster: Cluster) -> None:
    silent = Instance(role="fetch", node_id=7, boot_id="b", http_address="127.0.0.1:1", address="127.0.0.1:1")
    await cluster.etcd.put(cluster.keys.live("fetch", 7, "b"), encode_live(silent))
    (line,) = await here(answer_health, cluster, {"target": target_to_json(Target(None, None))})
    (row,) = line["picture"]["instances"]
    assert (row["service"], row["health"], row["version"]) == ("fetch", "no answer", None)
    assert row["metrics_url"] == "http://127.0.0.1:1/metrics"
    assert line["picture"]["serves"] is False


@given(st.lists(st.integers(0, 1 << 28)))
def test_each_size_is_in_one_class(sizes: list[int]) -> None:
    found = size_classes(sizes)
    assert sum(row["segments"] for row in found) == len(sizes)
    assert sum(row["bytes"] for row in found) == sum(sizes)
    assert [row["below"] for row in found] == [*CLASSES, None]
    assert found[0]["segments"] == sum(size < CLASSES[0] for size in sizes)


def measured(puts: dict[str, float], read: dict[str, float], gets: float | None) -> Measured:
    requests = Requests(puts=sum(puts.values()), gets=gets, deletes=0, head_commits=0, redundant_bytes=0)
    return Measured(
        requests=requests, over_s=1, partitions=1, puts_by_topic=puts, read_by_topic=read, silent=0
    )


@given(amounts, amounts, st.one_of(st.none(), st.floats(0, 1e4)), st.sets(names))
def test_what_topics_cost_sums_to_what_the_cluster_costs(
    puts: dict[str, float], read: dict[str, float], gets: float | None, seen: set[str]
) -> None:
    stored = {"orders": 10**12, "payroll": 5}
    found = cost_rows(measured(puts, read, gets), stored, frozenset(seen), Prices())
    assert {row["topic"] for row in found["items"]} <= {*seen, None}
    assert found["total"]["puts"] == pytest.approx(sum(puts.values()))
    assert found["total"]["bytes"] == 10**12 + 5
    if gets is None:
        assert all(row["gets"] is None for row in found["items"])
    elif puts or read:
        assert found["total"]["gets"] == pytest.approx(gets)
    (usd,) = [
        row["store_usd"] for row in found["items"] if row["topic"] == ("orders" if "orders" in seen else None)
    ]
    assert usd == pytest.approx(23.0, abs=0.01)


def test_shares_follow_the_weights() -> None:
    assert shares(10, {"a": 3, "b": 1}) == {"a": 7.5, "b": 2.5}
    assert shares(10, {}) == {}
    assert shares(None, {"a": 1}) is None


LIMITED = """
import resource, sys
from kafscale.console.child import limit_self
from kafscale.console.direct.questions import MEMORY_BYTES
limit_self(MEMORY_BYTES, cpu_s=7, writes=False)
assert resource.getrlimit(resource.RLIMIT_CPU) == (7, 8)
try:
    bytearray(2 << 30)
except MemoryError:
    print("memory")
try:
    with open(sys.argv[1], "w") as file:
        file.write("x")
except OSError:
    print("file")
"""


def test_the_process_has_limits_of_memory_time_and_files(tmp_path: object) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, f"{tmp_path}/file"], capture_output=True, text=True, timeout=60
    )
    assert done.stdout == "memory\nfile\n", done.stderr
