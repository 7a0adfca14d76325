"""A request of librdkafka that ends with a byte too many is read, and no other malformed one."""

from __future__ import annotations

import pytest
from kafscale.wire.errors import WireError
from kafscale.wire.schema import alter_user_scram_credentials as api
from kafscale.wire.surplus import decoded_despite_surplus

DELETION = bytes.fromhex("0204626f6201000100")
SURPLUS = DELETION + b"\0"
"""As librdkafka 2.16 writes it: the deletion of a credential of bob."""


def read(body: bytes) -> api.AlterUserScramCredentialsRequest:
    return decoded_despite_surplus(api.decode_request, memoryview(body), 0)


def test_the_surplus_of_librdkafka_is_ignored() -> None:
    wanted = api.AlterUserScramCredentialsRequestCredentialDeletion(name="bob", mechanism=1)
    for body in (DELETION, SURPLUS):
        assert read(body) == api.AlterUserScramCredentialsRequest(deletions=[wanted])
    with pytest.raises(WireError):
        api.decode_request(SURPLUS, 0)


@pytest.mark.parametrize("body", [SURPLUS + b"\0", DELETION + b"\1", DELETION[:-1], b"", b"\0"])
def test_any_other_surplus_or_lack_is_refused(body: bytes) -> None:
    with pytest.raises(WireError):
        read(body)
