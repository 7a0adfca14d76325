"""SCRAM credentials of users, as AdminClient describes and alters them (KIP-554)."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import Future
from typing import Final

from confluent_kafka.admin import (
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialAlteration,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from kafscale.cli.kafka.client import Client, KafkaTrouble
from kafscale.cli.kafka.topics import Row

_NAMES: Final = {
    ScramMechanism.SCRAM_SHA_256: "SCRAM-SHA-256",
    ScramMechanism.SCRAM_SHA_512: "SCRAM-SHA-512",
}
_MECHANISMS: Final = {name: mechanism for mechanism, name in _NAMES.items()}


def of_user(name: str) -> str:
    return f"user '{name}'"


def list_users(client: Client) -> list[Row]:
    """A row for each credential, by user and mechanism: user, mechanism, iterations."""
    everybody = client.admin.describe_user_scram_credentials()
    assert isinstance(everybody, Future), "without names there is one answer"
    found = client.ask_one("the list of users", {"": everybody})
    rows = [
        {"user": name, "mechanism": _NAMES[info.mechanism], "iterations": info.iterations}
        for name, user in found.items()
        for info in user.scram_credential_infos
    ]
    return sorted(rows, key=lambda row: (row["user"], row["mechanism"]))


def mechanisms_of(client: Client, name: str) -> list[str]:
    """The mechanisms of which the user has a credential; empty for a user who does not exist."""
    return [row["mechanism"] for row in list_users(client) if row["user"] == name]


def store_password(
    client: Client, name: str, password: str, mechanisms: Iterable[str], iterations: int
) -> None:
    """One request for each mechanism: Kafka refuses to alter a user twice in one request."""
    for mechanism in mechanisms:
        info = ScramCredentialInfo(_MECHANISMS[mechanism], iterations)
        _alter(client, UserScramCredentialUpsertion(name, info, password.encode()))


def remove_user(client: Client, name: str, mechanisms: Iterable[str]) -> list[str]:
    """The mechanisms whose credentials were removed. Raises KafkaTrouble if the user has none of them."""
    wanted = set(mechanisms)
    found = [mechanism for mechanism in mechanisms_of(client, name) if mechanism in wanted]
    if not found:
        raise KafkaTrouble(f"{of_user(name)} does not exist; `kafscale users list` shows who does")
    for mechanism in found:
        _alter(client, UserScramCredentialDeletion(name, _MECHANISMS[mechanism]))
    return found


def _alter(client: Client, alteration: UserScramCredentialAlteration) -> None:
    client.ask_one(of_user(alteration.user), client.admin.alter_user_scram_credentials([alteration]))
