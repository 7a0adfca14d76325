"""The object store as the services see it: one port, three adapters.

An object's bytes, etag and metadata become visible together, or not at all; a `put` that returned is durable.
Conditions are checked and applied in one step, by every process that shares the store. Etags are opaque.
A method either answers, or raises one of the errors of `objects.errors`, which say what is known
of the outcome.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, Protocol, TypeAlias

from kafscale.storage.objects.errors import StoreError

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
"""Of one call of `delete_many`, as of one request of S3's."""


@dataclass(frozen=True, slots=True)
class Doomed:
    """A key that is to be deleted if it has this etag. None: whatever it has."""

    key: str
    etag: str | None = None


Outcome: TypeAlias = bool | StoreError
"""Of one of many deletions: what `delete` answers, or what it raises."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectInfo:
    """What HEAD and listings return; listings leave `metadata` empty."""

    key: str
    etag: str
    size: int
    metadata: Metadata = field(default_factory=dict)


class ObjectStore(Protocol):
    """See the module's law. `linger_min_ms` and `puts_per_s_max` steer the batching of the writers."""

    @property
    def linger_min_ms(self) -> int:
        """How long an idle writer waits for more records before it seals a segment."""

    @property
    def puts_per_s_max(self) -> int | None:
        """The governor's budget of segments per second; None: no governor."""

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
        """Write the concatenation of `body`; the etag. PreconditionFailed if the condition does not hold."""

    async def get(
        self, key: str, *, if_match: str | None = None, start: int = 0, end: int | None = None
    ) -> bytes:
        """Bytes [start, end), cut at the object's end; a range wholly past the end is empty."""

    async def head(self, key: str) -> ObjectInfo | None:
        """What is stored under the key now; what it reports is durable."""

    async def delete(self, key: str, *, if_match: str | None = None) -> bool:
        """False: it was not there. Raises PreconditionFailed when another etag is."""

    async def delete_many(self, doomed: Sequence[Doomed]) -> list[Outcome]:
        """Each as `delete` does, in the order given, at most DELETES_MAX; in as few requests as the store allows.

        True also where the store does not say whether there was an object. One that failed holds up no other.
        """

    def list(self, prefix: str, *, start_after: str = "") -> AsyncIterator[ObjectInfo]:
        """Every key with the prefix after `start_after`; keys of one folder come in order of their UTF-8 bytes.

        Over several folders S3 keeps that order too, but SeaweedFS compares `a/` and `a-b/` without the slash.
        """

    async def probe(self) -> None:
        """Raise StoreUnsuitable when conditional PUTs are not honoured; may take a few requests."""

    async def close(self) -> None:
        """Release connections and threads; the objects stay."""
