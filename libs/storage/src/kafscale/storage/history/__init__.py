"""Whether etcd's history is the one that the bucket knows, or went back: lost, restored to an older state, replaced."""
