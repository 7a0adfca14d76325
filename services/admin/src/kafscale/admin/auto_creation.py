"""Topics that Metadata creates because it was asked for them, a few at a time.

Law: nobody waits in line. A request has its first few missing topics made, and only as many as there are places; the
client asks again for the rest, as it does for those that were made (Kafka creates behind the answer as well). So a
request that names thousands costs what a small one costs, and the pace is that of requests.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from kafscale.admin.errors import guarded
from kafscale.admin.plan import NewTopic
from kafscale.admin.topics import TopicStore
from kafscale.storage.topics import Topic
from kafscale.wire.errors import ErrorCode

PLACES = 32
"""Creations under way, of all requests together."""
ASK_AGAIN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
SILENT = (ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.REQUEST_TIMED_OUT)
"""Another admin made it first, or etcd did not say what became of it: asking again tells."""


class AutoCreation:
    def __init__(self, store: TopicStore, *, enabled: bool, per_request: int) -> None:
        self.enabled = enabled
        self._store = store
        self._per_request = per_request
        self._places = PLACES

    async def create(self, names: Sequence[str], now_ms: int) -> Mapping[str, ErrorCode]:
        """What Metadata says of each of these, which are legal and were not there."""
        some = names[: min(self._per_request, self._places)]
        self._places -= len(some)
        try:
            made = await asyncio.gather(*(self._one(name, now_ms) for name in some))
        finally:
            self._places += len(some)
        return {**dict.fromkeys(names, ASK_AGAIN), **dict(zip(some, made, strict=True))}

    async def _one(self, name: str, now_ms: int) -> ErrorCode:
        outcome = await guarded(self._store.create(NewTopic(name=name), now_ms))
        return ASK_AGAIN if isinstance(outcome, Topic) or outcome.error in SILENT else outcome.error
