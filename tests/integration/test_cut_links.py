"""A client whose links are cut in the middle of a flood lives, and misses nothing.

libzmq 4.3.5 ends a process (`Assertion failed: !_more`) whose connection is lost between two frames
of a message; what an exchange sends has one.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from queue_processes import QueueProcesses

from roq.model import Limits

pytestmark = [pytest.mark.integration, pytest.mark.faults, pytest.mark.long]

CUTS = 10
FLOODED = """
import os, sys, threading
from roq.client.io.engine import Engine
from roq.client.publish.publisher import Publisher
from roq.client.subscribe.subscriber import Subscriber
from roq.model import ExchangeInfo
from roq.testing.faults import FaultyNetwork

control, name, data, live, cuts = sys.argv[1:]
network = FaultyNetwork()
info = ExchangeInfo(number=1, epoch=1, generation=1, host="h", data=data, live=live)
network.add(info, cut_every_seconds=0.3)
plain, cut = Engine(), Engine(translate=network.translate)
plain.start()
cut.start()
over = threading.Event()
sent = 0

def flood():
    global sent
    publisher = Publisher(plain, [control], name, publisher_id=os.urandom(16), linger=0)
    while not over.is_set():
        sent += 1
        publisher.publish(b"%d" % sent)
    publisher.flush(60)
    publisher.close()

subscriber = Subscriber(cut, [control], name, start="earliest")
thread = threading.Thread(target=flood)
thread.start()
got = 0
while not over.is_set() or got < sent or thread.is_alive():
    message = subscriber.receive(1.0)
    if message is not None:
        got += 1
        assert message.payload == b"%d" % got, (message.payload, got)
    if sum(relay.cuts for relay in network.relays) >= int(cuts):
        over.set()
thread.join()
subscriber.close()
plain.close()
cut.close()
network.close()
print(got == sent, got > 1000)
"""


def test_a_client_that_is_cut_off_in_a_flood_lives_and_misses_nothing(tmp_path: Path) -> None:
    limits = Limits(ring_bytes=256 * 1024 * 1024)
    with QueueProcesses(tmp_path, exchanges=1, limits=limits) as queue:
        exchange = queue.exchanges[0].info
        run = subprocess.run(
            [sys.executable, "-c", FLOODED, queue.control.address, queue.control.queue,
             exchange.data, exchange.live, str(CUTS)],
            capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
    assert (run.returncode, run.stdout.split()) == (0, ["True", "True"]), run.stderr[-3000:]
