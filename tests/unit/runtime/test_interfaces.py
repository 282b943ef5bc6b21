"""What a loop does by itself, and that what shells are given is what they ask for."""

import pytest
import zmq
from contracts import broken

from roq.runtime.interfaces import BEAT_SECONDS, Call, Dialer, Loop, Socket, Source, Timer
from roq.runtime.reactor import Reactor


class PaperLoop(Loop):
    def __init__(self, now: float = 100.0) -> None:
        self.time = now

    def now(self) -> float:
        return self.time

    def add(self, source: Source, handler: Call) -> None: ...

    def remove(self, source: Source) -> None: ...

    def call_soon(self, function: Call) -> None: ...

    def call_at(self, when: float, function: Call) -> Timer:
        return Timer(when, function)


def nothing() -> None: ...


def test_a_timer_that_is_taken_back_calls_nobody() -> None:
    timer = Timer(1.0, nothing)
    assert (timer.when, timer.call) == (1.0, nothing)
    timer.cancel()
    timer.cancel()
    assert timer.call is None


def test_what_is_to_be_called_later_is_called_at_that_time() -> None:
    assert PaperLoop().call_later(0.3, nothing).when == 100.3


def test_what_need_not_be_on_time_rings_together() -> None:
    loop = PaperLoop()
    for seconds, when in ((0.99, 101.0), (1.05, 101.0), (1.07, 101.125), (0.0, 100.0)):
        assert loop.call_about(seconds, nothing).when == when


def test_processes_of_a_machine_do_not_ring_at_the_same_time() -> None:
    loop = PaperLoop()
    loop.phase = 0.01
    assert loop.call_about(1.0, nothing).when == pytest.approx(101.01)
    assert loop.beat_after(102.0) == pytest.approx(102.01)


def test_a_time_that_is_far_away_waits_for_its_beat_and_never_comes_before_it() -> None:
    loop = PaperLoop()
    for when, beat in ((102.0, 102.0), (102.01, 102.125), (102.13, 102.25), (100.5, 100.5)):
        assert loop.beat_after(when) == beat


def test_a_time_that_is_near_is_kept() -> None:
    near = 100.0 + 4 * BEAT_SECONDS - 0.01
    assert PaperLoop().beat_after(near) == near
    assert PaperLoop().beat_after(99.0) == 99.0


def test_nobody_is_a_loop_who_cannot_do_all_of_it() -> None:
    for name in ("now", "add", "remove", "call_soon", "call_at"):
        kind = type("Half", (PaperLoop,), {name: getattr(Loop, name)})
        with pytest.raises(TypeError, match=name):
            kind()


def test_the_reactor_is_a_loop() -> None:
    assert broken(Loop, Reactor) == []


def test_a_context_makes_sockets_that_are_used_as_shells_do() -> None:
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    dialer: Dialer[zmq.Socket[bytes]] = context
    socket: Socket = dialer.socket(zmq.DEALER)
    try:
        socket.setsockopt(zmq.LINGER, 0)
        assert socket.getsockopt(zmq.LINGER) == 0
        monitor = socket.get_monitor_socket(zmq.EVENT_CONNECTED)
        socket.connect("inproc://nobody")
        assert socket.fileno() != monitor.fileno()
        for each in (socket, monitor):
            with pytest.raises(zmq.Again):
                each.recv_multipart(zmq.NOBLOCK)
        socket.disable_monitor()
        monitor.close(0)
        assert (monitor.closed, socket.closed) == (True, False)
    finally:
        context.destroy(linger=0)
