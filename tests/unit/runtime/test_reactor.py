import os
import signal
import socket
import threading
import time

import pytest

from roq.errors import LocalProtocolError
from roq.runtime import sockets
from roq.runtime.reactor import Reactor, drain


@pytest.fixture
def reactor():
    reactor = Reactor()
    yield reactor
    reactor.close()


def test_calls_from_another_thread_run_in_order_in_the_loop(reactor: Reactor) -> None:
    seen: list[int] = []

    def send() -> None:
        for number in range(1_000):
            reactor.call_soon(lambda n=number: seen.append(n))
        reactor.call_soon(reactor.stop)

    thread = threading.Thread(target=send)
    thread.start()
    reactor.run()
    thread.join()
    assert seen == list(range(1_000))


def test_a_call_wakes_a_loop_that_has_nothing_to_do(reactor: Reactor) -> None:
    for _ in range(50):
        thread = threading.Thread(target=lambda: reactor.call_soon(reactor.stop))
        thread.start()
        reactor.run()
        thread.join()
        reactor._stopping = False


def test_what_is_called_here_runs_in_this_thread_while_the_loop_sleeps(reactor: Reactor) -> None:
    ran: list[tuple[int, bool]] = []
    loop = threading.Thread(target=reactor.run)
    loop.start()
    while not reactor._asleep:
        continue

    def run() -> None:
        ran.append((threading.get_ident(), reactor._asleep))
        reactor.call_later(0.001, reactor.stop)  # the loop hears of that, too

    while not ran:  # it may be about to sleep
        reactor.call_here(run) if not reactor._turn.locked() else None
    loop.join(5)
    assert not loop.is_alive()
    assert ran == [(threading.get_ident(), True)]


@pytest.mark.parametrize("writes", [False, True])
def test_what_is_called_here_may_add_what_is_to_be_looked_at(
    reactor: Reactor, writes: bool
) -> None:
    near, far = socket.socketpair()
    far.send(b"x")
    add = reactor.add_writer if writes else reactor.add
    loop = threading.Thread(target=reactor.run, daemon=True)
    loop.start()
    while not reactor._asleep or reactor._turn.locked():
        continue
    reactor.call_here(lambda: add(near.fileno(), reactor.stop))
    loop.join(5)
    assert not loop.is_alive()
    near.close()
    far.close()


def test_what_is_called_here_runs_in_the_loop_while_that_is_awake(reactor: Reactor) -> None:
    ran: list[int] = []

    def busy() -> None:
        here = lambda: reactor.call_here(lambda: ran.append(threading.get_ident()))  # noqa: E731
        other = threading.Thread(target=here)
        other.start()
        other.join()
        assert not ran
        reactor.call_soon(reactor.stop)

    reactor.call_soon(busy)
    reactor.run()
    assert ran == [threading.get_ident()]


def test_what_was_to_be_called_before_runs_before_what_is_called_here(reactor: Reactor) -> None:
    ran: list[str] = []
    reactor._asleep = True  # and is about to wake up
    reactor.call_soon(lambda: ran.append("before"))
    reactor.call_here(lambda: ran.append("here"))
    assert not ran
    reactor.call_soon(reactor.stop)
    reactor.run()
    assert ran == ["before", "here"]


def test_nothing_is_called_here_when_the_loop_has_woken_up_meanwhile(reactor: Reactor) -> None:
    class Late:
        """The turn of a loop that has just woken up, or ended, and given it back."""

        def acquire(self, *, blocking: bool) -> bool:
            assert not blocking
            reactor._asleep = False
            return True

        def release(self) -> None:
            returned.append("the turn")

    ran, returned = list[str](), list[str]()
    turn, reactor._turn, reactor._asleep = reactor._turn, Late(), True  # type: ignore[assignment]
    reactor.call_here(lambda: ran.append("here"))
    assert (ran, returned) == ([], ["the turn"])
    reactor._turn = turn
    reactor.call_soon(reactor.stop)
    reactor.run()
    assert ran == ["here"]


def test_what_is_called_here_wakes_the_loop_at_its_end(
    reactor: Reactor, monkeypatch: pytest.MonkeyPatch
) -> None:
    happened: list[str] = []
    monkeypatch.setattr(reactor, "_wake", lambda: happened.append("woken"))
    reactor._asleep = True

    def run() -> None:
        reactor.call_soon(lambda: None)
        reactor.call_later(1.0, lambda: None)
        happened.append("run")

    reactor.call_here(lambda: happened.append("alone"))
    reactor.call_here(run)
    assert happened == ["alone", "run", "woken"]
    reactor._asleep = False
    assert reactor.take_longest_turn() > 0


