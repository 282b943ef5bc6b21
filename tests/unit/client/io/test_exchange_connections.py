"""Readers of one client share a connection to an exchange, and each gets what it has asked for."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator

import pytest
import zmq

from roq.client.io.exchange_connections import (
    FETCHES_AT_ONCE,
    ExchangeConnection,
    ExchangeConnections,
)
from roq.protocol import documents
from roq.protocol.channel import FETCH, HEADS, READERS_PER_CONNECTION_MAX, SEEK, HeadsRequest
from roq.runtime import sockets
from roq.runtime.reactor import Reactor
from roq.timing import FETCH_PATIENCE_SECONDS

SECONDS = 20.0


class Reader:
    """One that notes what it hears."""

    def __init__(self, scene: Scene) -> None:
        self.heard: list[str] = []
        self.answers: list[list[bytes]] = []
        self.signs = list[int]()
        """How much had been answered when something came."""
        self.connection: ExchangeConnection = scene.connections.open(
            scene.address,
            on_up=lambda: self.heard.append("up"),
            on_down=lambda: self.heard.append("down"),
            on_answers=self.answers.extend,
            on_heard=self._hear,
        )

    def _hear(self) -> None:
        self.signs.append(len(self.answers))


class Scene:
    """An exchange's data socket, whose side the test plays, and a client's connections to it."""

    def __init__(self) -> None:
        self.reactor = Reactor()
        self.context = sockets.new_context()
        self.server = sockets.router(self.context)
        self.port = sockets.bind_port(self.server, "127.0.0.1", 0)
        self.address = f"tcp://127.0.0.1:{self.port}"
        self.asked: list[list[bytes]] = []
        self.connections = ExchangeConnections(self.reactor, lambda: 0.0)

    def run_until(self, done: Callable[[], bool]) -> None:
        def look() -> None:
            while not self.server.closed and self.server.poll(0):
                self.asked.append(self.server.recv_multipart())
            if done():
                self.reactor.stop()
            else:
                self.reactor.call_later(0.005, look)

        self.reactor._stopping = False
        late = self.reactor.call_later(SECONDS, self.reactor.stop)
        self.reactor.call_soon(look)
        self.reactor.run()
        late.cancel()
        assert done()

    @property
    def routes(self) -> int:
        return len({frames[0] for frames in self.asked})

    def say(self, asked: list[bytes], body: bytes) -> None:
        self.server.send_multipart([asked[0], asked[1] + body])


@pytest.fixture
def scene() -> Iterator[Scene]:
    scene = Scene()
    yield scene
    scene.reactor.close()
    scene.context.destroy(linger=0)


def test_readers_share_one_connection_and_each_gets_its_own_answers(scene: Scene) -> None:
    first, second = Reader(scene), Reader(scene)
    scene.run_until(lambda: first.heard == second.heard == ["up"])
    third = Reader(scene)
    assert third.heard == []  # not before its owner knows its connection
    scene.run_until(lambda: third.heard == ["up"])
    readers = [first, second, third]
    for reader in readers:
        reader.connection.ask([SEEK, b"where"])
    scene.run_until(lambda: len(scene.asked) == 3)
    assert scene.routes == 1
    assert {frames[2] for frames in scene.asked} == {b"where"}
    assert len({frames[1] for frames in scene.asked}) == 3
    for number, asked in reversed(list(enumerate(scene.asked))):
        scene.say(asked, b"%d" % number)
    scene.run_until(lambda: all(reader.answers for reader in readers))
    assert [reader.answers for reader in readers] == [[[SEEK, b"%d" % n]] for n in range(3)]
    assert first.connection.heard_at == third.connection.heard_at


def test_heartbeats_are_heard_and_answers_before_that(scene: Scene) -> None:
    scene.server.setsockopt(zmq.HEARTBEAT_IVL, 20)
    sockets.bind_port(scene.server, "127.0.0.1", 0)  # what is set holds from here on
    endpoint = scene.server.getsockopt_string(zmq.LAST_ENDPOINT)
    scene.address = endpoint
    reader = Reader(scene)
    scene.run_until(lambda: len(reader.signs) > 2)
    assert reader.answers == []
    reader.connection.ask([SEEK, b"where"])
    scene.run_until(lambda: len(scene.asked) == 1)
    scene.say(scene.asked[0], b"there")
    scene.run_until(lambda: 1 in reader.signs)
    assert reader.signs == sorted(reader.signs)
    reader.connection.close([])


def test_what_comes_for_one_that_has_gone_is_dropped(scene: Scene) -> None:
    first, second = Reader(scene), Reader(scene)
    scene.run_until(lambda: first.heard == second.heard == ["up"])
    first.connection.ask([SEEK, b"first"])
    second.connection.ask([SEEK, b"second"])
    scene.run_until(lambda: len(scene.asked) == 2)
    first.connection.close([])
    first.connection.close([])
    for asked in scene.asked:
        scene.say(asked, b"there")
    scene.server.send_multipart([scene.asked[0][0], b"neither letter nor reader"])
    scene.run_until(lambda: bool(second.answers))
    assert (first.answers, second.answers) == ([], [[SEEK, b"there"]])


def test_all_hear_that_it_has_ended_and_that_there_is_another_one(scene: Scene) -> None:
    first, second = Reader(scene), Reader(scene)
    scene.run_until(lambda: first.heard == second.heard == ["up"])
    scene.server.close(0)
    scene.run_until(lambda: first.heard == second.heard == ["up", "down"])
    scene.server = sockets.router(scene.context)
    sockets.bind_port(scene.server, "127.0.0.1", scene.port)
    scene.run_until(lambda: first.heard == second.heard == ["up", "down", "up"])


def test_the_last_one_says_goodbye_and_closes_it(scene: Scene) -> None:
    first, second = Reader(scene), Reader(scene)
    scene.run_until(lambda: first.heard == second.heard == ["up"])
    first.connection.close([[SEEK, b"bye"]])
    second.connection.close([])
    scene.run_until(lambda: len(scene.asked) == 1)
    assert scene.asked[0][2] == b"bye"
    third = Reader(scene)
    scene.run_until(lambda: third.heard == ["up"])
    third.connection.ask([SEEK, b"where"])
    scene.run_until(lambda: len(scene.asked) == 2)
    assert scene.routes == 2


def test_a_connection_has_no_more_readers_than_an_exchange_serves(scene: Scene) -> None:
    readers = [Reader(scene) for _ in range(READERS_PER_CONNECTION_MAX + 1)]
    scene.run_until(lambda: all(reader.heard == ["up"] for reader in readers))
    for reader in readers:
        reader.connection.ask([SEEK, b"where"])
    scene.run_until(lambda: len(scene.asked) == len(readers))
    assert scene.routes == 2


def test_few_fetch_at_once_and_the_others_in_turn_while_questions_wait_for_nobody(
    scene: Scene,
) -> None:
    readers = [Reader(scene) for _ in range(FETCHES_AT_ONCE + 2)]
    scene.run_until(lambda: all(reader.heard == ["up"] for reader in readers))
    for number, reader in enumerate(readers):
        reader.connection.ask([FETCH, b"%d" % number])
    readers[-1].connection.ask([SEEK, b"where"])
    scene.run_until(lambda: len(scene.asked) == FETCHES_AT_ONCE + 1)
    assert [frames[2] for frames in scene.asked] == [
        *(b"%d" % number for number in range(FETCHES_AT_ONCE)),
        b"where",
    ]
    readers[1].connection.ask([FETCH, b"another of the same"])
    readers[-2].connection.ask([FETCH, b"not what it wanted before"])
    scene.say(scene.asked[0], b"that was all")
    scene.run_until(lambda: len(scene.asked) == FETCHES_AT_ONCE + 3)
    assert [frames[2] for frames in scene.asked[-2:]] == [
        b"another of the same",
        b"not what it wanted before",
    ]
    readers[1].connection.close([])
    scene.run_until(lambda: len(scene.asked) == FETCHES_AT_ONCE + 4)
    assert scene.asked[-1][2] == b"%d" % (FETCHES_AT_ONCE + 1)


def test_a_fetch_of_which_nothing_comes_does_not_hold_up_the_others_for_ever(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    readers = [Reader(scene) for _ in range(FETCHES_AT_ONCE + 1)]
    scene.run_until(lambda: all(reader.heard == ["up"] for reader in readers))
    for reader in readers:
        reader.connection.ask([FETCH, b"first"])
    now = scene.reactor.now() + FETCH_PATIENCE_SECONDS + 1
    with monkeypatch.context() as patched:
        patched.setattr(scene.reactor, "now", lambda: now)
        readers[-1].connection.ask([FETCH, b"again"])
    scene.run_until(lambda: len(scene.asked) == FETCHES_AT_ONCE + 1)
    assert scene.asked[-1][2] == b"again"


def test_a_probe_asks_for_nothing_and_not_too_often(scene: Scene) -> None:
    first, second = Reader(scene), Reader(scene)
    scene.run_until(lambda: first.heard == second.heard == ["up"])
    before = first.connection.heard_at
    first.connection.probe(b"q" * 16)
    second.connection.probe(b"q" * 16)
    first.connection.ask([SEEK, b"last"])
    scene.run_until(lambda: len(scene.asked) == 2)
    asked = documents.decode(scene.asked[0][2], HeadsRequest)
    assert (scene.asked[0][1][:2], asked.queue, asked.prefixes) == (HEADS, b"q" * 16, [])
    scene.say(scene.asked[0], b"document")
    scene.run_until(lambda: first.connection.heard_at > before)
    assert first.answers == second.answers == []


def test_where_no_socket_can_be_made_it_says_so_and_tries_again(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none_left(*_: object) -> None:
        raise OSError(errno.EMFILE, "too many open files")

    with monkeypatch.context() as patched:
        patched.setattr("roq.runtime.zmtp_client.socket.socket", none_left)
        reader = Reader(scene)
        assert reader.connection.trouble
        reader.connection.ask([SEEK, b"lost"])
    scene.run_until(lambda: reader.heard == ["up"])
    assert reader.connection.trouble == ""
    reader.connection.ask([SEEK, b"where"])
    scene.run_until(lambda: len(scene.asked) == 1)
    assert scene.asked[0][2] == b"where"
