"""What may happen to a site. Each fault begins, lasts for some seconds, and is mended; `FAULTS` has all of them.

A fault concerns one *part*: the instances of a role, etcd, the store, or everything. Two faults at once are of two
parts. Everything here runs in the main thread.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Final

from e2e.chaos.site import UPKEEP, Name, Site
from e2e.harness.deployment import ROLES
from e2e.harness.half_open import flood
from e2e.harness.lost_bundles import bring_back, take_away
from e2e.harness.services import STOP_TIMEOUT_S

LEASE_S: Final = 8.0
EVERYTHING: Final = "everything"
ETCD: Final = "etcd"
STORE: Final = "the store"
HALF_OPEN: Final = 400
FLOODED: Final = (*ROLES,)
HELD_SHARE: Final = 0.05
DOUBLE_SHARE: Final = 0.3
REFUSE_SHARE: Final = 0.5


@dataclass(frozen=True, slots=True)
class Struck:
    """A fault that has begun: what it is in words, how long it lasts, and how it ends."""

    words: str
    seconds: float
    mend: Callable[[], None]


@dataclass(frozen=True, slots=True)
class Fault:
    """`strike` gives None if it cannot take place now."""

    kind: str
    part: str
    strike: Callable[[Site, Random], Struck | None]


def _nothing() -> None:
    """The fault is over when it has begun."""


def _one_of(site: Site, role: str, chance: Random) -> Name:
    return chance.choice([name for name in site.names() if name[0] == role])


def _called(name: Name) -> str:
    return f"{name[0]}-{name[1]}"


# -- instances of services -------------------------------------------------------------------------


def _dies(role: str, away_s: tuple[float, float], site: Site, chance: Random) -> Struck:
    name = _one_of(site, role, chance)
    site.services[name].kill()
    seconds = chance.uniform(*away_s)
    return Struck(
        f"{_called(name)} is killed, away {seconds:.0f} s", seconds, partial(site.start_service, name)
    )


def _pauses(role: str, for_s: tuple[float, float], site: Site, chance: Random) -> Struck:
    name = _one_of(site, role, chance)
    process = site.services[name].process
    process.send_signal(signal.SIGSTOP)
    seconds = chance.uniform(*for_s)
    return Struck(
        f"{_called(name)} is paused for {seconds:.0f} s",
        seconds,
        partial(os.kill, process.pid, signal.SIGCONT),
    )


def _restarts(role: str, site: Site, chance: Random) -> Struck:
    name = _one_of(site, role, chance)
    service = site.services[name]
    # One that was killed a moment ago may still import Python's modules: nothing in it hears the signal then.
    codes = (0,) if service.is_ready else (0, -signal.SIGTERM)
    service.process.send_signal(signal.SIGTERM)

    def mend() -> None:
        code = service.process.wait(STOP_TIMEOUT_S)
        assert code in codes, f"{_called(name)} ended with code {code}:\n{service.story()}"
        site.start_service(name)

    return Struck(f"{_called(name)} drains and is started again", 1.0, mend)


def _flooded(role: str, site: Site, chance: Random) -> Struck | None:
    instances = site.inside().instances(role)
    if not instances:
        return None
    address = chance.choice(instances).address
    flood(address, HALF_OPEN)
    return Struck(f"{HALF_OPEN} half-open connections to {role} at {address}", 0.0, _nothing)


def _everything_dies(site: Site, chance: Random) -> Struck:
    site.kill_services()
    site.etcd.kill()
    site.s3.kill()

    def mend() -> None:
        site.etcd.start()
        site.start_s3()
        for name in site.names():
            site.start_service(name)

    return Struck("all services, etcd and the store are killed", chance.uniform(0.0, 2.0), mend)


# -- etcd ------------------------------------------------------------------------------------------


def _leader_dies(site: Site, chance: Random) -> Struck:
    leader = site.leader()
    leader.kill()
    return Struck(
        f"etcd's leader {leader.name} is killed", chance.uniform(0.5, 6.0), partial(site.start_member, leader)
    )


def _leader_pauses(site: Site, chance: Random) -> Struck:
    leader = site.leader()
    leader.signal(signal.SIGSTOP)
    seconds = chance.uniform(2.0, 10.0)
    return Struck(f"etcd's leader {leader.name} is paused", seconds, partial(leader.signal, signal.SIGCONT))


def _no_quorum(site: Site, chance: Random) -> Struck:
    lost = chance.sample(site.etcd.members, 2)
    for member in lost:
        member.kill()

    def mend() -> None:
        for member in lost:
            site.start_member(member)

    return Struck("two of three members of etcd are killed", chance.uniform(1.0, 5.0), mend)


# -- the store -------------------------------------------------------------------------------------


def _store_holds(site: Site, chance: Random) -> Struck:
    site.gate.share, site.gate.hold_max_s = HELD_SHARE, 20.0
    site.gate.double_share = DOUBLE_SHARE

    def mend() -> None:
        site.gate.share = site.gate.double_share = 0.0

    return Struck("the store holds and doubles writes", chance.uniform(10.0, 25.0), mend)


def _store_refuses(site: Site, chance: Random) -> Struck:
    site.gate.refuse_share = REFUSE_SHARE

    def mend() -> None:
        site.gate.refuse_share = 0.0

    return Struck("the store answers 503 Slow Down to half of all requests", chance.uniform(5.0, 15.0), mend)


def _store_dies(site: Site, chance: Random) -> Struck:
    site.s3.kill()
    return Struck("the S3 server is killed", chance.uniform(0.5, 6.0), site.start_s3)


def _store_pauses(site: Site, chance: Random) -> Struck:
    site.signal_s3(signal.SIGSTOP)
    return Struck(
        "the S3 server is paused", chance.uniform(2.0, 12.0), partial(site.signal_s3, signal.SIGCONT)
    )


def _bundle_lost(topic: str, site: Site, chance: Random) -> Struck | None:
    lost = take_away(site.open_store, site.inside(), topic, chance)
    if lost is None:
        return None
    return Struck(
        f"the bundle {lost.key} is lost",
        chance.uniform(2.0, 12.0),
        partial(bring_back, site.open_store, lost),
    )


def _epoch_ended(topic: str, site: Site, chance: Random) -> Struck | None:
    partition = chance.choice(sorted(site.inside().heads(topic)))
    if not site.inside().end_epoch(topic, partition):
        return None
    return Struck(f"the epoch of {topic}/{partition} is ended by force", 0.0, _nothing)


def faults(topic: str) -> tuple[Fault, ...]:
    """All of them. `topic`: the one whose bundles and epochs are theirs."""
    short, long = (0.5, 5.0), (LEASE_S + 2, LEASE_S + 10)
    of_roles = [
        fault
        for role in (*ROLES, UPKEEP)
        for fault in (
            Fault(f"{role} killed, back at once", role, partial(_dies, role, (0.0, 1.0))),
            Fault(f"{role} killed, back after its lease", role, partial(_dies, role, long)),
            Fault(f"{role} paused, within its lease", role, partial(_pauses, role, short)),
            Fault(f"{role} paused, beyond its lease", role, partial(_pauses, role, long)),
            Fault(f"{role} restarted", role, partial(_restarts, role)),
        )
    ]
    floods = [Fault(f"{role} flooded", role, partial(_flooded, role)) for role in FLOODED]
    return (
        *of_roles,
        *floods,
        Fault("everything killed", EVERYTHING, _everything_dies),
        Fault("etcd's leader killed", ETCD, _leader_dies),
        Fault("etcd's leader paused", ETCD, _leader_pauses),
        Fault("etcd without a majority", ETCD, _no_quorum),
        Fault("store holds and doubles writes", STORE, _store_holds),
        Fault("store refuses", STORE, _store_refuses),
        Fault("store killed", STORE, _store_dies),
        Fault("store paused", STORE, _store_pauses),
        Fault("bundle lost for a while", STORE, partial(_bundle_lost, topic)),
        Fault("epoch ended by force", "produce", partial(_epoch_ended, topic)),
    )
