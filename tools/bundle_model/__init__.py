"""The protocol of bundles as a model, and a search of every state that it can reach.

    python -m tools.bundle_model                       the small configurations, and every planted mutation
    python -m tools.bundle_model --all                 the large configurations as well (some minutes)
    python -m tools.bundle_model --trace NO_GRACE      the steps that lead to the state in which a mutation is caught

Two produce instances write two partitions. A bundle holds the slices of all partitions of an instance. Each is
committed by a compare-and-swap of its own, several of them in one request. Partitions change their owner, instances
crash, and a request may be applied late, after its sender has died, with its answer lost, or (a PUT of a bundle) twice.
There are direct segments, folds, settle plans, checkpoints, the deletion of bundles by their creator and by the sweep,
the collector of orphan segments, and a reader with an old view of a head. etcd may go back to a snapshot; then a
roll-forward rebuilds the heads from the bucket. Etags are hashes of the content: equal bytes have equal etags, the
worst case for conditional requests.

`state.py` has the words, `owner.py` what an instance does, `world.py` what stores, deleters and readers do, `laws.py`
what must hold in every state and over every step, `loss.py` the loss of etcd, and `search.py` the breadth-first search.
Not modelled: producers' state, compaction, DeleteRecords, the revision of metas, more than two flights per partition,
and liveness.
"""
