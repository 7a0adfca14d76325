"""Transactions as models, and a search of every state that each of them can reach.

    python -m tools.transaction_model                        the small configurations, and every planted mutation
    python -m tools.transaction_model --all                  the large configurations as well (some minutes)
    python -m tools.transaction_model --endless              those of several million states as well (hours)
    python -m tools.transaction_model --trace UNPROVEN_END   the steps to the state in which a mutation is caught

The protocol (`protocol.py`): one transactional id, two partitions, two producers. etcd holds the record of the
transactional id, the claim of its slot and, for each partition, the head. Coordinators claim the slot at any time. The
one before continues with the memory that it had. Owners claim partitions at any time, and the one before continues as
well. Batches and answers to joins travel as long as they like, and a batch is delivered any number of times. A request
of a client may be carried out while its answer is lost; then the client sends it again. Producer A runs transactions
one after another. It may stop anywhere, because every prefix of a run is a state. Producer B takes the transactional id
over at any time. The coordinator may abort a transaction at any time (its timeout). An owner commits what it has
assigned in any portions, in order, as bundles are stored. What is assigned and not committed is lost with its owner: by
a claim, or by the end of an epoch after a failed bundle. A write is a compare-and-swap. Between the step that prepares
it and the step that applies it, the memory of its writer does not change. So both are one step here, taken with
whatever memory the writer has.

The index (`index.py`): one partition as its head and its manifests list it. Slices of one or two batches are committed,
fold the slices before them, are settled in runs of any length, and leave the head by checkpoints. Passes of compaction
keep or drop committed records. The log start moves. A claim ends folding over the slices before it. A reader
(`reader.py`) asks for any range below the last stable offset and applies the rule of Kafka's Java consumer.

The group (`group.py`): one transaction, the offsets of two partitions, plain commits at the same time, puts and ends
that come late or again, and a move that takes several transactions of etcd.

Not modelled: the rotation of producer ids, several transactional ids in one partition while the
protocol moves, tools, the roll-forward, the loss of etcd, and liveness beyond T7.
"""
