"""The front door answers AlterUserScramCredentials itself if admin is away: each user gets the error, and only once."""

from __future__ import annotations

from kafscale.frontdoor.handlers.alter_user_scram_credentials import API
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema import alter_user_scram_credentials as schema


def test_each_user_of_both_lists_gets_the_error_once() -> None:
    request = schema.AlterUserScramCredentialsRequest(
        deletions=[
            schema.AlterUserScramCredentialsRequestCredentialDeletion(name=name, mechanism=1)
            for name in ("alice", "bob")
        ],
        upsertions=[
            schema.AlterUserScramCredentialsRequestCredentialUpsertion(name=name, mechanism=2)
            for name in ("bob", "carol")
        ],
    )
    body = b"".join(schema.encode_request(request, 0))
    refusal = b"".join(API.refuse(memoryview(body), 0, ErrorCode.NOT_CONTROLLER))
    results = schema.decode_response(refusal, 0).results
    assert [(each.user, each.error_code) for each in results] == [
        ("alice", ErrorCode.NOT_CONTROLLER),
        ("bob", ErrorCode.NOT_CONTROLLER),
        ("carol", ErrorCode.NOT_CONTROLLER),
    ]
    assert all(each.error_message for each in results)
