"""Questions about configs, for KafScale and for an Apache Kafka beside it: which values each key takes, and how a value
that was set is shown.

The values are not those that a key is meant for, but those at the bounds of all keys, and texts that parsers read
differently. So a key that both know is asked for the bounds of every other one too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final

from kafscale.wire.schema import alter_configs, create_topics, describe_configs, incremental_alter_configs

from e2e.harness.raw import Raw
from e2e.harness.requests import ask

INT32_MAX, INT64_MAX = 2**31 - 1, 2**63 - 1
TOPIC, BROKER, GROUP = 2, 4, 32
ALTER_V, DESCRIBE_V, CREATE_V, REPLACE_V = 1, 4, 7, 2
TOPICS_AT_ONCE: Final = 200
_BOUNDS: Final = (
    *(-131_072, -2, -1, 0, 1, 2, 4, 5, 9, 10, 17, 22, 100, 2_000, 4_000),
    *(5_000, 15_000, 45_000, 60_000, 1 << 20, INT32_MAX, INT64_MAX),
)
_NUMBERS: Final = (
    *("", " ", "x", "0x10", "1_000", "1e3", "1.5", "+5", " 7 ", "00012", "-0"),
    *("0.5", ".5", "5.", "1.0", "1.0000001", "-0.1", "1e-4"),
    *(str(number) for number in sorted({bound + d for bound in _BOUNDS for d in (-1, 0, 1)})),
)
_TEXTS: Final = (
    *(
        "",
        "CreateTime",
        "LogAppendTime",
        "createtime",
        " CreateTime ",
        "producer",
        "gzip",
        " gzip",
        "GZIP",
        "zstd",
    ),
    *("brotli", "none", "uncompressed", "earliest", " earliest ", "Earliest", "latest", "read_committed"),
    *(
        "READ_COMMITTED",
        "by_duration:",
        "by_duration:x",
        "by_duration:P",
        "by_duration:PT",
        "by_duration:PT1H",
    ),
    *("BY_DURATION:PT1H", "by_duration:p1dt1h", "by_duration:P1Y", "by_duration:PT0S", "by_duration:PT1.5S"),
    *("by_duration:PT-5M", "by_duration:-PT1H", "by_duration:PT+5M"),
)
_LISTS: Final = (
    *(
        "",
        " ",
        ",",
        "delete",
        "compact",
        "compact,delete",
        " compact , delete ",
        "delete,delete",
        "Delete",
        "none",
    ),
    *(
        "none,delete",
        ",delete",
        "delete,",
        "delete,,compact",
        "*",
        "*,0:1",
        "0:1",
        "0:1,1:2",
        "0:1,",
        "0:1,0:1",
    ),
    *("0:-1", "a:b", "all"),
)


class ConfigType(IntEnum):
    """The `config_type` of DescribeConfigs (KIP-569)."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    LONG = 5
    DOUBLE = 6
    LIST = 7


