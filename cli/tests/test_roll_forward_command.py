"""What an operator sees of a roll-forward before anything is written, and what a script gets."""

from __future__ import annotations

import io
import json

import pytest
import typer
from kafscale.cli.consent import Way
from kafscale.cli.rollforward.command import roll_forward
from kafscale.cli.rollforward.report import rows
from kafscale.cli.terminal import Output
from kafscale.storage.etcd.client import EtcdClient
from kafscale.storage.keys import Keyspace
from kafscale.storage.objects import MemoryStore

from .roll_forward_world import World, filled


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
    assert rows((await world.look()).plan) == []
