"""A group and its clients: honest ones, who may be slow, lose answers, die, and come back.

A client holds `owned`, and was `told` its assignment; until it has reconciled the two it may be
about to take whatever it was told. When an answer is lost it says everything again, and takes
nothing more of what it was told before that. A client that is fenced drops all it owns.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from kafscale.coordinator.consumer.machine import durable, next_deadline, restore, state_of, step
from kafscale.coordinator.consumer.model import (
    Commit,
    Event,
    Group,
    GroupState,
    Heartbeat,
    HeartbeatReply,
    Partitions,
    PersistedGroup,
    Rules,
    Tick,
    TopicInfo,
    TopicsChanged,
    Transition,
)
from kafscale.coordinator.consumer.reconcile import intersection, is_subset, union
from kafscale.coordinator.groups.consumer_type import change_of, persisted_of
from kafscale.coordinator.groups.group_txns import GroupTxn, txns_of
from kafscale.storage.consumer_groups import stored_groups
from kafscale.storage.etcd.client import KeyValue, Put
from kafscale.storage.groups import NOT_EMPTY, ConsumerGroup
from kafscale.storage.keys import Keyspace, SlotId, TopicId
from kafscale.wire.errors import ErrorCode

from services.coordinator.tests.consumer import consumer_laws as laws

RULES = Rules(session_timeout_ms=10_000, heartbeat_interval_ms=3_000, members_max=5)
FENCED = (
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.FENCED_MEMBER_EPOCH,
    ErrorCode.FENCED_INSTANCE_ID,
    ErrorCode.GROUP_ID_NOT_FOUND,
)


def topic_id(number: int) -> TopicId:
    return TopicId(number.to_bytes(16, "big"))


@dataclass
class Client:
    name: str
    instance_id: str | None = None
    version: int = 1
    rebalance_timeout_ms: int = 20_000
    names: tuple[str, ...] = ()
    regex: str | None = None
    assignor: str | None = None
    member_id: str = ""
    epoch: int = 0
    owned: Partitions = field(default_factory=dict)
    told: Partitions | None = None
    says_all: bool = True
    reported: Partitions | None = None  # as the group heard it last
    resubscribed: bool = False
    lost: int = 0  # answers in a row
    incarnations: int = 0

    @property
    def claims(self) -> Partitions:
        """What it holds or is about to take."""
        return union(self.owned, self.told or {})

    def begin(self) -> None:
        """A new process: it owns nothing, and in version 1 has drawn its id."""
        self.incarnations += 1
        self.member_id = f"{self.name}#{self.incarnations}" if self.version >= 1 else ""
        self.lost = 0
        self.drop_all()

    def drop_all(self) -> None:
        self.epoch, self.owned, self.told, self.says_all, self.reported = 0, {}, None, True, None

    def reconcile(self, revoke_only: bool = False) -> None:
        if self.told is not None:
            self.owned = intersection(self.owned, self.told) if revoke_only else self.told
            self.told = self.told if revoke_only else None

    def request(self, token: int) -> Heartbeat:
        joins, everything = self.epoch == 0, self.says_all or self.epoch == 0
        says_names = everything or self.resubscribed
        changed = self.owned != self.reported or everything
        return Heartbeat(
            token=token,
            fresh_id=f"{self.name}#drawn{token}",
            member_id=self.member_id,
            member_epoch=self.epoch,
            instance_id=self.instance_id,
            rebalance_timeout_ms=self.rebalance_timeout_ms if everything else -1,
            subscribed_names=self.names if says_names else None,
            subscribed_regex=(self.regex or "") if says_names and self.version >= 1 else None,
            server_assignor=self.assignor if everything else None,
            owned=({} if joins else self.owned) if changed else None,
            client_id=self.name,
            client_host="10.0.0.1",
            version=self.version,
        )

    def loses_answer(self) -> None:
        self.lost += 1
        self.says_all = True
        self.told = None

    def hears(self, request: Heartbeat, reply: HeartbeatReply) -> None:
        if reply.error is not ErrorCode.NONE:
            if reply.error in FENCED:
                self.drop_all()
            return
        if request.owned is not None:
            self.reported = request.owned
        assert reply.member_id is not None
        self.member_id, self.epoch = reply.member_id, reply.member_epoch
        self.says_all = self.resubscribed = False
        self.lost = 0
        if reply.assignment is not None:
            self.told = reply.assignment


class Store:
    """A group's keys in etcd, and how few fit into a transaction."""

    KEYS = Keyspace()
    KEY = KEYS.group(SlotId(0), "g")

    def __init__(self, values: Mapping[bytes, bytes] | None = None) -> None:
        self.values = dict(values or {})

    def write(self, before: PersistedGroup, after: PersistedGroup) -> None:
        for transaction in self.plan(before, after):
            self.make(transaction)

    def plan(self, before: PersistedGroup, after: PersistedGroup) -> list[GroupTxn]:
        if before == after:
            return []
        change = change_of("g", before if before.epoch else None, after, NOT_EMPTY)
        return txns_of(change, self.KEYS, self.KEY, leftovers=False, ops_max=1)

    def make(self, transaction: GroupTxn) -> None:
        for op in transaction.ops:
            if isinstance(op, Put):
                self.values[op.key] = op.value
            else:
                gone = (
                    {op.key}
                    if op.range_end is None
                    else {k for k in self.values if op.key <= k < op.range_end}
                )
                self.values = {key: value for key, value in self.values.items() if key not in gone}

    def read(self) -> PersistedGroup:
        kvs = [KeyValue(key, value, 1, 1, 1, 0) for key, value in sorted(self.values.items())]
        group = stored_groups(self.KEYS, kvs, _not_a_group).get("g")
        if group is None:
            return PersistedGroup(group_id="g")
        state = group.assembled().state
        assert isinstance(state, ConsumerGroup)
        return persisted_of("g", state)