def test_a_signal_that_ends_a_loop_leaves_the_turn_to_who_runs_something_in_its_place(
    reactor: Reactor,
) -> None:
    """As Ctrl-C does where no handler makes it a call in the loop."""
    entered, failed = threading.Event(), list[BaseException]()
    main = threading.get_ident()

    def run() -> None:
        reactor.call_soon(lambda: None)
        reactor._wake()
        entered.set()
        while reactor._asleep:  # until it waits for its turn, or is about to
            continue
        signal.pthread_kill(main, signal.SIGINT)
        assert ended.wait(30)

    def call_here() -> None:
        try:
            while not entered.is_set():
                if reactor._asleep and not reactor._turn.locked():
                    reactor.call_here(run)
        except BaseException as error:  # noqa: BLE001 - told
            failed.append(error)

    ended = threading.Event()
    other = threading.Thread(target=call_here)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        other.start()
        with pytest.raises(KeyboardInterrupt):
            reactor.run()
    finally:
        signal.signal(signal.SIGINT, before)
        ended.set()
        other.join(30)
    assert not failed
    assert not reactor._turn.locked()


def test_a_loop_that_is_woken_has_its_turn_before_who_calls_here_again(reactor: Reactor) -> None:
    seen: list[bool] = []
    loop = threading.Thread(target=reactor.run)
    loop.start()

    def run() -> None:
        reactor.stop()
        limit = time.monotonic() + 10
        while reactor._asleep and time.monotonic() < limit:
            continue
        seen.append(reactor._asleep)

    while not seen:  # it may be about to sleep
        reactor.call_here(run) if reactor._asleep and not reactor._turn.locked() else None
    loop.join(20)
    assert seen == [False]


def test_what_is_called_here_and_fails_ends_the_loop_as_any_handler(reactor: Reactor) -> None:
    def fail() -> None:
        raise LocalProtocolError("it")

    def here() -> None:
        while not reactor._asleep or reactor._turn.locked():
            continue
        reactor.call_here(fail)

    other = threading.Thread(target=here)
    other.start()
    with pytest.raises(LocalProtocolError, match="it"):
        reactor.run()
    other.join()


