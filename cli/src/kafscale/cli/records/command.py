"""`kafscale produce` and `kafscale consume`."""

from __future__ import annotations

import re
import sys
import time
from typing import IO, TYPE_CHECKING, Annotated, Final

import typer
from kafscale.cli.options import Codec
from kafscale.cli.positions import HELP, PartitionsOption, PositionWrong, parse_partitions, parse_position
from kafscale.cli.targets import BootstrapOption, CommandConfigOption, DataDirOption, kafka
from kafscale.cli.terminal import (
    TextOutput,
    counted,
    fail,
    fail_usage,
    notice,
    on_terminal,
    record_line,
)
from kafscale.cli.times import WAYS, parse_time

if TYPE_CHECKING:
    from kafscale.cli.records.consume import ConsumePlan
    from kafscale.cli.records.json_lines import Headers, Record
    from kafscale.cli.records.produce import Delivered
    from kafscale.cli.records.template import Piece

RESETS: Final = {
    "beginning": "earliest",
    "start": "earliest",
    "earliest": "earliest",
    "end": "latest",
    "latest": "latest",
}
JSON_FIELDS: Final = "topic, partition, offset, timestamp, key, value, headers"

RecordsOutputOption = Annotated[
    TextOutput, typer.Option("--output", help=f"json: one JSON object per line, with {JSON_FIELDS}.")
]


