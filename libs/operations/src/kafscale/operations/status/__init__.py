"""The cluster at a glance: what etcd has, and what the instances answer."""
