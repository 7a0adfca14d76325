"""The job `lag` writes the report in each of its forms, without a session."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from kafscale.storage.groups import CommittedOffset, encode_committed
from kafscale.storage.slots import slot_of
from kafscale_spark.jobs import lag
from kafscale_spark.jobs.program import run
from lakes import World


@pytest.fixture
def named(world: World, monkeypatch: pytest.MonkeyPatch) -> World:
    """The world's cluster is the one that KAFSCALE_* names."""
    for option, value in world.options.items():
        monkeypatch.setenv(option.replace("kafscale.", "KAFSCALE_").upper(), value)
    monkeypatch.setattr(lag, "job_session", lambda _: pytest.fail("a session was begun"))
    return world


async def commit(world: World, group: str, topic: str, offset: int) -> None:
    log = world.logs[f"{topic}:0"]
    key = world.lake.keys.committed(slot_of(group), group, log.topic.topic_id, 0)
    await world.lake.etcd.put(key, encode_committed(CommittedOffset(offset=offset, commit_ms=1)))


async def test_the_report_is_written_in_all_its_forms(named: World, tmp_path: Path) -> None:
    await named.filled("orders")
    await commit(named, "slow", "orders", 20)
    await commit(named, "fast", "orders", 49)
    files = {name: tmp_path / name for name in ("answer", "parquet", "prometheus", "html")}
    words = [word for name, file in files.items() for word in (f"--{name}", str(file))]
    await asyncio.to_thread(lag.main, [*words, "--top", "1"])
    told = json.loads(files["answer"].read_text())
    assert [(row["group"], row["records"]) for row in told["partitions"]] == [("slow", 30)]
    assert {row["group"]: row["records"] for row in told["groups"]} == {"slow": 30, "fast": 1}
    assert [row["topic"] for row in told["topics"]] == ["orders"]
    assert sorted(pq.read_table(files["parquet"])["records"].to_pylist()) == [1, 30]
    assert "kafka_consumergroup_group_lag{" in files["prometheus"].read_text()
    assert files["html"].read_text(encoding="utf-8").startswith("<!doctype html>")


async def test_groups_are_chosen_and_a_checkpoint_that_is_none_is_told(named: World, tmp_path: Path) -> None:
    await named.filled("orders", segments=1)
    await commit(named, "slow", "orders", 2)
    await commit(named, "fast", "orders", 9)
    answer = tmp_path / "answer"
    await asyncio.to_thread(lag.main, ["--group", "fast", "--answer", str(answer)])
    assert [row["group"] for row in json.loads(answer.read_text())["partitions"]] == ["fast"]
    with pytest.raises(SystemExit, match="group 'nobody' does not exist"):
        await asyncio.to_thread(run, lambda: lag.main(["--group", "nobody", "--answer", str(answer)]))
    with pytest.raises(SystemExit, match="checkpoint"):
        run(lambda: lag.main(["--checkpoint", str(tmp_path)]))
