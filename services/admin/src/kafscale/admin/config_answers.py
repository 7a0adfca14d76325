"""The rows of DescribeConfigs for a topic and a group. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache

from kafscale.admin.config_table import ConfigKey, ConfigTable
from kafscale.admin.config_values import ConfigSource
from kafscale.wire.schema.describe_configs import (
    DescribeConfigsResponseResourceResult,
    DescribeConfigsResponseSynonym,
)

ROW_BYTES, SYNONYM_BYTES = 24, 8
"""Of one row on the wire, at most, without its texts."""


def configs_of(
    table: ConfigTable,
    chosen: Mapping[str, str],
    keys: Sequence[str] | None,
    *,
    synonyms: bool,
    docs: bool,
) -> list[DescribeConfigsResponseResourceResult]:
    """The requested keys, or all keys if none is requested. Unknown keys are left out, as in Kafka."""
    wanted = frozenset(keys or table.keys)
    return [
        _chosen(key, table.source, chosen[key.name], synonyms=synonyms, docs=docs)
        if key.name in chosen
        else _default(key, synonyms, docs)
        for key in table.shown(chosen)
        if key.name in wanted
    ]


def size_of(row: DescribeConfigsResponseResourceResult) -> int:
    """Bytes in an answer, rounded up; names and values are ASCII."""
    synonyms = sum(SYNONYM_BYTES + len(each.name) + len(each.value or "") for each in row.synonyms)
    return ROW_BYTES + len(row.name) + len(row.value or "") + len(row.documentation or "") + synonyms


def _chosen(
    key: ConfigKey, source: ConfigSource, value: str, *, synonyms: bool, docs: bool
) -> DescribeConfigsResponseResourceResult:
    own = DescribeConfigsResponseSynonym(name=key.name, value=value, source=source)
    return DescribeConfigsResponseResourceResult(
        name=key.name,
        value=value,
        read_only=False,
        config_source=source,
        synonyms=[own, *_inherited_by(key)] if synonyms else [],
        config_type=key.type,
        documentation=key.doc if docs else None,
    )


@cache
def _default(key: ConfigKey, synonyms: bool, docs: bool) -> DescribeConfigsResponseResourceResult:
    """Cached and read-only: a tool may request all keys of thousands of topics."""
    return DescribeConfigsResponseResourceResult(
        name=key.name,
        value=key.default,
        read_only=False,
        is_default=True,
        config_source=key.default_source,
        synonyms=_inherited_by(key) if synonyms else [],
        config_type=key.type,
        documentation=key.doc if docs else None,
    )


def _inherited_by(key: ConfigKey) -> list[DescribeConfigsResponseSynonym]:
    if key.broker_name is None:
        return []
    return [
        DescribeConfigsResponseSynonym(name=key.broker_name, value=key.default, source=key.default_source)
    ]
