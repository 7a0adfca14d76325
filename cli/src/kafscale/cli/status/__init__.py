"""`kafscale status`: the cluster at a glance."""
