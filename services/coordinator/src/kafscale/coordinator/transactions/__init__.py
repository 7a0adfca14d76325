"""The transactions of transactional ids: a pure machine for each id (`machine`), the ends of what it has decided
(`closer`), and proofs that a slot is still ours (`proofs`). No service uses them yet."""
