"""A group's change as transactions of etcd.

Pure. A change that fits goes in one transaction. A larger one (a new target for a thousand members) takes several,
and the process may end between any two of them. The laws: the first puts the record that says that the group is
between two states (`Change.between`), the last puts the record of the new state, and a reader after any of them finds
a group that can go on; a member's keys come and go together; every transaction compares the revision of the group's
key, and the first and the last move it, so that a late copy of any of them can do no harm.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from itertools import groupby

from kafscale.storage.consumer_groups import Part, part_key
from kafscale.storage.etcd.client import Delete, Put
from kafscale.storage.keys import Keyspace, prefix_end

OPS_PER_TXN_MAX = 100
BYTES_PER_TXN = 512 << 10
"""What is larger alone has a transaction of its own."""
TXN_BYTES_MAX = 1_400_000
"""etcd takes requests of 1.5 MiB."""
OP_BYTES = 64
"""Of a key and what protobuf adds, beside the group's own key."""

Op = Put | Delete


class Record(Enum):
    UNTOUCHED = "untouched"


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """`record`: the value of the group's key, None to delete it and all beneath. `parts`: values of keys beneath,
    None to delete one; those in `early` may be written while the record is `between`. With `between` UNTOUCHED the
    record of old says all until the last transaction, and all parts are early."""

    record: bytes | None
    between: bytes | Record = Record.UNTOUCHED
    early: Mapping[Part, bytes | None] = field(default_factory=dict)
    late: Mapping[Part, bytes | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One transaction. `record`: what it makes of the group's key; None deletes it."""

    ops: tuple[Op, ...]
    record: bytes | None | Record

    @property
    def bytes(self) -> int:
        return sum(map(_size, self.ops))


def steps(change: Change, keyspace: Keyspace, key: bytes, *, littered: bool, ops_max: int) -> list[Step]:
    """In order. `littered`: what stands beneath the group's key is to be cleared first."""
    beneath = keyspace.beneath_group(key)
    clearing = Delete(beneath, prefix_end(beneath))
    if change.record is None:
        return [Step(ops=(Delete(key), clearing), record=None)]
    found = [Step(ops=(clearing,), record=Record.UNTOUCHED)] if littered else []
    members = _by_member(change.early, keyspace, key)
    early = [op for ops in members for op in ops]
    late = [_op(keyspace, key, part, value) for part, value in change.late.items()]
    whole = Step(ops=(Put(key, change.record), *late, *early), record=change.record)
    if not early or (len(whole.ops) <= ops_max and whole.bytes <= BYTES_PER_TXN):
        return [*found, whole]
    if not isinstance(change.between, Record):
        found.append(Step(ops=(Put(key, change.between),), record=change.between))
    found += [Step(ops=tuple(ops), record=Record.UNTOUCHED) for ops in _together(members, ops_max)]
    return [*found, Step(ops=(Put(key, change.record), *late), record=change.record)]


def _op(keyspace: Keyspace, key: bytes, part: Part, value: bytes | None) -> Op:
    name = part_key(keyspace, key, part)
    return Delete(name) if value is None else Put(name, value)


def _by_member(parts: Mapping[Part, bytes | None], keyspace: Keyspace, key: bytes) -> list[list[Op]]:
    """The parts of one member stand one after another."""
    return [
        [_op(keyspace, key, part, parts[part]) for part in some]
        for _, some in groupby(parts, key=lambda part: part.member_id)
    ]


def _together(members: list[list[Op]], ops_max: int) -> list[list[Op]]:
    """As many members as fit; none of them in two places."""
    chunks: list[list[Op]] = []
    room = 0
    for ops in members:
        size = sum(map(_size, ops))
        if not chunks or len(chunks[-1]) + len(ops) > ops_max or size > room:
            chunks.append([])
            room = BYTES_PER_TXN
        chunks[-1] += ops
        room -= size
    return chunks


def _size(op: Op) -> int:
    return len(op.key) + OP_BYTES + (len(op.value) if isinstance(op, Put) else 0)
