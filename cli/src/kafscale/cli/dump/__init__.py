"""`kafscale dump`: the content of one segment or index."""
