"""SCRAM credentials of users, as AdminClient describes and alters them (KIP-554)."""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Final

from confluent_kafka.admin import (
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialAlteration,
    UserScramCredentialDeletion,
    UserScramCredentialsDescription,
    UserScramCredentialUpsertion,
)
from kafscale.access.scram_credentials import SALT_BITS, salt_of
from kafscale.client.admin_client import Client, KafkaTrouble, asked, changing, failure
from kafscale.client.topics import Row
from kafscale.wire.errors import ErrorCode
from kafscale.wire.schema import describe_user_scram_credentials as api

LIST_VERSION: Final = 0

_NAMES: Final = {
    ScramMechanism.SCRAM_SHA_256: "SCRAM-SHA-256",
    ScramMechanism.SCRAM_SHA_512: "SCRAM-SHA-512",
}
_MECHANISMS: Final = {name: mechanism for mechanism, name in _NAMES.items()}


def of_user(name: str) -> str:
    return f"user '{name}'"


@dataclass(frozen=True, slots=True)
class Users:
    """`rows`: user, mechanism and iterations of each credential, in order. `troubles`: users that have an error."""

    rows: list[Row]
    troubles: list[KafkaTrouble]


def list_users(client: Client) -> Users:
    """By hand: if one user has an error, AdminClient lists nobody."""
    all_users = api.DescribeUserScramCredentialsRequest(users=None)
    answer = asked(client, "the users", api, all_users, LIST_VERSION)
    if answer.error_code != ErrorCode.NONE:
        raise failure("the list of users", answer.error_code, answer.error_message)
    rows = [
        {
            "user": user.user,
            "mechanism": _NAMES[ScramMechanism(info.mechanism)],
            "iterations": info.iterations,
        }
        for user in answer.results
        for info in user.credential_infos
    ]
    troubles = [
        failure(of_user(user.user), user.error_code, user.error_message)
        for user in answer.results
        if user.error_code != ErrorCode.NONE
    ]
    return Users(sorted(rows, key=lambda row: (row["user"], row["mechanism"])), troubles)


def mechanisms_of(client: Client, name: str) -> list[str]:
    """The mechanisms of which the user has a credential; empty for a user who does not exist."""

    def send() -> dict[str, Future[UserScramCredentialsDescription]]:
        futures = client.admin.describe_user_scram_credentials([name])
        assert isinstance(futures, dict), "with names there is an answer for each"
        return futures

    try:
        found = client.ask_one(of_user(name), send)
    except KafkaTrouble as trouble:
        if trouble.code == ErrorCode.RESOURCE_NOT_FOUND:
            return []
        raise
    return sorted(_NAMES[info.mechanism] for info in found.scram_credential_infos)


def store_password(
    client: Client, name: str, password: str, mechanisms: Iterable[str], iterations: int
) -> None:
    """One request for each mechanism: Kafka refuses to alter a user twice in one request.

    With salts as Kafka's own tools draw them: the 64 bytes of librdkafka would show every client who used this library.
    """
    for mechanism in mechanisms:
        salt = salt_of(secrets.randbits(SALT_BITS))
        with client.failing(of_user(name)):
            info = ScramCredentialInfo(_MECHANISMS[mechanism], iterations)
            alteration = UserScramCredentialUpsertion(name, info, password.encode(), salt)
        _alter(client, alteration)


def remove_user(client: Client, name: str, mechanisms: Iterable[str]) -> list[str]:
    """The mechanisms whose credentials were removed. Raises KafkaTrouble if the user has none of them."""
    wanted = set(mechanisms)
    found = [mechanism for mechanism in mechanisms_of(client, name) if mechanism in wanted]
    if not found:
        sentence = f"{of_user(name)} does not exist; `kafscale users list` shows who does"
        raise KafkaTrouble(sentence, ErrorCode.RESOURCE_NOT_FOUND)
    for mechanism in found:
        _alter(client, UserScramCredentialDeletion(name, _MECHANISMS[mechanism]))
    return found


@changing()
def _alter(client: Client, alteration: UserScramCredentialAlteration) -> None:
    client.ask_one(of_user(alteration.user), lambda: client.admin.alter_user_scram_credentials([alteration]))
