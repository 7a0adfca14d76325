"""faust-streaming: BOOTSTRAP GROUP FROM TO FOLDER. Copies each record with `done:` before its value, at least once."""

from __future__ import annotations

import sys

import faust

bootstrap, group, source, target, folder = sys.argv[1:6]
app = faust.App(
    group,
    broker=f"kafka://{bootstrap}",
    store="memory://",
    datadir=folder,
    web_enabled=False,
    consumer_auto_offset_reset="earliest",
    broker_commit_interval=0.5,
    broker_session_timeout=6.0,
    broker_heartbeat_interval=1.0,
)
written = app.topic(target, key_serializer="raw", value_serializer="raw")


@app.agent(app.topic(source, key_serializer="raw", value_serializer="raw"))
async def copy(stream: faust.Stream) -> None:
    async for event in stream.events():  # an event is acknowledged when the loop goes on
        await (await written.send(key=event.key, value=b"done:" + event.value))


if __name__ == "__main__":
    faust.Worker(app, loglevel="WARNING").execute_from_commandline()
