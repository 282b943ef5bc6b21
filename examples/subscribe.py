"""Print ten messages whose topic begins with `eu.`, from the oldest that is still there.

roq up                        # in another terminal
python examples/publish.py
python examples/subscribe.py
"""

import os

import roq

with roq.connect(os.environ.get("ROQ_CLUSTER", "127.0.0.1:5000")) as cluster:
    cluster.create_queue("orders", exists_ok=True)
    with cluster.subscriber("orders", topic="eu.", start="earliest") as subscriber:
        for _ in range(10):
            message = subscriber.receive(timeout=10)
            if message is None:
                raise SystemExit("nothing came for ten seconds: run examples/publish.py")
            print(message.topic, message.payload.decode(), message.sequence)
