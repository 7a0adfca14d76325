"""Client quotas, as DescribeClientQuotas lists and AlterClientQuotas changes them (KIP-546). AdminClient lacks both."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kafscale.client.admin_client import Client, KafkaTrouble, asked, changing, failure
from kafscale.client.topics import Row
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema import alter_client_quotas as alter
from kafscale.wire.schema import describe_client_quotas as describe

VERSION: Final = 1
DEFAULT: Final = "<default>"
"""How the default of a type is shown."""
KINDS: Final = ("user", "client-id", "ip")

Entity = Mapping[str, str | None]
"""Types and names. The name of the default is None."""


def sentence_of(entity: Entity) -> str:
    """`user 'alice', the default of client-id`."""
    return ", ".join(
        f"the default of {kind}" if name is None else f"{kind} '{name}'" for kind, name in entity.items()
    )


def list_quotas(client: Client, entity: Entity) -> list[Row]:
    """One row for each quota of the entities that have the parts of this one; without parts, of all."""
    components = [
        describe.DescribeClientQuotasRequestComponent(kind, 1 if name is None else 0, name)
        for kind, name in entity.items()
    ]
    message = describe.DescribeClientQuotasRequest(components=components, strict=False)
    what = "the quotas"
    answer = asked(client, what, describe, message, VERSION)
    if answer.error_code != ErrorCode.NONE:
        raise failure(what, answer.error_code, answer.error_message)
    rows = []
    for entry in answer.entries or ():
        names = {part.entity_type: part.entity_name for part in entry.entity}
        shown = {kind: DEFAULT if names.get(kind, "") is None else names.get(kind) for kind in KINDS}
        rows += [{**shown, "quota": value.key, "value": value.value} for value in entry.values]
    return sorted(rows, key=lambda row: tuple(str(row[name] or "") for name in (*KINDS, "quota")))


@changing()
def alter_quotas(client: Client, entity: Entity, values: Mapping[str, float | None]) -> None:
    """None removes a quota."""
    entry = alter.AlterClientQuotasRequestEntry(
        entity=[alter.AlterClientQuotasRequestEntity(kind, name) for kind, name in entity.items()],
        ops=[
            alter.AlterClientQuotasRequestOp(key=key, value=value or 0.0, remove=value is None)
            for key, value in values.items()
        ],
    )
    what = f"the quotas of {sentence_of(entity)}"
    answer = asked(client, what, alter, alter.AlterClientQuotasRequest(entries=[entry]), VERSION)
    (result,) = answer.entries
    if result.error_code != ErrorCode.NONE:
        raise failure(what, result.error_code, result.error_message)


def remove_quotas(client: Client, entity: Entity, keys: list[str]) -> list[str]:
    """The quotas that were removed; without keys, all of exactly this entity. Raises KafkaTrouble if it has none."""
    wanted = {kind: DEFAULT if entity.get(kind, "") is None else entity.get(kind) for kind in KINDS}
    rows = list_quotas(client, entity)
    found = [str(row["quota"]) for row in rows if all(row[kind] == wanted[kind] for kind in KINDS)]
    removed = [key for key in found if not keys or key in keys]
    if not removed:
        sentence = f"{sentence_of(entity)} has no such quota; `kafscale quotas list` shows all"
        raise KafkaTrouble(sentence, ErrorCode.RESOURCE_NOT_FOUND)
    alter_quotas(client, entity, dict.fromkeys(removed))
    return removed