class Operation(IntEnum):
    """Of IncrementalAlterConfigs (KIP-339)."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


VALUES: Final = {
    ConfigType.BOOLEAN: ("true", "TRUE", " false ", "yes", "1", ""),
    ConfigType.STRING: _TEXTS,
    ConfigType.INT: _NUMBERS,
    ConfigType.LONG: _NUMBERS,
    ConfigType.DOUBLE: _NUMBERS,
    ConfigType.LIST: _LISTS,
}


@dataclass(frozen=True, slots=True, order=True)
class Question:
    """`value` None is a null. `call`: what is sent, as the failure of a test shows it."""

    call: str
    key: str
    value: str | None


Answers = dict[Question, int]
"""To the error codes."""


def described(
    raw: Raw, resource_type: int, name: str, keys: Sequence[str] | None = None
) -> describe_configs.DescribeConfigsResponseResult:
    resource = describe_configs.DescribeConfigsRequestResource(
        resource_type=resource_type,
        resource_name=name,
        configuration_keys=None if keys is None else list(keys),
    )
    request = describe_configs.DescribeConfigsRequest(resources=[resource], include_synonyms=True)
    result: describe_configs.DescribeConfigsResponseResult = ask(
        raw, describe_configs, DESCRIBE_V, request
    ).results[0]
    return result


def alter(
    raw: Raw,
    resource_type: int,
    name: str,
    changes: Iterable[tuple[int, str, str | None]],
    *,
    validate_only: bool = True,
) -> int:
    """IncrementalAlterConfigs: each change is an operation, a key and a value."""
    api = incremental_alter_configs
    resource = api.IncrementalAlterConfigsRequestResource(
        resource_type=resource_type,
        resource_name=name,
        configs=[
            api.IncrementalAlterConfigsRequestAlterableConfig(
                name=key, config_operation=operation, value=value
            )
            for operation, key, value in changes
        ],
    )
    request = api.IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)
    code: int = ask(raw, api, ALTER_V, request).responses[0].error_code
    return code


def replace(raw: Raw, resource_type: int, name: str, configs: Iterable[tuple[str, str | None]]) -> int:
    """AlterConfigs, which is only validated."""
    api = alter_configs
    resource = api.AlterConfigsRequestResource(
        resource_type=resource_type,
        resource_name=name,
        configs=[api.AlterConfigsRequestAlterableConfig(name=key, value=value) for key, value in configs],
    )
    request = api.AlterConfigsRequest(resources=[resource], validate_only=True)
    code: int = ask(raw, api, REPLACE_V, request).responses[0].error_code
    return code


def creations(raw: Raw, keys: Iterable[tuple[str, ConfigType]]) -> Answers:
    """Each key with each value of its type, in topics that are only validated."""
    questions = [
        Question("CreateTopics", key, value) for key, kind in keys for value in (None, *VALUES[kind])
    ]
    answers: Answers = {}
    for start in range(0, len(questions), TOPICS_AT_ONCE):
        some = questions[start : start + TOPICS_AT_ONCE]
        topics = [
            create_topics.CreateTopicsRequestTopic(
                name=f"new-{at}",
                num_partitions=1,
                replication_factor=1,
                configs=[create_topics.CreateTopicsRequestTopicConfig(name=each.key, value=each.value)],
            )
            for at, each in enumerate(some)
        ]
        request = create_topics.CreateTopicsRequest(topics=topics, timeout_ms=30_000, validate_only=True)
        found = {topic.name: topic.error_code for topic in ask(raw, create_topics, CREATE_V, request).topics}
        answers |= {each: found[f"new-{at}"] for at, each in enumerate(some)}
    return answers


def alterations(raw: Raw, resource_type: int, name: str, keys: Iterable[tuple[str, ConfigType]]) -> Answers:
    """Each key with each operation. Lists, and all keys of a group, with each value of their type as well."""
    answers: Answers = {}
    for key, kind in keys:
        for operation in Operation:
            whole = kind is ConfigType.LIST or (resource_type == GROUP and operation is Operation.SET)
            for value in (None, *(VALUES[kind] if whole else VALUES[kind][:2])):
                question = Question(f"{operation.name} of type {resource_type}", key, value)
                answers[question] = alter(raw, resource_type, name, [(operation, key, value)])
    return answers


def keys_of(raw: Raw, resource_type: int, name: str) -> dict[str, ConfigType]:
    return {
        config.name: ConfigType(config.config_type) for config in described(raw, resource_type, name).configs
    }


def row(config: Any) -> tuple[object, ...]:
    """A config as a tool sees it."""
    synonyms = tuple((each.name, each.value, each.source) for each in config.synonyms)
    return (
        config.value,
        config.config_type,
        config.config_source,
        config.is_default,
        config.is_sensitive,
        synonyms,
    )


def differing(ours: Answers, theirs: Answers) -> Iterator[tuple[Question, int, int]]:
    assert ours.keys() == theirs.keys()
    for question, code in ours.items():
        if code != theirs[question]:
            yield question, code, theirs[question]
