"""One module per Kafka API, named after it: `handler` answers a request.

The file registers its API (runtime/stream/apis.py).
"""
