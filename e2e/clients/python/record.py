"""The shape of a client program of the matrix; see e2e/clients/README.md."""

from __future__ import annotations

import argparse
import base64
import json
import sys
from collections.abc import Iterable
from dataclasses import dataclass

FIRST_TIMESTAMP = 1_700_000_000_000


@dataclass(frozen=True, slots=True)
class Args:
    mode: str
    bootstrap: str
    topic: str
    name: str
    codec: str
    count: int
    partitions: int

    def key(self, i: int) -> bytes:
        return f"{self.name}-{self.codec}-{i}".encode()

    def value(self, i: int) -> bytes:
        return self.key(i) + b":" + b"x" * (i % 200)

    def headers(self, i: int) -> list[tuple[str, bytes]]:
        return [("client", self.name.encode()), ("n", str(i).encode())]

    def timestamp(self, i: int) -> int:
        return FIRST_TIMESTAMP + i


def parse() -> Args:
    parser = argparse.ArgumentParser()
    for name in ("mode", "bootstrap", "topic"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--name", default="")
    parser.add_argument("--codec", default="none")
    parser.add_argument("--count", type=int, required=True)
    parser.add_argument("--partitions", type=int, default=3)
    return Args(**vars(parser.parse_args()))


def show(
    partition: int,
    offset: int,
    timestamp: int,
    key: bytes | None,
    value: bytes | None,
    headers: Iterable[tuple[str, bytes]],
) -> None:
    """Prints one consumed record."""
    line = {
        "partition": partition,
        "offset": offset,
        "timestamp": timestamp,
        "key": base64.b64encode(key or b"").decode(),
        "value": base64.b64encode(value or b"").decode(),
        "headers": [[name, base64.b64encode(data).decode()] for name, data in headers],
    }
    sys.stdout.write(json.dumps(line) + "\n")
