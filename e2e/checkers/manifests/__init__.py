"""What an operator may rely on in the rendered manifests, as laws: from the objects of one overlay to sentences that
say what is wrong, none when all is well. Pure; `e2e/harness/manifests.py` renders.
"""
