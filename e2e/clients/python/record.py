"""The shape of a client program of the matrix; see e2e/clients/README.md."""

from __future__ import annotations

import argparse
import base64
import json
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

FIRST_TIMESTAMP = 1_700_000_000_000
NO_TIMESTAMP = -1


@dataclass(frozen=True, slots=True)
class Args:
    mode: str
    bootstrap: str
    topic: str
    name: str
    codec: str
    count: int
    partitions: int
    group: str
    protocol: str
    assignor: str
    session_ms: int
    instance: str
    release: str
    security: Mapping[str, str]
    isolation: str

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
    parser.add_argument("--count", type=int, default=0)
    parser.add_argument("--partitions", type=int, default=3)
    parser.add_argument("--group", default="")
    parser.add_argument("--protocol", choices=("classic", "consumer"), default="classic")
    parser.add_argument("--assignor", default="range")
    parser.add_argument("--session-ms", type=int, default=6000)
    parser.add_argument("--instance", default="")
    parser.add_argument(
        "--release", default="", help="of Kafka that the broker is taken for; messages then have no headers"
    )
    parser.add_argument(
        "--security", type=_security, default={}, help="file that says how the client gets in"
    )
    parser.add_argument(
        "--isolation", choices=("read_committed", "read_uncommitted"), default="read_committed"
    )
    return Args(**vars(parser.parse_args()))


def _security(file: str) -> Mapping[str, str]:
    found: Mapping[str, str] = json.loads(Path(file).read_text())
    return found


def sasl_settings(s: Mapping[str, str], tokens: Callable[[Path], object]) -> dict[str, object]:
    """For kafka-python and aiokafka, which have the same names. `tokens` makes a provider that reads a file."""
    mechanism = s["mechanism"]
    if mechanism == "OAUTHBEARER":
        provider = tokens(Path(s["token_file"]))
        return {"sasl_mechanism": mechanism, "sasl_oauth_token_provider": provider}
    if mechanism:
        return {
            "sasl_mechanism": mechanism,
            "sasl_plain_username": s["user"],
            "sasl_plain_password": s["password"],
        }
    return {}


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


def event(kind: str, partitions: Iterable[int] = (), offset: int = -1, text: str = "") -> None:
    """Prints what a member of a group just saw."""
    line: dict[str, object] = {"event": kind, "at": time.monotonic(), "partitions": sorted(partitions)}
    if offset >= 0:
        line["offset"] = offset
    if text:
        line["text"] = text
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def until_terminated() -> threading.Event:
    """Set by SIGTERM: time to leave the group cleanly."""
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    return stop


def no_groups(_: Args) -> None:
    """Of a program that reads without a group alone."""
    sys.exit("there is no group mode")


def run(
    a: Args, produce: Callable[[Args], None], consume: Callable[[Args], None], group: Callable[[Args], None]
) -> None:
    {"produce": produce, "consume": consume, "group": group}[a.mode](a)
