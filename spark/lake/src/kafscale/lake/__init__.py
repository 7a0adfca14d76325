"""Topics as they stand in etcd and the object store, read as Arrow columns: no broker, no JVM."""
