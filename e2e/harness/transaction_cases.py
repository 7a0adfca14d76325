"""Mistakes in requests of transactions, whose answers are compared with Apache Kafka's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from kafscale.wire.apis import ApiKey, api_label

from e2e.harness.answer_shapes import NO_SUCH, Told, changed, made, of_absent
from e2e.harness.api_requests import ROWS, commit_in_transaction
from e2e.harness.oracles import Content
from e2e.harness.prepared import (
    World,
    coordinated_transaction,
    transaction,
    transaction_with_group,
)
from e2e.harness.rights_rows import Case

_K = ApiKey


def described_ids(*names: str) -> Told:
    return lambda _, __: {"transactional_ids": names}


def init(**fields: object) -> Told:
    said = {"transaction_timeout_ms": 60_000, "producer_id": -1, "producer_epoch": -1}
    return lambda world, _: {"transactional_id": world.group, **said, **fields}


def in_transaction(said: Told, **fields: object) -> Told:
    """With these fields in place of the producer's, wherever the request has them."""

    def replaced(world: World, version: int) -> Content:
        asked = dict(said(world, version))
        for entry in (asked, *asked.get("transactions", ())):
            for name, value in fields.items():
                for each in (name, f"v3_and_below_{name}"):
                    if each in entry:
                        entry[each] = value
        return asked

    return replaced


WRONG_PRODUCERS: Final[Mapping[str, Mapping[str, object]]] = {
    "an unknown id": {"transactional_id": NO_SUCH},
    "another producer id": {"producer_id": 2**40},
    "a later epoch": {"producer_epoch": 7},
    "no epoch": {"producer_epoch": -1},
}
TRANSACTIONS: Final[Sequence[Case]] = (
    *(
        made(
            _K.INIT_PRODUCER_ID, f"InitProducerId with {what}", init(**fields), coordinated_transaction, seen
        )
        for what, fields, seen in (
            ("an empty id", {"transactional_id": ""}, (0, 99)),
            ("no timeout", {"transaction_timeout_ms": 0}, (0, 99)),
            ("a long timeout", {"transaction_timeout_ms": 900_001}, (0, 99)),
            ("half a producer", {"producer_id": 5}, (3, 99)),
            ("an unknown producer", {"producer_id": 2**40, "producer_epoch": 3}, (3, 99)),
        )
    ),
    *(
        made(
            key,
            f"{api_label(key)} with {what}",
            in_transaction(ROWS[key].content, **fields),
            ROWS[key].prepare,
        )
        for key in (_K.ADD_PARTITIONS_TO_TXN, _K.ADD_OFFSETS_TO_TXN, _K.END_TXN, _K.TXN_OFFSET_COMMIT)
        for what, fields in WRONG_PRODUCERS.items()
    ),
    *(
        made(
            _K.END_TXN,
            f"EndTxn that {what} nothing",
            in_transaction(ROWS[_K.END_TXN].content, committed=committed),
            transaction,
        )
        for what, committed in (("commits", True), ("aborts", False))
    ),
    made(
        _K.TXN_OFFSET_COMMIT,
        "TxnOffsetCommit of a group that did not join",
        ROWS[_K.TXN_OFFSET_COMMIT].content,
        transaction,
    ),
    made(
        _K.TXN_OFFSET_COMMIT,
        "TxnOffsetCommit of an unknown member",
        changed(commit_in_transaction, generation_id=7, member_id="no-such-member"),
        transaction_with_group,
        (3, 99),
    ),
    of_absent(commit_in_transaction, _K.TXN_OFFSET_COMMIT, "TxnOffsetCommit", "topics"),
    made(
        _K.ADD_OFFSETS_TO_TXN,
        "AddOffsetsToTxn of a group without a name",
        in_transaction(ROWS[_K.ADD_OFFSETS_TO_TXN].content, group_id=""),
        transaction,
    ),
    *(
        made(
            _K.DESCRIBE_TRANSACTIONS,
            f"DescribeTransactions of {what}",
            described_ids(*names),
        )
        for what, names in (("an unknown id", [NO_SUCH]), ("no id", []), ("an empty id", [""]))
    ),
    *(
        made(
            _K.LIST_TRANSACTIONS,
            f"ListTransactions {what}",
            changed(ROWS[_K.LIST_TRANSACTIONS].content, **fields),
            transaction,
            seen,
        )
        for what, fields, seen in (
            ("in an unknown state", {"state_filters": ["Dreaming"]}, (0, 99)),
            ("of no producer", {"producer_id_filters": [2**50]}, (0, 99)),
            ("of a wrong pattern", {"transactional_id_pattern": "("}, (2, 99)),
            ("of long transactions", {"duration_filter": 10_000_000}, (1, 99)),
        )
    ),
)
