"""The laws of the rendered manifests. Each gets the objects of one overlay and returns a sentence per error.

Pure; `e2e/harness/manifests.py` renders the overlays.
"""
