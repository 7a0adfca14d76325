"""What is searched, and where each mutation must be caught."""

from __future__ import annotations

from tools.transaction_model.log import Shape
from tools.transaction_model.mutations import Mutation
from tools.transaction_model.state import BOTH, Config

STILL, MOVES, MOVES_TWICE, BOTH_MOVE = (1, 1), (2, 1), (3, 1), (2, 2)
"""The highest leader epochs of the two partitions: how often their owners change."""
SINGLE = (1,)
"""Of transactions: one, in the first partition."""
PAIR = (1, 1)

SMALL_PROTOCOLS = {
    "tv1, no trouble": Config(version=1, claims=STILL),
    "tv2, no trouble": Config(claims=STILL),
    "tv1, timeout, both move": Config(version=1, transactions=SINGLE, slot_claims=2, timeouts=1),
    "tv2, timeout, both move": Config(transactions=SINGLE, slot_claims=2, timeouts=1),
    "tv1, one partition, takeover": Config(version=1, transactions=SINGLE, takeover=1, claims=STILL),
    "tv2, one partition, takeover": Config(transactions=SINGLE, takeover=1, claims=STILL),
    "tv1, aborts, timeout": Config(version=1, transactions=PAIR, claims=STILL, timeouts=1, aborts=True),
    "tv1, aborts, late ends": Config(version=1, transactions=PAIR, claims=STILL, aborts=True, late_ends=True),
    "tv2, aborts": Config(transactions=PAIR, claims=STILL, aborts=True),
}
LARGE_PROTOCOLS = {
    "tv1, owner moves": Config(version=1, transactions=(BOTH, 1)),
    "tv2, owner moves": Config(transactions=(BOTH, 1)),
    "tv1, one partition, owner moves twice": Config(version=1, transactions=PAIR, claims=MOVES_TWICE),
    "tv1, one partition, coordinator and owner move": Config(version=1, transactions=PAIR, slot_claims=2),
    "tv2, one partition, coordinator and owner move": Config(transactions=PAIR, slot_claims=2),
    "tv1, one partition, takeover, owner moves": Config(version=1, transactions=SINGLE, takeover=1),
    "tv2, one partition, takeover, owner moves": Config(transactions=SINGLE, takeover=1),
    "tv1, one partition, takeover, coordinator moves": Config(
        version=1, transactions=SINGLE, takeover=1, slot_claims=2, claims=STILL
    ),
    "tv2, one partition, takeover, coordinator moves": Config(
        transactions=SINGLE, takeover=1, slot_claims=2, claims=STILL
    ),
    "tv1, two partitions, takeover": Config(version=1, transactions=(BOTH,), takeover=BOTH, claims=STILL),
    "tv2, two partitions, takeover": Config(transactions=(BOTH,), takeover=BOTH, claims=STILL),
    "tv2, no overlap, both move": Config(overlap=False, transactions=PAIR, slot_claims=2),
    "tv1, two partitions, both owners move": Config(version=1, transactions=(BOTH, 1), claims=BOTH_MOVE),
    "tv2, two partitions, both owners move": Config(transactions=(BOTH,), claims=BOTH_MOVE),
    "tv1, aborts, two partitions": Config(version=1, transactions=(BOTH, 1), claims=STILL, aborts=True),
    "tv2, aborts, two partitions": Config(transactions=(BOTH, 1), claims=STILL, aborts=True),
    "tv1, aborts, owner moves": Config(version=1, transactions=PAIR, aborts=True),
    "tv1, aborts, takeover": Config(version=1, transactions=PAIR, takeover=1, claims=STILL, aborts=True),
    "tv1, late ends, coordinator and owner move": Config(
        version=1, transactions=PAIR, slot_claims=2, late_ends=True
    ),
    "tv1, late ends, takeover": Config(
        version=1, transactions=PAIR, takeover=1, claims=STILL, late_ends=True
    ),
    "tv2, aborts, takeover": Config(transactions=SINGLE, takeover=1, claims=STILL, aborts=True),
    "tv2, aborts, timeout": Config(transactions=PAIR, claims=STILL, timeouts=1, aborts=True),
    "tv1, aborts, timeout, both move": Config(
        version=1, transactions=SINGLE, slot_claims=2, timeouts=1, aborts=True
    ),
    "tv2, aborts, timeout, both move": Config(transactions=SINGLE, slot_claims=2, timeouts=1, aborts=True),
}
ENDLESS_PROTOCOLS = {
    "tv1, two partitions, takeover, owner moves": Config(version=1, transactions=(BOTH,), takeover=BOTH),
    "tv2, two partitions, takeover, owner moves": Config(transactions=(BOTH,), takeover=BOTH),
    "tv2, two transactions, both owners move": Config(transactions=(BOTH, 1), claims=BOTH_MOVE),
    "tv2, takeover, timeout, owner and coordinator move": Config(
        transactions=SINGLE, takeover=1, slot_claims=2, timeouts=1
    ),
}

