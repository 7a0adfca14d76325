"""A partition's stored log: its values in etcd, its objects, who may change it, and how it is read."""
