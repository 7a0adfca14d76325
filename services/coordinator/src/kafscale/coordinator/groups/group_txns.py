"""The change of a group as etcd transactions.

Pure. A change that fits is one transaction. A larger one, such as a new target assignment for 1,000 members, takes
several, and the process may end between any two of them. The laws:

- The first puts the record that says that the group is between two states (`GroupChange.between`). The last puts the
  record of the new state. After any of them, the keys are a group that can continue.
- All keys of a member are written or deleted in one transaction.
- Every transaction compares the revision of the group's key, and the last changes that key. A copy that is applied late
  has no effect: it repeats what is there. So a transaction that removes the leftovers of an interrupted change removes
  no key that a later one of these transactions writes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import groupby

from kafscale.storage.consumer_groups import Part, part_key
from kafscale.storage.etcd.client import Delete, Put
from kafscale.storage.keys import Keyspace, prefix_end

OPS_PER_TXN_MAX = 100
BYTES_PER_TXN = 512 << 10
"""A larger value is alone in its transaction."""
TXN_BYTES_MAX = 1_400_000
"""etcd accepts requests of up to 1.5 MiB."""
OP_BYTES = 64
"""The overhead of one operation: protobuf fields and the suffix of the key."""

Op = Put | Delete


class GroupKey(Enum):
    UNTOUCHED = "untouched"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupChange:
    """`record`: the new value of the group's key; None deletes it and all keys below.

    `early` and `late`: new values of keys below it; None deletes one. The `early` ones may be written while the group's
    key holds `between`. If `between` is UNTOUCHED, the old record is valid until the last transaction, and all parts
    are early.
    """

    record: bytes | None
    between: bytes | GroupKey = GroupKey.UNTOUCHED
    early: Mapping[Part, bytes | None] = field(default_factory=dict)
    late: Mapping[Part, bytes | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupTxn:
    """One transaction. `record`: the new value of the group's key; None deletes it."""

    ops: tuple[Op, ...]
    record: bytes | None | GroupKey

    @property
    def bytes(self) -> int:
        return sum(map(_size, self.ops))


def txns_of(
    change: GroupChange, keyspace: Keyspace, key: bytes, *, leftovers: bool, ops_max: int
) -> list[GroupTxn]:
    """The transactions of the change, in order. `leftovers`: the keys below the group's key are not the group's. They
    are deleted first; `stored` is None then, so the change writes all keys of the group.
    """
    if change.record is None:
        return [GroupTxn(ops=(Delete(key), _others(keyspace, key, ())[0]), record=None)]
    members = _by_member(change.early, keyspace, key)
    early = [op for ops in members for op in ops]
    late = [_op(keyspace, key, part, value) for part, value in change.late.items()]
    whole = GroupTxn(ops=(Put(key, change.record), *late, *early), record=change.record)
    found = []
    if leftovers:
        deletes = _others(keyspace, key, [op.key for op in (*early, *late)])
        found += [
            GroupTxn(ops=tuple(deletes[at : at + ops_max]), record=GroupKey.UNTOUCHED)
            for at in range(0, len(deletes), ops_max)
        ]
    if not early or (len(whole.ops) <= ops_max and whole.bytes <= BYTES_PER_TXN):
        return [*found, whole]
    if not isinstance(change.between, GroupKey):
        found.append(GroupTxn(ops=(Put(key, change.between),), record=change.between))
    found += [GroupTxn(ops=tuple(ops), record=GroupKey.UNTOUCHED) for ops in _together(members, ops_max)]
    return [*found, GroupTxn(ops=(Put(key, change.record), *late), record=change.record)]


def _op(keyspace: Keyspace, key: bytes, part: Part, value: bytes | None) -> Op:
    name = part_key(keyspace, key, part)
    return Delete(name) if value is None else Put(name, value)


def _others(keyspace: Keyspace, key: bytes, kept: Sequence[bytes]) -> list[Op]:
    """Deletes the keys below the group's key, but not the `kept` ones: a range before each, and one behind all."""
    beneath = keyspace.beneath_group(key)
    starts = [beneath, *(each + b"\0" for each in sorted(kept))]
    return [Delete(*bounds) for bounds in zip(starts, [*sorted(kept), prefix_end(beneath)], strict=True)]


def _by_member(parts: Mapping[Part, bytes | None], keyspace: Keyspace, key: bytes) -> list[list[Op]]:
    """The parts of one member are adjacent in `parts`."""
    return [
        [_op(keyspace, key, part, parts[part]) for part in some]
        for _, some in groupby(parts, key=lambda part: part.member_id)
    ]


def _together(members: list[list[Op]], ops_max: int) -> list[list[Op]]:
    """As many members per transaction as fit; none is in two of them."""
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
