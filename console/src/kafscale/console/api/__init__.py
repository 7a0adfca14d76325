"""Routes by screen: each file has the rows of `routes.py` for one screen, and their handlers."""
