"""`kafscale settle`: the slices of bundles become segments now."""
