"""The brokers that clients see: the live front doors, with the addresses of the client's listener. Pure.

Front doors behind one load balancer advertise one address. They are then one broker, with the lowest of their node
ids, because a client would otherwise open a connection per node id to the same address. Only READY front doors are
named: one that starts does not listen yet, and one that drains says so before it closes its port. Those that are not
announced yet are named only if no other is READY. If none is READY, all are named, because some clients fail if there
is no broker.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice

from kafscale.storage.coordination import rendezvous
from kafscale.storage.keys import TopicId
from kafscale.storage.membership.members import Instance


@dataclass(frozen=True, slots=True)
class Broker:
    node_id: int
    host: str
    port: int
    rack: str | None


def brokers_on(listener: str | None, front_doors: Iterable[Instance]) -> tuple[Broker, ...]:
    """One broker per address, by rising node id. A front door without that listener uses its first one."""
    seen: dict[tuple[str, int], Broker] = {}
    registered = sorted(front_doors, key=lambda each: each.node_id)
    ready = [each for each in registered if each.is_ready]
    announced = [each for each in ready if not each.unannounced]
    for instance in announced or ready or registered:
        if not instance.listeners:
            continue
        chosen = next((one for one in instance.listeners if one.name == listener), instance.listeners[0])
        address = (chosen.host, chosen.port)
        seen.setdefault(address, Broker(instance.node_id, *address, instance.rack or None))
    return tuple(seen.values())


def leader_of(topic_id: TopicId, partition: int, brokers: tuple[Broker, ...]) -> int:
    """The node id of the partition's leader. Every front door can serve the partition; this spreads the load."""
    return rendezvous(topic_id, partition, [broker.node_id for broker in brokers])


def replicas_of(leader: int, count: int, brokers: tuple[Broker, ...]) -> list[int]:
    """The node ids of a partition's replicas, all of which are in sync: the leader, the brokers after it in the order
    of their ids, and, if there are fewer brokers than replicas, ids that no broker has, as Kafka names brokers that are
    down. `leader` is one of the brokers."""
    ids = [broker.node_id for broker in brokers]
    at = ids.index(leader)
    found = (ids[at:] + ids[:at])[:count]
    unused = (number for number in range(1, count + len(ids) + 1) if number not in ids)
    return found + list(islice(unused, count - len(found)))


def coordinator_of(key: str, brokers: tuple[Broker, ...]) -> Broker:
    """The broker that clients use as coordinator of a group or a transactional id."""
    chosen = rendezvous(key.encode(), 0, [broker.node_id for broker in brokers])
    return next(broker for broker in brokers if broker.node_id == chosen)
