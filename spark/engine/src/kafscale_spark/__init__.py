"""Spark over topics as they stand in etcd and the object store: a data source, batch and streaming."""
