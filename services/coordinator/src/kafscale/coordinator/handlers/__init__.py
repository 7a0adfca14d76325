"""One module per Kafka API, named after it: decode, answer, encode.

Each exports `handler(context)`, which makes its AsyncHandler. The file registers it (runtime/stream/handlers.py).
"""
