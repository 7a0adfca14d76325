"""`kafscale dump`: the content of one segment, index or bundle."""
