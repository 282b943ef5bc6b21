"""The sockets of an exchange; what it does with them is tested where others use it."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from contextlib import closing

import pytest
from exchange_driver import Exchange
from exchange_members import filled
from waiting import PATIENCE_SECONDS, eventually
from zmtp_bench import Raw, arrived

from roq.exchange.daemon import BURST, LIVE_BYTES_MAX, ExchangeServer
from roq.exchange.events import Send, Tell, Woken
from roq.model import TOPIC_BYTES_MAX, Limits
from roq.protocol import consuming, documents, zmtp
from roq.protocol.consuming import (
    CREDIT,
    DONE,
    JOIN,
    LEASED,
    Credit,
    Done,
    GroupSettings,
    Join,
    read_lease,
)
from roq.protocol.control import OrderTold
from roq.protocol.entry import ENTRY_BYTES
from roq.protocol.framing import split_answer
from roq.protocol.spec import ExchangeSpec
from roq.runtime.zmtp_server import Outcome

SPEC = ExchangeSpec(
    child="q.x1", queue="q", queue_id=b"q" * 16, epoch=5, bind="127.0.0.1",
    advertise="127.0.0.1", ports=(0, 0), manager="", monitor="", number=1, host="127.0.0.1",
    limits=Limits(),
)  # fmt: skip
TAG = b"tag1"


def test_what_a_turn_publishes_itself_is_handed_out_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """A delayed message that is due when something else is read: no timer looks for it any more."""
    server, published = ExchangeServer(SPEC), list[int]()
    monkeypatch.setattr(server.core.delayed, "run", lambda: published.append(1) or [])
    monkeypatch.setattr(server.core.consumers, "runnable", lambda: bool(published))
    try:
        server._data_readable()
        assert published == [1]
        assert server._readers._serving
    finally:
        server.close()


def test_the_end_of_a_connection_is_noticed_though_nothing_is_sent_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server, gone = ExchangeServer(SPEC), list[bytes]()
    monkeypatch.setattr(server.core.consumers, "gone", lambda route: gone.append(route) or stop())
    stop = server.reactor.stop
    with closing(server), socket.create_connection(address_of(server.data)) as member:
        member.sendall(zmtp.GREETING + zmtp.ready(b"DEALER"))
        member.shutdown(socket.SHUT_WR)
        server.reactor.run()
        assert len(gone) == 1


def test_what_a_member_had_done_counts_though_writing_to_it_fails_before_that_is_read() -> None:
    server = ExchangeServer(SPEC)
    filled(1, 1, there=Exchange(server.core, SPEC.limits))
    with closing(server):
        member = Raw(address_of(server.data)[1], b"DEALER")
        asked = Join(
            id=1, queue=SPEC.queue_id, group="g", member=b"m" * 16, name="m", attempt=1,
            settings=GroupSettings(),
        )  # fmt: skip
        member.say(JOIN + TAG, documents.encode(asked))
        heard(server, member, JOIN)
        member.say(CREDIT + TAG, consuming.encode(Credit(1, 1 << 20, 1)))
        number, *_ = read_lease(heard(server, member, LEASED)[1])
        ((route, connection),) = ((each.route, each.socket) for each in server._data.peers)
        (group,) = server.core.consumers.groups
        more = Credit(2, 1 << 20, 1)
        member.say(DONE + TAG, consuming.encode(Done(1, whole=[number], credit=more)))
        arrived(connection)
        member.reset()
        # A turn that says something to it before it reads.
        send, flush = server._data.send, server._data.flush
        eventually(lambda: send(route, b"") is not Outcome.SENT or flush())
        server._perform([Send(route, (CREDIT + TAG, b""))])
        assert len(server.core.consumers) == 1
        until(server, lambda: not len(server.core.consumers))
        assert (group.base, group.lapsed) == (1, 0)


def test_publishers_alone_are_asked_for_a_sign_of_life_each_half_second(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = ExchangeServer(SPEC)
    monkeypatch.setattr(server.core.links, "routes", {b"publisher": None})
    with closing(server):
        assert [server._data._is_calm(each) for each in (b"publisher", b"member")] == [False, True]


def test_what_waits_for_the_end_of_the_turn_makes_no_subscriber_slow(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What a durable exchange shows is still to be sent when it looks who is slow."""
    server, looks = ExchangeServer(SPEC), list[object]()
    monkeypatch.setattr(server._backlogs, "look", lambda waiting: looks.append(waiting) or [])
    with closing(server), socket.create_connection(address_of(server.live)) as subscriber:
        subscriber.sendall(zmtp.GREETING + zmtp.ready(b"SUB") + b"\x00\x01\x01")
        until(server, lambda: server.core.subscriptions.anybody)
        server._publish(b"topic", b"e" * ENTRY_BYTES, b"batch")
        assert any(peer.out for peer in server._live.peers)
        server._look_who_is_slow()
        assert looks == [{}]


