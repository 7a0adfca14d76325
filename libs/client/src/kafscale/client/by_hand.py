"""Requests that AdminClient does not have, or whose answers it hides, with the generated codec."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from kafscale.client.admin_client import Client, KafkaTrouble
from kafscale.client.request import A, Api, Q, request
from kafscale.runtime.addresses import join_address


def asked(client: Client, what: str, api: Api[Q, A], message: Q, version: int) -> A:
    """The answer of the first broker. `what` is the subject of the sentence: "the users". Raises KafkaTrouble."""
    (answer,) = _asked(client, client.brokers[:1], what, api, message, version)
    return answer


def asked_of_all(client: Client, what: str, api: Api[Q, A], message: Q, version: int) -> list[A]:
    """The answers of all brokers, in their order. Raises KafkaTrouble if one does not answer."""
    return _asked(client, client.brokers, what, api, message, version)


def _asked(
    client: Client, brokers: Sequence[tuple[str, int]], what: str, api: Api[Q, A], message: Q, version: int
) -> list[A]:
    async def ask() -> list[A]:
        waiting = (request(broker, api, message, version, security=client.security) for broker in brokers)
        return await asyncio.gather(*waiting)

    try:
        return asyncio.run(ask())
    except (OSError, EOFError, TimeoutError) as error:
        where = ", ".join(join_address(*broker) for broker in brokers)
        why = "no answer in time" if isinstance(error, TimeoutError) else error
        raise KafkaTrouble(f"{what} of {where}: {why}; try again in a moment") from error
