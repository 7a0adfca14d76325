"""The configs of a group: what was set comes back, what was not is the coordinator's to say."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafscale.storage.group_configs import GroupConfigs, decode_group_configs, encode_group_configs
from kafscale.storage.schema import CorruptValue, UnknownSchema
from kafscale.store.v1 import store_pb2

positive = st.integers(1, 2**31 - 1).map(str)
values = st.fixed_dictionaries(
    {},
    optional={
        "consumer.session.timeout.ms": positive,
        "consumer.heartbeat.interval.ms": positive,
        "share.auto.offset.reset": st.text(),
    },
)


@given(st.text(), values, st.integers(0, 2**62))
def test_a_record_comes_back_as_it_went_in(group: str, chosen: dict[str, str], revision: int) -> None:
    configs = GroupConfigs(group=group, values=chosen, mod_revision=revision)
    assert decode_group_configs(group, encode_group_configs(configs), revision) == configs


def test_what_was_not_set_is_none_so_that_the_coordinators_setting_counts() -> None:
    unset = GroupConfigs(group="g")
    assert (unset.session_timeout_ms, unset.heartbeat_interval_ms) == (None, None)


def test_what_was_set_counts() -> None:
    values = {"consumer.session.timeout.ms": "50000", "consumer.heartbeat.interval.ms": "6000"}
    configs = GroupConfigs(group="g", values=values)
    assert (configs.session_timeout_ms, configs.heartbeat_interval_ms) == (50_000, 6_000)


@pytest.mark.parametrize("schema", [0, 2])
def test_a_record_of_another_schema_is_refused_with_a_sentence(schema: int) -> None:
    value = store_pb2.GroupConfig(schema=schema).SerializeToString()
    with pytest.raises(UnknownSchema, match=f"config record of group 'g' has schema {schema}"):
        decode_group_configs("g", value)


@pytest.mark.parametrize("text", ["", "0", "-1", "soon", "1.5", "9" * 11])
def test_a_timeout_that_is_no_number_makes_the_record_unreadable(text: str) -> None:
    value = encode_group_configs(GroupConfigs(group="g", values={"consumer.session.timeout.ms": text}))
    with pytest.raises(CorruptValue, match=r"config record of group 'g'.*consumer\.session\.timeout\.ms"):
        decode_group_configs("g", value)


def test_bytes_that_are_no_record_are_refused() -> None:
    with pytest.raises(CorruptValue, match="config record of group 'g'"):
        decode_group_configs("g", b"\xff\xff")
