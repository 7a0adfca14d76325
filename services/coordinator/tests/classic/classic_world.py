"""Moves against a judged group, by small numbers: Hypothesis and the random walks play the same ones."""

import random
from collections.abc import Callable
from dataclasses import replace

from kafscale.coordinator.classic.model import (
    NO_MEMBER_ID,
    Abandon,
    Commit,
    Delete,
    Heartbeat,
    InstanceId,
    Join,
    Leave,
    Leaver,
    MemberId,
    Phase,
    Protocol,
    Rules,
    Sync,
)

from services.coordinator.tests.classic.classic_laws import Judge, generation_of, made_for, owner_of

TIGHT = Rules(
    session_timeout_min_ms=10,
    session_timeout_max_ms=100,
    initial_rebalance_delay_ms=5,
    new_member_join_timeout_ms=90,
    group_size_max=4,
    protocols_max=3,
    metadata_bytes_max=120,
    state_bytes_max=115,
)
OFFERS: tuple[tuple[Protocol, ...], ...] = (
    (("range", b"t"), ("sticky", b"t")),
    (("sticky", b"t+"), ("range", b"t+")),
    (("range", b"u"),),
    (("sticky", b"u" * 60),),
    (("roundrobin", b"r"),),
    (),
    (("a", b""), ("b", b""), ("c", b""), ("range", b"")),
    (("range", b"x" * 300),),
)
USUAL_OFFERS = 3  # so many of them have something in common
INSTANCES = tuple(InstanceId(name) for name in ("s0", "s1"))
SESSIONS_MS = (10, 30, 100)
REBALANCES_MS = (60, 20, 0, -1)
DELAYS_MS = (5, 0, 40)


