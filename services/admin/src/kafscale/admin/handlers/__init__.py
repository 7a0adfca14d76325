"""One module per Kafka API, named after it: decode, ask the plan and the store, encode.

Each exports `handler(context)`, which makes its AsyncHandler, usually by `answering` (runtime/stream/apis.py). The file
registers it (runtime/stream/apis.py).
"""
