"""Credentials as the command sends them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from confluent_kafka.admin import UserScramCredentialUpsertion
from kafscale.access.decoys import form_of
from kafscale.access.scram_credentials import ScramCredential, ScramMechanism, salt_of
from kafscale.client.users import store_password


class FakeClient:
    """Takes alterations, and is its own AdminClient."""

    def __init__(self) -> None:
        self.admin = self
        self.sent: list[UserScramCredentialUpsertion] = []

    def alter_user_scram_credentials(self, alterations: list[UserScramCredentialUpsertion]) -> None:
        self.sent += alterations

    def ask_one(self, _: object, send: Callable[[], None]) -> None:
        send()

    def failing(self, _: object) -> AbstractContextManager[None]:
        return nullcontext()


def made_with(salt: bytes) -> ScramCredential:
    return ScramCredential(
        mechanism=ScramMechanism.SCRAM_SHA_256, salt=salt, stored_key=b"", server_key=b"", iterations=4_096
    )


def test_the_salts_of_a_new_user_look_like_those_of_kafka_s_tools_and_differ() -> None:
    client: Any = FakeClient()
    store_password(client, "alice", "secret", ["SCRAM-SHA-256", "SCRAM-SHA-512"], 4_096)
    salts = [one.salt for one in client.sent]
    assert len(set(salts)) == 2
    assert {form_of(made_with(salt)) for salt in salts} == {form_of(made_with(salt_of((1 << 129) + 1)))}
