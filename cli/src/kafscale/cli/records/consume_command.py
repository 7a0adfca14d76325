"""`kafscale consume`."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING, Annotated, Final

import typer
from kafscale.cli.options import Isolation, IsolationOption, PartitionsOption
from kafscale.cli.targets import BootstrapOption, CommandConfigOption, DataDirOption, kafka
from kafscale.cli.terminal import TextOutput, fail_usage, notice, on_terminal, record_line
from kafscale.operations.positions import HELP, PositionWrong, now_ms, parse_partitions, parse_position

if TYPE_CHECKING:
    from kafscale.cli.records.consume import ConsumePlan
    from kafscale.cli.records.template import Piece

RESETS: Final = {
    "beginning": "earliest",
    "start": "earliest",
    "earliest": "earliest",
    "end": "latest",
    "latest": "latest",
}
"""Where a group starts in partitions without a committed offset."""

RegexOption = Annotated[
    bool, typer.Option("--regex", "-r", help="The names are regular expressions: read all topics that match.")
]
GroupOption = Annotated[
    str | None,
    typer.Option("--group", "-g", help="Read as a member of this group, from its committed offsets."),
]
OffsetOption = Annotated[str, typer.Option("--offset", "-o", help=f"Where to begin: {HELP}.")]
UntilOption = Annotated[
    str | None,
    typer.Option("--until", "-u", help="Where to end in each partition, as for --offset; not included."),
]
ExitOption = Annotated[bool, typer.Option("--exit", "-e", help="Stop at the end of the topics.")]
CountOption = Annotated[int | None, typer.Option("--count", "-c", min=1, help="Stop after N records.")]
KeysOption = Annotated[bool, typer.Option("--keys", "-k", help="Print key, tab, value.")]
FormatOption = Annotated[
    str | None,
    typer.Option(
        "--format",
        "-f",
        help="Print each record in this form, as kcat and rpk do: %t topic, %p partition, %o offset, %k key, "
        "%v value, %h headers, %T time in ms, %T{iso}, %K %V lengths, %v{base64}, %v{hex}, \\n \\t \\xHH.",
    ),
]
NullOption = Annotated[bool, typer.Option("--null", "-Z", help="Print NULL for a null key or value.")]
RecordsOption = Annotated[
    TextOutput,
    typer.Option(
        "--output",
        help="json: one JSON object per line, with topic, partition, offset, timestamp, key, value, headers.",
    ),
]


def consume(
    topics: Annotated[list[str], typer.Argument(help="Names of topics.")],
    bootstrap_server: BootstrapOption = None,
    data_dir: DataDirOption = None,
    command_config: CommandConfigOption = None,
    regex: RegexOption = False,
    group: GroupOption = None,
    partition: PartitionsOption = None,
    offset: OffsetOption = "beginning",
    until: UntilOption = None,
    exit_at_end: ExitOption = False,
    count: CountOption = None,
    with_keys: KeysOption = False,
    template: FormatOption = None,
    null: NullOption = False,
    output: RecordsOption = TextOutput.TEXT,
    isolation: IsolationOption = Isolation.COMMITTED,
) -> None:
    """Print the records of topics, one per line. Example: kafscale consume greetings --offset -10 --exit

    The records of one hour: kafscale consume orders -o 2026-01-31T08:00 -u 2026-01-31T09:00 -f '%T{iso} %k %v\\n'

    --output json loses nothing: bytes that are not UTF-8 are base64, and a tombstone has the value null.
    """
    from kafscale.cli.records.consume import consume as run

    plan = _plan(tuple(topics), regex, group, partition, offset, until, exit_at_end, count, isolation)
    write = _writer(output, template, with_keys, null)
    with kafka(bootstrap_server, data_dir, command_config) as client:
        try:
            for records in run(client, plan, notice, notice if on_terminal() else _ignore):
                sys.stdout.buffer.write(record_line(b"".join(map(write, records))))
                sys.stdout.buffer.flush()
        except KeyboardInterrupt:
            raise typer.Exit(0) from None


def _ignore(_: str) -> None:
    return


def _plan(
    topics: tuple[str, ...],
    regex: bool,
    group: str | None,
    partitions: list[str] | None,
    offset: str,
    until: str | None,
    exit_at_end: bool,
    count: int | None,
    isolation: Isolation,
) -> ConsumePlan:
    from kafscale.cli.records.consume import ConsumePlan

    if group is not None:
        _check_member(partitions, offset, until)
    try:
        for each in topics if regex else ():
            re.compile(each)
        now = now_ms()
        return ConsumePlan(
            topics=topics,
            by_pattern=regex,
            group=group,
            partitions=None if partitions is None else parse_partitions(partitions),
            start=parse_position(offset, now),
            reset=RESETS.get(offset, "earliest"),
            until=None if until is None else parse_position(until, now),
            stop_at_end=exit_at_end,
            count_max=count,
            isolation=isolation,
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
    from kafscale.cli.records.template import TemplateWrong, compiled
    from kafscale.client.json_lines import to_line

    if output is TextOutput.JSON:
        if template is not None or with_keys or null:
            raise fail_usage("--output json has its own form; leave out --format, --keys and --null")
        return lambda record: to_line(record) + b"\n"
    lines = "%k\t%v\n" if with_keys else "%v\n"
    try:
        return compiled(
            lines if template is None else template,
            shows_null=null or (template is None and sys.stdout.isatty()),
        )
    except TemplateWrong as wrong:
        raise fail_usage(f"--format: {wrong}") from wrong