def test_what_is_said_to_the_monitor_in_place_of_the_loop_leaves_in_the_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The loop looks at the socket of that while it sleeps; and acknowledgements wake nobody."""
    server, threads, in_place = ExchangeServer(SPEC), list[int](), list[int]()
    told = Tell(OrderTold(queue_id=b"q" * 16, asker=(1, 1), answers={}))
    me = threading.get_ident()
    monkeypatch.setattr(
        server.core, "take_answers", lambda: [told, Woken()] if server.reactor.here == me else []
    )
    monkeypatch.setattr(server, "_wake", lambda: threads.append(threading.get_ident()))

    def say(message: object) -> None:
        assert message is told.message
        threads.append(threading.get_ident())
        server.reactor.call_soon(server.reactor.stop)

    def settle() -> None:
        if server.reactor.here == me:
            server._settle()
            in_place.append(me)

    monkeypatch.setattr(server._monitor, "say", say)
    with closing(server):
        loop = threading.Thread(target=server.reactor.run)
        loop.start()
        eventually(lambda: in_place or server.reactor.call_here(settle))
        loop.join(30)
    assert threads == [loop.ident] * 2


def until(server: ExchangeServer, done: Callable[[], object]) -> None:
    """Run its loop until this holds."""

    deadline = time.monotonic() + PATIENCE_SECONDS

    def look() -> None:
        if done() or time.monotonic() > deadline:
            server.reactor.stop()
        else:
            timers.append(server.reactor.call_later(0.001, look))

    timers = [server.reactor.call_later(0, look)]
    server.reactor._stopping = False
    server.reactor.run()
    timers[-1].cancel()
    assert done()


def heard(server: ExchangeServer, member: Raw, letter: bytes) -> list[bytes]:
    """The parts of the message of this kind that it is sent next."""
    parts = list[list[bytes]]()
    until(
        server,
        lambda: (
            parts.extend(split_answer(frame, len(TAG)) for (frame,) in member.heard())
            or any(each[0][:2] == letter for each in parts)
        ),
    )
    return next(each for each in parts if each[0][:2] == letter)


def test_a_prefix_that_no_topic_has_is_none_of_a_subscriber() -> None:
    """Each length of one that is there costs each message."""
    longest = zmtp.command(b"SUBSCRIBE", b"x" * TOPIC_BYTES_MAX)
    assert len(longest) <= LIVE_BYTES_MAX <= 2 * len(longest)


def address_of(endpoint: str) -> tuple[str, int]:
    host, _, port = endpoint.removeprefix("tcp://").rpartition(":")
    return host, int(port)


def test_acknowledgements_leave_before_anything_else_is_done(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server, done = ExchangeServer(SPEC), list[str]()
    with closing(server):
        monkeypatch.setattr(server.core, "take_acks", lambda: done.append("acks") or [])
        monkeypatch.setattr(server._data, "flush", lambda: done.append("leave"))
        monkeypatch.setattr(server.core, "take_answers", lambda: done.append("answers") or [])
        server._settle()
        assert done == ["acks", "leave", "answers"]
        monkeypatch.undo()


def test_what_has_just_come_is_handed_out_before_anything_else_is_looked_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server, done = ExchangeServer(SPEC), list[str]()
    taken, read, runnable, again = [[object()]], [1], [True], list[float]()
    consumers, readers = server.core.consumers, server._readers

    def turn() -> list[str]:
        done.clear()
        server._data_readable()
        return done

    def deliver() -> None:
        done.append("handed out")
        runnable[0] = False

    with closing(server):
        monkeypatch.setattr(server, "_acknowledge", lambda: done.append("acks") or bool(taken))
        monkeypatch.setattr(server, "_read_burst", lambda _: read[0])
        monkeypatch.setattr(server._data, "flush", lambda: done.append("leave"))
        monkeypatch.setattr(server.core, "take_answers", lambda: done.append("answers") or [])
        monkeypatch.setattr(readers, "_deliver", deliver)
        monkeypatch.setattr(consumers, "runnable", lambda: runnable[0])
        monkeypatch.setattr(consumers, "next_deadline", lambda: again[0] if again else None)
        assert turn() == ["acks", "handed out", "leave", "answers"]
        assert not readers._serving
        runnable[0], read[0] = True, BURST
        assert turn() == ["acks", "answers"], "publishers keep the loop busy: in its turn"
        assert readers._serving
        read[0] = 1
        assert turn() == ["acks", "leave", "answers"], "others wait for a turn before it"
        readers._serving, runnable[0] = False, True
        again.append(1.0)
        assert turn() == ["acks", "handed out", "leave", "answers"]
        assert readers._serving, "its connection is full: that is tried again"
        readers._serving, runnable[0] = False, True
        taken.clear()
        assert turn() == ["acks", "answers"], "nothing has come"
        monkeypatch.undo()
