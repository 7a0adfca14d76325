"""`kafscale produce`."""

from __future__ import annotations

import sys
from typing import IO, TYPE_CHECKING, Annotated

import typer
from kafscale.cli.options import Codec
from kafscale.cli.targets import BootstrapOption, CommandConfigOption, DataDirOption, kafka
from kafscale.cli.terminal import TextOutput, fail, fail_usage, notice
from kafscale.operations.positions import WAYS, now_ms, parse_time
from kafscale.operations.sentences import counted

if TYPE_CHECKING:
    from kafscale.cli.records.produce import Delivered
    from kafscale.client.json_lines import Headers, Record

TopicArgument = Annotated[
    str | None, typer.Argument(help="Name of the topic. With --input json, each line may name its own.")
]
InputOption = Annotated[
    TextOutput,
    typer.Option(
        "--input", help="json: lines as `consume --output json` writes them. text: a value per line."
    ),
]
PartitionOption = Annotated[
    int | None, typer.Option("--partition", "-p", min=0, help="Send to this partition only.")
]
RepartitionOption = Annotated[
    bool, typer.Option("--repartition", help="Ignore the partitions in lines of JSON: the keys decide.")
]
KeyOption = Annotated[str | None, typer.Option("--key", "-k", help="Key of every record.")]
SeparatorOption = Annotated[
    str | None, typer.Option("--key-separator", "-K", help="Separator between key and value.")
]
TombstoneOption = Annotated[
    bool, typer.Option("--tombstone", "-Z", help="Send an empty value as null, which deletes the key.")
]
TimestampOption = Annotated[
    str | None, typer.Option("--timestamp", help=f"Timestamp of every record: {WAYS}.")
]
HeaderOption = Annotated[
    list[str] | None, typer.Option("--header", "-H", help="name=value, added to every record.")
]
CodecOption = Annotated[Codec, typer.Option("--compression", "-z", help="Compression codec of batches.")]
AcknowledgedOption = Annotated[
    TextOutput,
    typer.Option("--output", "-o", help="json: a line with topic, partition and offset of each record."),
]


def produce(
    topic: TopicArgument = None,
    bootstrap_server: BootstrapOption = None,
    data_dir: DataDirOption = None,
    command_config: CommandConfigOption = None,
    form: InputOption = TextOutput.TEXT,
    partition: PartitionOption = None,
    repartition: RepartitionOption = False,
    key: KeyOption = None,
    key_separator: SeparatorOption = None,
    tombstone: TombstoneOption = False,
    timestamp: TimestampOption = None,
    header: HeaderOption = None,
    codec: CodecOption = Codec.NONE,
    output: AcknowledgedOption = TextOutput.TEXT,
) -> None:
    """Send each line of standard input as a record, and wait until all are durable.

    Example: echo 'k1:hello' | kafscale produce greetings --key-separator :

    Copy a topic: kafscale consume orders --exit --output json | kafscale produce copy --input json
    """
    from kafscale.cli.records.produce import ProducePlan
    from kafscale.cli.records.produce import produce as run

    is_json = form is TextOutput.JSON
    if topic is None and not is_json:
        raise fail_usage("name a topic; only lines of JSON can name their own")
    if key_separator == "":
        raise fail_usage("--key-separator is empty")
    plan = ProducePlan(
        topic=topic,
        is_json=is_json,
        partition=partition,
        keeps_partition=not repartition,
        key=None if key is None else key.encode(),
        key_separator=None if key_separator is None else key_separator.encode(),
        empty_is_tombstone=tombstone,
        timestamp_ms=_timestamp(timestamp),
        headers=_headers(header or []),
        codec=codec,
    )
    with kafka(bootstrap_server, data_dir, command_config) as client:
        _hint(sys.stdin.buffer, is_json, key_separator)
        delivered = run(client, plan, sys.stdin.buffer, _print if output is TextOutput.JSON else _ignore)
    _conclude(delivered)


def _timestamp(text: str | None) -> int | None:
    time_ms = None if text is None else parse_time(text, now_ms())
    if text is not None and not time_ms:
        raise fail_usage(f"--timestamp: '{text}' is no time after 1970; use {WAYS}")
    return time_ms


def _headers(words: list[str]) -> Headers:
    for word in words:
        if not word.partition("=")[0] or "=" not in word:
            raise fail_usage(f"--header: '{word}' is not name=value")
    return tuple((name, value.encode()) for name, _, value in (word.partition("=") for word in words))


def _hint(lines: IO[bytes], is_json: bool, separator: str | None) -> None:
    if not lines.isatty():
        return
    what = "one record per line"
    if is_json:
        what = 'one JSON object per line, such as {"key": "k", "value": "v"}'
    elif separator is not None:
        what = f"one record per line, as key{separator}value"
    notice(f"type {what}; Ctrl-D ends")


def _print(record: Record) -> None:
    import json

    typer.echo(json.dumps({"topic": record.topic, "partition": record.partition, "offset": record.offset}))


def _ignore(_: Record) -> None:
    return


def _conclude(delivered: Delivered) -> None:
    from kafscale.client.admin_client import undecided

    notice(f"{counted(delivered.acknowledged, 'record')} acknowledged")
    wrong = []
    if delivered.failed:
        wrong.append(
            f"{counted(delivered.failed, 'record')} failed, the first with: {delivered.first_failure}"
        )
    if delivered.silence is not None:
        perhaps = f"{counted(delivered.unanswered, 'record')} may have been written or not"
        unknown = undecided(delivered.silence, perhaps) if delivered.unanswered else None
        wrong.append(str(unknown or delivered.silence))
    if delivered.stopped is not None:
        wrong.append(delivered.stopped)
    if wrong:
        raise fail("; ".join(wrong))
