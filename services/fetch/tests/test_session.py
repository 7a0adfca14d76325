"""Sessions are answered without being kept."""

import pytest
from kafscale.fetch.session import session_error
from kafscale.wire.errors import ErrorCode


@pytest.mark.parametrize("epoch", [0, -1])
def test_a_full_request_is_served_whatever_id_it_closes(epoch: int) -> None:
    assert session_error(epoch) is ErrorCode.NONE


@pytest.mark.parametrize("epoch", [1, 2, 2**31 - 1, -2])
def test_an_incremental_request_never_finds_its_session(epoch: int) -> None:
    assert session_error(epoch) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
