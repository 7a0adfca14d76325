"""What the two producers do. A runs its transactions, B takes the transactional id over and runs one."""

from __future__ import annotations

from collections.abc import Iterator

from tools.transaction_model.search import Step
from tools.transaction_model.state import (
    PARTITIONS,
    PRODUCERS,
    Batch,
    Client,
    Config,
    Producer,
    State,
    Transaction,
)


def client_moves(state: State, config: Config) -> Iterator[tuple[Step, State]]:
    if state.a.phase == "idle":
        yield ("A begins",), state.with_client("A", begun(config, 1, 0))
    for producer in PRODUCERS:
        client = state.client(producer)
        if client.phase == "sending":
            yield (producer, "sends transaction", client.turn), batches_sent(state, config, producer)
    if config.takeover and state.b.phase == "idle":
        yield ("B asks for the id",), state.with_client("B", Client("init"))


def begun(config: Config, turn: int, epoch: int) -> Client:
    return Client("adding" if config.version == 1 else "sending", turn, epoch)


def next_transaction(state: State, config: Config, ended: Transaction, epoch: int) -> Client:
    """What a producer does after the answer to its EndTxn. If it gave up a batch, and its epoch did not rise, it raises
    the epoch first (KIP-360). Otherwise that batch could arrive in its next transaction."""
    if ended.producer == "B" or ended.turn == len(config.transactions):
        return Client("over", ended.turn, epoch)
    if config.version == 1 and not has_all_acked(state, config, ended):
        return Client("raising", ended.turn + 1, epoch)
    return begun(config, ended.turn + 1, epoch)


def batches_sent(state: State, config: Config, producer: Producer) -> State:
    client = state.client(producer)
    transaction = Transaction(producer, client.turn)
    partitions = partitions_in(config.partitions_of(transaction))
    batches = {Batch(transaction, client.epoch, partition) for partition in partitions}
    after = state._replace(batches=state.batches | batches)
    return after.with_client(producer, client._replace(phase="ending"))


def has_all_acked(state: State, config: Config, transaction: Transaction) -> bool:
    partitions = partitions_in(config.partitions_of(transaction))
    return all((transaction, partition) in state.acked for partition in partitions)


def partitions_in(bits: int) -> list[int]:
    return [partition for partition in PARTITIONS if bits >> partition & 1]
