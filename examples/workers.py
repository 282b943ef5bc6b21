"""Three workers share the orders of a queue; each order is done by one of them.

roq up                        # in another terminal
python examples/workers.py
"""

import os
import threading

import roq

ORDERS = 30
ADDRESS = os.environ.get("ROQ_CLUSTER", "127.0.0.1:5000")
done: dict[str, list[str]] = {}
finished = threading.Semaphore(0)


def work(name: str, consumer: roq.Consumer) -> None:
    """Do what comes, until the consumer is closed."""
    for message in consumer:  # acknowledged when the body has ended, given back if it raises
        done.setdefault(message.payload.decode(), []).append(name)
        finished.release()


with roq.connect(ADDRESS) as cluster:
    cluster.create_queue("workshop", exists_ok=True)
    with (
        cluster.consumer("workshop", "workers", prefetch=4, name="ann") as ann,
        cluster.consumer("workshop", "workers", prefetch=4, name="bob") as bob,
        cluster.consumer("workshop", "workers", prefetch=4, name="cem") as cem,
        cluster.publisher("workshop") as publisher,
    ):
        people = {"ann": ann, "bob": bob, "cem": cem}
        threads = [threading.Thread(target=work, args=each) for each in people.items()]
        for thread in threads:
            thread.start()
        for number in range(ORDERS):
            publisher.publish(b"order %d" % number, topic="eu.be")
            publisher.flush()
        for _ in range(ORDERS):
            if not finished.acquire(timeout=30):
                raise SystemExit("no order was done for half a minute")
        for consumer in people.values():
            consumer.close()
        for thread in threads:
            thread.join()
    print(f"{len(done)} orders, each done once: {all(len(who) == 1 for who in done.values())}")
    print("workers:", *sorted({name for who in done.values() for name in who}))
    cluster.delete_group("workshop", "workers")