class World:
    """Every method is one move; any numbers are fine."""

    def __init__(self, rules: Rules = TIGHT) -> None:
        self.judge = Judge(rules)
        self.former: list[MemberId] = []  # ids that may have been replaced, dropped, or never used

    def _member(self, pick: int) -> MemberId:
        """Mostly one that is a member."""
        ids = [*self.judge.group.members]
        if pick % 5 == 4 or not ids:
            ids = [*self.judge.group.pending, *self.former[-4:]] or [MemberId("nobody")]
        return ids[pick % len(ids)]

    def _instance(self, member_id: MemberId, pick: int) -> InstanceId | None:
        member = self.judge.group.members.get(member_id)
        if pick % 7 == 6:
            return INSTANCES[pick % len(INSTANCES)]
        return None if member is None else member.instance_id

    def join(self, member_id: MemberId, instance: InstanceId | None, offer: int, how: int) -> None:
        judge = self.judge
        fresh_id = judge.fresh_id()
        self.former.append(fresh_id)
        judge.do(
            Join(
                token=judge.token(),
                member_id=member_id,
                fresh_id=fresh_id,
                instance_id=instance,
                client_id="c",
                client_host="/h",
                protocol_type="consumer" if how % 11 else "connect",
                protocols=OFFERS[offer % len(OFFERS)],
                session_timeout_ms=SESSIONS_MS[how % 3] if how % 13 else 5,
                rebalance_timeout_ms=REBALANCES_MS[how // 3 % 4],
                needs_known_id=how % 2 == 0,
                may_skip_assignment=how % 4 < 2,
            )
        )

    def newcomer(self, offer: int, how: int) -> None:
        self.join(NO_MEMBER_ID, None, offer, how)

    def static_process(self, which: int, offer: int, how: int) -> None:
        self.join(NO_MEMBER_ID, INSTANCES[which % len(INSTANCES)], offer, how)

    def take_up_id(self, pick: int, offer: int, how: int) -> None:
        pending = [*self.judge.group.pending]
        if pending:
            self.join(pending[pick % len(pending)], None, offer, how)

    def rejoin(self, pick: int, offer: int, how: int) -> None:
        self.join(self._member(pick), self._instance(self._member(pick), pick), offer, how)

    def rejoin_unchanged(self, pick: int, how: int) -> None:
        member = self.judge.group.members.get(self._member(pick))
        if member is None:
            return
        judge = self.judge
        judge.do(
            Join(
                token=judge.token(),
                member_id=member.member_id,
                fresh_id=judge.fresh_id(),
                instance_id=member.instance_id,
                protocol_type=judge.group.protocol_type or "consumer",
                protocols=member.protocols,
                session_timeout_ms=member.session_timeout_ms,
                rebalance_timeout_ms=member.rebalance_timeout_ms,
                may_skip_assignment=how % 2 == 0,
            )
        )

    def everyone_rejoins(self, how: int) -> None:
        for pick in range(len(self.judge.group.members)):
            self.rejoin_unchanged(pick * 5, how)

    def sync(self, pick: int, skew: int = 0, extra: int = 0) -> None:
        group = self.judge.group
        member_id = self._member(pick)
        generation = generation_of(group, skew)
        assignments = [
            (m.member_id, made_for(generation, owner_of(m.member_id, m.instance_id)))
            for m in group.members.values()
        ]
        if extra % 4 == 1:
            assignments = assignments[1:]
        if extra % 4 == 2:
            assignments.append((MemberId("stranger"), b"?"))
        if extra == 11:
            assignments = [(member_id, b"!" * 500)]
        self.judge.do(
            Sync(
                token=self.judge.token(),
                generation=generation,
                member_id=member_id,
                instance_id=self._instance(member_id, pick),
                protocol_type="consumer" if extra == 10 else None,
                protocol_name="other" if extra == 9 else group.protocol_name,
                assignments=tuple(assignments) if group.leader == member_id else (),
            )
        )

    def leader_syncs(self, extra: int = 0) -> None:
        ids = [*self.judge.group.members]
        if self.judge.group.leader in ids:
            self.sync(ids.index(self.judge.group.leader), extra=extra)

    def a_whole_round(self, how: int) -> None:
        """What makes a group Stable, if nothing is in the way; one of the members may be late."""
        self.everyone_rejoins(how)
        self.time_passes(5)
        self.leader_syncs()
        for pick in range(how % 2, len(self.judge.group.members)):
            self.sync(pick * 5)

    def heartbeat(self, pick: int, skew: int = 0) -> None:
        member_id = self._member(pick)
        self.judge.do(
            Heartbeat(
                token=self.judge.token(),
                generation=generation_of(self.judge.group, skew),
                member_id=member_id,
                instance_id=self._instance(member_id, pick),
            )
        )

    def everyone_heartbeats(self) -> None:
        for member_id in [*self.judge.group.members]:
            generation = self.judge.group.generation
            self.judge.do(Heartbeat(token=self.judge.token(), generation=generation, member_id=member_id))

    def commit(self, pick: int, skew: int, how: int) -> None:
        member_id = self._member(pick)
        commit = Commit(
            token=self.judge.token(),
            generation=generation_of(self.judge.group, skew),
            member_id=member_id,
            instance_id=self._instance(member_id, pick),
            names_missing_groups=how % 2 == 0,
        )
        self.judge.do(commit if how % 4 else Commit(token=commit.token))

    def leave(self, pick: int, count: int, by_instance: bool) -> None:
        leavers = []
        for offset in range(count):
            member_id = self._member(pick + offset)
            instance = self._instance(member_id, pick + offset)
            named = NO_MEMBER_ID if by_instance and instance is not None else member_id
            leavers.append(Leaver(member_id=named, instance_id=instance))
        self.judge.do(Leave(token=self.judge.token(), leavers=tuple(leavers)))

    def vanish(self, pick: int) -> None:
        tokens = [*self.judge.open]
        if tokens:
            self.judge.do(Abandon(token=tokens[pick % len(tokens)]))

    def time_passes(self, elapsed_ms: int) -> None:
        self.judge.tick(elapsed_ms)

    def crash(self) -> None:
        self.judge.crash()

    def delete(self) -> None:
        self.judge.do(Delete(token=self.judge.token()))
        if self.judge.group.phase is Phase.DEAD:
            self.heartbeat(0)
            self.newcomer(0, 1)
            self.judge.crash()

    def reconfigure(self, which: int) -> None:
        """The initial delay may change at any time; a smaller group would not shrink at once."""
        delay_ms = DELAYS_MS[which % len(DELAYS_MS)]
        self.judge.rules = replace(self.judge.rules, initial_rebalance_delay_ms=delay_ms)


DELAYS = (0, 1, 1, 5, 5, 9, 20, 60, 150)


def walk(seed: int, steps: int = 60) -> None:
    """A random history, with a bias to get somewhere."""
    chance = random.Random(seed)
    world = World()
    number = chance.randrange

    def offer() -> int:
        return number(USUAL_OFFERS) if chance.random() < 0.8 else number(len(OFFERS))

    def how() -> int:
        return 1 + number(60)

    def skew() -> int:
        return chance.choice((0, 0, 0, 0, -1, 1))

    moves: tuple[tuple[int, Callable[[], None]], ...] = (
        (4, lambda: world.newcomer(offer(), how())),
        (3, lambda: world.static_process(number(2), offer(), how())),
        (4, lambda: world.take_up_id(number(9), offer(), how())),
        (2, lambda: world.rejoin(number(9), offer(), how())),
        (4, lambda: world.rejoin_unchanged(number(9), how())),
        (5, lambda: world.a_whole_round(how())),
        (4, lambda: world.sync(number(9), skew(), number(12))),
        (4, lambda: world.leader_syncs(number(12))),
        (2, lambda: world.heartbeat(number(9), skew())),
        (4, lambda: world.everyone_heartbeats()),
        (3, lambda: world.commit(number(9), skew(), number(12))),
        (2, lambda: world.leave(number(9), 1 + number(3), chance.random() < 0.5)),
        (2, lambda: world.vanish(number(9))),
        (4, lambda: world.time_passes(chance.choice(DELAYS))),
        (1, lambda: world.reconfigure(number(3))),
        (1, world.crash),
        (1, world.delete),
    )
    weights, plays = [weight for weight, _ in moves], [play for _, play in moves]
    for play in chance.choices(plays, weights, k=steps):
        play()
    world.judge.leave_alone()
