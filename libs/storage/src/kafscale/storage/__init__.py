"""etcd keys and values, S3 objects, segment format: pure codecs, ports, adapters."""
