"""Whether etcd and the object store agree."""
