"""Requests that AdminClient does not have, or whose answers it hides: to the first broker, with the generated codec."""

from __future__ import annotations

import asyncio

from kafscale.cli.kafka.client import Client, KafkaTrouble
from kafscale.cli.kafka.request import A, Api, Q, request
from kafscale.runtime.addresses import join_address


def asked(client: Client, what: str, api: Api[Q, A], message: Q, version: int) -> A:
    """The answer. `what` is the subject of the sentence: "the users". Raises KafkaTrouble."""
    broker = client.brokers[0]
    try:
        return asyncio.run(request(broker, api, message, version, security=client.security))
    except (OSError, EOFError, TimeoutError) as error:
        why = "no answer in time" if isinstance(error, TimeoutError) else error
        raise KafkaTrouble(f"{what} of {join_address(*broker)}: {why}; try again in a moment") from error
