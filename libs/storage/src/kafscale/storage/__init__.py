"""etcd keys and values, and the object store: pure codecs, ports, adapters."""
