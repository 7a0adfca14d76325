"""Writes docs/topic-configs.md from the admin's table of configs."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator

from kafscale.admin.configs import TOPIC_CONFIGS, Acts, ConfigKey
from kafscale.admin.settings import AdminSettings
from kafscale.coordinator.settings import CoordinatorSettings

from tools.generated import ROOT, write_or_check

TARGET = ROOT / "docs" / "topic-configs.md"
HEAD = """# Topic configs

Generated from `services/admin/src/kafscale/admin/configs.py` by `tools/gen_topic_config_docs.py`; do not edit.

Set them with CreateTopics, AlterConfigs (which replaces the whole set) or IncrementalAlterConfigs
(`kafka-configs --alter`). A key that is not listed, or a value that a key does not take, is INVALID_CONFIG with
the key's name; so is a minimum compaction lag above the maximum. Configs of brokers are settings of the
services ([settings.md](settings.md)) and cannot be altered.

## Can be set

Running services know a change within a second. What is felt at runs of retention or compaction is kept and shown
for them. [Retention](retention.md) and [compaction](compaction.md) run hourly.
"""
SHOWN = """
## Shown

Tools, Connect and Streams read these. They say how KafScale works, or have Kafka's value where nothing here depends
on it; setting one to anything else is INVALID_CONFIG.
"""
DEFAULTS = """
## Defaults

Kafka's, where a topic or its creator says nothing.

| Kafka's name | value | changed by |
|---|---|---|
"""


def rows(keys: Iterable[ConfigKey]) -> Iterator[str]:
    for key in keys:
        value = f"`{key.default}`" if key.default else ""
        acts = "" if key.read_only else f" {key.acts.value} |"
        yield f"| `{key.name}` | {key.type.name.lower()} | {value} |{acts} {key.doc} |"


def defaults() -> Iterator[str]:
    partitions = AdminSettings.model_fields["num_partitions"].default
    delay_ms = CoordinatorSettings.model_fields["group_initial_rebalance_delay_ms"].default
    yield f"| `num.partitions` | `{partitions}` | `KAFSCALE_NUM_PARTITIONS` |"
    yield "| `default.replication.factor` | `1` | nothing: the object store is the replication |"
    for name in ("retention.ms", "max.message.bytes"):
        yield f"| `{name}` | `{TOPIC_CONFIGS[name].default}` | the topic's config |"
    variable = "KAFSCALE_GROUP_INITIAL_REBALANCE_DELAY_MS"
    yield f"| `group.initial.rebalance.delay.ms` | `{delay_ms}` | `{variable}` |"


def page() -> str:
    keys = TOPIC_CONFIGS.values()
    lines = [HEAD, "| key | type | default | a change is felt | |", "|---|---|---|---|---|"]
    lines += rows(key for key in keys if key.acts is not Acts.NEVER)
    lines += [SHOWN, "| key | type | value | |", "|---|---|---|---|"]
    lines += rows(key for key in keys if key.acts is Acts.NEVER)
    return "\n".join(lines) + "\n" + DEFAULTS + "\n".join(defaults()) + "\n"


def main() -> int:
    return write_or_check({TARGET: page()})


if __name__ == "__main__":
    sys.exit(main())
