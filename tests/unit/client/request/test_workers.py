"""Threads that are woken as they are needed: all of them for what waits, few for what is quick."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue

from roq.client.request.workers import Workers

Call = Callable[[], object]


def workers(count: int) -> Workers[Call]:
    made: Workers[Call] = Workers("test", lambda call: call())
    made.start(count)
    return made


def test_what_waits_runs_in_as_many_threads_as_there_are() -> None:
    threads = 8
    made, met = workers(threads), threading.Barrier(threads + 1)
    for _ in range(20):  # also when they have been idle, and are woken one by one
        made.put([lambda: met.wait(20)] * threads)
        met.wait(20)
    made.stop()


def test_nothing_is_left_lying_whoever_puts_it() -> None:
    made, done = workers(3), SimpleQueue[int]()
    putters, each = 4, 500

    def put() -> None:
        for number in range(each):
            made.put([lambda number=number: done.put(number)])

    threads = [threading.Thread(target=put) for _ in range(putters)]
    for thread in threads:
        thread.start()
    got = sorted(done.get(timeout=20) for _ in range(putters * each))
    assert got == sorted(list(range(each)) * putters)
    made.stop()


def test_what_is_due_is_done_before_the_threads_end() -> None:
    made, done, gate = workers(2), SimpleQueue[str](), threading.Event()
    made.put([lambda: gate.wait(20), lambda: gate.wait(20), lambda: done.put("last")])
    made.stop()
    gate.set()
    assert done.get(timeout=20) == "last"
    for thread in [each for each in threading.enumerate() if each.name.startswith("test-")]:
        thread.join(20)
        assert not thread.is_alive()
