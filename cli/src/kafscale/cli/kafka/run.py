"""Runs a command's work on the Kafka cluster that its options name."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeVar

from kafscale.cli.datadir import DEFAULT_DATA_DIR, DataDir
from kafscale.cli.terminal import fail

if TYPE_CHECKING:
    from pathlib import Path

    from kafscale.cli.kafka.client import Client

T = TypeVar("T")

DEFAULT_BOOTSTRAP: Final = "127.0.0.1:9092"


def bootstrap_of(given: str | None, data_dir: Path | None) -> str:
    """The address given, or that of the cluster that runs on the data directory, or Kafka's usual one."""
    if given is not None:
        return given
    running = DataDir(data_dir or DEFAULT_DATA_DIR).running()
    return running.bootstrap_servers if running is not None else DEFAULT_BOOTSTRAP


def on_kafka(work: Callable[[Client], T], bootstrap: str | None, data_dir: Path | None) -> T:
    """What `work` returns. librdkafka is imported here, so that other commands do not wait for it."""
    from kafscale.cli.kafka.client import Client, KafkaTrouble

    try:
        return work(Client(bootstrap_of(bootstrap, data_dir)))
    except KafkaTrouble as trouble:
        raise fail(str(trouble)) from trouble
