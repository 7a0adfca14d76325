"""`kafscale dump`: what one segment, or one index, holds."""
