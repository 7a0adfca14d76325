"""The transactions of a transactional id: a pure machine, see `machine`. No service uses it yet."""
