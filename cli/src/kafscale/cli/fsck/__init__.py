"""`kafscale fsck`: do etcd and the object store agree? Reads both, changes neither."""
