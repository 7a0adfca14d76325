"""Programs for spark-submit and for `kafscale spark … --engine spark`. The KAFSCALE_* variables name the cluster."""
