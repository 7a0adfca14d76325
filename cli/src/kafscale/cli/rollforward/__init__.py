"""`kafscale fsck --roll-forward`: rebuilds topics and heads in etcd from what the object store holds."""
