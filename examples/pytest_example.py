"""A test with a real cluster: `pytest examples/pytest_example.py`.

One cluster serves the whole run; it starts in seconds and leaves nothing behind.
"""

from collections.abc import Iterator

import pytest

import roq
import roq.testing


@pytest.fixture(scope="session")
def cluster() -> Iterator[roq.Cluster]:
    with roq.testing.cluster(hosts=1) as running, running.connect() as connected:
        yield connected


def test_what_is_published_arrives_in_order(cluster: roq.Cluster) -> None:
    cluster.create_queue("orders", exists_ok=True)
    with cluster.subscriber("orders") as subscriber, cluster.publisher("orders") as publisher:
        publisher.publish_many([b"one", b"two"])
        received = [subscriber.receive(timeout=10) for _ in range(2)]
    assert [message and message.payload for message in received] == [b"one", b"two"]
