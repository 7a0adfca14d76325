"""etcd as a model: its answers, leases and watches, without a server, threads or a clock."""
