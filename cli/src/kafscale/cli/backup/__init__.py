"""`kafscale backup`: snapshots of etcd in the object store."""