def test_what_a_call_calls_runs_before_the_system_is_asked_again(
    reactor: Reactor, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    ask = reactor._poll
    monkeypatch.setattr(reactor, "_poll", lambda: (seen.append("asked"), ask())[1])

    def first() -> None:
        seen.append("first")
        reactor.call_soon(lambda: (seen.append("second"), reactor.stop()))

    reactor.call_soon(first)
    reactor.run()
    assert seen[:2] == ["first", "second"]


def test_timers_run_in_order_of_time_and_a_cancelled_one_not_at_all(reactor: Reactor) -> None:
    seen: list[str] = []
    now = reactor.now()
    reactor.call_at(now + 0.02, lambda: seen.append("second"))
    reactor.call_at(now + 0.01, lambda: seen.append("first"))
    reactor.call_at(now + 0.015, lambda: seen.append("never")).cancel()
    reactor.call_at(now + 0.03, reactor.stop)
    reactor.run()
    assert seen == ["first", "second"]


def test_a_source_is_served_until_it_is_empty_even_if_the_handler_takes_one_byte(
    reactor: Reactor,
) -> None:
    read, write = os.pipe()
    os.write(write, b"abc")
    got: list[bytes] = []

    def readable() -> None:
        got.append(os.read(read, 1))
        if len(got) == 3:
            reactor.stop()

    reactor.add(read, readable)
    reactor.run()
    os.close(read)
    os.close(write)
    assert b"".join(got) == b"abc"


def test_messages_left_in_a_socket_are_delivered_in_the_next_turn(reactor: Reactor) -> None:
    context = sockets.new_context()
    server = sockets.router(context)
    port = sockets.bind_port(server, "127.0.0.1", 0)
    client = sockets.dealer(context)
    client.connect(f"tcp://127.0.0.1:{port}")
    for number in range(500):
        client.send(str(number).encode())
    got: list[bytes] = []

    def received(frames: list[bytes]) -> None:
        got.append(frames[-1])
        if len(got) == 500:
            reactor.stop()

    reactor.add(server, lambda: drain(server, received, most=7))
    reactor.run()
    reactor.remove(server)
    client.close()
    server.close()
    context.term()
    assert got == [str(number).encode() for number in range(500)]


def test_a_wake_up_that_another_handler_has_swallowed_is_not_lost(reactor: Reactor) -> None:
    """A descriptor of ZeroMQ is silent about what had come when its socket was used last."""
    context = sockets.new_context()
    server = sockets.router(context)
    port = sockets.bind_port(server, "127.0.0.1", 0)
    client = sockets.dealer(context)
    client.connect(f"tcp://127.0.0.1:{port}")
    client.send(b"to know the way back")
    assert server.poll(10_000)
    route = server.recv_multipart()[0]
    read, write = os.pipe()
    got: list[bytes] = []

    def use_the_socket() -> None:
        os.read(read, 1)
        client.send(b"there")
        assert server.poll(10_000)  # it has come, and the descriptor will not say so again
        sockets.send_to(server, [route, b"back"])

    def received() -> None:
        got.append(server.recv_multipart()[-1])
        reactor.stop()

    reactor.add(read, use_the_socket)
    reactor.add(server, received)
    os.write(write, b"x")
    reactor.run()
    reactor.remove(server)
    client.close()
    server.close()
    context.term()
    os.close(read)
    os.close(write)
    assert got == [b"there"]


def test_a_socket_that_is_never_empty_does_not_starve_a_descriptor(reactor: Reactor) -> None:
    context = sockets.new_context()
    server = sockets.router(context)
    port = sockets.bind_port(server, "127.0.0.1", 0)
    client = sockets.dealer(context)
    client.connect(f"tcp://127.0.0.1:{port}")
    client.send(b"never taken")
    assert server.poll(10_000)
    read, write = os.pipe()
    os.write(write, b"x")
    reactor.add(server, lambda: None)
    reactor.add(read, reactor.stop)
    reactor.run()
    reactor.remove(server)
    client.close()
    server.close()
    context.term()
    os.close(read)
    os.close(write)


def test_an_exception_of_a_handler_leaves_the_loop(reactor: Reactor) -> None:
    def fail() -> None:
        raise ValueError("a bug")

    reactor.call_soon(fail)
    with pytest.raises(ValueError, match="a bug"):
        reactor.run()


def test_a_source_has_one_handler(reactor: Reactor) -> None:
    read, write = os.pipe()
    reactor.add(read, lambda: None)
    with pytest.raises(LocalProtocolError):
        reactor.add(read, lambda: None)
    reactor.remove(read)
    reactor.remove(read)
    os.close(read)
    os.close(write)


def test_a_call_that_calls_soon_again_does_not_starve_the_sources(reactor: Reactor) -> None:
    read, write = os.pipe()
    os.write(write, b"x")

    def again() -> None:
        reactor.call_soon(again)

    reactor.call_soon(again)
    reactor.add(read, reactor.stop)
    reactor.run()
    os.close(read)
    os.close(write)


def test_closing_twice_and_calling_after_it_is_harmless() -> None:
    reactor = Reactor()
    reactor.close()
    reactor.close()
    reactor.stop()
    reactor.call_soon(lambda: None)


def test_a_timer_that_is_always_due_does_not_starve_the_loop() -> None:
    reactor = Reactor()
    calls = 0

    def again() -> None:
        nonlocal calls
        calls += 1
        reactor.call_at(reactor.now() - 1.0, again)
        if calls == 3:
            reactor.stop()

    reactor.call_soon(again)
    reactor.run()
    reactor.close()
    assert calls == 3


def test_the_longest_turn_is_told_once(reactor: Reactor) -> None:
    reactor.call_soon(lambda: threading.Event().wait(0.02))
    reactor.call_later(0.03, reactor.stop)
    reactor.run()
    assert reactor.take_longest_turn() >= 0.02
    assert reactor.take_longest_turn() == 0.0


@pytest.mark.timeout(20)
def test_a_signal_that_arrives_while_another_one_wakes_the_loop_is_heard_as_well(
    reactor: Reactor, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    write = os.write
    reactor._asleep = True  # as in the middle of a poll, where signal handlers run

    def interrupted(descriptor: int, data: bytes) -> int:
        monkeypatch.setattr(os, "write", write)
        reactor.call_soon(lambda: seen.append("second"))  # what the second handler does
        return write(descriptor, data)

    monkeypatch.setattr(os, "write", interrupted)
    reactor.call_soon(lambda: seen.append("first"))
    reactor._asleep = False
    reactor.call_soon(reactor.stop)
    reactor.run()
    assert sorted(seen) == ["first", "second"]


def test_what_another_thread_has_told_is_done_before_the_loop_lets_it_go_on(
    reactor: Reactor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever reads gives the interpreter to the thread that waits for it."""
    seen: list[str] = []
    read = os.read

    def reads(fd: int, size: int) -> bytes:
        seen.append("read")
        return read(fd, size)

    def told() -> None:
        seen.append("told")
        reactor.stop()

    # The loop is woken before it has begun to wait: as another thread would while it does.
    monkeypatch.setattr(os, "read", reads)
    reactor._wake()
    reactor.call_soon(lambda: reactor._calls.append(told))
    reactor.run()
    assert seen == ["told", "read"]
