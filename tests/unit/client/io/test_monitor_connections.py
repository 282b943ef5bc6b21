"""Sessions of one client share a connection to their monitor, and lose it together or alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from roq.client.io.monitor_connections import MonitorConnection, MonitorConnections
from roq.errors import Unavailable
from roq.protocol import documents
from roq.protocol.control import (
    Answer,
    Control,
    Done,
    HealthRequest,
    MonitorRequest,
    Relocate,
    Version,
)
from roq.runtime import sockets
from roq.runtime.reactor import Reactor
from roq.runtime.rpc import Peer, RpcServer

SECONDS = 20.0


class Session:
    """One that notes what it hears."""

    def __init__(self) -> None:
        self.pushed: list[Answer] = []
        self.lost: list[str] = []
        self.answers: list[Answer | Unavailable] = []


class Scene:
    """A monitor that answers, and a client's connections to it."""

    def __init__(self) -> None:
        self.reactor = Reactor()
        self.context = sockets.new_context()
        socket = sockets.router(self.context)
        port = sockets.bind_port(socket, "127.0.0.1", 0)
        self.address = f"tcp://127.0.0.1:{port}"
        self.asked: list[Peer] = []
        self.server = RpcServer(self.reactor, socket, self._serve)
        self.connections = MonitorConnections(self.reactor, self.context)

    def _serve(self, peer: Peer, data: bytes) -> None:
        request: MonitorRequest = documents.decode(data, MonitorRequest)  # type: ignore[arg-type]
        self.asked.append(peer)
        self.server.send(peer, documents.encode(Done(id=request.id)))

    def open(self, client: bytes = b"c") -> tuple[Session, MonitorConnection]:
        session = Session()
        opened = self.connections.open(
            self.address, client, session.pushed.append, session.lost.append
        )
        return session, opened

    def ask(self, session: Session, connection: MonitorConnection) -> None:
        connection.request(HealthRequest(), SECONDS, session.answers.append)

    def push(self, version: int = 1) -> None:
        """To each peer once."""
        for peer in dict.fromkeys(self.asked):
            self.say(peer, Version(queue_id=b"q", epoch=1, version=version))

    def say(self, peer: Peer, message: Control) -> None:
        self.server.send(peer, documents.encode(message))

    def run_until(self, done: Callable[[], bool]) -> None:
        def look() -> None:
            if done():
                self.reactor.stop()
            else:
                self.reactor.call_later(0.005, look)

        self.reactor._stopping = False
        late = self.reactor.call_later(SECONDS, self.reactor.stop)
        look()
        self.reactor.run()
        late.cancel()
        assert done()


@pytest.fixture
def scene() -> Iterator[Scene]:
    scene = Scene()
    yield scene
    scene.server.close()
    scene.context.destroy(linger=0)
    scene.reactor.close()


def test_sessions_with_one_monitor_are_one_peer_and_each_gets_its_own_answer(scene: Scene) -> None:
    (first, one), (second, two) = scene.open(), scene.open()
    scene.ask(first, one)
    scene.ask(second, two)
    scene.run_until(lambda: bool(first.answers and second.answers))
    assert len(first.answers) == len(second.answers) == 1
    assert len(set(scene.asked)) == 1
    scene.push()
    scene.run_until(lambda: bool(first.pushed and second.pushed))
    assert len(first.pushed) == len(second.pushed) == 1
    one.close()
    two.close()


def test_who_has_closed_hears_nothing_more_and_the_others_go_on(scene: Scene) -> None:
    (first, one), (second, two) = scene.open(), scene.open()
    scene.ask(first, one)
    scene.ask(second, two)
    one.close(200, given_up=False)
    one.close(200, given_up=False)
    scene.run_until(lambda: bool(second.answers))
    scene.push()
    scene.run_until(lambda: bool(second.pushed))
    assert (first.answers, first.pushed, first.lost) == ([], [], [])
    third, three = scene.open()
    scene.ask(third, three)
    scene.run_until(lambda: bool(third.answers))
    assert len(set(scene.asked)) == 1
    two.close()
    three.close()


def test_one_that_was_given_up_gets_no_further_sessions(scene: Scene) -> None:
    (first, one), (second, two) = scene.open(), scene.open()
    scene.ask(first, one)
    scene.ask(second, two)
    scene.run_until(lambda: bool(first.answers and second.answers))
    one.close()
    third, three = scene.open()
    scene.ask(third, three)
    scene.ask(second, two)
    scene.run_until(lambda: bool(third.answers) and len(second.answers) == 2)
    assert len(set(scene.asked)) == 2
    two.close()
    three.close()


def test_all_sessions_are_told_when_the_connection_ends_and_the_next_one_is_new(
    scene: Scene,
) -> None:
    (first, one), (second, two) = scene.open(), scene.open()
    scene.ask(first, one)
    scene.run_until(lambda: bool(first.answers))
    scene.server.close()
    scene.run_until(lambda: bool(first.lost and second.lost))
    assert len(first.lost) == len(second.lost) == 1
    third, three = scene.open()
    scene.run_until(lambda: bool(third.lost))
    assert (len(first.lost), len(second.lost)) == (1, 1)
    for each in (one, two, three):
        each.close()


def test_what_is_said_once_for_each_session_is_heard_once_by_each(scene: Scene) -> None:
    (first, one), (second, two) = scene.open(), scene.open()
    scene.ask(first, one)
    scene.run_until(lambda: bool(first.answers))
    scene.push(1)  # a monitor of the release before says it to each session
    scene.push(1)
    scene.push(2)
    scene.run_until(lambda: len(second.pushed) >= 2)
    assert [each.version for each in first.pushed if isinstance(each, Version)] == [1, 2]
    assert first.pushed == second.pushed
    one.close()
    two.close()


def test_a_relocation_reaches_its_publisher_alone(scene: Scene) -> None:
    (first, one), (second, two) = scene.open(b"1"), scene.open(b"2")
    scene.ask(first, one)
    scene.run_until(lambda: bool(first.answers))
    relocate = Relocate(queue_id=b"q", publisher=b"2", epoch=1, exchanges=[])
    scene.say(scene.asked[0], relocate)
    scene.say(scene.asked[0], relocate)  # it is repeated until it is obeyed
    scene.push()
    scene.run_until(lambda: bool(first.pushed))
    assert [type(each) for each in first.pushed] == [Version]
    assert second.pushed[:2] == [relocate, relocate]
    one.close()
    two.close()


def test_a_session_that_closes_the_others_at_a_push_is_not_followed_by_theirs(scene: Scene) -> None:
    second, two = scene.open()
    closing = scene.connections.open(
        scene.address, b"d", lambda _message: two.close(), lambda _reason: None
    )
    third, three = scene.open()
    scene.ask(third, three)
    scene.run_until(lambda: bool(third.answers))
    first = len(second.pushed)
    scene.push()
    scene.run_until(lambda: bool(third.pushed))
    scene.push(2)
    scene.run_until(lambda: len(third.pushed) == 2)
    assert len(second.pushed) == first + 1  # it came before the one that closed it
    closing.close()
    three.close()
