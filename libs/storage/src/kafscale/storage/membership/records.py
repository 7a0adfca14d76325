"""The record of a live instance in etcd, as values and as protobuf. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from kafscale.storage.etcd.ops import KeyValue
from kafscale.storage.keys import Keyspace
from kafscale.storage.schema import SCHEMA, CorruptValue, parse_value
from kafscale.store.v1 import store_pb2


class InstanceState(Enum):
    STARTING = store_pb2.Live.STARTING
    READY = store_pb2.Live.READY
    DRAINING = store_pb2.Live.DRAINING


_STATES = frozenset(state.value for state in InstanceState)


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """An address as advertised to Kafka clients."""

    name: str
    host: str
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """One boot of one process. `create_revision` orders the boots of a node."""

    role: str
    node_id: int
    boot_id: str
    address: str = ""
    tls: bool = False
    """Whether `address` takes connections with a certificate of the cluster only."""
    state: InstanceState = InstanceState.STARTING
    listeners: tuple[Listener, ...] = ()
    rack: str = ""
    http_address: str = ""
    started_ms: int = 0
    unannounced: bool = False
    """Metadata does not list it while another front door is ready: caches may have an old address of its name."""
    create_revision: int = 0

    @property
    def id(self) -> str:
        """The value of owner fields."""
        return f"{self.node_id}/{self.boot_id}"

    @property
    def is_ready(self) -> bool:
        return self.state is InstanceState.READY

    def listener(self, name: str) -> Listener | None:
        return next((listener for listener in self.listeners if listener.name == name), None)


def encode_live(instance: Instance) -> bytes:
    record = store_pb2.Live(
        schema=SCHEMA,
        role=instance.role,
        node_id=instance.node_id,
        boot_id=instance.boot_id,
        address=instance.address,
        tls=instance.tls,
        state=instance.state.name,
        listeners=[store_pb2.Listener(name=x.name, host=x.host, port=x.port) for x in instance.listeners],
        rack=instance.rack,
        started_ms=instance.started_ms,
        http_address=instance.http_address,
        unannounced=instance.unannounced,
    )
    return record.SerializeToString()


def decode_live(kv: KeyValue, keyspace: Keyspace) -> Instance:
    """Raises UnreadableValue."""
    role, node_id, boot_id = keyspace.parse_live(kv.key)
    record = store_pb2.Live()
    parse_value(record, kv.value, f"live record of {role} {node_id}")
    if record.state not in _STATES:
        raise CorruptValue("live record", f"unknown state {record.state}")
    return Instance(
        role=role,
        node_id=node_id,
        boot_id=boot_id,
        address=record.address,
        tls=record.tls,
        state=InstanceState(record.state),
        listeners=tuple(Listener(name=x.name, host=x.host, port=x.port) for x in record.listeners),
        rack=record.rack,
        http_address=record.http_address,
        started_ms=record.started_ms,
        unannounced=record.unannounced,
        create_revision=kv.create_revision,
    )


def encode_node(boot_id: str) -> bytes:
    return store_pb2.NodeLease(schema=SCHEMA, boot_id=boot_id).SerializeToString()
