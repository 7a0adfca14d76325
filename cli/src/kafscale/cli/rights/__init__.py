"""`kafscale etcd-roles` and `kafscale s3-policy`."""
