"""The cost of a question to the authorizer, with many ACLs.

    python -m bench.authorizer [--acls 10000]

Half of the ACLs are LITERAL and half PREFIXED, of a thousand principals, on names like those of the topics that are
asked about. A hit is a topic that the Rights of a connection remember, a miss one that they do not. The unit is the
time of one question about one topic: a request asks once for each topic, not for each partition. `request` is a whole
request of one topic at a service, with the lookup of the rights of its principal and host. Each value is that of the
fastest round, because other load on the machine only slows a round.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Final

from kafscale.access.acl import AclBinding, Operation, PatternType, Permission, ResourceType
from kafscale.access.acl_index import AclIndex
from kafscale.access.authorizer import NAMES_MAX, Authorizer, Rights
from kafscale.access.principals import user
from kafscale.access.rules import Side, needs_of
from kafscale.runtime.authorization import Authorization
from kafscale.runtime.memory_tuning import calm_collector
from kafscale.runtime.metrics import Metrics
from kafscale.runtime.stream.frame import RequestMeta
from kafscale.wire.apis import ApiKey

PRINCIPALS: Final = 1_000
CLIENT: Final = user("client7")
HOST: Final = "10.0.0.1"
ROUNDS: Final = 7
PREFIX_CHARS: Final = (6, 9, 12)
OPERATIONS: Final = (Operation.READ, Operation.WRITE, Operation.DESCRIBE)
REQUESTS: Final = 20_000
OF_CLIENTS: Final = needs_of(ApiKey.FETCH, Side.SERVICE)[0]


def topic_names(count: int) -> list[str]:
    return [f"team{number % 97:02d}.service{number % 89:02d}.orders-{number:05d}" for number in range(count)]


def many_acls(count: int) -> list[AclBinding]:
    found = [
        AclBinding(
            resource_type=ResourceType.TOPIC,
            pattern_type=PatternType.LITERAL,
            resource_name="hot",
            principal=CLIENT,
            host="*",
            operation=Operation.READ,
            permission=Permission.ALLOW,
        )
    ]
    for number, name in enumerate(topic_names(count - 1)):
        prefixed = number % 2 == 1
        found.append(
            AclBinding(
                resource_type=ResourceType.TOPIC,
                pattern_type=PatternType.PREFIXED if prefixed else PatternType.LITERAL,
                resource_name=name[: PREFIX_CHARS[number % len(PREFIX_CHARS)]] if prefixed else name,
                principal=user(f"client{number % PRINCIPALS}"),
                host="*",
                operation=OPERATIONS[number % len(OPERATIONS)],
                permission=Permission.ALLOW,
            )
        )
    return found


def best_us(run: Callable[[], None], questions: int) -> float:
    took = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        run()
        took.append(time.perf_counter() - began)
    return min(took) / questions * 1e6


def misses(authorizer: Authorizer, names: list[str]) -> Callable[[], None]:
    def run() -> None:
        allows = Rights(authorizer, CLIENT, HOST).allows
        for name in names:
            allows(Operation.READ, ResourceType.TOPIC, name)

    return run


def hits(authorizer: Authorizer, names: list[str]) -> Callable[[], None]:
    allows = Rights(authorizer, CLIENT, HOST).allows

    def run() -> None:
        for name in names:
            allows(Operation.READ, ResourceType.TOPIC, name)

    run()
    return run


def requests(authorizer: Authorizer | None) -> Callable[[], None]:
    authorization = Authorization(authorizer, Metrics("fetch"))
    meta = RequestMeta(connection_id=1, api_key=1, api_version=12, principal=CLIENT, peer=f"{HOST}:5")

    def run() -> None:
        for _ in range(REQUESTS):
            authorization.of(meta).denied(OF_CLIENTS, ("hot",))

    return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--acls", type=int, default=10_000)
    count = parser.parse_args().acls
    authorizer = Authorizer(AclIndex(many_acls(count)))
    names = topic_names(NAMES_MAX)
    calm_collector()
    print(f"{count} ACLs, µs of one question about one topic")
    print(f"  miss                        {best_us(misses(authorizer, names), len(names)):6.2f}")
    print(f"  hit                         {best_us(hits(authorizer, names), len(names)):6.2f}")
    print(f"  request                     {best_us(requests(authorizer), REQUESTS):6.2f}")
    print(f"  request, without authorizer {best_us(requests(None), REQUESTS):6.2f}")


if __name__ == "__main__":
    main()
