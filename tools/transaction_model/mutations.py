"""The planted mistakes. Each must lead to a state or a step that breaks a law."""

from __future__ import annotations

from enum import Enum


class Mutation(Enum):
    """What is taken away from the design, or done wrongly."""

    # the protocol
    VERIFY_FROM_MEMORY = "a coordinator that lost its slot vouches for a transaction from its memory"
    NO_SLOT_FENCE = "a write of the record does not compare the claim of the slot"
    CLOSE_TWICE = "a transaction is decided while the one before is still closing"
    FORGET_CLOSING = "the closing transaction is dropped at the first participant that is done"
    OLD_END_TXN = "an EndTxn of TV1 that is older than the transaction under way decides it"
    INIT_KEEPS_EPOCH = "InitProducerId does not raise the epoch"
    INIT_DROPS = "InitProducerId drops the transaction under way, and does not abort it"
    END_BEFORE_DECISION = "owners get an end before the decision is written"
    UNPROVEN_END = "an owner that sees nothing open answers DONE without a proof"
    PROOF_BESIDE_MARKER = "an end whose marker is assigned is proven by a transaction without the marker"
    STALE_PROOF = "an end is proven by a transaction that was sent before the end came"
    ACK_ASSIGNED = "DONE is answered when the marker is assigned, before its commit"
    END_BY_PRODUCER = "an end matches the producer, not the number"
    NO_GUARD = "a join whose end came while the question was out is taken"
    ENDED_NOT_CARRIED_OUT = "the answer to a join does not say which end the owner must carry out first"
    OVERLAP_IN_ONE_EPOCH = "the next transaction begins while one of the same producer epoch is closing"
    SAME_EPOCH_AFTER_ABORT = (
        "a client without epochs of transactions gives up a batch, aborts, and keeps its epoch"
    )
    ABORT_OF_NOTHING_KEEPS_EPOCH = "an EndTxn that aborts before anything has joined does not raise the epoch"
    RAISED_BY_ANY_EPOCH = "InitProducerId does not look at the epoch that the producer names"
    FENCE_KEEPS_EPOCH = "an abort by the coordinator does not raise the epoch"
    FORGET_OPEN = "a claim does not take over what is open"
    # the index
    FOLD_DROPS_ABORTED = "a fold drops the aborted transactions of the entries that it replaces"
    FOLD_BEGINS_AGAIN = "the batches that a fold repeats begin and end transactions again"
    FOLD_KEEPS_UNSTABLE = (
        "a fold takes the distance to the last stable offset from the entry that it replaces"
    )
    SETTLE_DROPS_ABORTED = "a settled segment does not list the aborted transactions of its slices"
    SETTLE_TAKES_PRESENT_LSO = (
        "a settled segment takes the present last stable offset, not that of its last slice"
    )
    MARKER_BEFORE_RECORDS = "compaction drops a marker while records before it are kept"
    ENTRY_OUTLIVES_MARKER = "an aborted transaction stays listed after compaction has dropped its marker"
    PASS_BEGINS_IN_THE_MIDDLE = "a pass that begins behind the log start stamps markers"
    # the reader
    STOP_AT_REACHED = "the search for aborted transactions stops at the segment that ends the answer"
    # the group
    PUT_AFTER_END = "offsets of a transaction are put after its end was heard"
    WHOLE_REVISION = "a pending offset is compared by the revision of the whole key"
    OVERWRITES = "a pending offset replaces a newer commit"
    PENDING_READ_LAST = "a fetch of stable offsets reads the pending ones after the committed ones"
    PENDING_DROPPED_FIRST = "the pending offsets are deleted before they are moved"
