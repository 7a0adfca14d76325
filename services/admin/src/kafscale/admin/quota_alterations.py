"""What AlterClientQuotas asks for, checked as Kafka's ClientQuotaControlManager does. Pure.

Laws: an entity that is refused is not changed, and the others of the request are. As in Kafka, an entity that is named
twice is changed by its first entry, and its answer is the error of the second.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from kafscale.access.quota import Default, QuotaEntity, QuotaKey, entity_refusal, value_refusal
from kafscale.admin.plan import Refused
from kafscale.storage.access_keys import USER_CHARS_MAX
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema import alter_client_quotas as api

ENTRIES_MAX: Final = 1_000
"""In one request. Each takes some time of the event loop."""
USER, CLIENT_ID, IP = "user", "client-id", "ip"
KINDS: Final = frozenset({USER, CLIENT_ID, IP})
QUOTA_KEYS: Final = {key.value: key for key in QuotaKey}
TOO_MANY: Final = Refused(ErrorCode.INVALID_REQUEST, f"A request may alter {ENTRIES_MAX} entities at most.")
LONG_NAME: Final = Refused(
    ErrorCode.INVALID_REQUEST, f"The name of an entity has more than {USER_CHARS_MAX} characters"
)

Parts = tuple[tuple[str, str | None], ...]
"""Types and names of an entity as a client wrote them, in order. The name of the default is None."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alteration:
    """`values`: the quotas that are set. None removes one; it need not be there."""

    parts: Parts
    entity: QuotaEntity
    values: Mapping[QuotaKey, float | None]


@dataclass(frozen=True, slots=True)
class Planned:
    """An entity may be in both: it was named twice."""

    alterations: dict[Parts, Alteration] = field(default_factory=dict)
    refused: dict[Parts, Refused] = field(default_factory=dict)


def parts_of(entity: Sequence[api.AlterClientQuotasRequestEntity]) -> Parts:
    """Each type once; if it is named twice, the last name counts."""
    return tuple(sorted({part.entity_type: part.entity_name for part in entity}.items()))


def planned(entries: Sequence[api.AlterClientQuotasRequestEntry]) -> Planned:
    plan = Planned()
    if len(entries) > ENTRIES_MAX:
        return Planned(refused={parts_of(entry.entity): TOO_MANY for entry in entries})
    for entry in entries:
        parts = parts_of(entry.entity)
        keys = {op.key for op in entry.ops}
        if parts in plan.alterations or parts in plan.refused or len(keys) < len(entry.ops):
            plan.refused[parts] = _duplicate(parts)
            continue
        found = _alteration(parts, entry.ops)
        if isinstance(found, Refused):
            plan.refused[parts] = found
        else:
            plan.alterations[parts] = found
    return plan


def _duplicate(parts: Parts) -> Refused:
    """Kafka has this sentence for a key that is named twice too."""
    shown = ", ".join(f"{kind}={'null' if name is None else name}" for kind, name in parts)
    sentence = f"Ignoring duplicate entity ClientQuotaEntity(entries={{{shown}}})"
    return Refused(ErrorCode.INVALID_REQUEST, sentence)


def _alteration(parts: Parts, ops: Sequence[api.AlterClientQuotasRequestOp]) -> Alteration | Refused:
    entity = _entity(parts)
    if isinstance(entity, Refused):
        return entity
    values: dict[QuotaKey, float | None] = {}
    for op in ops:
        if op.remove:
            if op.key in QUOTA_KEYS:  # as in Kafka, a quota that nothing has is removed without an error
                values[QUOTA_KEYS[op.key]] = None
            continue
        refused = value_refusal(entity, op.key, op.value)
        if refused is not None:
            return Refused(refused.code, refused.message)
        values[QUOTA_KEYS[op.key]] = op.value
    return Alteration(parts=parts, entity=entity, values=values)


def _entity(parts: Parts) -> QuotaEntity | Refused:
    names = {kind: Default.DEFAULT if name is None else name for kind, name in parts}
    for kind, name in names.items():
        if kind not in KINDS:
            return Refused(ErrorCode.INVALID_REQUEST, f"Unhandled client quota entity type: {kind}")
        if isinstance(name, str) and len(name) > USER_CHARS_MAX:
            return LONG_NAME
    entity = QuotaEntity(user=names.get(USER), client_id=names.get(CLIENT_ID), ip=names.get(IP))
    refused = entity_refusal(entity)
    return entity if refused is None else Refused(refused.code, refused.message)
