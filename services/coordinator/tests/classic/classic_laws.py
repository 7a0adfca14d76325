"""The laws of a classic group, as a judge through whom every step of every test goes.

L1 a step is a function · L2 a token is answered once, and the tokens held are the open ones · L3 phases
move along LEGAL · L4 generations never fall, and each new phase of members or of none has its own ·
L5 Empty (or Dead) ⇔ no members · L6 in a generation the leader is a member, and all offer the protocol ·
L7 Stable parks nobody · L8 rebalancing ⇔ a deadline · L9 no deadline in the past · L10 a wrong
generation gets no success, and an assignment is of its generation · L11 a crash keeps all laws ·
L12 left alone, a group becomes empty and everyone is answered (`leave_alone`). Besides: what a reply
claims is persisted with it; heartbeats save nothing; refused requests change nothing; bounds hold.
"""

from dataclasses import replace

from kafscale.coordinator.classic.machine import durable, must_save, next_deadline, restore, step
from kafscale.coordinator.classic.model import (
    Abandon,
    Commit,
    Event,
    Generation,
    Group,
    Heartbeat,
    InstanceId,
    Join,
    JoinReply,
    MemberId,
    Phase,
    Reply,
    Rules,
    StatusReply,
    Sync,
    SyncReply,
    Tick,
    Token,
    Transition,
)
from kafscale.storage.groups import ClassicGroup
from kafscale.wire.errors import ErrorCode

REBALANCING = (Phase.PREPARING_REBALANCE, Phase.COMPLETING_REBALANCE)
IN_GENERATION = (Phase.COMPLETING_REBALANCE, Phase.STABLE)
LEGAL = {
    Phase.EMPTY: (Phase.PREPARING_REBALANCE, Phase.DEAD),
    Phase.PREPARING_REBALANCE: (Phase.COMPLETING_REBALANCE, Phase.EMPTY),
    Phase.COMPLETING_REBALANCE: (Phase.STABLE, Phase.PREPARING_REBALANCE),
    Phase.STABLE: (Phase.PREPARING_REBALANCE,),
    Phase.DEAD: (),
}
UNCHANGING = (
    ErrorCode.INVALID_REQUEST,
    ErrorCode.INVALID_SESSION_TIMEOUT,
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
)
TICKS_MAX = 1_000


def made_for(generation: int, owner: str) -> bytes:
    """An assignment that tells what it is; the judge compares each with what the leader gave."""
    return f"{generation}/{owner}".encode()


def owner_of(member_id: MemberId, instance_id: InstanceId | None) -> str:
    """Whose assignment: a static member's survives its member id."""
    return instance_id or member_id


