"""Users who do not exist: the whole first answer to them is one that a user who exists could have."""

from __future__ import annotations

import random
from base64 import b64decode
from collections import Counter
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafscale.access.decoys import FORMS_MAX, USUAL, Forms, decoy_credential, form_of
from kafscale.access.scram import Challenge, ScramServer
from kafscale.access.scram_credentials import (
    SALT_BITS,
    ScramCredential,
    ScramMechanism,
    credential_of_salted,
    password_matches,
    salt_of,
)

SHA_256, SHA_512 = ScramMechanism
KEY = b"a secret of the cluster"
NONCE = "3rfcNHYJY1ZVvWVs7j"
RANDOM = random.Random(1)
STRANGERS = [f"nobody{number}" for number in range(400)]


def stored(salt: bytes, iterations: int = 4_096) -> ScramCredential:
    return credential_of_salted(SHA_256, b"salted", salt=salt, iterations=iterations)


def of_java(iterations: int = 4_096) -> ScramCredential:
    return stored(salt_of(RANDOM.getrandbits(SALT_BITS)), iterations)


def of_librdkafka() -> ScramCredential:
    return stored(RANDOM.randbytes(64))


def of_a_tool_with_hexadecimal_salts() -> ScramCredential:
    return stored(RANDOM.randbytes(16).hex().encode(), 16_384)


USERS = {
    **{f"java{number}": of_java() for number in range(40)},
    **{f"operator{number}": of_java(8_192) for number in range(10)},
    **{f"librdkafka{number}": of_librdkafka() for number in range(20)},
    **{f"tool{number}": of_a_tool_with_hexadecimal_salts() for number in range(2)},
}


def forms_of(users: dict[str, ScramCredential]) -> Forms:
    forms = Forms()
    for credential in users.values():
        forms.replace(None, credential)
    return forms


class Seen(NamedTuple):
    """What a client can tell of a first answer. `digits`: which characters the salt has, and how it begins."""

    fields: tuple[bytes, ...]
    length: int
    digits: str
    iterations: int


def first_answer(user: str, users: dict[str, ScramCredential], forms: Forms) -> Seen:
    server = ScramServer(SHA_256, users.get, server_nonce=NONCE, decoy_key=KEY, forms=forms.weights)
    answer = server.receive(f"n,,n={user},r=abc".encode())
    assert isinstance(answer, Challenge)
    pairs = [field.partition(b"=") for field in answer.token.split(b",")]
    values = {name: value for name, _, value in pairs}
    salt = b64decode(values[b"s"], validate=True)
    if salt.isalnum() and salt.lower() == salt and 24 <= len(salt) <= 26:
        # Of the numbers below 2^130, those with 26 digits begin with 1.
        return Seen(tuple(values), 0, f"base 36, {len(salt) == 26 and salt[:1] != b'1'}", int(values[b"i"]))
    digits = "hexadecimal" if not salt.translate(None, b"0123456789abcdef") else "bytes"
    return Seen(tuple(values), len(salt), digits, int(values[b"i"]))


def test_the_first_answer_does_not_show_who_exists() -> None:
    forms = forms_of(USERS)
    known = Counter(first_answer(user, USERS, forms) for user in USERS)
    unknown = Counter(first_answer(user, USERS, forms) for user in STRANGERS)
    assert unknown.keys() == known.keys()
    assert len(known) == 4
    for seen, users in known.items():
        assert 0.4 < unknown[seen] / len(STRANGERS) / (users / len(USERS)) < 2.5


def test_a_cluster_without_users_answers_as_one_with_users_of_kafka_s_tools() -> None:
    java = {"alice": of_java()}
    answers = [first_answer(user, java, forms_of(java)) for user in ("alice", "bob")]
    assert {*answers, first_answer("bob", {}, Forms())} == set(answers[:1])


def test_the_answer_for_a_name_stays_when_users_of_its_form_come() -> None:
    """Only names whose form has changed its share may change."""
    forms = forms_of(USERS)
    before = {user: decoy_credential(SHA_256, user, key=KEY, weights=forms.weights) for user in STRANGERS}
    for number in range(10):
        forms.replace(None, of_java())
        forms.replace(None, of_librdkafka())
        more = {user: decoy_credential(SHA_256, user, key=KEY, weights=forms.weights) for user in STRANGERS}
        assert more == before, number
    for _ in range(10):
        forms.replace(None, of_librdkafka())
    after = {user: decoy_credential(SHA_256, user, key=KEY, weights=forms.weights) for user in STRANGERS}
    changed = [user for user in STRANGERS if after[user] != before[user]]
    assert changed
    assert {form_of(after[user]) for user in changed} == {form_of(of_librdkafka())}


def test_a_form_that_no_user_has_any_more_is_no_form() -> None:
    forms, first, second = Forms(), of_librdkafka(), of_java(8_192)
    forms.replace(None, first)
    assert forms.weights == ((form_of(first), 1),)
    forms.replace(first, second)
    assert forms.weights == ((form_of(second), 1),)
    forms.replace(second, None)
    assert forms.weights == USUAL


def test_forms_are_bounded_and_the_most_frequent_ones_stay() -> None:
    forms = Forms()
    for iterations in range(4_096, 4_096 + 2 * FORMS_MAX):
        forms.replace(None, of_java(iterations))
    for _ in range(2):
        forms.replace(None, of_librdkafka())
    assert len(forms.weights) == FORMS_MAX
    assert forms.weights[0] == (form_of(of_librdkafka()), 2)


@given(st.binary(min_size=0, max_size=80), st.integers(4_096, 16_384))
def test_a_decoy_has_the_form_that_was_chosen(salt: bytes, iterations: int) -> None:
    form = form_of(stored(salt, iterations))
    decoy = decoy_credential(SHA_256, "nobody", key=KEY, weights=[(form, 1)])
    assert decoy.iterations == iterations
    assert len(decoy.salt) == len(salt) or form.length == 0


@pytest.mark.parametrize("make", [of_java, of_librdkafka, of_a_tool_with_hexadecimal_salts])
def test_a_decoy_depends_on_the_name_the_key_and_the_mechanism(make: object) -> None:
    assert callable(make)
    weights = [(form_of(make()), 1)]
    decoy = decoy_credential(SHA_256, "nobody", key=KEY, weights=weights)
    assert not password_matches(decoy, "")
    assert decoy == decoy_credential(SHA_256, "nobody", key=KEY, weights=weights)
    others = [
        decoy_credential(SHA_256, "somebody", key=KEY, weights=weights),
        decoy_credential(SHA_256, "nobody", key=b"another", weights=weights),
        decoy_credential(SHA_512, "nobody", key=KEY, weights=weights),
    ]
    assert len({decoy.salt, *(other.salt for other in others)}) == 4
