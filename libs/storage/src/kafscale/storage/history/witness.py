"""Witnesses of etcd's history: names in etcd and in the bucket, and what it means if they do not agree. Pure.

    h/{generation}-{number}-{nonce}                  a key of etcd; the value is the time at which it was made
    @kafscale/history/{generation}-{number}-{nonce}  an object
    @kafscale/history/stopped                        an object: a process has proof that etcd went back

A slice or a segment is "dead" only within one history of etcd. If etcd loses its data, is restored to an older state,
or is another cluster's, an older head seems to show that newer objects are dead. The bucket does not go back with
etcd, so it keeps a proof: about once a minute a witness is written, first to etcd, then to the bucket.

The law: the newest witness of the bucket is a key of etcd, or etcd went back behind it. So an etcd that holds it has
all of the history up to that witness. In etcd the newest KEYS_KEPT witnesses stay.

A roll-forward begins a new generation: what was dead before may be named since. A process of an older generation
deletes and claims nothing any more.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final

from kafscale.storage.keys import OWN_TREE, Keyspace
from kafscale.storage.schema import SCHEMA, UnreadableValue, parse_value
from kafscale.store.v1 import store_pb2 as pb

NONCE_BYTES: Final = 8
KEYS_KEPT: Final = 16
"""In etcd: a process that has verified its history in the last quarter of an hour need not do it again to commit."""
OBJECTS_KEPT: Final = 4
"""In the bucket. The newest is the one that counts."""
STOPPED: Final = "stopped"
"""The object that says that a process has proof, although the witnesses agree."""
REMEDY: Final = (
    "If this is the wrong etcd, correct its address. Otherwise stop all processes and run "
    "`kafscale fsck --roll-forward` (docs/backup.md)"
)

_NAME: Final = re.compile(r"(?P<generation>\d{8})-(?P<number>\d{12})-(?P<nonce>[0-9a-f]{16})")


class WentBack(Exception):
    """etcd does not have the history that the bucket knows. No object may be deleted, and no partition claimed."""

    def __init__(self, why: str) -> None:
        super().__init__(f"etcd went back in its history: {why}. {REMEDY}")
        self.why = why


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Witness:
    """Two processes may make a witness of one number at once: then both count."""

    generation: int
    number: int
    nonce: bytes

    def __str__(self) -> str:
        return f"{self.generation:08d}-{self.number:012d}-{self.nonce.hex()}"

    def next(self, nonce: bytes) -> Witness:
        return Witness(generation=self.generation, number=self.number + 1, nonce=nonce)


def first_of(generation: int, nonce: bytes) -> Witness:
    return Witness(generation=generation, number=0, nonce=nonce)


def parse_witness(name: str) -> Witness | None:
    """Of a name in etcd or in the bucket. None: it is no witness."""
    found = _NAME.fullmatch(name)
    if found is None:
        return None
    return Witness(
        generation=int(found["generation"]),
        number=int(found["number"]),
        nonce=bytes.fromhex(found["nonce"]),
    )


def witnesses_prefix(keys: Keyspace) -> bytes:
    return keys.root() + b"h/"


def witness_key(keys: Keyspace, witness: Witness) -> bytes:
    return witnesses_prefix(keys) + str(witness).encode()


def parse_witness_key(keys: Keyspace, key: bytes) -> Witness | None:
    return parse_witness(key.removeprefix(witnesses_prefix(keys)).decode(errors="replace"))


def history_prefix(keys: Keyspace) -> str:
    return f"{keys.namespace}/{OWN_TREE}/history/"


def encode_made(made_ms: int) -> bytes:
    return pb.Witness(schema=SCHEMA, made_ms=made_ms).SerializeToString()


def decode_made_ms(value: bytes) -> int:
    """0 if it cannot be read: the name is the witness, and its time only says when the next one is due."""
    message = pb.Witness()
    try:
        parse_value(message, value, "witness")
    except UnreadableValue:
        return 0
    return message.made_ms


def compared(known: Collection[Witness], stored: Collection[Witness]) -> Witness | None:
    """The newest witness of etcd, given those of etcd and those that the bucket had before etcd was read. None: neither
    has any, so the cluster is new. Raises WentBack."""
    newest = max(known, default=None)
    if not stored:
        return newest
    top = max(stored)
    missing = sorted(each for each in newest_of(stored) if each not in known)
    if not missing:
        assert newest is not None, "all of one or more are known"
        return newest
    if newest is None:
        raise WentBack(
            f"the bucket has the witness {top}, and etcd has none: it is empty or another cluster's"
        )
    raise WentBack(f"the bucket has the witness {missing[-1]}, and etcd does not; its newest is {newest}")


def newest_of(some: Iterable[Witness]) -> list[Witness]:
    """All with the highest number."""
    found = sorted(some)
    return [
        each for each in found if (each.generation, each.number) == (found[-1].generation, found[-1].number)
    ]


def outdated(some: Iterable[Witness], kept: int) -> list[Witness]:
    """All but the newest `kept`."""
    return sorted(some)[:-kept]
