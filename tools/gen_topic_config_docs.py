"""Writes docs/topic-configs.md from the admin's tables of configs."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator

from kafscale.admin.config_table import ConfigKey, Effect
from kafscale.admin.configs import TOPIC_CONFIGS
from kafscale.admin.group_configs import group_table
from kafscale.admin.settings import AdminSettings
from kafscale.coordinator.settings import CoordinatorSettings

from tools.generated import ROOT, write_or_check

TARGET = ROOT / "docs" / "topic-configs.md"
HEAD = """# Topic configs

Generated from `services/admin/src/kafscale/admin/configs.py` and `group_configs.py` by
`tools/gen_topic_config_docs.py`; do not edit.

Set them with CreateTopics, AlterConfigs (which replaces the whole set) or IncrementalAlterConfigs
(`kafka-configs --alter`). An unknown key, or a value that a key does not accept, is INVALID_CONFIG with
the key's name; so is a minimum compaction lag above the maximum. Values are checked and shown as Apache Kafka 4.3 does;
only `max.message.bytes` has a bound that Kafka does not have. Configs of brokers are settings of the
services ([settings.md](settings.md)) and cannot be altered.

## Can be set

Running services apply a change within a second, except configs of retention and compaction: the next run applies
those. [Retention](retention.md) and [compaction](compaction.md) run hourly.
"""
KEPT = """
## Kept, without effect

Programs that create topics set these configs, and MirrorMaker copies them. KafScale checks them as Kafka does, stores
them, and returns the value that was set. They have no effect, for the reason in the last column. Defaults are Kafka's.
"""
GROUPS = """
## Configs of groups

Resource type 32 (KIP-848), set with AlterConfigs or IncrementalAlterConfigs (`kafka-configs --alter --entity-type
groups`). A group needs no members to have configs, and keeps them when it is deleted, as in Kafka. Coordinators apply a
change within a second; a member receives it with its next heartbeat. The default is the setting of the same name
([settings.md](settings.md)). Bounds are settings too: `KAFSCALE_GROUP_CONSUMER_MIN_SESSION_TIMEOUT_MS` and so on. A
session timeout must be longer than the heartbeat interval. At most `KAFSCALE_GROUP_CONFIGS_MAX` groups have their
own configs; one more is POLICY_VIOLATION. KafScale has no share groups and streams groups: configs that only they use
are checked as in Kafka, stored and returned, without effect.

| key | type | default | a change takes effect | |
|---|---|---|---|---|
"""
DEFAULTS = """
## Defaults

These are Kafka's defaults, used if the topic or its creator sets no value.

| Kafka's name | value | changed by |
|---|---|---|
"""


def rows(keys: Iterable[ConfigKey], *, effect: bool = False) -> Iterator[str]:
    """`effect`: with a column that says when a change takes effect."""
    for key in keys:
        value = f"`{key.default}`" if key.default else ""
        applies = f" {key.effect.value} |" if effect else ""
        yield f"| `{key.name}` | {key.type.name.lower()} | {value} |{applies} {key.doc} |"


def defaults() -> Iterator[str]:
    partitions = AdminSettings.model_fields["num_partitions"].default
    delay_ms = CoordinatorSettings.model_fields["group_initial_rebalance_delay_ms"].default
    yield f"| `num.partitions` | `{partitions}` | `KAFSCALE_NUM_PARTITIONS` |"
    yield "| `default.replication.factor` | `1` | nothing: the object store is the replication |"
    for name in ("retention.ms", "max.message.bytes"):
        yield f"| `{name}` | `{TOPIC_CONFIGS.keys[name].default}` | the topic's config |"
    variable = "KAFSCALE_GROUP_INITIAL_REBALANCE_DELAY_MS"
    yield f"| `group.initial.rebalance.delay.ms` | `{delay_ms}` | `{variable}` |"


def page() -> str:
    keys = list(TOPIC_CONFIGS.shown({}))
    lines = [HEAD, "| key | type | default | a change takes effect | |", "|---|---|---|---|---|"]
    lines += rows((key for key in keys if key.effect in (Effect.AT_ONCE, Effect.IN_RUNS)), effect=True)
    lines += [KEPT, "| key | type | default | why it has none |", "|---|---|---|---|"]
    lines += rows(key for key in keys if key.effect is Effect.WITHOUT_EFFECT)
    groups = group_table(AdminSettings.model_construct()).keys.values()
    tables = [GROUPS + "\n".join(rows(groups, effect=True)), DEFAULTS + "\n".join(defaults())]
    return "\n".join(lines + tables) + "\n"


def main() -> int:
    return write_or_check({TARGET: page()})


if __name__ == "__main__":
    sys.exit(main())
