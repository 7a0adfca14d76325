"""DescribeUserScramCredentials (50): v0 (KIP-554). Lists users with their mechanisms and iterations; no salt, no key.

Without a list of names, or with an empty one, it lists all. RESOURCE_NOT_FOUND for a user without credentials;
DUPLICATE_RESOURCE for a user who is named twice; KAFKA_STORAGE_ERROR for a user of whom a credential cannot be read;
INVALID_REQUEST for the whole if the answer would be too large; REQUEST_TIMED_OUT if etcd does not answer.
"""

from __future__ import annotations

from collections import Counter

from kafscale.admin.context import AdminContext
from kafscale.admin.errors import UNREAD
from kafscale.admin.plan import Refused
from kafscale.runtime.answer_room import ENTRY_BYTES, TOO_LARGE, AnswerRoom
from kafscale.runtime.stream.apis import answering
from kafscale.storage.access_view import AccessView
from kafscale.storage.etcd.client import EtcdError
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema import describe_user_scram_credentials as api

Result = api.DescribeUserScramCredentialsResponseResult


@answering(api)
async def handler(
    context: AdminContext, request: api.DescribeUserScramCredentialsRequest
) -> api.DescribeUserScramCredentialsResponse:
    view = context.access
    try:
        await view.confirm()
    except EtcdError:
        return _failed(UNREAD)
    damaged = view.damaged_users()
    times = Counter(user.name for user in request.users or ())
    names = times.keys() or view.users.keys() | damaged
    room = AnswerRoom(context.settings.answer_bytes_max)
    results = []
    for name in sorted(names):
        if not room.take(ENTRY_BYTES + 2 * len(name.encode())):
            return _failed(Refused(TOO_LARGE, room.refusal))
        results.append(_result(view, name, twice=times[name] > 1, damaged=name in damaged))
    return api.DescribeUserScramCredentialsResponse(results=results)


def _failed(why: Refused) -> api.DescribeUserScramCredentialsResponse:
    return api.DescribeUserScramCredentialsResponse(error_code=why.error, error_message=why.message)


def _result(view: AccessView, name: str, *, twice: bool, damaged: bool) -> Result:
    found = view.users.get(name, {})
    if twice:
        sentence = f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}"
        return Result(user=name, error_code=ErrorCode.DUPLICATE_RESOURCE, error_message=sentence)
    if damaged:
        sentence = f"A stored credential of the user cannot be read: {name}"
        return Result(user=name, error_code=ErrorCode.KAFKA_STORAGE_ERROR, error_message=sentence)
    if not found:
        sentence = f"Attempt to describe a user credential that does not exist: {name}"
        return Result(user=name, error_code=ErrorCode.RESOURCE_NOT_FOUND, error_message=sentence)
    infos = [
        api.DescribeUserScramCredentialsResponseCredentialInfo(
            mechanism=mechanism, iterations=found[mechanism].credential.iterations
        )
        for mechanism in sorted(found)
    ]
    return Result(user=name, error_message=None, credential_infos=infos)
