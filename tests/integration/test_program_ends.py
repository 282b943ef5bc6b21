"""Programs that end without `close`: what they have published arrives, and they are told."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from queue_processes import QueueProcesses

from roq.client.io.engine import Engine
from roq.client.subscribe.subscriber import Subscriber

pytestmark = pytest.mark.integration

MESSAGES = 400
HEAD = """
import asyncio, os, sys, threading
import roq, roq.aio
from roq.client.io.engine import Engine
from roq.client.publish.publisher import Publisher

address, queue = sys.argv[1:]
engine = Engine()
engine.start()

def publisher(**options):
    return Publisher(
        engine, [address], queue, publisher_id=os.urandom(16), connect_timeout=30.0,
        linger=60.0, **options,
    )

def publish(count):
    # The first one leaves at once; without its acknowledgement the others wait for a full batch.
    for number in range(count):
        pub.publish(b"%d" % number)

pub = publisher()
"""


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[QueueProcesses]:
    with QueueProcesses(tmp_path, exchanges=1) as processes:
        yield processes


def run(
    processes: QueueProcesses, text: str, *options: str, code: int = 0
) -> subprocess.CompletedProcess[str]:
    control = processes.control
    done = subprocess.run(
        [sys.executable, *options, "-c", HEAD + text, control.address, control.queue],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == code, done.stderr
    return done


def arrived(processes: QueueProcesses, count: int) -> int:
    """How many messages the queue has, as soon as it has this many."""
    engine, control = Engine(), processes.control
    engine.start()
    try:
        with Subscriber(
            engine, [control.address], control.queue, start="earliest", timeout=30.0
        ) as subscriber:
            found = 0
            while found < count and subscriber.receive(20) is not None:
                found += 1
            while subscriber.receive(0.5) is not None:
                found += 1
            return found
    finally:
        engine.close()


@pytest.mark.parametrize(
    ("end", "code"),
    [("", 0), ("sys.exit(3)", 3), ("raise KeyError('the program fails')", 1)],
    ids=["returns", "exits", "raises"],
)
def test_what_was_published_arrives_however_the_program_ends(
    processes: QueueProcesses, end: str, code: int
) -> None:
    done = run(processes, f"publish({MESSAGES})\n{end}\n", code=code)
    assert "not acknowledged" not in done.stderr
    assert "ResourceWarning" not in done.stderr, "that one is for those who ask for it"
    assert arrived(processes, MESSAGES) == MESSAGES


def test_threads_of_a_program_may_have_published_it(processes: QueueProcesses) -> None:
    run(
        processes,
        f"""
for daemon in (True, False):
    thread = threading.Thread(target=publish, args=({MESSAGES},), daemon=daemon)
    thread.start()
    if daemon:
        thread.join()
""",
    )
    assert arrived(processes, 2 * MESSAGES) == 2 * MESSAGES


def test_an_event_loop_may_have_published_it(processes: QueueProcesses) -> None:
    run(
        processes,
        f"""
from roq.aio.publisher import Publisher as AioPublisher, Receipt

async def main():
    global pub
    pub = AioPublisher(publisher(block=False, receipt=Receipt))
    publish({MESSAGES})

asyncio.run(main())
""",
    )
    assert arrived(processes, MESSAGES) == MESSAGES


def test_a_forked_child_leaves_to_its_parent_what_is_its_parents(
    processes: QueueProcesses,
) -> None:
    done = run(
        processes,
        f"""
publish({MESSAGES})
child = os.fork()
if not child:
    sys.exit(0)  # in order, with everything that Python does then
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
""",
        "-W", "always::ResourceWarning",
    )  # fmt: skip
    assert done.stderr.count("unclosed") == 1
    assert arrived(processes, MESSAGES) == MESSAGES


def test_a_worker_process_flushes_its_own(processes: QueueProcesses) -> None:
    run(
        processes,
        f"""
def work():
    global engine, pub
    engine = Engine()
    engine.start()
    pub = publisher()
    publish({MESSAGES})

import multiprocessing
worker = multiprocessing.get_context("fork").Process(target=work)
worker.start()
worker.join()
assert worker.exitcode == 0
""",
    )
    assert arrived(processes, MESSAGES) == MESSAGES


def test_what_was_left_open_is_named_to_those_who_ask(processes: QueueProcesses) -> None:
    done = run(processes, "publish(1)\n", "-W", "always::ResourceWarning")
    assert "ResourceWarning: unclosed <" in done.stderr
    done = run(processes, "publish(1)\npub.close()\n", "-W", "always::ResourceWarning")
    assert "unclosed" not in done.stderr


def test_what_nobody_acknowledges_is_counted_in_one_line_and_waited_for_two_seconds(
    processes: QueueProcesses,
) -> None:
    began = time.monotonic()
    done = run(
        processes,
        f"""
import signal
pub.publish(b"first").wait(30)
os.kill({processes.exchanges[0].pid}, signal.SIGSTOP)
while open("/proc/{processes.exchanges[0].pid}/stat").read().rpartition(")")[2].split()[0] != "T":
    os.sched_yield()
publish({MESSAGES})
print("published", flush=True)
import time
began = time.monotonic()
import atexit
from roq.client.io import at_exit as farewell
atexit.unregister(farewell.part)
farewell.part()
print(time.monotonic() - began)
""",
    )
    processes.exchanges[0].resume()
    assert time.monotonic() - began < 50
    assert 1.5 < float(done.stdout.split()[-1]) < 20.0
    lines = [line for line in done.stderr.splitlines() if line.startswith("roq:")]
    queue = processes.control.queue
    assert len(lines) == 1
    told = f"{MESSAGES} messages not acknowledged when the program ended ({queue}: {MESSAGES})"
    assert told in lines[0]
