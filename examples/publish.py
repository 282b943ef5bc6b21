"""Publish ten messages and wait until an exchange has them.

roq up                        # in another terminal
python examples/publish.py
"""

import os

import roq

with roq.connect(os.environ.get("ROQ_CLUSTER", "127.0.0.1:5000")) as cluster:
    cluster.create_queue("orders", exists_ok=True)
    with cluster.publisher("orders") as publisher:
        receipts = [publisher.publish(b"order %d" % number, topic="eu.be") for number in range(10)]
        status = receipts[-1].result(timeout=10)
        print(f"the last one is acknowledged by exchange {status.exchange}")