SMALL_INDEXES = {
    "index: three batches, a claim, DeleteRecords": Shape(batches=3, claims=1, starts=1),
    "index: three batches, compaction, DeleteRecords": Shape(batches=3, flight=1, fold=1, starts=1, passes=3),
}
LARGE_INDEXES = {
    "index: folds, settling, checkpoints": Shape(batches=5),
    "index: a claim between slices": Shape(batches=4, claims=1),
    "index: DeleteRecords at the same time": Shape(batches=4, starts=1),
    "index: compaction, three passes": Shape(batches=4, flight=1, fold=1, passes=3),
    "index: compaction, a claim": Shape(batches=4, flight=1, fold=1, claims=1, passes=2),
    "index: compaction, DeleteRecords": Shape(batches=4, flight=1, fold=1, starts=1, passes=2),
}

MUTATED_PROTOCOLS = {
    Mutation.VERIFY_FROM_MEMORY: Config(version=1, transactions=SINGLE, slot_claims=2, timeouts=1),
    Mutation.NO_SLOT_FENCE: Config(transactions=SINGLE, claims=STILL, slot_claims=2, timeouts=1),
    Mutation.CLOSE_TWICE: Config(transactions=(BOTH, 1), claims=STILL),
    Mutation.FORGET_CLOSING: Config(transactions=(BOTH, 1), claims=STILL),
    Mutation.OLD_END_TXN: Config(version=1, transactions=PAIR, claims=STILL, late_ends=True),
    Mutation.INIT_KEEPS_EPOCH: Config(version=1, transactions=PAIR, takeover=BOTH, claims=STILL),
    Mutation.INIT_DROPS: Config(transactions=SINGLE, takeover=BOTH, claims=STILL),
    Mutation.END_BEFORE_DECISION: Config(transactions=SINGLE, claims=STILL, timeouts=1),
    Mutation.UNPROVEN_END: Config(transactions=SINGLE),
    Mutation.PROOF_BESIDE_MARKER: Config(transactions=SINGLE),
    Mutation.STALE_PROOF: Config(transactions=PAIR),
    Mutation.ACK_ASSIGNED: Config(transactions=SINGLE),
    Mutation.END_BY_PRODUCER: Config(version=1, transactions=PAIR),
    Mutation.NO_GUARD: Config(version=1, transactions=SINGLE, claims=STILL, timeouts=1),
    Mutation.ENDED_NOT_CARRIED_OUT: Config(transactions=PAIR, claims=STILL),
    Mutation.OVERLAP_IN_ONE_EPOCH: Config(version=1, transactions=PAIR, claims=STILL),
    Mutation.SAME_EPOCH_AFTER_ABORT: Config(version=1, transactions=PAIR, claims=STILL, aborts=True),
    Mutation.ABORT_OF_NOTHING_KEEPS_EPOCH: Config(transactions=PAIR, claims=STILL, aborts=True),
    Mutation.RAISED_BY_ANY_EPOCH: Config(version=1, transactions=PAIR, takeover=1, claims=STILL, aborts=True),
    Mutation.FENCE_KEEPS_EPOCH: Config(transactions=(BOTH,), claims=STILL, timeouts=1),
    Mutation.FORGET_OPEN: Config(transactions=SINGLE),
}
MUTATED_INDEXES = {
    Mutation.FOLD_DROPS_ABORTED: Shape(batches=4),
    Mutation.FOLD_BEGINS_AGAIN: Shape(batches=4),
    Mutation.FOLD_KEEPS_UNSTABLE: Shape(batches=4),
    Mutation.SETTLE_DROPS_ABORTED: Shape(batches=3),
    Mutation.SETTLE_TAKES_PRESENT_LSO: Shape(batches=4),
    Mutation.MARKER_BEFORE_RECORDS: Shape(batches=4, flight=1, fold=0, passes=2),
    Mutation.ENTRY_OUTLIVES_MARKER: Shape(batches=5, flight=1, fold=0, passes=3),
    Mutation.PASS_BEGINS_IN_THE_MIDDLE: Shape(batches=4, flight=1, fold=0, passes=2),
}
