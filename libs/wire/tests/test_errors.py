"""The rows of the error table are Kafka's: code, name and whether a client retries."""

from __future__ import annotations

import pytest
from kafscale.wire.apis import ApiKey
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema import MODULES, module_of
from kio.schema.errors import ErrorCode as KioErrorCode
from kio.schema.index import api_key_map


def test_codes_are_looked_up_by_number_and_say_what_clients_do_with_them() -> None:
    assert ErrorCode(3) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.retriable
    assert not ErrorCode.INVALID_TOPIC_EXCEPTION.retriable
    assert ErrorCode(-1) is ErrorCode.UNKNOWN_SERVER_ERROR
    assert not ErrorCode.NONE
    assert ErrorCode.CORRUPT_MESSAGE == 2
    assert ErrorCode.OFFSET_OUT_OF_RANGE.message.startswith("The requested offset is not within")


def test_every_code_from_the_first_to_the_last_is_there_once() -> None:
    assert sorted(ErrorCode) == list(range(-1, 134))
    assert all(code.message for code in ErrorCode)


@pytest.mark.oracle
def test_names_and_retriability_are_those_of_kio() -> None:
    theirs = {code.value: (code.name.upper(), code.retriable) for code in KioErrorCode}
    ours = {code.value: (code.name, code.retriable) for code in ErrorCode if code.value in theirs}
    assert len(ours) > 120
    assert ours == theirs


@pytest.mark.oracle
def test_keys_have_the_names_that_kio_gives_them() -> None:
    ours = {key.value: key.name.lower().replace("_", "") for key in ApiKey}
    theirs = {key: name.replace("_", "") for key, name in api_key_map.items()}
    assert theirs == {key: name for key, name in ours.items() if key in theirs}


def test_every_module_carries_the_key_it_is_found_under() -> None:
    for key, name in MODULES.items():
        module = module_of(key)
        assert key == module.API_KEY
        assert ApiKey(key).flexible_from == module.FLEXIBLE_FROM
        assert name.upper() == ApiKey(key).name
        assert module.REQUEST_VERSIONS == module.RESPONSE_VERSIONS
