"""What an operator sees of a roll-forward before anything is written, and what a script gets."""

from __future__ import annotations

import io
import json

import pytest
import typer
from kafscale.cli.consent import Way
from kafscale.cli.fsck import roll_forward
from kafscale.cli.terminal import Output
from kafscale.operations.fsck.run import Fsck, Verdict
from kafscale.operations.rollforward.report import rows
from kafscale.storage.etcd.client import EtcdClient
from kafscale.storage.history.history import History
from kafscale.storage.history.witness import WentBack
from kafscale.storage.keys import Keyspace
from kafscale.storage.objects import MemoryStore

from libs.operations.tests.roll_forward_world import World, filled


@pytest.fixture
async def world(etcd: EtcdClient, keyspace: Keyspace) -> World:
    """A topic of one log in the bucket, and an empty etcd."""
    world = World(etcd, keyspace, MemoryStore())
    await filled(world)
    await world.lose()
    return world


async def test_a_dry_run_for_a_program_has_every_change_and_every_warning(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    assert not await roll_forward(world.cluster, Way.SHOW, {}, Output.JSON)
    shown = json.loads(capsys.readouterr().out)
    assert [(row["topic"], row["partition"], row["change"]) for row in shown["plan"]] == [
        ("orders", None, "topic created"),
        ("orders", 0, "created"),
    ]
    (warning,) = shown["warnings"]
    assert warning.startswith("TOPIC orders is created")
    assert await world.topic("orders") is None


@pytest.mark.parametrize("answer", ["y\n", "n\n"])
async def test_a_person_is_asked(world: World, monkeypatch: pytest.MonkeyPatch, answer: str) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(answer))
    if answer == "n\n":
        with pytest.raises(typer.Exit):
            await roll_forward(world.cluster, Way.ASK, {}, Output.TABLE)
    else:
        assert await roll_forward(world.cluster, Way.ASK, {}, Output.TABLE)
    assert (await world.topic("orders") is not None) == (answer == "y\n")


async def test_a_second_run_has_nothing_to_ask(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    assert await roll_forward(world.cluster, Way.DO, {}, Output.TABLE)
    assert "2 changes of topics and heads" in capsys.readouterr().err
    assert await roll_forward(world.cluster, Way.ASK, {}, Output.TABLE)
    assert "nothing to change" in capsys.readouterr().err
    seen = await world.look()
    assert rows(seen.metadata, seen.plan) == []


async def test_a_new_history_begins_and_fsck_says_until_then_that_etcd_went_back(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    old = History(world.etcd, world.keys, world.store)
    await old.verify()
    await world.lose()
    assert [problem.where for problem in (await fsck(world)).problems if "went back" in problem.what] == [
        "etcd"
    ]
    assert not await roll_forward(world.cluster, Way.SHOW, {}, Output.JSON)
    shown = capsys.readouterr()
    assert json.loads(shown.out)["plan"][0]["change"] == "new history of etcd"
    assert "HISTORY the bucket has the witness" in shown.err
    with pytest.raises(WentBack):
        await History(world.etcd, world.keys, world.store).verify()
    assert await roll_forward(world.cluster, Way.DO, {}, Output.TABLE)
    assert (await fsck(world)).problems == []
    await History(world.etcd, world.keys, world.store).verify()
    with pytest.raises(WentBack, match="restart it"):
        await old.verify()


async def test_a_run_that_ended_before_its_last_step_is_continued(
    world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    await History(world.etcd, world.keys, world.store).verify()
    await world.lose()
    with monkeypatch.context() as patched:

        async def killed(_: History) -> None:
            raise KeyboardInterrupt

        patched.setattr(History, "begin_anew", killed)
        with pytest.raises(KeyboardInterrupt):
            await roll_forward(world.cluster, Way.DO, {}, Output.TABLE)
    with pytest.raises(WentBack):
        await History(world.etcd, world.keys, world.store).verify()
    capsys.readouterr()
    assert await roll_forward(world.cluster, Way.DO, {}, Output.TABLE)
    assert "1 change of topics and heads" in capsys.readouterr().err
    await History(world.etcd, world.keys, world.store).verify()


async def fsck(world: World) -> Verdict:
    return await Fsck(world.etcd, world.keys, world.store, lambda *_: None).run()
