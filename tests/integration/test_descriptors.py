"""How many descriptors clients take, and what they say when there are no more."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator

import pytest

from roq.testing import RunningCluster, cluster

pytestmark = pytest.mark.integration

SUBSCRIBER_MOST = 3
PUBLISHER_MOST = 3

MANY = """
import json, os, resource, sys, time
import roq
from roq.runtime import procfs

address, soft, hard, most = sys.argv[1], *map(int, sys.argv[2:])
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
found = {"error": ""}

def settled(most, seconds=20.0):
    # A connection that has just been made takes two more for a moment.
    deadline = time.monotonic() + seconds
    while (count := procfs.open_files(os.getpid())) > most and time.monotonic() < deadline:
        time.sleep(0.05)
    return count

def quiet(seconds=20.0):
    # As many as there are when none has come or gone for twenty looks.
    deadline, count, same = time.monotonic() + seconds, -1, 0
    while same < 20 and time.monotonic() < deadline:
        before, count = count, procfs.open_files(os.getpid())
        same = same + 1 if count == before else 0
        time.sleep(0.05)
    return count

with roq.connect(address) as connection:
    found["limit"] = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    publishers, subscribers = [], []
    publishers.append(connection.publisher("many"))
    subscribers.append(connection.subscriber("many"))
    before = quiet()
    while len(publishers) < 10:
        publishers.append(connection.publisher("many"))
    between = settled(before + 9 * 3)
    found["publisher"] = (between - before) / 9
    while len(subscribers) < 10:
        subscribers.append(connection.subscriber("many"))
    found["subscriber"] = (settled(between + 9 * 3) - between) / 9
    try:
        while len(subscribers) < most:
            subscribers.append(connection.subscriber("many"))
    except roq.RoQError as error:
        found["error"] = str(error)
    publishers[0].publish(b"still there").wait(30)
    found["received"] = [
        message is not None and message.payload == b"still there"
        for message in (subscribers[0].receive(30), subscribers[-1].receive(30))
    ]
    found["subscribers"] = len(subscribers)
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def running() -> Iterator[RunningCluster]:
    with cluster(registry="zookeeper", hosts=1) as made:
        with made.connect() as connection:
            connection.create_queue("many")
        yield made


def many(running: RunningCluster, soft: int, hard: int, most: int = 100) -> dict[str, object]:
    """What a process with these limits can make, with at most so many subscribers."""
    script = [sys.executable, "-c", MANY, running.address, str(soft), str(hard), str(most)]
    ended = subprocess.run(script, capture_output=True, text=True, timeout=150, check=False)
    assert ended.returncode == 0, ended.stderr
    found: dict[str, object] = json.loads(ended.stdout.splitlines()[-1])
    return found


def test_a_client_takes_the_descriptors_that_it_may(running: RunningCluster) -> None:
    found = many(running, 200, 4_096)
    assert found["limit"] == 4_096
    assert (found["subscribers"], found["error"]) == (100, "")
    assert found["received"] == [True, True]
    assert float(str(found["publisher"])) <= PUBLISHER_MOST
    assert float(str(found["subscriber"])) <= SUBSCRIBER_MOST


@pytest.mark.long
def test_three_hundred_subscribers_fit_into_the_limit_that_most_systems_set(
    running: RunningCluster,
) -> None:
    found = many(running, 1_024, 1_024, 300)
    assert (found["subscribers"], found["error"]) == (300, "")
    assert found["received"] == [True, True]


def test_a_client_that_has_no_descriptor_left_says_so_with_figures_and_keeps_what_it_has(
    running: RunningCluster,
) -> None:
    found = many(running, 200, 200)
    assert 10 <= int(str(found["subscribers"])) < 100
    assert "of 200 are open; raise the limit" in str(found["error"])
    assert found["received"] == [True, True]
