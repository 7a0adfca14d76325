"""What etcd and the bucket say while a cluster runs: owners, committed objects, and the services' own metrics."""

from __future__ import annotations

import asyncio
import functools
import threading
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace
from http.client import HTTPResponse
from typing import TypeVar

from kafscale.log.claims import build_release
from kafscale.log.heads import Head, Seg, decode_head
from kafscale.log.places import index_of, place_of
from kafscale.storage.coordination import decode_owner, rendezvous
from kafscale.storage.etcd.client import EtcdClient, EtcdError
from kafscale.storage.keys import Keyspace
from kafscale.storage.membership.records import Instance, decode_live
from kafscale.storage.objects import ObjectInfo, ObjectStore
from kafscale.storage.slots import slot_of
from kafscale.storage.topics import decode_topic

HTTP_TIMEOUT_S = 10.0
SAMPLE_S = 0.6
GONE = "nothing"
HEADS_AT_ONCE = 32  # after an hour one after the other takes longer than half an hour
BUNDLE_SUFFIX = ".kfb"

T = TypeVar("T")
Objects = dict[str, str]
"""object name -> etag"""


@functools.cache
def _loop() -> asyncio.AbstractEventLoop:
    """One loop for all questions of this process, in a thread of its own.

    A loop for each question is no way: while loops come and go in several threads, grpc.aio sometimes raises KeyError
    or OSError as it lets a closed one go, and pytest fails a test for that.
    """
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="inside", daemon=True).start()
    return loop


def leader_of(endpoints: Sequence[str]) -> str | None:
    """The member of etcd that says it leads; None: no one does."""

    async def ask() -> str | None:
        for endpoint in endpoints:
            client = EtcdClient.connect([endpoint])
            try:
                if (await client.status()).is_leader:
                    return endpoint
            except EtcdError:
                continue
            finally:
                await client.close()
        return None

    return asyncio.run_coroutine_threadsafe(ask(), _loop()).result()


@dataclass(frozen=True, slots=True)
class Inside:
    """The etcd of one cluster. Each call opens a connection, so any thread may call."""

    etcd: str  # its endpoints, with commas
    keys: Keyspace = field(default_factory=Keyspace)
    user: str | None = None
    password: str | None = field(default=None, repr=False)

    def _ask(self, question: Callable[[EtcdClient], Awaitable[T]]) -> T:
        async def run() -> T:
            client = EtcdClient.connect(self.etcd.split(","), user=self.user, password=self.password)
            try:
                return await question(client)
            finally:
                await client.close()

        return asyncio.run_coroutine_threadsafe(run(), _loop()).result()

    def instances(self, role: str) -> list[Instance]:
        """Live registrations, by node id."""

        async def ask(client: EtcdClient) -> list[Instance]:
            found = await client.prefix(self.keys.live_prefix(role))
            return [decode_live(kv, self.keys) for kv in found.kvs]

        return sorted(self._ask(ask), key=lambda instance: instance.node_id)

    def topic_id(self, topic: str) -> bytes:
        async def ask(client: EtcdClient) -> bytes:
            found = await client.range(self.keys.topic(topic))
            return decode_topic(topic, found.kvs[0].value).topic_id

        return self._ask(ask)

    def owners(self, topic: str) -> dict[int, int]:
        """partition -> node id, of the partitions that have an owner."""

        async def ask(client: EtcdClient) -> dict[int, int]:
            found = await client.range(self.keys.topic(topic))
            topic_id = decode_topic(topic, found.kvs[0].value).topic_id
            records = await client.prefix(self.keys.owners_prefix(topic_id))
            owners = {self.keys.parse_owner(kv.key)[1]: decode_owner(kv.value).owner for kv in records.kvs}
            return {part: int(owner.split("/")[0]) for part, owner in owners.items() if owner}

        return self._ask(ask)

    def forget_transactional_id(self, transactional_id: str) -> None:
        """Deletes the record of a transactional id, as a loss in etcd does."""

        async def ask(client: EtcdClient) -> None:
            await client.delete(self.keys.transaction(slot_of(transactional_id), transactional_id))

        self._ask(ask)

    def heads(self, topic: str) -> dict[int, Head]:
        async def ask(client: EtcdClient) -> dict[int, Head]:
            found = await client.range(self.keys.topic(topic))
            topic_id = decode_topic(topic, found.kvs[0].value).topic_id
            heads = await client.prefix(self.keys.heads_prefix(topic_id))
            return {self.keys.parse_head(kv.key)[1]: decode_head(kv.value) for kv in heads.kvs}

        return self._ask(ask)

    def end_epoch(self, topic: str, partition: int) -> bool:
        """Takes the partition from its owner, whether it lives or not. False: its head has changed meanwhile."""

        async def ask(client: EtcdClient) -> bool:
            found = await client.range(self.keys.topic(topic))
            topic_id = decode_topic(topic, found.kvs[0].value).topic_id
            kv = await client.get(self.keys.head(topic_id, partition))
            assert kv is not None, "no owner has ever had it"
            head = decode_head(kv.value)
            released = replace(head, epoch=head.epoch + 1, owner="", handoff_to="")
            txn = build_release(self.keys, topic_id, partition, released=released, revision=kv.mod_revision)
            return (await client.txn(txn)).succeeded

        return self._ask(ask)

    def slices(self, topic: str) -> int:
        """How many the topic's heads name."""
        return sum(seg.is_slice for head in self.heads(topic).values() for seg in head.tail)

    def committed(self, topic: str) -> Objects:
        """The objects that the topic's heads name: segments with their indexes, and bundles."""
        return {
            name: etag
            for part, head in self.heads(topic).items()
            for seg in head.tail
            for name, etag in self._objects(topic, part, seg)
        }

    def _objects(self, topic: str, part: int, seg: Seg) -> Iterator[tuple[str, str]]:
        place = place_of(self.keys, topic, part, seg)
        yield place.key, seg.etag
        index = index_of(place, seg)
        if index is not None and index.etag is not None:
            yield index.key, index.etag

    def preferred(self, topic: str, nodes: list[int]) -> dict[int, int]:
        """partition -> the node that should own it."""
        topic_id = self.topic_id(topic)
        return {part: rendezvous(topic_id, part, nodes) for part in self.heads(topic)}