def _not_a_group(kv: KeyValue, error: Exception) -> None:
    raise error


class World:
    def __init__(self, rules: Rules = RULES) -> None:
        self.rules = rules
        self.now_ms = 1_000
        self.tokens = 0
        self.topic_ids = 0
        self.topics: dict[str, TopicInfo] = {}
        self.store = Store()
        self._group = restore(PersistedGroup(group_id="g"), self.now_ms, self.topics, rules)
        self.clients: list[Client] = []

    @property
    def group(self) -> Group:
        return self._group

    @group.setter
    def group(self, group: Group) -> None:
        """With what it changed written."""
        self.store.write(durable(self._group), durable(group))
        self._group = group

    # --- one step, with all laws -------------------------------------------------------------------

    def token(self) -> int:
        self.tokens += 1
        return self.tokens

    def tried(self, event: Event) -> Transition:
        """The step, judged and not yet taken."""
        done = step(self.group, event, self.now_ms, self.rules)
        assert done == step(self.group, event, self.now_ms, self.rules), "L1"
        asked = [] if isinstance(event, Tick | TopicsChanged) else [event.token]
        assert [reply.token for reply in done.replies] == asked, "L2"
        laws.check_move(self.group, done.group)
        laws.check(done.group, self.now_ms)
        if asked and done.replies[0].error is not ErrorCode.NONE and self._due() > self.now_ms:
            assert durable(done.group) is durable(self.group), "a refusal changes nothing"
        return done

    def do(self, event: Event) -> Transition:
        done = self.tried(event)
        self.group = done.group
        self.check_claims()
        return done

    def _due(self) -> int:
        due = next_deadline(self.group)
        return self.now_ms + 1 if due is None else due

    def is_member(self, client: Client) -> bool:
        """And not one that was fenced, and does not know it."""
        return client.epoch > 0 and client.member_id in self.group.persisted.members

    def check_claims(self) -> None:
        """What clients hold is reserved for them, so no two hold the same."""
        members = [client for client in self.clients if self.is_member(client)]
        assert not laws.twice([client.claims for client in members]), "two clients own a partition"
        for client in members:
            member = self.group.persisted.members[client.member_id]
            assert is_subset(client.claims, union(member.assigned, member.revoking)), "forgotten owner"

    # --- moves ---------------------------------------------------------------------------------------

    def heartbeat(self, client: Client, fate: str = "arrives") -> HeartbeatReply | None:
        """`fate` of the request or its answer; None if the client hears nothing."""
        request = client.request(self.token())
        if fate == "request lost":
            client.loses_answer()
            return None
        done = self.tried(request)
        reply = done.replies[0]
        assert isinstance(reply, HeartbeatReply)
        was_member = client.epoch > 0 and client.member_id in done.group.persisted.members
        if fate == "crash before write":
            self.crash()
            client.loses_answer()
            return None
        if fate == "crash amid writes":
            client.loses_answer()
            self.crash_amid(request)
            return None
        if client.lost <= 1 and was_member:
            assert reply.error is not ErrorCode.FENCED_MEMBER_EPOCH, "fenced for one lost answer"
        self.group = done.group
        if fate == "answer lost":
            client.loses_answer()
            self.check_claims()
            return None
        if reply.error is ErrorCode.NONE and (client.epoch == 0 or client.says_all):
            assert reply.assignment is not None, "who says all is told all"
        client.hears(request, reply)
        if reply.error is ErrorCode.NONE:
            member = self.group.persisted.members[client.member_id]
            assert client.epoch == member.epoch, "L10"
            assert client.told is None or client.told == member.assigned, "told what is"
            assert client.told is not None or client.owned == member.assigned, "told too little"
        self.check_claims()
        return reply

    def heartbeat_with_wrong_epoch(self, client: Client, skew: int) -> None:
        epoch = client.epoch + skew
        member = self.group.persisted.members.get(client.member_id)
        if epoch < 1 or client.epoch < 1 or member is None or epoch in (member.epoch, member.previous_epoch):
            return
        wrong = replace(client.request(self.token()), member_epoch=epoch, owned=client.owned)
        reply = self.do(wrong).replies[0]
        assert reply.error is ErrorCode.FENCED_MEMBER_EPOCH, "L10"
        check = self.do(Commit(token=self.token(), member_id=client.member_id, member_epoch=epoch)).replies[0]
        if client.member_id in self.group.persisted.members:
            assert check.error is ErrorCode.STALE_MEMBER_EPOCH, "L14"

    def leave(self, client: Client, epoch: int) -> None:
        client.owned, client.told = {}, None
        if client.epoch > 0:
            self.do(replace(client.request(self.token()), member_epoch=epoch, owned=None))
        client.begin()

    def pass_time(self, elapsed_ms: int) -> None:
        """Ticks when the machine asks for it."""
        end = self.now_ms + elapsed_ms
        while (due := next_deadline(self.group)) is not None and due <= end:
            self.now_ms = due
            self.do(Tick())
        self.now_ms = end

    def crash(self) -> None:
        persisted = durable(self.group)
        targets = {member_id: target for member_id, target in persisted.target.items() if target}
        assert self.store.read() == replace(persisted, target=targets), "what is read is what was written"
        self.group = restore(persisted, self.now_ms, self.topics, self.rules)
        assert durable(self.group) is persisted, "L11"
        laws.check(self.group, self.now_ms)

    def crash_amid(self, event: Event) -> None:
        """While what the event changed is being written: some transactions were made, and not the others."""
        before, store = self.group, self.store
        plan = store.plan(durable(before), durable(self.tried(event).group))
        cuts = [Store(store.values)]
        for transaction in plan:
            cuts.append(Store(cuts[-1].values))
            cuts[-1].make(transaction)
        for cut in cuts:
            self._read(cut)
            laws.check_move(before, self.group)
            laws.check(self.group, self.now_ms)
            self.check_claims()
        self._read(cuts[self.tokens % len(cuts)])

    def _read(self, store: Store) -> None:
        self.store = Store(store.values)
        persisted = store.read()
        self._group = restore(persisted, self.now_ms, self.topics, self.rules)
        self.store.write(persisted, durable(self._group))

    def crash_amid_expiry(self) -> None:
        """Of all whose session began when the last one's did, or before."""
        if self.group.deadlines:
            self.now_ms = max(due.session_ms for due in self.group.deadlines.values())
            self.crash_amid(Tick())

    def set_topic(self, name: str, partitions: int, told: bool = True) -> None:
        """0 partitions: it is deleted. Not `told`: it changed while nobody looked."""
        topics = dict(self.topics)
        known = topics.pop(name, None)
        if partitions and known is not None and known.partitions < partitions:
            topics[name] = known._replace(partitions=partitions)
        elif partitions:
            self.topic_ids += 1
            topics[name] = TopicInfo(topic_id(self.topic_ids), partitions)
        self.topics = topics
        if told:
            self.do(TopicsChanged(topics=topics))
            return
        before = self.group
        self.group = restore(durable(self.group), self.now_ms, topics, self.rules)
        laws.check_move(before, self.group)
        laws.check(self.group, self.now_ms)

    # --- the end -------------------------------------------------------------------------------------

    def settle(self) -> None:
        """L13: with quiet heartbeats every client becomes a stable member, and then nothing moves."""
        for _ in range(self.rules.session_timeout_ms // self.rules.heartbeat_interval_ms + 12):
            for client in self.clients:
                self.heartbeat(client)
                client.reconcile()
            self.pass_time(self.rules.heartbeat_interval_ms)
        persisted = durable(self.group)
        assert state_of(persisted) is (GroupState.STABLE if self.clients else state_of(persisted)), state_of(
            persisted
        )
        assert {client.member_id for client in self.clients} == set(persisted.members)
        for client in self.clients:
            assert client.epoch == persisted.epoch == persisted.target_epoch
            assert client.owned == persisted.target.get(client.member_id, {})
        laws.check_balance(self.group)
        for client in self.clients:
            self.heartbeat(client)
            assert durable(self.group) is persisted, "a plain heartbeat writes"

    def fall_silent(self) -> None:
        """L12."""
        self.pass_time(self.rules.session_timeout_ms)
        assert state_of(self.group.persisted) in (GroupState.EMPTY, GroupState.DEAD)
        assert next_deadline(self.group) is None
