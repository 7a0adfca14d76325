"""One transactional id in a world of trouble: two producers, processes that lose their slot, late requests.

Every process is in `transaction_parts`. A coordinator that has lost its slot lives on with the memory it had. Writes
wait as long as they like, and are repeated while their outcome is unknown. Answers are lost. Batches, questions,
answers and confirmed ends travel as long as they like; an EndTxn may arrive again at any time. Producer A runs
transactions, and producer B takes the id over. After each move the laws are judged; `leave_alone` ends the story, and
then everything must be complete. The numbers of the laws are those of docs/protocol/transactions.md.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from kafscale.coordinator.transactions.model import (
    LAST_EPOCH,
    Answer,
    Ended,
    EndTxn,
    InitProducerId,
    Instant,
    Join,
    ProducerAnswer,
    ProducerEpoch,
    Request,
    Rules,
    Tick,
    Token,
)
from kafscale.storage.etcd.client import Put, Txn
from kafscale.storage.groups import decode_committed
from kafscale.storage.transactions import (
    ClosingTransaction,
    Participant,
    Participants,
    TransactionState,
    encode_transaction,
)
from kafscale.wire.errors import ErrorCode
from transaction_parts import (
    GROUP,
    GROUP_SLOT,
    KEYS,
    NAME,
    P0,
    P1,
    RECORD,
    SETTINGS,
    Batch,
    Coordinator,
    Etcd,
    GroupLine,
    Log,
    Question,
    Setting,
    Txn_,
    Violation,
)

TIMEOUT_MS = 60_000
ASK_AGAIN = (
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)
ROUNDS_MAX = 60


@dataclass
class Client:
    name: str
    phase: str = "init"  # init, adding, sending, over
    producer: ProducerEpoch = ProducerEpoch(-1, -1)
    k: int = 0
    parts: tuple[Participant, ...] = ()
    acked: set[Participant] = field(default_factory=set)
    call: object = None  # the request that the client waits for
    wants_commit: bool = True
    generation: int = 0  # how many InitProducerId were answered when its own was
    ended_once: bool = False  # an EndTxn of the present transaction was sent: its outcome may be decided

    @property
    def txn(self) -> Txn_:
        return self.name, self.k


class World:
    """`how` of each move is a number from which its choices are drawn."""

    ends_before_the_decision = False
    coordinator = Coordinator

    def __init__(self, setting: Setting) -> None:
        self.tv, self.rules = setting.tv, Rules()
        self.mono_ms, self.ids, self.epochs, self.offsets = 1_000, 10, 0, 0
        self.etcd = Etcd()
        if setting.epoch:
            state = TransactionState(
                id=NAME, producer_id=5, epoch=setting.epoch, timeout_ms=TIMEOUT_MS, changed_ms=0
            )
            self.etcd.txn(Txn(success=(Put(RECORD, encode_transaction(state)),)))
        self.coordinators: list[Coordinator] = []
        self.lines: list[GroupLine] = []
        self.new_coordinator()
        self.lines.append(GroupLine(self.etcd))
        self.logs = {P0: Log(P0), P1: Log(P1)}
        self.clients = [Client("A"), Client("B", phase="over")]
        self.batches: list[tuple[Participant, Batch]] = []
        self.questions: list[tuple[Participant, Batch, Question | GroupLine]] = []
        self.answers: list[tuple[Participant, Batch, Question | GroupLine, Answer]] = []
        self.acks: list[tuple[Participant, int, int]] = []  # participant, producer id, number
        self.late: list[EndTxn] = []
        # the truth
        self.decided: dict[int, bool] = {}
        self.told: dict[Txn_, bool] = {}
        self.asked: dict[
            Txn_, tuple[Participant, ...]
        ] = {}  # commits that were asked for, with all participants
        self.given: dict[ProducerEpoch, str] = {}
        self.generations = 0
        self.puts: list[tuple[Participant, int | None, int]] = []  # where, number (None: plain), offset
        self.seen = self.etcd.record()
        self.stamp: tuple[int, ...] = ()

    @property
    def now(self) -> Instant:
        return Instant(self.mono_ms, self.mono_ms)

    # -- moves ----------------------------------------------------------------------------------

    def move(self, name: str, how: int) -> None:
        self.mono_ms += 1
        getattr(self, name)(random.Random(how))
        self.check()

    def client_acts(self, rng: random.Random) -> None:
        client = rng.choice(self.clients)
        if client.phase == "over" or client.call is not None:
            return
        if client.phase == "init":
            self.call(client, rng, partial(self._init, client), partial(self._hears_init, client))
        elif client.phase == "adding":
            self.call(client, rng, partial(self._add, client), partial(self._hears_added, client))
        elif client.phase == "sending":
            self._end(client, rng)

    def takeover(self, rng: random.Random) -> None:
        if self.clients[1].k == 0 and self.clients[1].phase == "over":
            self.clients[1].phase = "init"

    def client_gives_up(self, rng: random.Random) -> None:
        """It does not wait for the answer any longer, and asks again. Its request is where it was."""
        client = rng.choice(self.clients)
        client.call = None if self.tv == 2 or client.phase == "init" else client.call

    def batch_arrives(self, rng: random.Random) -> None:
        if not self.batches:
            return
        participant, batch = rng.choice(self.batches)
        if isinstance(participant, str):
            self.batches.remove((participant, batch))
            line = rng.choice(self.lines[-2:])
            line.ask(batch)
            self.questions.append((participant, batch, line))
            return
        got = self.logs[participant].receive(batch)
        if got is True:
            self.acknowledge(batch, participant)
            if rng.random() < 0.7:  # the others arrive again and again
                self.batches.remove((participant, batch))
        elif isinstance(got, Question):
            self.questions.append((participant, batch, got))

    def question_arrives(self, rng: random.Random) -> None:
        if self.questions:
            participant, batch, asked = self.questions.pop(rng.randrange(len(self.questions)))

            def hear(answer: Answer) -> None:
                self.answers.append((participant, batch, asked, answer))

            self.some_coordinator(rng).ask(partial(_join, batch, participant), hear, self.now)

    def answer_arrives(self, rng: random.Random) -> None:
        if not self.answers:
            return
        participant, batch, asked, answer = self.answers.pop(rng.randrange(len(self.answers)))
        if isinstance(asked, GroupLine):
            done = asked.hear(batch, answer)
            if done:
                self.puts.append((batch.where, _number(answer), batch.offset))
            else:
                self.batches.append((participant, batch))
        else:
            done = self.logs[batch.where].hear(asked, answer)
        if done:
            self.acknowledge(batch, participant)

    def end_arrives(self, rng: random.Random) -> None:
        """What any coordinator that lives believes to be closing: facts, however late."""
        told = [
            (each, one.closing)
            for one in self.coordinators
            if one.closing is not None
            for each in one.closing.awaited
        ]
        if self.ends_before_the_decision:
            told += [
                (each, closing) for closing in map(_undecided, self.coordinators) for each in closing.awaited
            ]
        if told:
            self.end_at(*rng.choice(sorted(told, key=repr)), rng)

    def end_at(self, participant: Participant, ended: ClosingTransaction, rng: random.Random) -> None:
        if isinstance(participant, str):
            if not rng.choice(self.lines[-2:]).end(ended, parts=rng.choice((1, 3))):
                return
        else:
            self.logs[participant].end(ended)
        self.acks.append((participant, ended.producer_id, ended.number))

    def ack_arrives(self, rng: random.Random) -> None:
        if self.acks:
            ack = rng.choice(self.acks)
            if rng.random() < 0.7:
                self.acks.remove(ack)
            self.confirm(self.some_coordinator(rng), *ack)

    def confirm(self, one: Coordinator, participant: Participant, producer_id: int, number: int) -> None:
        some = Participants.of(participant)
        one.tell(Ended(producer_id=producer_id, number=number, participants=some), self.now)

    def write_is_sent(self, rng: random.Random) -> None:
        self.some_coordinator(rng).send(self.now, answered=rng.random() < 0.8)

    def proof_is_made(self, rng: random.Random) -> None:
        self.some_coordinator(rng).prove(self.now)

    def late_end_txn(self, rng: random.Random) -> None:
        if self.late:
            event = rng.choice(self.late)
            self.some_coordinator(rng).ask(
                lambda token: replace(event, token=token), lambda _answer: None, self.now
            )

    def plain_commit(self, rng: random.Random) -> None:
        self.offsets += 1
        where = rng.choice((P0, P1))
        if rng.choice(self.lines[-2:]).commit(where, self.offsets):
            self.puts.append((where, None, self.offsets))

    def coordinator_moves(self, rng: random.Random) -> None:
        if len(self.coordinators) < 4:
            self.new_coordinator()

    def coordinator_dies(self, rng: random.Random) -> None:
        self.some_coordinator(rng).die()
        self.coordinators = [one for one in self.coordinators if not one.is_over] or [self.new_coordinator()]

    def line_moves(self, rng: random.Random) -> None:
        if len(self.lines) < 4:
            self.lines.append(GroupLine(self.etcd))

    def time_passes(self, rng: random.Random) -> None:
        self.mono_ms += rng.choice((10, 100, 300, 1_000))
        for one in self.coordinators:
            one.tell(Tick(), self.now)

    def timeout_passes(self, rng: random.Random) -> None:
        self.mono_ms += TIMEOUT_MS
        self.some_coordinator(rng).tell(Tick(), self.now)

    # -- coordinators ---------------------------------------------------------------------------

    def new_coordinator(self) -> Coordinator:
        self.epochs += 1
        one = self.coordinator(self.etcd, self.epochs, self.now, self.rules)
        self.coordinators.append(one)
        return one

    def some_coordinator(self, rng: random.Random) -> Coordinator:
        """Mostly the newest."""
        alive = [one for one in self.coordinators if not one.is_over]
        if not alive:
            return self.new_coordinator()
        return alive[-1] if rng.random() < 0.7 else rng.choice(alive)

    # -- clients --------------------------------------------------------------------------------

    def call(
        self,
        client: Client,
        rng: random.Random,
        request_of: Callable[[Token], Request],
        hears: Callable[[Answer], None],
    ) -> None:
        me = client.call = object()
        lost = rng.random() < 0.2
        fenced = client.phase != "init" and client.generation < self.generations

        def hear(answer: Answer) -> None:
            if client.call is not me:
                return  # it asks again already
            client.call = None
            if lost or answer.error in ASK_AGAIN:
                return
            if answer.error:
                client.phase = "over"
                return
            if fenced:
                raise Violation("T5: a request of a producer succeeded after its successor had its answer")
            hears(answer)

        self.some_coordinator(rng).ask(request_of, hear, self.now)

    def _init(self, client: Client, token: Token) -> Request:
        self.ids += 1
        return InitProducerId(token=token, fresh_id=self.ids, timeout_ms=TIMEOUT_MS)

    def _hears_init(self, client: Client, answer: Answer) -> None:
        self.generations += 1
        client.generation = self.generations
        self.next_txn(client, answer)

    def next_txn(self, client: Client, answer: Answer) -> None:
        assert isinstance(answer, ProducerAnswer)
        assert answer.producer is not None
        producer = client.producer = answer.producer
        if producer.epoch > LAST_EPOCH:
            raise Violation("T5: a producer got an epoch above the last one")
        if self.given.setdefault(producer, client.name) != client.name:
            raise Violation(f"T5: two producers are {producer}")
        client.k += 1
        client.acked, client.ended_once = set(), False
        client.parts = ((P0, P1), (P0, GROUP), (P0, P1, GROUP), (P0, GROUP))[client.k % 4]
        client.phase = "adding" if self.tv == 1 else "sending"
        if client.k > 4:
            client.phase = "over"
        elif self.tv == 2:
            self.send_batches(client)

    def _add(self, client: Client, token: Token) -> Request:
        return Join(
            token=token, producer=client.producer, participants=Participants.of(*client.parts), add=True
        )

    def _hears_added(self, client: Client, answer: Answer) -> None:
        client.phase = "sending"
        self.send_batches(client)

    def send_batches(self, client: Client) -> None:
        for participant in client.parts:
            batch = Batch(client.txn, client.producer, add=self.tv == 2)
            if isinstance(participant, str):
                for where in (P0, P1, P0):
                    self.offsets += 1
                    self.batches.append((participant, replace(batch, offset=self.offsets, where=where)))
            else:
                self.batches.append((participant, replace(batch, where=participant)))

    def acknowledge(self, batch: Batch, participant: Participant) -> None:
        client = next(each for each in self.clients if each.name == batch.txn[0])
        unsent = any(each.txn == batch.txn for where, each in self.batches if where == participant == GROUP)
        asked = any(
            each.txn == batch.txn for where, each, *_ in self.questions if where == participant == GROUP
        )
        heard = any(
            each.txn == batch.txn for where, each, *_ in self.answers if where == participant == GROUP
        )
        if client.txn == batch.txn and not (unsent or asked or heard):
            client.acked.add(participant)

    def _end(self, client: Client, rng: random.Random) -> None:
        acked = client.acked == set(client.parts)
        if not client.ended_once and not acked and (self.tv == 1 or rng.random() < 0.95):
            return  # it waits; only a TV2 client may abort what is on its way
        if not client.ended_once:
            client.wants_commit = acked and rng.random() < 0.7
        client.ended_once = True
        commit, txn = client.wants_commit, client.txn
        if commit:
            self.asked[txn] = client.parts

        def hears(answer: Answer) -> None:
            self.told[txn] = commit
            self.next_txn(client, answer)

        def request_of(token: Token) -> Request:
            self.ids += 1
            producer, tv2 = client.producer, self.tv == 2
            event = EndTxn(
                token=token,
                producer=producer,
                commit=commit,
                tv2=tv2,
                reached_ms=self.mono_ms,
                fresh_id=self.ids,
            )
            self.late.append(event)
            return event

        self.call(client, rng, request_of, hears)

    # -- laws -----------------------------------------------------------------------------------

    def check(self) -> None:
        stamp = self.etcd.memory.revision, *(log.position for log in self.logs.values())
        if stamp == self.stamp:
            return
        self.stamp = stamp
        record, before = self.etcd.record(), self.seen
        self.seen = record
        if record is None:
            return
        if before is not None:
            if record.producer_id == before.producer_id and record.epoch < before.epoch:
                raise Violation("T5: an epoch fell")
            if record.number < before.number:
                raise Violation("T4: a number fell")
        closing = record.closing
        if closing is not None and self.decided.setdefault(closing.number, closing.commit) != closing.commit:
            raise Violation(f"T1: {closing.number} was decided twice, differently")
        for participant, log in self.logs.items():
            for producer_id, number in log.open.items():
                self.check_ends(record, participant, producer_id, number)
            self.check_log(log)
        for value in self.etcd.pending():
            self.check_ends(record, GROUP, value.producer_id, value.number)

    def check_ends(self, record: TransactionState, where: Participant, producer_id: int, number: int) -> None:
        some, closing = Participants.of(where), record.closing
        present = (record.producer_id, record.number) == (producer_id, number)
        current = record.current is not None and present and some <= record.current
        ends = closing is not None and (closing.producer_id, closing.number) == (producer_id, number)
        if not current and not (ends and closing is not None and some <= closing.awaited):
            raise Violation(f"T3: number {number} hangs in {where}")

    def check_log(self, log: Log) -> None:
        numbers = [number for _, _, number, _ in log.markers]
        if len(set(numbers)) != len(numbers):
            raise Violation(f"T4: two markers of a number in {log.participant}")
        for _, _, number, commit in log.markers:
            if self.decided.get(number) != commit:
                raise Violation(f"T1: the marker of {number} is not what was decided")
        for each in self.logs.values():
            for _, txn, _, number in each.data:
                for _, other, _, same in log.data:
                    if number == same and txn != other:
                        raise Violation(f"T4: number {number} holds records of {txn} and {other}")

    # -- the end of the story -------------------------------------------------------------------

    def leave_alone(self) -> None:
        """The newest coordinator and line work on, and no client asks any more."""
        rng = random.Random(0)
        for one in self.coordinators:
            one.die()
        newest = self.new_coordinator()
        self.lines = [GroupLine(self.etcd)]
        self.batches = []
        for _ in range(ROUNDS_MAX):
            self.round(newest, rng)
            self.check()
            if self.is_quiet(newest):
                break
        else:
            raise Violation("T7: left alone, a transaction is not completed, or a request not answered")
        self.check_outcomes()

    def is_quiet(self, newest: Coordinator) -> bool:
        record = self.etcd.record()
        is_complete = record is None or (record.current is None and record.closing is None)
        return is_complete and not (newest.waiting or newest.write or self.questions or self.answers)

    def round(self, newest: Coordinator, rng: random.Random) -> None:
        for _ in range(9):
            newest.send(self.now, answered=True)
            newest.prove(self.now)
        while self.questions:
            self.question_arrives(rng)
        while self.answers:
            self.answer_arrives(rng)
            self.batches = []
        closing = newest.closing
        for participant in () if closing is None else closing.awaited:
            assert closing is not None
            self.end_at(participant, closing, rng)
        while self.acks:
            self.confirm(newest, *self.acks.pop())
        self.mono_ms += TIMEOUT_MS // 4
        newest.tell(Tick(), self.now)

    def check_outcomes(self) -> None:
        if self.etcd.pending() or any(log.open for log in self.logs.values()):
            raise Violation("T7: something stays open")
        numbers = {txn: number for log in self.logs.values() for _, txn, _, number in log.data}
        for txn, number in numbers.items():
            if self.decided[number]:
                self.check_committed(txn)
        for txn, commit in self.told.items():
            if txn in numbers and self.decided[numbers[txn]] != commit:
                raise Violation(f"T1: {txn} was told {commit}")
        self.check_offsets()

    def check_committed(self, txn: Txn_) -> None:
        parts = self.asked.get(txn)
        if parts is None:
            raise Violation(f"T1: {txn} is committed, and its client did not ask for that")
        if not all(log.holds(txn) for where, log in self.logs.items() if where in parts):
            raise Violation(f"T1: a part of {txn} is committed")

    def check_offsets(self) -> None:
        """The last put of each partition counts, if it was plain or its transaction is committed."""
        wanted = {
            where: offset for where, number, offset in self.puts if number is None or self.decided.get(number)
        }
        for where in (P0, P1):
            kv = self.etcd.kv(KEYS.committed(GROUP_SLOT, GROUP, *where))
            found = None if kv is None else decode_committed(kv.value).offset
            if found != wanted.get(where):
                raise Violation(f"T9: {where} is at {found}, not at {wanted.get(where)}")


MOVES = {
    "client_acts": 30,
    "batch_arrives": 30,
    "question_arrives": 30,
    "answer_arrives": 30,
    "end_arrives": 20,
    "ack_arrives": 20,
    "write_is_sent": 40,
    "proof_is_made": 20,
}
TROUBLES = {
    "takeover": 1,
    "client_gives_up": 8,
    "late_end_txn": 8,
    "plain_commit": 8,
    "coordinator_moves": 8,
    "coordinator_dies": 4,
    "line_moves": 6,
    "time_passes": 12,
    "timeout_passes": 2,
}
"""With how often a walk makes each."""


def walk(world: World, seed: int, moves: int = 300, more: Mapping[str, float] | None = None) -> None:
    """A random story, and its end. In some there is little trouble, so that many transactions are completed. `more`:
    moves that are more frequent by a factor."""
    rng = random.Random(seed)
    trouble = rng.choice((0.1, 0.5, 1.5))
    weights = MOVES | {name: weight * trouble for name, weight in TROUBLES.items()}
    weights |= {name: weights[name] * factor for name, factor in (more or {}).items()}
    for name in rng.choices(list(weights), weights=list(weights.values()), k=moves):
        world.move(name, rng.randrange(1 << 30))
    world.leave_alone()


def first_violation(
    kind: type[World],
    seeds: range,
    settings: Sequence[Setting] = SETTINGS,
    more: Mapping[str, float] | None = None,
) -> str | None:
    for seed in seeds:
        try:
            walk(kind(settings[seed % len(settings)]), seed, more=more)
        except (Violation, AssertionError) as found:
            return f"seed {seed}: {found!r}"
    return None


def _join(batch: Batch, participant: Participant, token: Token) -> Request:
    return Join(
        token=token, producer=batch.producer, participants=Participants.of(participant), add=batch.add
    )


def _number(answer: Answer) -> int:
    number = getattr(answer, "number", None)
    assert isinstance(number, int)
    return number


def _undecided(one: Coordinator) -> ClosingTransaction:
    """What is under way, as if it were committed."""
    state = one.machine.state
    current = Participants() if state is None or state.current is None else state.current
    return ClosingTransaction(
        number=0 if state is None else state.number,
        producer_id=0 if state is None else state.producer_id,
        marker_epoch=0 if state is None else state.epoch,
        bumped=False,
        commit=True,
        coordinator_epoch=0,
        awaited=current,
    )
