"""The shell around the group machines: one actor per live group, its place in etcd, its committed offsets."""