class Judge:
    """A group, its clock, and the requests that are open."""

    def __init__(self, rules: Rules | None = None) -> None:
        self.rules = rules or Rules()
        self.group = Group()
        self.now_ms = 1_000
        self.open: dict[Token, Event] = {}
        self.given: dict[str, bytes] = {}  # by the last leader that was heard, to whom
        self.given_in = Generation(0)
        self._last_token = 0
        self._last_id = 0

    def token(self) -> Token:
        self._last_token += 1
        return Token(self._last_token)

    def fresh_id(self, name: str = "m") -> MemberId:
        self._last_id += 1
        return MemberId(f"{name}-{self._last_id}")

    def do(self, event: Event) -> tuple[Reply, ...]:
        """One step, judged."""
        before = self.group
        done = step(before, event, self.now_ms, self.rules)
        assert done == step(before, event, self.now_ms, self.rules), "L1"
        if not isinstance(event, Tick | Abandon):
            self.open[event.token] = event
        if isinstance(event, Abandon):
            self.open.pop(event.token, None)
        self.group = done.group
        self._note_assignments(event, done)
        self._judge_path(before, done)
        self._judge_replies(before, done)
        self._judge_saving(before, event, done)
        self.judge_state(self.group)
        return done.replies

    def tick(self, elapsed_ms: int) -> tuple[Reply, ...]:
        self.now_ms += elapsed_ms
        return self.do(Tick())

    def pass_time(self, elapsed_ms: int) -> list[Reply]:
        """As the shell does it: a tick at each deadline on the way."""
        until_ms, replies = self.now_ms + elapsed_ms, list[Reply]()
        for _ in range(TICKS_MAX):
            due_ms = next_deadline(self.group)
            if due_ms is None or due_ms > until_ms:
                break
            replies += self.tick(max(0, due_ms - self.now_ms))
        return replies + list(self.tick(until_ms - self.now_ms))

    def crash(self) -> None:
        """Only what was persisted is left; clients that waited are cut off."""
        persisted = durable(self.group)
        self.open.clear()
        self.group = Group() if persisted is None else restore(persisted, self.now_ms)
        assert durable(self.group) == persisted, "L11: what was restored is what was persisted"
        self.judge_state(self.group)

    def leave_alone(self) -> None:
        """L12."""
        for _ in range(TICKS_MAX):
            due_ms = next_deadline(self.group)
            if due_ms is None:
                break
            self.tick(max(0, due_ms - self.now_ms))
        assert next_deadline(self.group) is None, "L12: it does not come to an end"
        assert self.group.phase in (Phase.EMPTY, Phase.DEAD), "L12"
        assert not self.open, "L12: somebody still waits"

    def _note_assignments(self, event: Event, done: Transition) -> None:
        if Phase.STABLE in done.entered:
            assert isinstance(event, Sync)
            assert event.member_id == done.group.leader, "nobody but the leader assigns"
            given, self.given_in = dict(event.assignments), event.generation
            self.given = {
                owner_of(m.member_id, m.instance_id): given[m.member_id]
                for m in done.group.members.values()
                if m.member_id in given
            }

    # --- the laws ------------------------------------------------------------------------------

    def _judge_path(self, before: Group, done: Transition) -> None:
        phase, generation = before.phase, int(before.generation)
        for entered in done.entered:
            assert entered in LEGAL[phase], f"L3: {phase} to {entered}"
            generation += entered in (Phase.COMPLETING_REBALANCE, Phase.EMPTY)
            phase = entered
        assert phase is done.group.phase, "L3: a phase was entered in secret"
        assert generation == done.group.generation, "L4"

    def _judge_replies(self, before: Group, done: Transition) -> None:
        persisted = durable(done.group)
        for reply in done.replies:
            assert reply.token in self.open, f"L2: {reply} answers nobody"
            request = self.open.pop(reply.token)
            if reply.error is not ErrorCode.NONE:
                continue
            match request, reply:
                case Join(), JoinReply():
                    self._judge_joined(request, reply, done.group, persisted)
                case Sync(), SyncReply():
                    self._judge_synced(request, reply, done.group, persisted)
                case Heartbeat(), StatusReply():
                    assert request.generation == before.generation, "L10"
                case Commit(), StatusReply():
                    simple = request.generation < 0 and before.phase is Phase.EMPTY
                    has_none = request.generation < 0 and not request.member_id
                    simple = simple or (request.transactional and has_none)
                    assert simple or request.generation == before.generation, "L10"
        held = [m.joining for m in done.group.members.values()] + [
            m.syncing for m in done.group.members.values()
        ]
        tokens = [token for token in held if token is not None]
        assert len(tokens) == len(set(tokens)), "L2"
        assert set(tokens) == set(self.open), "L2: a request was forgotten"

    def _judge_joined(
        self, request: Join, reply: JoinReply, group: Group, persisted: ClassicGroup | None
    ) -> None:
        member = group.members[reply.member_id]
        assert reply.generation == group.generation, "L10"
        assert persisted is not None
        assert persisted.generation == reply.generation, "persist, then reply"
        assert reply.member_id in [each.id for each in persisted.members], "persist, then reply"
        assert reply.protocol_name in [name for name, _ in member.protocols], "L6"
        leads = group.leader == reply.member_id
        told = [each.member_id for each in reply.members]
        skipped = leads and request.instance_id is not None and not told  # its leader is its former self
        assert skipped or told == (list(group.members) if leads else []), "metadata is the leader's"
        assert skipped or reply.leader == group.leader

    def _judge_synced(
        self, request: Sync, reply: SyncReply, group: Group, persisted: ClassicGroup | None
    ) -> None:
        assert group.phase is Phase.STABLE, "L10: an assignment is handed out once it is made"
        assert request.generation == group.generation, "L10"
        member = group.members[request.member_id]
        assert self.given_in == group.generation, "L10"
        right = self.given.get(owner_of(member.member_id, member.instance_id), b"")
        assert reply.assignment == right, "L10: the assignment of another"
        assert persisted is not None
        kept = {each.id: each.assignment for each in persisted.members}
        assert kept[request.member_id] == reply.assignment, "persist, then reply"

    def _judge_saving(self, before: Group, event: Event, done: Transition) -> None:
        assert must_save(before, done.group) == (durable(before) != durable(done.group))
        idle = step(before, Tick(), self.now_ms, self.rules).group
        if isinstance(event, Heartbeat | Abandon) and durable(idle) == durable(before):
            assert durable(done.group) == durable(before), "a heartbeat costs no write"
        refused = len(done.replies) == 1 and done.replies[0].error in UNCHANGING
        if refused and isinstance(event, Join | Sync):
            assert done.group == idle, "a refused request changes nothing"

    def judge_state(self, group: Group) -> None:
        members, phase = group.members, group.phase
        assert (phase in (Phase.EMPTY, Phase.DEAD)) == (not members), "L5"
        assert all(key == member.member_id for key, member in members.items())
        static = [m.instance_id for m in members.values() if m.instance_id is not None]
        assert len(static) == len(set(static)), "an instance has one member"
        assert (group.leader in members) if members else group.leader is None, "L6"
        if phase in IN_GENERATION:
            for member in members.values():
                assert (group.protocol_name, member.metadata) in member.protocols, "L6"
        for member in members.values():
            assert member.joining is None or phase is Phase.PREPARING_REBALANCE, "L7"
            assert member.syncing is None or phase is Phase.COMPLETING_REBALANCE, "L7"
            assert not member.must_sync or phase in IN_GENERATION
            waits = member.is_parked and not member.is_new
            assert (member.session_deadline_ms is None) == waits, "who does not wait here has a session"
        late = any(member.must_sync for member in members.values())
        assert (phase in REBALANCING) == (group.rebalance_deadline_ms is not None), "L8"
        assert (phase is Phase.STABLE and late) == (group.sync_deadline_ms is not None), "L8"
        assert group.initial is None or phase is Phase.PREPARING_REBALANCE
        due_ms = next_deadline(group)
        assert due_ms is None or due_ms > self.now_ms, "L9"
        self._judge_bounds(group)
        persisted = durable(group)
        if persisted is not None:
            self._judge_restored(group, restore(persisted, self.now_ms), persisted)

    def _judge_bounds(self, group: Group) -> None:
        size_max = self.rules.group_size_max
        joined = sum(member.joining is not None for member in group.members.values())
        assert joined <= size_max
        assert len(group.pending) <= size_max
        assert sum(m.bytes_held for m in group.members.values()) <= self.rules.state_bytes_max

    def _judge_restored(self, group: Group, restored: Group, persisted: ClassicGroup) -> None:
        """L11, for a crash at any time."""
        assert durable(restored) == persisted
        assert restored.generation == group.generation
        assert (restored.phase is Phase.STABLE) == (group.phase is Phase.STABLE), "it starts over"
        assert restored.phase is not Phase.COMPLETING_REBALANCE
        if group.phase in IN_GENERATION:
            assert list(restored.members) == list(group.members), "the roster is kept"
            assert restored.leader == group.leader
        for member_id, member in restored.members.items():
            same = group.members[member_id]
            soft = replace(
                same,
                joining=None,
                syncing=None,
                must_sync=False,
                session_deadline_ms=member.session_deadline_ms,
            )
            assert replace(member, protocols=same.protocols) == soft
            assert member.session_deadline_ms == self.now_ms + member.session_timeout_ms, "a full session"
        if restored.phase is Phase.PREPARING_REBALANCE:
            assert restored.rebalance_deadline_ms is not None
        assert (restored.phase is Phase.EMPTY) == (not restored.members), "L5"


def generation_of(group: Group, skew: int = 0) -> Generation:
    return Generation(group.generation + skew)
