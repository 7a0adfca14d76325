"""Values kept in etcd; generated from proto/kafscale/store."""
