"""What the members of a group were answered, and the laws that an answer breaks. Pure: times and answers in, sentences
out.

A *seat* is a place in the group that one member after another takes. An *era* is the generation of a classic group, or
the epoch of a member by KIP-848.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Final

NOTHING_COMMITTED: Final = -1
LATE_S: Final = 6.0
"""A commit without an answer takes effect within this time, or never: its age is limited to 5 s, also when a front door
or a coordinator is paused with it."""
WHOLE_GROUP: Final = -1


@dataclass(eq=False)
class Commit:
    """Of one partition."""

    offset: int
    era: int
    sent_s: float
    acknowledged_s: float | None = None

    def is_before(self, later: Commit) -> bool:
        """Whether `later`, which is acknowledged, certainly took effect after this one, or this one never does."""
        if self.era != later.era:
            return self.era < later.era
        if self.acknowledged_s is not None:
            return self.acknowledged_s <= later.sent_s
        return self.sent_s + LATE_S < later.sent_s


@dataclass(eq=False)
class Committed:
    """Which offsets of one partition the group may have now."""

    possible: list[Commit] = field(default_factory=lambda: [Commit(NOTHING_COMMITTED, -1, -inf, -inf)])
    _questions: list[set[int]] = field(default_factory=list)

    def sent(self, commit: Commit) -> None:
        self.possible.append(commit)
        for question in self._questions:
            question.add(commit.offset)
        self._forget()

    def refused(self, commit: Commit) -> None:
        """It took no effect."""
        self.possible = [each for each in self.possible if each is not commit]

    def acknowledged(self, commit: Commit, now_s: float) -> None:
        commit.acknowledged_s = now_s
        self._forget()

    def asked(self) -> set[int]:
        """What an OffsetFetch that is sent now may be answered. It grows until `answered`."""
        question = {commit.offset for commit in self.possible}
        self._questions.append(question)
        return question

    def answered(self, question: set[int]) -> None:
        self._questions = [each for each in self._questions if each is not question]

    def _forget(self) -> None:
        """What a later commit has certainly replaced."""
        known = [each for each in self.possible if each.acknowledged_s is not None]
        self.possible = [
            each for each in self.possible if not any(each is not it and each.is_before(it) for it in known)
        ]


@dataclass(eq=False)
class Ledger:
    """Of one group. `eras_by_partition`: members have eras of their own, as in KIP-848."""

    group: str
    session_s: float
    eras_by_partition: bool
    broken: list[str] = field(default_factory=list)
    eras: dict[int, None] = field(default_factory=dict)
    """All that were seen."""
    acknowledged: int = 0
    """Commits of partitions."""
    refused: int = 0
    committed: dict[int, Committed] = field(default_factory=dict)
    delivered: dict[int, int] = field(default_factory=dict)
    """The records below this offset were given to some member."""
    _first_commit_s: dict[int, dict[int, float]] = field(default_factory=dict)
    """partition, or the whole group -> era -> when its first commit was acknowledged"""
    _newest: dict[int, dict[int, int]] = field(default_factory=dict)
    """partition -> era -> the largest offset whose commit was acknowledged"""
    _begun: dict[int, dict[int, int]] = field(default_factory=dict)
    """partition -> era -> the least offset from which one of its members read"""
    _given: dict[int, dict[str, frozenset[int]]] = field(default_factory=dict)
    """era -> seat -> partitions"""
    _made: dict[int, list[frozenset[int]]] = field(default_factory=dict)
    """era -> the shares that its leader made"""
    _synced_s: dict[int, float] = field(default_factory=dict)
    """era -> when its first assignment was answered"""
    _holders: dict[int, str] = field(default_factory=dict)
    """partition -> the seat that has not acknowledged to have given it up"""
    _alive_s: dict[str, float] = field(default_factory=dict)
    """seat -> when it sent the last call that the coordinator answered without an error"""

    def of(self, partition: int) -> Committed:
        return self.committed.setdefault(partition, Committed())

    # -- offsets ---------------------------------------------------------------------------------------

    def commit_sent(self, partition: int, commit: Commit) -> None:
        self.of(partition).sent(commit)

    def commit_acknowledged(self, partition: int, commit: Commit, now_s: float) -> None:
        self.acknowledged += 1
        place = partition if self.eras_by_partition else WHOLE_GROUP
        firsts = self._first_commit_s.setdefault(place, {})
        newer = [era for era, at_s in firsts.items() if era > commit.era and at_s <= commit.sent_s]
        if newer:
            self.broken.append(
                f"zombie: {self.group} acknowledged {commit.offset} of partition {partition} from era {commit.era}, "
                f"and had acknowledged a commit of era {newer[-1]}"
            )
        firsts.setdefault(commit.era, now_s)
        newest = self._newest.setdefault(partition, {})
        newest[commit.era] = max(commit.offset, newest.get(commit.era, 0))
        for era, offset in self._begun.get(partition, {}).items():
            self._overtaken(partition, commit.era, commit.offset, era, offset)
        self.of(partition).acknowledged(commit, now_s)

    def commit_refused(self, partition: int, commit: Commit) -> None:
        self.refused += 1
        self.of(partition).refused(commit)

    def offset_found(self, partition: int, question: set[int], offset: int) -> None:
        """`question`: of `Committed.asked`, when the request was sent."""
        self.of(partition).answered(question)
        if offset not in question:
            self.broken.append(
                f"lost commit: {self.group} has {offset} for partition {partition}, "
                f"and may have {', '.join(map(str, sorted(question)))}"
            )

    def begun(self, partition: int, offset: int, era: int) -> None:
        """A member reads from here on, the group's offset."""
        begun = self._begun.setdefault(partition, {})
        begun[era] = min(offset, begun.get(era, offset))
        for past, committed in self._newest.get(partition, {}).items():
            self._overtaken(partition, past, committed, era, offset)
        known = self.delivered.setdefault(partition, 0)
        if offset > known:
            self.broken.append(
                f"unread: {self.group} goes on at {offset} of partition {partition}, of which its "
                f"members got those below {known}"
            )

    def _overtaken(self, partition: int, past: int, committed: int, era: int, begun: int) -> None:
        """A commit that takes effect has reached the coordinator before the partition got an owner in a newer era, who
        therefore begins behind it."""
        if past < era and committed > begun:
            self.broken.append(
                f"overtaken: {self.group} acknowledged {committed} of partition {partition} in era {past}, "
                f"and answered {begun} to a member in era {era}"
            )

    def given(self, partition: int, end: int) -> None:
        """A member has got the records up to `end`, from where it began."""
        self.delivered[partition] = max(end, self.delivered[partition])

    # -- who owns what ---------------------------------------------------------------------------------

    def made(self, era: int, shares: Mapping[str, frozenset[int]]) -> None:
        """The leader of a classic generation sends them."""
        self._made.setdefault(era, []).extend(shares.values())

    def assigned(self, era: int, seat: str, partitions: frozenset[int], now_s: float) -> None:
        """In a classic generation."""
        given = self._given.setdefault(era, {})
        given[seat] = partitions
        for other, theirs in given.items():
            if other != seat and theirs & partitions:
                self.broken.append(
                    f"two owners: {seat} and {other} have {sorted(theirs & partitions)} in generation {era}"
                )
        if partitions and partitions not in self._made.get(era, ()):
            self.broken.append(
                f"foreign assignment: {seat} has {sorted(partitions)}, which no leader made in generation {era}"
            )
        self._synced_s.setdefault(era, now_s)

    def answered_in(self, era: int, seat: str, what: str, sent_s: float) -> None:
        """A call in a classic generation was answered without an error."""
        newer = [each for each, at_s in self._synced_s.items() if each > era and at_s <= sent_s]
        if newer:
            self.broken.append(
                f"past generation: {what} of {seat} in generation {era} was answered, {newer[-1]} had begun"
            )

    def holds(self, era: int, seat: str, partitions: Collection[int], now_s: float) -> None:
        """A member by KIP-848 was given these. What it had before stays with it until `released`."""
        for partition in sorted(partitions):
            holder = self._holders.get(partition, seat)
            silent_s = now_s - self._alive_s.get(holder, -inf)
            if holder != seat and silent_s < self.session_s:
                self.broken.append(
                    f"two owners: {seat} got partition {partition} in epoch {era}, {holder} has not given it up "
                    f"and was answered {silent_s:.1f} s ago"
                )
            self._holders[partition] = seat

    def released(self, seat: str, kept: Collection[int]) -> None:
        """The member says, or is about to say, that it has no other partitions than these."""
        self._holders = {
            partition: holder
            for partition, holder in self._holders.items()
            if holder != seat or partition in kept
        }

    # -- who is a member -------------------------------------------------------------------------------

    def alive(self, seat: str, sent_s: float) -> None:
        self._alive_s[seat] = sent_s

    def gone(self, seat: str) -> None:
        """It has left, died, or knows that it is a member no more."""
        self._alive_s.pop(seat, None)
        self.released(seat, ())

    def reached(self, seat: str, before: int, era: int) -> None:
        """`before`: its last era."""
        self.eras[era] = None
        if era < before:
            self.broken.append(f"era: {seat} was in {before}, and is answered {era}")

    def expelled(self, seat: str, why: str, now_s: float) -> None:
        silent_s = now_s - self._alive_s.get(seat, -inf)
        if silent_s < self.session_s:
            self.broken.append(
                f"expelled: {seat} got {why}, {silent_s:.1f} s after a call that was answered without an error"
            )
        self.gone(seat)

    # -- the end ---------------------------------------------------------------------------------------

    def behind(self, ends: Mapping[int, int], found: Mapping[int, int]) -> list[str]:
        """What keeps the group from being done. `ends`: the high watermarks, which rise by requests that come late;
        `found`: the committed offsets."""
        return [
            f"partition {partition} ends at {end}, {self.delivered.get(partition, 0)} were delivered, "
            f"the committed offset is {found.get(partition)}"
            for partition, end in ends.items()
            if end and not end <= found.get(partition, 0) <= self.delivered.get(partition, 0)
        ]
