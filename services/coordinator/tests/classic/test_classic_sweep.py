"""Every event in every phase: what is answered, and where the group goes. The laws are judged as well."""

import pytest
from kafscale.coordinator.classic.model import (
    NO_MEMBER_ID,
    Abandon,
    Commit,
    Delete,
    Event,
    Generation,
    Heartbeat,
    InstanceId,
    Join,
    Leave,
    Leaver,
    MemberId,
    Phase,
    Sync,
    Tick,
    Token,
)

from services.coordinator.tests.classic.classic_desk import RANGE, Desk

PHASES = tuple(Phase)
T = Token(999)
# The columns are the phases in their order; a letter tells into which one the group went.
EXPECTED = """
join-new       WAITS>P            WAITS                 WAITS>P               WAITS>P            NOT_AVAILABLE
join-new-v4    MEMBER_ID_REQUIRED MEMBER_ID_REQUIRED    MEMBER_ID_REQUIRED    MEMBER_ID_REQUIRED NOT_AVAILABLE
join-static    WAITS>P            WAITS                 WAITS>P               WAITS>P            NOT_AVAILABLE
join-leader    UNKNOWN_MEMBER_ID  WAITS                 NONE                  WAITS>P            NOT_AVAILABLE
join-follower  UNKNOWN_MEMBER_ID  WAITS                 NONE                  NONE               NOT_AVAILABLE
join-changed   UNKNOWN_MEMBER_ID  WAITS                 WAITS>P               WAITS>P            NOT_AVAILABLE
join-stranger  UNKNOWN_MEMBER_ID  UNKNOWN_MEMBER_ID     UNKNOWN_MEMBER_ID     UNKNOWN_MEMBER_ID  NOT_AVAILABLE
sync-leader    UNKNOWN_MEMBER_ID  REBALANCE_IN_PROGRESS NONE>S                NONE               NOT_AVAILABLE
sync-follower  UNKNOWN_MEMBER_ID  REBALANCE_IN_PROGRESS WAITS                 NONE               NOT_AVAILABLE
sync-past      UNKNOWN_MEMBER_ID  ILLEGAL_GENERATION    ILLEGAL_GENERATION    ILLEGAL_GENERATION NOT_AVAILABLE
heartbeat      UNKNOWN_MEMBER_ID  REBALANCE_IN_PROGRESS NONE                  NONE               NOT_AVAILABLE
heartbeat-past UNKNOWN_MEMBER_ID  ILLEGAL_GENERATION    ILLEGAL_GENERATION    ILLEGAL_GENERATION NOT_AVAILABLE
leave          NONE               NONE                  NONE>P                NONE>P             NOT_AVAILABLE
commit         UNKNOWN_MEMBER_ID  NONE                  REBALANCE_IN_PROGRESS NONE               NOT_AVAILABLE
commit-past    UNKNOWN_MEMBER_ID  ILLEGAL_GENERATION    ILLEGAL_GENERATION    ILLEGAL_GENERATION NOT_AVAILABLE
commit-simple  NONE               UNKNOWN_MEMBER_ID     UNKNOWN_MEMBER_ID     UNKNOWN_MEMBER_ID  NOT_AVAILABLE
delete         NONE>D             NON_EMPTY_GROUP       NON_EMPTY_GROUP       NON_EMPTY_GROUP    GROUP_ID_NOT_FOUND
abandon        -                  -                     -                     -                  -
tick           -                  -                     -                     -                  -
"""
ROWS = [line.split() for line in EXPECTED.strip().splitlines()]
CASES = [(row[0], phase, cell) for row in ROWS for phase, cell in zip(PHASES, row[1:], strict=True)]


def group_in(phase: Phase) -> Desk:
    """Of a leader and a follower that know a generation, except where there can be none."""
    desk = Desk()
    desk.stable("leader", "follower")
    match phase:
        case Phase.PREPARING_REBALANCE:
            desk.join("leader")
            desk.vanish("leader")
        case Phase.COMPLETING_REBALANCE:
            desk.join("leader")
            desk.join("follower")
        case Phase.EMPTY | Phase.DEAD:
            desk.leave("leader", "follower")
            if phase is Phase.DEAD:
                desk.delete()
    assert desk.phase is phase
    return desk


def event_of(name: str, desk: Desk) -> Event:
    leader, follower, stranger = desk.ids["leader"], desk.ids["follower"], MemberId("stranger")
    generation = desk.group.generation
    past = Generation(generation - 1)

    def join(
        member_id: MemberId, *, changed: bool = False, v4: bool = False, instance: InstanceId | None = None
    ) -> Join:
        return Join(
            token=T,
            member_id=member_id,
            fresh_id=MemberId("fresh"),
            protocol_type="consumer",
            protocols=(("range", b"changed"),) if changed else RANGE,
            session_timeout_ms=10_000,
            rebalance_timeout_ms=60_000,
            needs_known_id=v4,
            instance_id=instance,
        )

    events: dict[str, Event] = {
        "join-new": join(NO_MEMBER_ID),
        "join-new-v4": join(NO_MEMBER_ID, v4=True),
        "join-static": join(NO_MEMBER_ID, instance=InstanceId("s")),
        "join-leader": join(leader),
        "join-follower": join(follower),
        "join-changed": join(follower, changed=True),
        "join-stranger": join(stranger),
        "sync-leader": Sync(token=T, generation=generation, member_id=leader),
        "sync-follower": Sync(token=T, generation=generation, member_id=follower),
        "sync-past": Sync(token=T, generation=past, member_id=follower),
        "heartbeat": Heartbeat(token=T, generation=generation, member_id=follower),
        "heartbeat-past": Heartbeat(token=T, generation=past, member_id=follower),
        "leave": Leave(token=T, leavers=(Leaver(member_id=follower),)),
        "commit": Commit(token=T, generation=generation, member_id=follower),
        "commit-past": Commit(token=T, generation=past, member_id=follower),
        "commit-simple": Commit(token=T),
        "delete": Delete(token=T),
        "abandon": Abandon(token=T),
        "tick": Tick(),
    }
    return events[name]


@pytest.mark.parametrize(
    ("name", "phase", "expected"), CASES, ids=lambda value: getattr(value, "value", value)
)
def test_every_event_has_its_answer_in_every_phase(name: str, phase: Phase, expected: str) -> None:
    desk = group_in(phase)
    generation = desk.group.generation
    replies = desk.judge.do(event_of(name, desk))
    own = [reply for reply in replies if reply.token == T]
    unanswered = "WAITS" if T in desk.judge.open else "-"
    told = own[0].error.name.removeprefix("COORDINATOR_") if own else unanswered
    if desk.phase is not phase:
        told += ">" + desk.phase.value[0]
    assert told == expected
    assert desk.group.generation == generation
    if phase is not Phase.DEAD:
        desk.judge.leave_alone()


def test_the_table_names_every_kind_of_event() -> None:
    desk = group_in(Phase.STABLE)
    kinds = {type(event_of(row[0], desk)) for row in ROWS}
    assert kinds == set(Event.__args__)
