"""Topics and heads in etcd, rebuilt from the object store."""
