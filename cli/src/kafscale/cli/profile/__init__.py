"""`kafscale profile`: named clusters, each with its address and its login."""