def produce(
    topic: Annotated[
        str | None, typer.Argument(help="Name of the topic. With --input json, each line may name its own.")
    ] = None,
    bootstrap_server: BootstrapOption = None,
    data_dir: DataDirOption = None,
    command_config: CommandConfigOption = None,
    form: Annotated[
        TextOutput,
        typer.Option(
            "--input", help="json: lines as `consume --output json` writes them. text: a value per line."
        ),
    ] = TextOutput.TEXT,
    partition: Annotated[
        int | None, typer.Option("--partition", "-p", min=0, help="Send to this partition only.")
    ] = None,
    repartition: Annotated[
        bool, typer.Option("--repartition", help="Ignore the partitions in lines of JSON: the keys decide.")
    ] = False,
    key: Annotated[str | None, typer.Option("--key", "-k", help="Key of every record.")] = None,
    key_separator: Annotated[
        str | None, typer.Option("--key-separator", "-K", help="Separator between key and value.")
    ] = None,
    tombstone: Annotated[
        bool, typer.Option("--tombstone", "-Z", help="Send an empty value as null, which deletes the key.")
    ] = False,
    timestamp: Annotated[
        str | None, typer.Option("--timestamp", help=f"Timestamp of every record: {WAYS}.")
    ] = None,
    header: Annotated[
        list[str] | None, typer.Option("--header", "-H", help="name=value, added to every record.")
    ] = None,
    codec: Annotated[
        Codec, typer.Option("--compression", "-z", help="Compression codec of batches.")
    ] = Codec.NONE,
    output: Annotated[
        TextOutput,
        typer.Option("--output", "-o", help="json: a line with topic, partition and offset of each record."),
    ] = TextOutput.TEXT,
) -> None:
    """Send each line of standard input as a record, and wait until all are durable.

    Example: echo 'k1:hello' | kafscale produce greetings --key-separator :

    Copy a topic: kafscale consume orders --exit --output json | kafscale produce copy --input json
    """
    from kafscale.cli.records.produce import ProducePlan
    from kafscale.cli.records.produce import produce as run

    if topic is None and form is TextOutput.TEXT:
        raise fail_usage("name a topic; only lines of JSON can name their own")
    if key_separator == "":
        raise fail_usage("--key-separator is empty")
    plan = ProducePlan(
        topic=topic,
        is_json=form is TextOutput.JSON,
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
        _hint(sys.stdin.buffer, form, key_separator)
        delivered = run(
            client, plan, sys.stdin.buffer, _print if output is TextOutput.JSON else lambda _: None
        )
    _conclude(delivered)


def _timestamp(text: str | None) -> int | None:
    time_ms = None if text is None else parse_time(text, _now_ms())
    if text is not None and not time_ms:
        raise fail_usage(f"--timestamp: '{text}' is no time after 1970; use {WAYS}")
    return time_ms


def _headers(words: list[str]) -> Headers:
    for word in words:
        if not word.partition("=")[0] or "=" not in word:
            raise fail_usage(f"--header: '{word}' is not name=value")
    return tuple((name, value.encode()) for name, _, value in (word.partition("=") for word in words))


def _hint(lines: IO[bytes], form: TextOutput, separator: str | None) -> None:
    if not lines.isatty():
        return
    what = "one record per line"
    if form is TextOutput.JSON:
        what = 'one JSON object per line, such as {"key": "k", "value": "v"}'
    elif separator is not None:
        what = f"one record per line, as key{separator}value"
    notice(f"type {what}; Ctrl-D ends")


def _print(record: Record) -> None:
    import json

    typer.echo(json.dumps({"topic": record.topic, "partition": record.partition, "offset": record.offset}))


def _conclude(delivered: Delivered) -> None:
    notice(f"{counted(delivered.acknowledged, 'record')} acknowledged")
    if delivered.failed:
        raise fail(f"{counted(delivered.failed, 'record')} failed, the first with: {delivered.first_failure}")
    if delivered.stopped is not None:
        raise fail(f"{delivered.stopped}; nothing was sent from this line on")


def consume(
    topics: Annotated[list[str], typer.Argument(help="Names of topics.")],
    bootstrap_server: BootstrapOption = None,
    data_dir: DataDirOption = None,
    command_config: CommandConfigOption = None,
    regex: Annotated[
        bool,
        typer.Option("--regex", "-r", help="The names are regular expressions: read all topics that match."),
    ] = False,
    group: Annotated[
        str | None,
        typer.Option("--group", "-g", help="Read as a member of this group, from its committed offsets."),
    ] = None,
    partition: PartitionsOption = None,
    offset: Annotated[str, typer.Option("--offset", "-o", help=f"Where to begin: {HELP}.")] = "beginning",
    until: Annotated[
        str | None,
        typer.Option("--until", "-u", help="Where to end in each partition, as for --offset; not included."),
    ] = None,
    exit_at_end: Annotated[bool, typer.Option("--exit", "-e", help="Stop at the end of the topics.")] = False,
    count: Annotated[int | None, typer.Option("--count", "-c", min=1, help="Stop after N records.")] = None,
    with_keys: Annotated[bool, typer.Option("--keys", "-k", help="Print key, tab, value.")] = False,
    template: Annotated[
        str | None,
        typer.Option(
            "--format",
            "-f",
            help="Print each record in this form, as kcat and rpk do: %t topic, %p partition, %o offset, %k key, "
            "%v value, %h headers, %T time in ms, %T{iso}, %K %V lengths, %v{base64}, %v{hex}, \\n \\t \\xHH.",
        ),
    ] = None,
    null: Annotated[bool, typer.Option("--null", "-Z", help="Print NULL for a null key or value.")] = False,
    output: RecordsOutputOption = TextOutput.TEXT,
) -> None:
    """Print the records of topics, one per line. Example: kafscale consume greetings --offset -10 --exit

    The records of one hour: kafscale consume orders -o 2026-01-31T08:00 -u 2026-01-31T09:00 -f '%T{iso} %k %v\\n'

    --output json loses nothing: bytes that are not UTF-8 are base64, and a tombstone has the value null.
    """
    from kafscale.cli.records.consume import consume as run

    plan = _plan(tuple(topics), regex, group, partition, offset, until, exit_at_end, count)
    write = _writer(output, template, with_keys, null)
    with kafka(bootstrap_server, data_dir, command_config) as client:
        try:
            for records in run(client, plan, notice, notice if on_terminal() else lambda _: None):
                sys.stdout.buffer.write(record_line(b"".join(map(write, records))))
                sys.stdout.buffer.flush()
        except KeyboardInterrupt:
            raise typer.Exit(0) from None


def _plan(
    topics: tuple[str, ...],
    regex: bool,
    group: str | None,
    partitions: list[str] | None,
    offset: str,
    until: str | None,
    exit_at_end: bool,
    count: int | None,
) -> ConsumePlan:
    from kafscale.cli.records.consume import ConsumePlan

    if group is not None:
        _check_member(partitions, offset, until)
    try:
        for each in topics if regex else ():
            re.compile(each)
        now_ms = _now_ms()
        return ConsumePlan(
            topics=topics,
            by_pattern=regex,
            group=group,
            partitions=None if partitions is None else parse_partitions(partitions),
            start=parse_position(offset, now_ms),
            reset=RESETS.get(offset, "earliest"),
            until=None if until is None else parse_position(until, now_ms),
            stop_at_end=exit_at_end,
            count_max=count,
        )
    except PositionWrong as wrong:
        raise fail_usage(str(wrong)) from wrong
    except re.error as wrong:
        raise fail_usage(f"'{each}' is no regular expression: {wrong}") from wrong


def _check_member(partitions: list[str] | None, offset: str, until: str | None) -> None:
    if partitions is not None or until is not None:
        raise fail_usage(
            "a group assigns the partitions and offsets; --partition and --until are without --group"
        )
    if offset not in RESETS:
        raise fail_usage(
            f"with --group, --offset is beginning or end (for what the group has not committed), not '{offset}'"
        )


def _writer(output: TextOutput, template: str | None, with_keys: bool, null: bool) -> Piece:
    from kafscale.cli.records.json_lines import to_line
    from kafscale.cli.records.template import TemplateWrong, compiled

    if output is TextOutput.JSON:
        if template is not None or with_keys or null:
            raise fail_usage("--output json has its own form; leave out --format, --keys and --null")
        return lambda record: to_line(record) + b"\n"
    lines = "%k\t%v\n" if with_keys else "%v\n"
    try:
        return compiled(template or lines, shows_null=null or (template is None and sys.stdout.isatty()))
    except TemplateWrong as wrong:
        raise fail_usage(f"--format: {wrong}") from wrong


def _now_ms() -> int:
    return int(time.time() * 1000)
