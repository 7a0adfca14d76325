"""Libraries for streams in Python copy every record at least once, in order, when they and services are killed."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from e2e.harness.clients import HERE
from e2e.harness.cluster import Cluster
from e2e.harness.ecosystem import (
    Program,
    assert_complete,
    create_topics,
    distinct,
    python_of,
    values,
    write,
)

pytestmark = [pytest.mark.ecosystem, pytest.mark.timeout(900)]

APPS = HERE / "stream_apps"
HALF, COUNT = 1_000, 2_000


def by_arguments(name: str, bootstrap: str, folder: Path) -> Program:
    command = [python_of(name), f"on_{name}.py", bootstrap, f"{name}-group", f"{name}-in", f"{name}-out"]
    return Program(name, [*command, str(folder / "state")], folder, cwd=APPS)


def bytewax(bootstrap: str, folder: Path) -> Program:
    """Its offsets are in a recovery store, which is made once."""
    store, python = folder / "recovery", python_of("bytewax")
    store.mkdir(parents=True)
    env = {"BOOTSTRAP": bootstrap, "FROM": "bytewax-in", "TO": "bytewax-out"}
    made = Program("bytewax-recovery", [python, "-m", "bytewax.recovery", str(store), "1"], folder)
    made.start()
    assert made.wait() == 0, made.story()
    run = [python, "-m", "bytewax.run", "on_bytewax", "-r", str(store), "-s", "1", "-b", "0"]
    return Program("bytewax", run, folder, env=env, cwd=APPS)


MAKERS: dict[str, Callable[[str, Path], Program]] = {
    "faust": partial(by_arguments, "faust"),
    "quixstreams": partial(by_arguments, "quixstreams"),
    "bytewax": bytewax,
}


@pytest.mark.parametrize("name", MAKERS)
def test_every_record_is_copied(cluster: Cluster, programs: list[Program], tmp_path: Path, name: str) -> None:
    create_topics(cluster.bootstrap, f"{name}-in", f"{name}-out")
    app = MAKERS[name](cluster.bootstrap, tmp_path)
    programs.append(app)

    def copied(count: int) -> Callable[[], bool]:
        return lambda: distinct(cluster.bootstrap, f"{name}-out") >= count

    write(cluster.bootstrap, f"{name}-in", range(HALF))
    app.start()
    app.wait_for("the first are copied", copied(1))
    app.kill()
    write(cluster.bootstrap, f"{name}-in", range(HALF, COUNT))
    app.start()
    app.wait_for("more than the first half is copied", copied(HALF + 1))
    for role in ("coordinator", "produce", "fetch", "frontdoor"):
        cluster.kill_one(role, 0)
    app.wait_for("everything is copied", copied(COUNT))
    app.stop()
    assert_complete(values(cluster.bootstrap, f"{name}-out"), COUNT, before="done:")
