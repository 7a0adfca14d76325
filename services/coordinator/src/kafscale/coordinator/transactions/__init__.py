"""The transactions of transactional ids.

Pure: a machine for each id (`machine`), and which ends are sent when (`closer`). Around it: an actor for each id at
work (`actor`), the ids of this instance (`registry`), proofs that a slot is still ours (`proofs`), the ends on their
way (`closing`), and what other services ask (`serving`). `service` puts them together.
"""
