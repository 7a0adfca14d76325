"""`kafscale transactions`, with the commands and options of kafka-transactions."""

from __future__ import annotations

from typing import Annotated

import typer
from kafscale.cli.consent import DryRunOption, YesOption, agreed, chosen_way
from kafscale.cli.targets import BootstrapOption, CommandConfigOption, DataDirOption, kafka
from kafscale.cli.terminal import Output, OutputOption, fail_usage, notice, show_rows
from kafscale.operations.positions import now_ms

MAX_TIMEOUT_MIN = 15
MINUTE_MS = 60_000
PRODUCER_COLUMNS = (
    "producer_id",
    "producer_epoch",
    "latest_coordinator_epoch",
    "last_sequence",
    "last_timestamp",
    "current_transaction_start_offset",
)
HANGING_COLUMNS = (
    "topic",
    "partition",
    "producer_id",
    "producer_epoch",
    "coordinator_epoch",
    "start_offset",
    "last_timestamp",
    "duration_min",
)
DESCRIBED_COLUMNS = (
    "coordinator_id",
    "transactional_id",
    "producer_id",
    "producer_epoch",
    "transaction_state",
    "transaction_timeout_ms",
    "current_transaction_start_time",
    "transaction_duration_ms",
    "topic_partitions",
)

TopicOption = Annotated[str, typer.Option("--topic", "-t", help="Name of the topic.")]
PartitionOption = Annotated[int, typer.Option("--partition", "-p", min=0, help="Number of the partition.")]
IdOption = Annotated[str, typer.Option("--transactional-id", help="The transactional.id of the producer.")]

app = typer.Typer(
    name="transactions",
    help="List and describe transactions, find those that hang, and abort them. The options are those of "
    "kafka-transactions.",
    no_args_is_help=True,
)


