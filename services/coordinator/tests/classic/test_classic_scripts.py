"""Stories of a group as text, for people: scripts/*.txt are commands, each followed by what it causes.

    join NAME [instance=I] [offer=range:meta,sticky:meta] [session=10s] [rebalance=60s] [v=4]
    restart NAME [v=9]        a static member's process starts again and has forgotten its member id
    sync NAME [gen=N] [NAME=assignment …]
    heartbeat NAME [gen=N] · commit NAME [gen=N] · leave NAME … (=I by instance id) · vanish NAME
    tick 3s [alive=a,b] · crash · delete · describe

KAFSCALE_REWRITE=1 writes what was seen into the files; read the difference before you keep it.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kafscale.coordinator.classic.model import JoinReply, LeaveReply, Protocol, Reply, SyncReply
from kafscale.coordinator.classic.queries import describe
from kafscale.wire.errors import ErrorCode

from services.coordinator.tests.classic.classic_desk import REBALANCE_MS, SESSION_MS, Desk

SCRIPTS = sorted((Path(__file__).parent / "scripts").glob("*.txt"))


class Teller(Desk):
    """A desk that writes down what it hears."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self.last_phase = self.phase
        self.asked: dict[int, str] = {}

    def take(self, replies: tuple[Reply, ...] | list[Reply]) -> list[tuple[str, Reply]]:
        heard = super().take(replies)
        self.lines += [f"{name}: {self.tell(reply)}" for name, reply in heard]
        return heard

    def _answered(self, event: Any, kind: Any) -> Any:
        self.asked[event.token] = type(event).__name__.lower()
        return super()._answered(event, kind)

    def tell(self, reply: Reply) -> str:
        if isinstance(reply, LeaveReply):
            return "leave " + " ".join(each.error.name for each in reply.leavers)
        kind = self.asked.get(reply.token, type(reply).__name__.removesuffix("Reply").lower())
        if reply.error is not ErrorCode.NONE:
            return f"{kind} {reply.error.name}"
        match reply:
            case JoinReply():
                members = ",".join(self.called(each.member_id) for each in reply.members)
                skips = ", keeps the assignment" if reply.skip_assignment else ""
                leads = f" leads {members}{skips}" if members else f" follows {self.called(reply.leader)}"
                return f"join generation {reply.generation} {reply.protocol_name}{leads}"
            case SyncReply():
                return f"sync {reply.assignment.decode() or 'nothing'}"
            case _:
                return f"{kind} ok"

    def called(self, member_id: str) -> str:
        """`a` for all member ids of a."""
        return member_id.partition("-")[0]

    def run(self, line: str) -> list[str]:
        self.lines = []
        words = line.split()
        options = dict(word.split("=", 1) for word in words[1:] if "=" in word[1:])
        names = [word for word in words[1:] if "=" not in word[1:]]
        COMMANDS[words[0]](self, names, options)
        if self.phase is not self.last_phase:
            self.lines.append(f"{self.last_phase.value} -> {self.phase.value}")
            self.last_phase = self.phase
        self.asked: dict[int, str] = {}
        return self.lines


def millis(text: str) -> int:
    return int(text[:-2]) if text.endswith("ms") else int(float(text.removesuffix("s")) * 1_000)


def offered(text: str) -> tuple[Protocol, ...]:
    pairs = [each.partition(":") for each in text.split(",")]
    return tuple((name, metadata.encode()) for name, _, metadata in pairs)


def join(desk: Teller, names: list[str], options: dict[str, str]) -> None:
    version = int(options.get("v", 3))
    desk.join(
        names[0],
        instance=options.get("instance"),
        offer=offered(options.get("offer", "range:t")),
        session_ms=millis(options["session"]) if "session" in options else SESSION_MS,
        rebalance_ms=millis(options["rebalance"]) if "rebalance" in options else REBALANCE_MS,
        anew="anew" in options,
        v4=version >= 4,
        v9=version >= 9,
    )
    if desk.waits(names[0]):
        desk.lines.append(f"{names[0]} waits")


def sync(desk: Teller, names: list[str], options: dict[str, str]) -> None:
    generation = options.pop("gen", None)
    given = {name: what.encode() for name, what in options.items()}
    desk.sync(names[0], generation=None if generation is None else int(generation), given=given)
    if desk.waits(names[0]):
        desk.lines.append(f"{names[0]} waits")


def generation_in(options: dict[str, str]) -> int | None:
    return int(options["gen"]) if "gen" in options else None


def tell_all(desk: Teller, names: list[str], options: dict[str, str]) -> None:
    told = describe("g", desk.group)
    desk.lines.append(
        f"{told.group_state} {told.protocol_type}/{told.protocol_data} generation {desk.group.generation}"
    )
    for each in told.members:
        static = "" if each.group_instance_id is None else f" static {each.group_instance_id}"
        metadata, assignment = each.member_metadata.decode(), each.member_assignment.decode()
        desk.lines.append(f"{desk.called(each.member_id)}{static} [{metadata}] [{assignment}]")


COMMANDS: dict[str, Callable[[Teller, list[str], dict[str, str]], object]] = {
    "join": join,
    "restart": lambda desk, names, options: join(desk, names, {**options, "anew": ""}),
    "sync": sync,
    "heartbeat": lambda desk, names, options: desk.heartbeat(names[0], generation=generation_in(options)),
    "commit": lambda desk, names, options: desk.commit(names[0], generation=generation_in(options)),
    "leave": lambda desk, names, options: desk.leave(*names),
    "vanish": lambda desk, names, options: desk.vanish(names[0]),
    "tick": lambda desk, names, options: desk.wait(
        millis(names[0]), *options.get("alive", "").split(",") if "alive" in options else ()
    ),
    "crash": lambda desk, names, options: desk.crash(),
    "delete": lambda desk, names, options: desk.delete(),
    "describe": tell_all,
}


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_a_story_goes_as_it_is_told(path: Path) -> None:
    desk, seen, told = Teller(), list[str](), path.read_text().splitlines()
    for line in told:
        if not line.startswith("  "):
            seen.append(line)
            if line and not line.startswith("#"):
                seen += ["  " + each for each in desk.run(line)]
    if os.environ.get("KAFSCALE_REWRITE"):
        path.write_text("\n".join(seen) + "\n")
        return
    assert seen == told
    desk.judge.leave_alone()


def test_there_are_stories() -> None:
    assert SCRIPTS
