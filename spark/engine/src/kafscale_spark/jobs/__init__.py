"""Programs for spark-submit and for `kafscale … --engine spark`. The KAFSCALE_* variables name the cluster."""