@dataclass(slots=True)
class Watched:
    """Every committed object that was seen, and those whose etag was seen to change."""

    seen: Objects = field(default_factory=dict)
    changed: list[str] = field(default_factory=list)

    def note(self, objects: Objects) -> None:
        for name, etag in objects.items():
            known = self.seen.setdefault(name, etag)
            if known != etag:
                self.changed.append(f"{name}: {known} became {etag}")


@contextmanager
def watching_objects(inside: Inside, topic: str) -> Iterator[Watched]:
    """Samples the committed objects of a topic, first and last and all the while; etcd may be away in between."""
    watched, stop = Watched(), threading.Event()
    watched.note(inside.committed(topic))

    def sample() -> None:
        while not stop.wait(SAMPLE_S):
            try:
                watched.note(inside.committed(topic))
            except EtcdError:
                continue  # asked again at the next tick

    thread = threading.Thread(target=sample, name="objects", daemon=True)
    thread.start()
    try:
        yield watched
    finally:
        stop.set()
        thread.join()
    watched.note(inside.committed(topic))


def changed_in_store(
    store: Callable[[], ObjectStore], objects: Objects, named: Callable[[], Objects]
) -> list[str]:
    """Objects that the store no longer has as they were committed.

    A bundle may be gone if no head names it any more. `named` is called after the store was asked, because a bundle
    that is gone is never named again.
    """

    async def compare() -> dict[str, str]:
        names, there = list(objects), dict[str, ObjectInfo | None]()
        async with _open(store) as opened:
            for begin in range(0, len(names), HEADS_AT_ONCE):
                some = names[begin : begin + HEADS_AT_ONCE]
                there |= zip(some, await asyncio.gather(*map(opened.head, some)), strict=True)
        return {name: info.etag if info is not None else GONE for name, info in there.items()}

    etags = asyncio.run(compare())
    may_go = {name for name in objects if name.endswith(BUNDLE_SUFFIX)} - named().keys()
    return [
        f"{name}: {etag} became {etags[name]}"
        for name, etag in objects.items()
        if etags[name] != etag and not (etags[name] == GONE and name in may_go)
    ]


@asynccontextmanager
async def _open(store: Callable[[], ObjectStore]) -> AsyncIterator[ObjectStore]:
    opened = store()
    try:
        yield opened
    finally:
        await opened.close()


def bundles_in(store: Callable[[], ObjectStore]) -> set[str]:
    """The keys of all bundles in the bucket."""

    async def ask() -> set[str]:
        async with _open(store) as opened:
            return {info.key async for info in opened.list(Keyspace().bundles_prefix())}

    return asyncio.run(ask())


def get(address: str, path: str) -> tuple[int, str]:
    """Status and body of a service's HTTP page."""
    request = urllib.request.Request(f"http://{address}{path}")
    opener = urllib.request.build_opener(_EveryStatus)
    with opener.open(request, timeout=HTTP_TIMEOUT_S) as answer:
        return answer.status, answer.read().decode()


class _EveryStatus(urllib.request.HTTPErrorProcessor):
    """503 is an answer."""

    def http_response(self, request: urllib.request.Request, response: HTTPResponse) -> HTTPResponse:
        return response


def metric(address: str, name: str) -> dict[str, float]:
    """A counter or gauge at /metrics: its labels as written there -> its value."""
    _, text = get(address, "/metrics")
    lines = (line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    return {key.partition("{")[2]: float(value) for key, value in lines if key.partition("{")[0] == name}


def shares(owners: Mapping[int, int]) -> dict[int, int]:
    """node id -> how many partitions it owns."""
    found: dict[int, int] = {}
    for node in owners.values():
        found[node] = found.get(node, 0) + 1
    return found
