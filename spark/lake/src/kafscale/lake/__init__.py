"""Reads topics from etcd and the object store as Arrow columns, without a broker or a JVM."""
