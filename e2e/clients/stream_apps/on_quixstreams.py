"""Quix Streams: BOOTSTRAP GROUP FROM TO FOLDER. Copies each record with `done:` before its value, at least once.

It keeps the last value of each key in a state with a changelog topic.
"""

from __future__ import annotations

import sys
from typing import Any

from quixstreams import Application, State

bootstrap, group, source, target, folder = sys.argv[1:6]
app = Application(
    broker_address=bootstrap,
    consumer_group=group,
    auto_offset_reset="earliest",
    commit_interval=0.5,
    state_dir=folder,
    loglevel="WARNING",
    consumer_extra_config={"session.timeout.ms": 6_000, "heartbeat.interval.ms": 1_000},
)


def done(value: bytes, state: State) -> Any:
    state.set("last", value.decode())
    return b"done:" + value


read = app.topic(source, key_deserializer="bytes", value_deserializer="bytes")
written = app.topic(target, key_serializer="bytes", value_serializer="bytes")
app.dataframe(read).apply(done, stateful=True).to_topic(written)

if __name__ == "__main__":
    app.run()
