"""Quotas are validated as in Kafka, and the most specific entity gives a client its limit."""

from __future__ import annotations

import math
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafscale.access.quota import (
    Default,
    EntityName,
    Limit,
    Meter,
    QuotaEntity,
    QuotaKey,
    QuotaTable,
    entity_refusal,
    value_refusal,
)
from kafscale.wire.errors import ErrorCode

D = Default.DEFAULT
KEY = QuotaKey.PRODUCER_BYTE_RATE
USER = QuotaEntity(user="alice")
IP = QuotaEntity(ip="10.0.0.1")

STEPS: list[tuple[tuple[EntityName | None, EntityName | None], Meter]] = [
    (("alice", "app"), ("alice", "app")),
    (("alice", D), ("alice", "app")),
    (("alice", None), ("alice", None)),
    ((D, "app"), ("alice", "app")),
    ((D, D), ("alice", "app")),
    ((D, None), ("alice", None)),
    ((None, "app"), (None, "app")),
    ((None, D), (None, "app")),
]


@pytest.mark.parametrize("step", range(8))
def test_the_eight_steps(step: int) -> None:
    """Of the entities from a step on, the step's own gives the limit, and says which clients share it."""
    table = QuotaTable()
    for number, ((user, client_id), _) in enumerate(STEPS):
        if number >= step:
            table.put(QuotaEntity(user=user, client_id=client_id), KEY, 100.0 + number)
    assert table.limit(KEY, "alice", "app") == Limit(100.0 + step, STEPS[step][1])


def specificity(user: object, client_id: object) -> int:
    """Named 2, default 1, absent 0; the user weighs more than the client id."""
    return sum(
        weight * (0 if name is None else 1 if name is D else 2)
        for name, weight in ((user, 3), (client_id, 1))
    )


NAMES = [None, D, "a", "b"]
ENTITIES = [pair for pair in product(NAMES, NAMES) if pair != (None, None)]


@given(
    st.dictionaries(st.sampled_from(ENTITIES), st.integers(1, 9).map(float)),
    st.sampled_from("ab"),
    st.sampled_from("ab"),
)
def test_the_most_specific_entity_that_fits_gives_the_limit(
    limits: dict[tuple[str | Default | None, str | Default | None], float], user: str, client_id: str
) -> None:
    table = QuotaTable()
    for (entity_user, entity_client), value in limits.items():
        table.put(QuotaEntity(user=entity_user, client_id=entity_client), KEY, value)
    fitting = [pair for pair in limits if pair[0] in (None, D, user) and pair[1] in (None, D, client_id)]
    found = table.limit(KEY, user, client_id)
    if not fitting:
        assert found is None
        return
    best = max(fitting, key=lambda pair: specificity(*pair))
    assert found == Limit(
        limits[best], (None if best[0] is None else user, None if best[1] is None else client_id)
    )


def test_quotas_of_other_keys_do_not_count_and_removed_ones_neither() -> None:
    table = QuotaTable()
    table.put(USER, QuotaKey.CONSUMER_BYTE_RATE, 1.0)
    assert table.limit(KEY, "alice", "app") is None
    table.put(USER, KEY, 2.0)
    assert table.limit(KEY, "alice", "app") == Limit(2.0, ("alice", None))
    table.put(USER, KEY, None)
    assert table.limit(KEY, "alice", "app") is None
    assert table.generation == 3


def test_an_address_has_its_own_rate_or_the_default() -> None:
    table = QuotaTable()
    assert table.connection_rate("10.0.0.1") is None
    table.put(QuotaEntity(ip=D), QuotaKey.CONNECTION_CREATION_RATE, 5.0)
    table.put(IP, QuotaKey.CONNECTION_CREATION_RATE, 50.0)
    assert (table.connection_rate("10.0.0.1"), table.connection_rate("10.0.0.2")) == (50.0, 5.0)


BAD_ENTITIES = [
    (QuotaEntity(), "Invalid empty client quota entity"),
    (QuotaEntity(user=""), "Empty user not supported"),
    (QuotaEntity(user="a", client_id=""), "Empty client-id not supported"),
    (QuotaEntity(ip="localhost"), "localhost is not a valid IP or resolvable host."),
    *(
        (entity, "Invalid quota entity combination, IP entity shouldnot be combined with User or ClientId")
        for entity in (QuotaEntity(ip="::1", user="a"), QuotaEntity(ip=D, client_id="a"))
    ),
]


@pytest.mark.parametrize(("entity", "sentence"), BAD_ENTITIES)
def test_an_entity_that_kafka_refuses(entity: QuotaEntity, sentence: str) -> None:
    refusal = entity_refusal(entity)
    assert refusal is not None
    assert (refusal.code, refusal.message) == (ErrorCode.INVALID_REQUEST, sentence)


@pytest.mark.parametrize("entity", [USER, IP, QuotaEntity(ip=D), QuotaEntity(user=D, client_id="a")])
def test_an_entity_that_kafka_accepts(entity: QuotaEntity) -> None:
    assert entity_refusal(entity) is None


VALUES = [
    (USER, "producer_byte_rate", 1024.0, None),
    (USER, "producer_byte_rate", 0.0, "Quota producer_byte_rate must be greater than 0"),
    (USER, "producer_byte_rate", -1.0, "Quota producer_byte_rate must be greater than 0"),
    (USER, "producer_byte_rate", math.nan, "Quota producer_byte_rate must be greater than 0"),
    (USER, "producer_byte_rate", 1.5, "producer_byte_rate cannot be a fractional value."),
    (USER, "producer_byte_rate", 2.0000001, None),
    (USER, "consumer_byte_rate", 1e19, "Proposed value for consumer_byte_rate is too large for a LONG."),
    (USER, "request_percentage", 12.5, None),
    (
        USER,
        "request_percentage",
        math.inf,
        "Proposed value for request_percentage is too large for a DOUBLE.",
    ),
    (USER, "controller_mutation_rate", 0.1, None),
    (USER, "connection_creation_rate", 1.0, "Invalid configuration key connection_creation_rate"),
    (USER, "speed", 1.0, "Invalid configuration key speed"),
    (IP, "connection_creation_rate", 10.0, None),
    (
        IP,
        "connection_creation_rate",
        3e9,
        "Proposed value for connection_creation_rate is too large for an INT.",
    ),
    (IP, "producer_byte_rate", 1.0, "Invalid configuration key producer_byte_rate"),
]


@pytest.mark.parametrize(("entity", "key", "value", "sentence"), VALUES)
def test_values_are_checked_as_in_kafka(
    entity: QuotaEntity, key: str, value: float, sentence: str | None
) -> None:
    refusal = value_refusal(entity, key, value)
    assert (None if refusal is None else refusal.message) == sentence
