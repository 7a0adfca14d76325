"""`kafscale spark`: questions and upkeep that need no broker, straight from etcd and the object store."""
