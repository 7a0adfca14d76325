"""The object store as the services see it: one port, its errors, three adapters.

An object's bytes, etag and metadata become visible together, or not at all. A `put` that returned is durable.
A condition is checked and applied in one atomic step, for all processes that share the store. Etags are opaque.
A method returns, or raises a StoreError, whose class says what is known of the outcome.

Definite: ObjectNotFound, PreconditionFailed, StoreFull, StoreRefused, StoreUnsuitable: nothing was changed.
Unknown: StoreUnavailable: the request was applied, will be applied later, or never will be. It may be repeated.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, Protocol, TypeAlias

from kafscale.storage.failures import without_frames
from kafscale.storage.task_groups import gather_bounded


class StoreError(Exception):
    """A failed request to the store; `key` is "" if the request named no key."""

    def __init__(self, key: str, reason: str = "") -> None:
        super().__init__(f"{key or 'object store'}: {reason or self.__class__.__name__}")
        self.key = key
        self.reason = reason


class ObjectNotFound(StoreError):
    """No object has this key."""


class PreconditionFailed(StoreError):
    """The object's state does not match the condition."""


class StoreUnavailable(StoreError):
    """Timeout, lost connection, 409 or 5xx: the outcome is unknown, and the request may be repeated."""


class StoreSlow(StoreUnavailable):
    """Bytes went until the end of the time that the size allows. The store is there, and too slow for the load."""


class StoreFull(StoreError):
    """The store is full and nothing was written. Requests succeed when there is space again."""


class StoreRefused(StoreError):
    """Wrong credentials, missing permission, no such bucket, or an invalid key."""


class StoreUnsuitable(StoreError):
    """The store does not support what the commit protocol needs."""


Buffer: TypeAlias = bytes | bytearray | memoryview
Metadata: TypeAlias = Mapping[str, str]

NO_METADATA: Final[Metadata] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class IfAbsent:
    """The key must not exist: create, never replace."""


@dataclass(frozen=True, slots=True)
class IfMatch:
    """The key must exist with exactly this etag."""

    etag: str


Condition: TypeAlias = IfAbsent | IfMatch | None

DELETES_MAX: Final = 1_000
"""Keys per call of `delete_many`; S3 has the same limit per request."""


@dataclass(frozen=True, slots=True)
class Doomed:
    """A key to delete if it has this etag. None: any etag."""

    key: str
    etag: str | None = None


Outcome: TypeAlias = bool | StoreError
"""The result of one of many deletions: the return value of `delete`, or its exception."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectInfo:
    """The result of HEAD and of listings; listings leave `metadata` empty."""

    key: str
    etag: str
    size: int
    metadata: Metadata = field(default_factory=dict)


class ObjectStore(Protocol):
    """See the module's law. `bills_requests` controls the batching of the writers."""

    @property
    def bills_requests(self) -> bool:
        """Whether each request costs money: then writers keep a budget of bundles per second."""

    @property
    def puts_at_once_max(self) -> int | None:
        """PUTs that the connections of a process carry at once, with room for other requests. None: a local store."""

    @property
    def conditional_delete(self) -> bool:
        """False when DELETE ignores If-Match: a topic's name is then freed only after a wait."""

    async def put(
        self,
        key: str,
        body: Sequence[Buffer],
        *,
        condition: Condition = None,
        metadata: Metadata = NO_METADATA,
    ) -> str:
        """Writes the concatenation of `body`. Returns the etag. Raises PreconditionFailed."""

    async def get(
        self, key: str, *, if_match: str | None = None, start: int = 0, end: int | None = None
    ) -> bytes:
        """Bytes [start, end), cut at the object's end; a range entirely past the end is empty."""

    async def head(self, key: str) -> ObjectInfo | None:
        """The object's current state, which is durable."""

    async def delete(self, key: str, *, if_match: str | None = None) -> bool:
        """False: no object had the key. Raises PreconditionFailed if the etag is different."""

    async def delete_many(self, doomed: Sequence[Doomed]) -> list[Outcome]:
        """Deletes each key like `delete`, at most DELETES_MAX, in as few requests as the store allows.

        Returns the results in the same order. True also if the store does not report whether the object existed.
        A failed deletion does not stop the others.
        """

    def list(self, prefix: str, *, start_after: str = "") -> AsyncIterator[ObjectInfo]:
        """Every key with the prefix after `start_after`. Keys of one folder are in order of their UTF-8 bytes.

        Across folders S3 keeps that order too, but SeaweedFS compares `a/` and `a-b/` without the slash.
        """

    async def probe(self) -> None:
        """Raises StoreUnsuitable if the store ignores conditions of PUTs. May send a few requests."""

    async def close(self) -> None:
        """Releases connections and threads; the objects remain."""


AT_ONCE: Final = 16

Delete = Callable[[str, str | None], Awaitable[bool]]
"""Deletes a key, if it has this etag."""


async def delete_singly(delete: Delete, doomed: Sequence[Doomed]) -> list[Outcome]:
    async def one(each: Doomed) -> Outcome:
        try:
            return await delete(each.key, each.etag)
        except StoreError as error:
            return without_frames(error)

    return await gather_bounded(map(one, doomed), AT_ONCE)
