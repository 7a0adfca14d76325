"""The tutorial's records: the status changes of orders, and the customers.

    python docs/tutorial/produce.py 10000000

The topic `orders` gets this number of records, spread evenly over the last ten days. The topic `customers` gets one
record per hundred orders. Record `number` is the same in every run, except for its timestamp.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator

from confluent_kafka import KafkaError, Message, Producer

BOOTSTRAP = os.environ.get("KAFSCALE_BOOTSTRAP_SERVERS", "127.0.0.1:9092")
SPAN_MS = 10 * 86_400_000
STEPS = ("new", "paid", "shipped", "delivered")
OPEN_ORDERS = 1_000  # orders that are open at the same time
CUSTOMERS = 1_000
COUNTRIES = ("de", "fr", "it", "nl", "pl")
TIERS = ("basic", "silver", "gold")
ORDERS_PER_STATE = 100
DELETED_EVERY = 97
TOLD_EVERY = 1_000_000
FLUSH_S = 120.0


def order(number: int) -> tuple[str, str]:
    """Key and value: a thousand orders are new, then they are paid, shipped, delivered, and one in ten is returned."""
    turn, place = divmod(number, OPEN_ORDERS)
    which = turn // len(STEPS) * OPEN_ORDERS + place
    status = STEPS[turn % len(STEPS)]
    if status == "delivered" and which % 10 == 0:
        status = "returned"
    customer, country = which * 7 % CUSTOMERS, COUNTRIES[which % 13 % len(COUNTRIES)]
    amount = (which * 37 % 20_000 + 500) / 100
    value = f'{{"customer":"c{customer:04d}","status":"{status}","country":"{country}","amount":{amount}}}'
    return f"o{which:07d}", value


def customer(number: int) -> tuple[str, str | None]:
    """Key and value. Some records delete a customer: they have no value."""
    which, visit = number * 7 % CUSTOMERS, number // CUSTOMERS
    key = f"c{which:04d}"
    if number % DELETED_EVERY == 0:
        return key, None
    return key, f'{{"tier":"{TIERS[(which + visit) % len(TIERS)]}","visits":{visit}}}'


def records(count: int, now_ms: int) -> Iterator[tuple[str, str, str | None, int]]:
    """Topic, key, value and time."""
    for number in range(count):
        time_ms = now_ms - (count - number) * SPAN_MS // count
        yield "orders", *order(number), time_ms
        if number % ORDERS_PER_STATE == 0:
            yield "customers", *customer(number // ORDERS_PER_STATE), time_ms


def refused(error: KafkaError | None, _message: Message) -> None:
    sys.exit(f"a record was not taken: {error}")


def main(count: int) -> None:
    begin = time.monotonic()
    producer = Producer(
        {
            "bootstrap.servers": BOOTSTRAP,
            "enable.idempotence": True,
            "compression.type": "lz4",
            "linger.ms": 50,
            "delivery.report.only.error": True,
            "on_delivery": refused,
        }
    )
    sent = 0
    for topic, key, value, time_ms in records(count, time.time_ns() // 1_000_000):
        while True:
            try:
                producer.produce(topic, value, key, timestamp=time_ms)
                break
            except BufferError:  # the brokers are slower than this loop
                producer.poll(0.1)
        sent += 1
        if sent % TOLD_EVERY == 0:
            print(f"{sent:,} records in {time.monotonic() - begin:.0f} s", flush=True)
    if left := producer.flush(FLUSH_S):
        sys.exit(f"{left:,} records were not acknowledged in {FLUSH_S:.0f} s")
    print(f"{sent:,} records are acknowledged, after {time.monotonic() - begin:.0f} s")


if __name__ == "__main__":
    main(int(sys.argv[1]))
