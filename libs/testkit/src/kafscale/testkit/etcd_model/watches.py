"""The watches of the model. Pure: responses are given to `send` in the step that causes them.

A response has all events of one revision, or of many if a watch begins in the past. A response larger than
FRAGMENT_BYTES is sent in fragments to a watch that asks for them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from kafscale.etcd.v3 import rpc_pb2 as pb
from kafscale.storage.etcd.ops import KeyValue
from kafscale.testkit.etcd_model.history import History, Span

FRAGMENT_BYTES: Final = 2 << 20

Send = Callable[[pb.WatchResponse], None]


@dataclass(slots=True)
class _Watch:
    span: Span
    next: int
    fragments: bool


class Watches:
    def __init__(self, history: Callable[[], History], header: Callable[[], pb.ResponseHeader]) -> None:
        self.history = history
        self.header = header
        self.sessions: list[WatchSession] = []

    def open(self, send: Send) -> WatchSession:
        session = WatchSession(self, send)
        self.sessions.append(session)
        return session

    def changed(self, revision: int, changes: Sequence[KeyValue]) -> None:
        """`changes`: those of this revision, the newest."""
        events: dict[bytes, pb.Event] = {}
        for session in tuple(self.sessions):
            session.changed(revision, changes, events)


@dataclass(slots=True, eq=False)
class WatchSession:
    """One stream: any number of watches. Close it when the stream is gone."""

    owner: Watches
    send: Send
    _watches: dict[int, _Watch] = field(default_factory=dict)

    def receive(self, request: pb.WatchRequest) -> None:
        match request.WhichOneof("request_union"):
            case "create_request":
                self._create(request.create_request)
            case "cancel_request":
                self._cancel(request.cancel_request.watch_id)

    def close(self) -> None:
        self._watches.clear()
        if self in self.owner.sessions:
            self.owner.sessions.remove(self)

    def changed(self, revision: int, changes: Sequence[KeyValue], events: dict[bytes, pb.Event]) -> None:
        """`events`: those of the changes that some watch has, by key."""
        for number, watch in tuple(self._watches.items()):
            if watch.next > revision:
                continue
            watch.next = revision + 1
            found = [each for each in changes if each.key in watch.span]
            if found:
                self._send(number, watch, [_event_once(each, events) for each in found])

    def _create(self, request: pb.WatchCreateRequest) -> None:
        history, number = self.owner.history(), 0
        while number in self._watches:
            number += 1
        watch = _Watch(
            Span(request.key or b"\0", request.range_end),
            request.start_revision or history.revision + 1,
            request.fragment,
        )
        self._watches[number] = watch
        self.send(pb.WatchResponse(header=self.owner.header(), watch_id=number, created=True))
        if watch.next < history.compacted:
            del self._watches[number]
            self.send(
                pb.WatchResponse(
                    header=self.owner.header(),
                    watch_id=number,
                    canceled=True,
                    compact_revision=history.compacted,
                )
            )
        elif watch.next <= history.revision:
            self._catch_up(number, history.revision)

    def _cancel(self, number: int) -> None:
        if self._watches.pop(number, None) is not None:
            self.send(pb.WatchResponse(header=self.owner.header(), watch_id=number, canceled=True))

    def _catch_up(self, number: int, revision: int) -> None:
        watch = self._watches[number]
        changes = self.owner.history().changes(watch.span, watch.next)
        watch.next = revision + 1
        self._send(number, watch, [_event(change) for change in changes])

    def _send(self, number: int, watch: _Watch, events: list[pb.Event]) -> None:
        for part, is_last in _parts(events, whole=not watch.fragments):
            self.send(
                pb.WatchResponse(
                    header=self.owner.header(), watch_id=number, events=part, fragment=not is_last
                )
            )


def _event_once(change: KeyValue, events: dict[bytes, pb.Event]) -> pb.Event:
    event = events.get(change.key)
    if event is None:
        event = events[change.key] = _event(change)
    return event


def _event(change: KeyValue) -> pb.Event:
    kv = pb.KeyValue(
        key=change.key,
        create_revision=change.create_revision,
        mod_revision=change.mod_revision,
        version=change.version,
        value=change.value,
        lease=change.lease,
    )
    return pb.Event(type=pb.Event.PUT if change.version else pb.Event.DELETE, kv=kv)


def _parts(events: Iterable[pb.Event], *, whole: bool) -> Iterator[tuple[list[pb.Event], bool]]:
    """Each part, and whether it is the last."""
    part: list[pb.Event] = []
    size = 0
    for event in events:
        if part and not whole and size + event.ByteSize() > FRAGMENT_BYTES:
            yield part, False
            part, size = [], 0
        part.append(event)
        size += event.ByteSize()
    if part:
        yield part, True
