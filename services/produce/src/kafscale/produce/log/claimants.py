"""Whose object has the name of a segment. Objects carry the epoch and the attempt that wrote them as metadata."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto

from kafscale.storage.keys import META_ATTEMPT, META_EPOCH


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundObject:
    """What HEAD saw at a name: `ObjectInfo` of the store, with our metadata parsed.

    `epoch` and `attempt` are None on an object that no KafScale wrote. `from_metadata` makes one.
    """

    etag: str
    size: int
    epoch: int | None
    attempt: bytes | None

    @staticmethod
    def from_metadata(etag: str, size: int, metadata: Mapping[str, str]) -> FoundObject:
        try:
            epoch = int(metadata[META_EPOCH])
            attempt = bytes.fromhex(metadata[META_ATTEMPT])
        except (KeyError, ValueError):
            return FoundObject(etag=etag, size=size, epoch=None, attempt=None)
        return FoundObject(etag=etag, size=size, epoch=epoch, attempt=attempt)


class Claimant(Enum):
    NOBODY = auto()
    ME = auto()  # this attempt
    EPOCH = auto()  # another attempt of this epoch
    OLDER = auto()
    NEWER = auto()
    FOREIGN = auto()


def claimant_of(seen: FoundObject | None, attempt: bytes, epoch: int) -> Claimant:
    if seen is None:
        return Claimant.NOBODY
    if seen.epoch is None or seen.attempt is None:
        return Claimant.FOREIGN
    if seen.attempt == attempt:
        return Claimant.ME
    if seen.epoch == epoch:
        return Claimant.EPOCH
    return Claimant.OLDER if seen.epoch < epoch else Claimant.NEWER
