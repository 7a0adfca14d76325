"""The part of etcd's v3 API that we call; generated from proto/kafscale/etcd."""