@app.command("list")
def list_(
    duration_filter: Annotated[
        int | None,
        typer.Option(
            "--duration-filter", help="Only transactions that have run for longer, in milliseconds."
        ),
    ] = None,
    pattern: Annotated[
        str | None,
        typer.Option("--transactional-id-pattern", help="Only ids that match this regular expression."),
    ] = None,
    bootstrap_server: BootstrapOption = None,
    data_dir: DataDirOption = None,
    command_config: CommandConfigOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show all transactional ids and the state of each. Example: kafscale transactions list"""
    from kafscale.client.transactions import NO_FILTER, list_all_transactions

    longer_ms = NO_FILTER if duration_filter is None else max(duration_filter, NO_FILTER)
    with kafka(bootstrap_server, data_dir, command_config) as client:
        rows = list_all_transactions(client, longer_ms=longer_ms, pattern=pattern or "")
    show_rows(["transactional_id", "coordinator", "producer_id", "transaction_state"], rows, output)
    if not rows:
        notice("no transactions" if longer_ms > NO_FILTER or pattern else "no transactional ids")


@app.command()
def describe(
    transactional_id: IdOption,
    bootstrap_server: BootstrapOption = None,
    data_dir: DataDirOption = None,
    command_config: CommandConfigOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show the transaction of an id: its producer, start and partitions.

    Example: kafscale transactions describe --transactional-id billing
    """
    from kafscale.client.transactions import describe_transaction

    with kafka(bootstrap_server, data_dir, command_config) as client:
        row = describe_transaction(client, transactional_id, now_ms())
    if output is Output.TABLE:
        row = {**row, "topic_partitions": ", ".join(row["topic_partitions"])}
    show_rows(DESCRIBED_COLUMNS, [row], output)


@app.command("describe-producers")
def describe_producers(
    topic: TopicOption,
    partition: PartitionOption,
    broker_id: Annotated[
        int | None, typer.Option("--broker-id", help="Ask this broker, not the leader of the partition.")
    ] = None,
    bootstrap_server: BootstrapOption = None,
    data_dir: DataDirOption = None,
    command_config: CommandConfigOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show the producers that a partition knows, and where their open transactions begin.

    Example: kafscale transactions describe-producers --topic orders --partition 0
    """
    from kafscale.client.transactions import describe_partition_producers

    with kafka(bootstrap_server, data_dir, command_config) as client:
        rows = describe_partition_producers(client, topic, partition, broker_id)
    show_rows(PRODUCER_COLUMNS, rows, output)
    if not rows:
        notice("the partition knows no idempotent or transactional producers")


@app.command("find-hanging")
def find_hanging(
    topic: Annotated[
        str | None, typer.Option("--topic", "-t", help="Only this topic. Default: all topics.")
    ] = None,
    partition: Annotated[
        int | None, typer.Option("--partition", "-p", min=0, help="Only this partition of the topic.")
    ] = None,
    broker_id: Annotated[
        int | None, typer.Option("--broker-id", help="Only partitions that this broker leads.")
    ] = None,
    max_transaction_timeout: Annotated[
        int,
        typer.Option(
            "--max-transaction-timeout", min=0, help="Only transactions without a record for so many minutes."
        ),
    ] = MAX_TIMEOUT_MIN,
    bootstrap_server: BootstrapOption = None,
    data_dir: DataDirOption = None,
    command_config: CommandConfigOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Find transactions that are open in a partition and that no coordinator will end.

    Example: kafscale transactions find-hanging --topic orders

    Use a login that may describe all transactional ids: the transaction of an id that it does not see looks as if it
    hung.
    """
    from kafscale.client import transactions

    if partition is not None and topic is None:
        raise fail_usage("--partition needs --topic")
    with kafka(bootstrap_server, data_dir, command_config) as client:
        rows = transactions.find_hanging(
            client,
            now_ms(),
            older_ms=max_transaction_timeout * MINUTE_MS,
            topic=topic,
            partition=partition,
            broker_id=broker_id,
        )
    show_rows(HANGING_COLUMNS, rows, output)
    if not rows:
        notice("no transaction hangs")


@app.command()
def abort(
    topic: TopicOption,
    partition: PartitionOption,
    start_offset: Annotated[
        int | None, typer.Option("--start-offset", min=0, help="Where the transaction begins.")
    ] = None,
    producer_id: Annotated[
        int | None, typer.Option("--producer-id", min=0, help="Instead of --start-offset, with both epochs.")
    ] = None,
    producer_epoch: Annotated[int | None, typer.Option("--producer-epoch", min=0)] = None,
    coordinator_epoch: Annotated[int | None, typer.Option("--coordinator-epoch", min=0)] = None,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    bootstrap_server: BootstrapOption = None,
    data_dir: DataDirOption = None,
    command_config: CommandConfigOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Abort a transaction that hangs in a partition. This cannot be undone.

    Example: kafscale transactions abort --topic orders --partition 0 --start-offset 4711

    Shows the transaction, and asks. KafScale refuses if a coordinator knows the transaction.
    """
    from kafscale.client.transactions import OpenTransaction, abort_transaction, transaction_at
    from kafscale.operations.transactions import abort_of

    by_producer = (producer_id, producer_epoch, coordinator_epoch)
    if (start_offset is None) == all(each is None for each in by_producer):
        raise fail_usage("give --start-offset, or --producer-id with both epochs")
    if start_offset is None and None in by_producer:
        raise fail_usage("--producer-id, --producer-epoch and --coordinator-epoch belong together")
    way = chosen_way(dry_run=dry_run, yes=yes)
    with kafka(bootstrap_server, data_dir, command_config) as client:
        if start_offset is not None:
            found = transaction_at(client, topic, partition, start_offset)
        else:
            assert producer_id is not None
            assert producer_epoch is not None
            assert coordinator_epoch is not None
            found = OpenTransaction(
                topic=topic,
                partition=partition,
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                coordinator_epoch=coordinator_epoch,
            )
        if agreed(way, abort_of(found, start_offset), output):
            abort_transaction(client, found)
            notice(f"aborted the transaction of producer {found.producer_id} in {topic}/{partition}")


@app.command("forceTerminateTransaction")
def force_terminate_transaction(
    transactional_id: Annotated[
        str,
        typer.Option("--transactionalId", "--transactional-id", help="The transactional.id of the producer."),
    ],
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    bootstrap_server: BootstrapOption = None,
    data_dir: DataDirOption = None,
    command_config: CommandConfigOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Abort the transaction that is under way for an id, and fence its producer. This cannot be undone.

    Example: kafscale transactions forceTerminateTransaction --transactionalId billing

    Shows the transaction, and asks.
    """
    from kafscale.client.transactions import terminate_transaction, transaction_under_way
    from kafscale.operations.transactions import termination_of

    way = chosen_way(dry_run=dry_run, yes=yes)
    with kafka(bootstrap_server, data_dir, command_config) as client:
        row = transaction_under_way(client, transactional_id, now_ms())
        if agreed(way, termination_of(row), output):
            terminate_transaction(client, transactional_id, now_ms())
            notice(f"aborted the transaction of transactional id '{transactional_id}'")
