"""Programs for spark-submit, and for `kafscale spark … --engine spark`. The cluster is what KAFSCALE_* names."""
