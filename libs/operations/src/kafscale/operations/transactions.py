"""What the end of a transaction by an operator would change. Pure."""

from __future__ import annotations

from dataclasses import asdict
from typing import Final

from kafscale.client.transactions import OpenTransaction
from kafscale.operations.consent import ChangePlan, Row
from kafscale.operations.sentences import counted

ABORT_COLUMNS: Final = (
    "topic",
    "partition",
    "producer_id",
    "producer_epoch",
    "coordinator_epoch",
    "start_offset",
)
TERMINATE_COLUMNS: Final = (
    "transactional_id",
    "producer_id",
    "producer_epoch",
    "current_transaction_start_time",
    "topic_partitions",
)


def abort_of(transaction: OpenTransaction, start_offset: int | None) -> ChangePlan:
    """`start_offset`: None if the producer was given instead."""
    place = f"{transaction.topic}/{transaction.partition}"
    return ChangePlan(
        what=f"the open transaction of producer {transaction.producer_id} in {place}; "
        "consumers of committed records will never read its records",
        question="Abort it? This cannot be undone.",
        columns=ABORT_COLUMNS,
        rows=[{**asdict(transaction), "start_offset": start_offset}],
    )


def termination_of(row: Row) -> ChangePlan:
    """`row`: of `describe_transaction`."""
    places = row["topic_partitions"]
    return ChangePlan(
        what=f"the transaction of transactional id '{row['transactional_id']}' in "
        f"{counted(len(places), 'partition')}; its producer is fenced",
        question="Abort it? This cannot be undone.",
        columns=TERMINATE_COLUMNS,
        rows=[{name: row[name] for name in TERMINATE_COLUMNS}],
    )
