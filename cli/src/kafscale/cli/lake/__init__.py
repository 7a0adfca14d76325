"""Commands that query and maintain topics in etcd and the object store, without a broker."""
