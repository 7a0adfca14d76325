"""Spark over topics, read from etcd and the object store: a data source, batch and streaming."""
