"""Closed and open loops over the service's own rule of when a bundle is sealed, on a simulated machine.

`python -m bench.gathering` prints for each load: requests per bundle, bundles and requests per second, CPU seconds per
100,000 requests (with the clients' 6 s), the latency, and the share of bundles that waited in vain. It starts nothing,
and a busy machine does not change its figures.

The machine has two cores. Each process is a station that does one job at a time and needs a core for it. The costs were
fitted to profiles of the system on a directory: about 0.045 ms of CPU for each request, and 2.3 ms for each bundle with
its PUT and its commit. Partitions, their holds and the pump are as in the service. Nothing fails.
"""

from __future__ import annotations

import argparse
import heapq
import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from itertools import count
from typing import Final

from kafscale.produce.bundles.gather import Gather, GatherLimits, TokenBucket
from kafscale.produce.log.model import NEVER, Want

CORES: Final = 2
SECONDS: Final = 20
WARM_MS: Final = 2_000
HOLD_MS: Final = 250
HELD_BYTES: Final = 256 << 10
DIRECT_BYTES: Final = 1 << 20
PIPELINE_MAX: Final = 4
TURN_MS: Final = 0.02
"""Of the event loop of produce, when the pump runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """CPU in ms, and the rest of a PUT and of a commit, which is waiting."""

    client: float = 0.06
    door: float = 0.012  # each way
    arrival: float = 0.013  # in produce
    answer: float = 0.008  # in produce
    seal: float = 0.4
    put: float = 0.5  # in a thread of produce
    put_waits: float = 0.2
    begin_commit: float = 0.25
    commit: float = 0.5  # in etcd
    commit_waits: float = 0.2
    end_commit: float = 0.35
    deliver: float = 0.25  # in the front door
    mb: float = 5.0  # for each MB of records, in produce

    def slower(self, factor: float) -> Costs:
        """On a machine that needs so many times the CPU; what is waiting stays."""
        cpu = [each.name for each in fields(self) if not each.name.endswith("_waits")]
        return replace(self, **{name: getattr(self, name) * factor for name in cpu})


DIRECTORY: Final = Costs()
NEAR_S3: Final = Costs(put=0.5, put_waits=1.5)
FAR_S3: Final = Costs(put=0.5, put_waits=30.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """A client has `depth` requests in flight and sends the next when one is acknowledged; with `per_s` they come at
    random times instead, of so many clients that none waits."""

    what: str
    clients: int = 1
    depth: int = 1
    partitions: int = 1
    bytes: int = 1_100
    per_s: float | None = None
    even: bool = False
    window: int = 0  # requests that the one producer of an open loop has in flight; its records wait for them
    wide: bool = False  # a request has records for every partition
    think_ms: float = 0.0
    costs: Costs = DIRECTORY


@dataclass(slots=True)
class Station:
    """A process, or a thread of it."""

    jobs: deque[tuple[float, Callable[[], None]]] = field(default_factory=deque)
    running: bool = False


class Machine:
    """Time, cores and stations. What waits for a core gets one in turn."""

    def __init__(self) -> None:
        self.now = 0.0
        self.cpu = 0.0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()
        self._free = CORES
        self._waiting: deque[Station] = deque()

    def at(self, when: float, run: Callable[[], None]) -> None:
        heapq.heappush(self._events, (when, next(self._order), run))

    def work(self, station: Station, cost: float, then: Callable[[], None]) -> None:
        station.jobs.append((cost, then))
        if len(station.jobs) == 1 and not station.running:
            self._waiting.append(station)
            self._go()

    def _go(self) -> None:
        while self._free and self._waiting:
            station = self._waiting.popleft()
            cost, then = station.jobs.popleft()
            station.running = True
            self._free -= 1
            self.at(self.now + cost, partial(self._done, station, cost, then))

    def _done(self, station: Station, cost: float, then: Callable[[], None]) -> None:
        self._free += 1
        self.cpu += cost
        station.running = False
        if station.jobs:
            self._waiting.append(station)
        then()
        self._go()

    def run(self, until: float) -> None:
        while self._events and self._events[0][0] <= until:
            self.now, _, run = heapq.heappop(self._events)
            run()
        self.now = until


@dataclass(slots=True)
class Request:
    client: int
    records: list[tuple[float, int]]  # when each was sent, and its partition
    parts: int = 1


@dataclass(slots=True)
class Partition:
    since_ms: int = 0
    bytes: int = 0
    waiters: list[Request] = field(default_factory=list)
    flights: int = 0


class Simulation:
    """One instance of produce with its clients."""

    def __init__(self, load: Load, limits: GatherLimits, seed: int) -> None:
        self.load, self.costs = load, load.costs
        self.random = random.Random(seed)
        self.machine = Machine()
        self.gather: Gather[int] = Gather(limits, bundles=TokenBucket(None, 1), heads=TokenBucket(None, 1))
        self.partitions = [Partition() for _ in range(load.partitions)]
        self.clients, self.door, self.produce, self.etcd = Station(), Station(), Station(), Station()
        self.touched: dict[int, None] = {}
        self.decided: list[tuple[int, int]] = []
        self.pumping = False
        self.alarm: float = NEVER
        self.latencies: list[float] = []
        self.sizes: list[int] = []
        self.in_vain = 0
        self.unsent: list[tuple[float, int]] = []
        self.under_way = 0
        self.turn = 0

    # --- clients -----------------------------------------------------------------------------

    def start(self) -> None:
        if self.load.per_s is not None:
            self._arrives_next()
            return
        for client in range(self.load.clients):
            for _ in range(self.load.depth):
                self.machine.at(self.random.random() * 3, partial(self._send, client))

    def _arrives_next(self) -> None:
        assert self.load.per_s is not None
        gap = 1.0 if self.load.even else self.random.expovariate(1.0)
        self.machine.at(self.machine.now + gap * 1000 / self.load.per_s, self._arrives)

    def _arrives(self) -> None:
        self.turn = (self.turn + 1) % self.load.partitions
        target = self.turn if self.load.window else self.random.randrange(self.load.partitions)
        self.unsent.append((self.machine.now, target))
        self._send_window()
        self._arrives_next()

    def _send_window(self) -> None:
        if self.unsent and (not self.load.window or self.under_way < self.load.window):
            self.under_way += 1
            records, self.unsent = self.unsent, []
            self._send(0, records)

    def _targets(self, client: int) -> list[int]:
        return list(range(self.load.partitions)) if self.load.wide else [client % self.load.partitions]

    def _send(self, client: int, records: list[tuple[float, int]] | None = None) -> None:
        if records is None:
            records = [(self.machine.now, target) for target in self._targets(client)]
        request = Request(client, records)
        arrival = self.costs.arrival + self.costs.mb * self.load.bytes / 1e6
        steps = ((self.clients, self.costs.client / 2), (self.door, self.costs.door), (self.produce, arrival))
        self._through(steps, lambda: self._arrived(request))

    def _through(self, steps: Sequence[tuple[Station | None, float]], then: Callable[[], None]) -> None:
        """One station after another. None: a wait that needs no core."""
        if not steps:
            then()
            return
        (station, cost), *rest = steps
        go_on = partial(self._through, rest, then)
        if station is None:
            self.machine.at(self.machine.now + self._vary(cost), go_on)
        else:
            self.machine.work(station, self._vary(cost), go_on)

    def _vary(self, cost: float) -> float:
        return cost * (0.5 + self.random.random())

    def _acknowledged(self, request: Request) -> None:
        if self.machine.now > WARM_MS:
            sent = {when for when, _ in request.records}
            self.latencies += [self.machine.now - when for when in sent]
        if self.load.per_s is not None:
            self.under_way -= 1
            self._send_window()
        else:
            think = self.random.expovariate(1.0) * self.load.think_ms
            self.machine.at(self.machine.now + think, lambda: self._send(request.client))

    # --- produce -----------------------------------------------------------------------------

    def _now_ms(self) -> int:
        return int(self.machine.now)

    def _arrived(self, request: Request) -> None:
        load = self.load
        targets = list(dict.fromkeys(target for _, target in request.records))
        request.parts = len(targets)
        for target in targets:
            partition = self.partitions[target]
            if not partition.waiters:
                partition.since_ms = self._now_ms()
            partition.bytes += load.bytes // len(targets)
            partition.waiters.append(request)
            self._touch(target)
            if partition.bytes >= DIRECT_BYTES:
                self._flush([target], None)

    def _touch(self, key: int) -> None:
        self.touched[key] = None
        self._wake()

    def _wake(self) -> None:
        if not self.pumping:
            self.pumping = True
            self.machine.work(self.produce, TURN_MS, self._pump)

    def _pump(self) -> None:
        self.pumping = False
        now_ms = self._now_ms()
        touched, self.touched = self.touched, {}
        for key in touched:
            self.gather.want(key, self._want(key))
        decided, self.decided = self.decided, []
        for number, key in decided:
            self.gather.decided(number, key, now_ms)
        while (sealing := self.gather.take(now_ms)) is not None:
            self._flush(sealing.keys, sealing.number)
            self.in_vain += sealing.waited.in_vain and self.machine.now > WARM_MS
        due_ms = self.gather.due_ms(now_ms)
        if due_ms < NEVER and (self.alarm > due_ms or self.alarm <= self.machine.now):
            self.alarm = max(due_ms, self.machine.now)
            self.machine.at(self.alarm, self._ring)

    def _ring(self) -> None:
        if self.alarm <= self.machine.now:
            self.alarm = NEVER
            self._wake()

    def _want(self, key: int) -> Want | None:
        partition = self.partitions[key]
        if not partition.waiters or partition.flights >= PIPELINE_MAX:
            return None
        hold_ms = HOLD_MS if partition.flights else 0
        return Want(partition.bytes, len(partition.waiters), partition.since_ms, hold_ms)

    def _flush(self, keys: list[int], number: int | None) -> None:
        """A bundle, or with number None a segment of its own."""
        answered: list[Request] = []
        for key in keys:
            partition = self.partitions[key]
            answered += partition.waiters
            partition.waiters, partition.bytes = [], 0
            partition.flights += 1
        if self.machine.now > WARM_MS:
            self.sizes.append(len(answered))
        costs = self.costs
        steps = (
            (self.produce, costs.seal),
            (Station(), costs.put),  # a thread
            (None, costs.put_waits),
            (self.produce, costs.begin_commit),
            (self.etcd, costs.commit),
            (None, costs.commit_waits),
            (self.produce, costs.end_commit),
        )
        self._through(steps, lambda: self._landed(keys, number, answered))

    def _landed(self, keys: list[int], number: int | None, answered: list[Request]) -> None:
        for key in keys:
            self.partitions[key].flights -= 1
            if number is not None:
                self.decided.append((number, key))
            self._touch(key)
        self._through([(self.door, self.costs.deliver)], lambda: None)
        steps = (
            (self.produce, self.costs.answer),
            (self.door, self.costs.door),
            (self.clients, self.costs.client / 2),
        )
        for request in answered:
            request.parts -= 1
            if not request.parts:
                self._through(steps, partial(self._acknowledged, request))


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    per_bundle: float
    bundles_per_s: float
    per_s: float
    cpu_s: float
    p50_ms: float
    p99_ms: float
    in_vain: float


def simulated(load: Load, limits: GatherLimits, *, seed: int = 1, seconds: int = SECONDS) -> Found:
    """After WARM_MS, so many seconds. The CPU is of 100,000 requests, or records of an open loop."""
    simulation = Simulation(load, limits, seed)
    simulation.start()
    simulation.machine.run(WARM_MS)
    before = simulation.machine.cpu
    simulation.machine.run(WARM_MS + seconds * 1000)
    done, bundles = len(simulation.latencies), len(simulation.sizes)
    ordered = sorted(simulation.latencies)
    return Found(
        per_bundle=sum(simulation.sizes) / bundles,
        bundles_per_s=bundles / seconds,
        per_s=done / seconds,
        cpu_s=(simulation.machine.cpu - before) / done * 100,
        p50_ms=ordered[done // 2],
        p99_ms=ordered[done * 99 // 100],
        in_vain=simulation.in_vain / bundles,
    )


LOADS: Final = (
    Load(what="1 client"),
    Load(what="2 clients", clients=2),
    Load(what="4 clients, 4 partitions", clients=4, partitions=4),
    Load(what="16 clients", clients=16),
    Load(what="16 clients, thinking 5 ms", clients=16, think_ms=5),
    Load(what="64 clients", clients=64),
    Load(what="64 clients, 12 partitions", clients=64, partitions=12),
    Load(what="64 clients, near S3", clients=64, costs=NEAR_S3),
    Load(what="64 clients, far S3", clients=64, costs=FAR_S3),
    Load(what="256 clients", clients=256, partitions=12),
    Load(what="open, 100/s", per_s=100, partitions=12),
    Load(what="open, 300/s", per_s=300, partitions=12),
    Load(what="open, 1,000/s", per_s=1000, partitions=12),
    Load(what="open, 1,000/s, even", per_s=1000, partitions=12, even=True),
    Load(what="one producer, 1,000/s", per_s=1000, partitions=12, even=True, window=5),
    Load(what="open, 1,000/s, 1 partition", per_s=1000, partitions=1),
    Load(what="open, 3,000/s", per_s=3000, partitions=12),
    Load(what="open, 1,000/s, near S3", per_s=1000, partitions=12, costs=NEAR_S3),
    Load(what="open, 1,000/s, far S3", per_s=1000, partitions=12, costs=FAR_S3),
    Load(what="bulk, 1 partition", depth=5, bytes=65_536),
    Load(what="bulk, 12 partitions", depth=5, bytes=12 * 65_536, partitions=12, wide=True),
    Load(what="bulk, 1 partition, near S3", depth=5, bytes=65_536, costs=NEAR_S3),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="a part of the names of loads")
    parser.add_argument("--linger-ms", type=int, default=GatherLimits().linger_ms)
    parser.add_argument("--seconds", type=int, default=SECONDS)
    parser.add_argument("--slower", type=float, default=1.0, help="the machine needs so many times the CPU")
    options = parser.parse_args()
    print(f"{'load':30} per bundle  bundles/s   acked/s  CPU s/100k    p50    p99  in vain")
    for load in LOADS:
        if options.only in load.what:
            slower = replace(load, costs=load.costs.slower(options.slower))
            found = simulated(slower, GatherLimits(linger_ms=options.linger_ms), seconds=options.seconds)
            print(
                f"{load.what:30} {found.per_bundle:10.1f} {found.bundles_per_s:10.0f} {found.per_s:9.0f} "
                f"{found.cpu_s:11.1f} {found.p50_ms:6.1f} {found.p99_ms:6.1f} {found.in_vain:8.2f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
