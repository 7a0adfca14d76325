"""Client quotas: which entities have which limits, and which limit applies to a client.

An entity is a user, a client id, both, or an ip; each part may be the default. Of the entities that fit a client, the
most specific one that sets the quota applies (`QuotaTable.limit`). Sources: ClientQuotaControlManager for validation,
ClientQuotaManager.DefaultQuotaCallback for the precedence, ConnectionQuotas for ips (KIP-13, KIP-55, KIP-546, KIP-612).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from ipaddress import ip_address
from types import MappingProxyType
from typing import Final, TypeVar

from kafscale.wire.errors import ErrorCode, Refusal


class Default(Enum):
    """In place of a name: the default of all users, client ids or ips. The protocol has null for it."""

    DEFAULT = "<default>"


EntityName = str | Default


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaEntity:
    """What a quota is set on. None: the entity has no such part."""

    user: EntityName | None = None
    client_id: EntityName | None = None
    ip: EntityName | None = None


class QuotaKey(Enum):
    """The names of quotas. `ip` has CONNECTION_CREATION_RATE alone, and nothing else has it."""

    PRODUCER_BYTE_RATE = "producer_byte_rate"
    CONSUMER_BYTE_RATE = "consumer_byte_rate"
    REQUEST_PERCENTAGE = "request_percentage"
    CONTROLLER_MUTATION_RATE = "controller_mutation_rate"
    CONNECTION_CREATION_RATE = "connection_creation_rate"


_WHOLE_MAX: Final[Mapping[QuotaKey, tuple[float, str]]] = MappingProxyType(
    {
        QuotaKey.PRODUCER_BYTE_RATE: (2.0**63, "a LONG"),
        QuotaKey.CONSUMER_BYTE_RATE: (2.0**63, "a LONG"),
        QuotaKey.CONNECTION_CREATION_RATE: (2.0**31 - 1, "an INT"),
    }
)
"""The largest value of the quotas that are whole numbers, and Kafka's word for their type. The others are fractions."""
_FRACTION_MAX: Final = 1e-6
_IP_KEYS: Final = frozenset({QuotaKey.CONNECTION_CREATION_RATE})


def entity_refusal(entity: QuotaEntity) -> Refusal | None:
    """Why AlterClientQuotas refuses the entity, or None.

    Unlike Kafka, an ip has to be an address: Kafka also looks up host names.
    """
    parts = {"user": entity.user, "client-id": entity.client_id, "ip": entity.ip}
    if not any(name is not None for name in parts.values()):
        return _invalid("Invalid empty client quota entity")
    for kind, name in parts.items():
        if name == "":
            return _invalid(f"Empty {kind} not supported")
    if entity.ip is None:
        return None
    if entity.user is not None or entity.client_id is not None:
        return _invalid(
            "Invalid quota entity combination, IP entity shouldnot be combined with User or ClientId"
        )
    if isinstance(entity.ip, str) and not _is_address(entity.ip):
        return _invalid(f"{entity.ip} is not a valid IP or resolvable host.")
    return None


def value_refusal(entity: QuotaEntity, key: str, value: float) -> Refusal | None:
    """Why AlterClientQuotas refuses to set the quota named `key` on the entity, or None.

    Unlike Kafka, values that are not finite are refused.
    """
    known = {each.value: each for each in QuotaKey if (each in _IP_KEYS) == (entity.ip is not None)}
    quota = known.get(key)
    if quota is None:
        return _invalid(f"Invalid configuration key {key}")
    if not value > 0:
        return _invalid(f"Quota {key} must be greater than 0")
    value_max, type_name = _WHOLE_MAX.get(quota, (math.nextafter(math.inf, 0), "a DOUBLE"))
    if value > value_max:
        return _invalid(f"Proposed value for {key} is too large for {type_name}.")
    if quota in _WHOLE_MAX and abs(value - math.floor(value)) > _FRACTION_MAX:
        return _invalid(f"{key} cannot be a fractional value.")
    return None


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def _invalid(message: str) -> Refusal:
    return Refusal(code=ErrorCode.INVALID_REQUEST, message=message)


Meter = tuple[str | None, str | None]
"""Whose usage counts against a limit: a user, a client id, or both. None: all of them together."""


@dataclass(frozen=True, slots=True)
class Limit:
    """The limit that applies to a client, and the meter on which its usage is counted.

    Clients with equal meters share the limit. A default is a limit for each name, not one for all.
    """

    value: float
    meter: Meter


_D: Final = Default.DEFAULT
_Names = tuple[EntityName | None, EntityName | None]


class QuotaTable:
    """All quotas that are set. `generation` grows with every change.

    `limits_clients`: some user or client id has a quota. `limits_ips`: some address has one.
    """

    def __init__(self) -> None:
        self.generation = 0
        self.limits_clients = False
        self.limits_ips = False
        self._limits: dict[QuotaKey, dict[_Names, float]] = {key: {} for key in QuotaKey}
        self._ips: dict[EntityName, float] = {}

    def put(self, entity: QuotaEntity, key: QuotaKey, value: float | None) -> None:
        """Sets a quota that `value_refusal` accepts. None removes it."""
        if entity.ip is not None:
            _put(self._ips, _address(entity.ip), value)
        else:
            _put(self._limits[key], (entity.user, entity.client_id), value)
        self.limits_clients = any(self._limits.values())
        self.limits_ips = bool(self._ips)
        self.generation += 1

    def limit(self, key: QuotaKey, user: str, client_id: str) -> Limit | None:
        """The limit of a client, in Kafka's eight steps. None: the client has no limit of this kind.

        `user` is the name of the principal, `ANONYMOUS` without authentication.
        """
        limits = self._limits[key]
        if not limits:
            return None
        for names, meter in (
            ((user, client_id), (user, client_id)),
            ((user, _D), (user, client_id)),
            ((user, None), (user, None)),
            ((_D, client_id), (user, client_id)),
            ((_D, _D), (user, client_id)),
            ((_D, None), (user, None)),
            ((None, client_id), (None, client_id)),
            ((None, _D), (None, client_id)),
        ):
            value = limits.get(names)
            if value is not None:
                return Limit(value, meter)
        return None

    def connection_rate(self, ip: str) -> float | None:
        """Connections per second from one address, as `str` of it; its own limit or the default. None: no limit."""
        return self._ips.get(ip, self._ips.get(_D))


def _address(name: EntityName) -> EntityName:
    """As `str` of the address: an address of IPv6 can be written in several ways."""
    return name if isinstance(name, Default) else str(ip_address(name))


_Name = TypeVar("_Name")


def _put(table: dict[_Name, float], name: _Name, value: float | None) -> None:
    if value is None:
        table.pop(name, None)
    else:
        table[name] = value
