"""What the model puts around the real machines behaves as it does in life."""

from __future__ import annotations

from typing import cast

import pytest
import zmq

from roq.coordination.registry_contract import SessionState
from roq.runtime import sockets
from roq.runtime.reactor import drain
from roq.simulation.virtual.ensemble import MACHINE, Ensemble
from roq.simulation.virtual.members import HANDSHAKE_SECONDS, Engine
from roq.simulation.virtual.process import Clocks, Process
from roq.simulation.virtual.sockets import SILENCE_SECONDS, Router, Sockets
from roq.simulation.virtual.wires import Wires
from roq.simulation.virtual.world import World

ADDRESS = "tcp://server:5000"


class Line:
    """A DEALER and a ROUTER, each in a process on a machine of its own."""

    def __init__(self) -> None:
        self.world = World(1)
        self.wires = Wires(self.world)
        self.heard: list[bytes] = []
        self.answered: list[bytes] = []
        self.client = self.process("client")
        self.server = self.process("server")
        self.serve()
        self.dealer = sockets.dealer(Sockets(self.client))
        self.client.add(self.dealer, self._readable)
        self.dealer.connect(ADDRESS)

    def process(self, machine: str) -> Process:
        return Process(self.world, self.wires, machine, machine, Clocks(self.world))

    def serve(self) -> None:
        self.router = Router(self.server)
        self.server.add(self.router, lambda: drain(self.router, self._asked))
        self.router.bind(ADDRESS)

    def _asked(self, frames: list[bytes]) -> None:
        self.heard.append(frames[1])
        sockets.send_to(self.router, [frames[0], b"re: " + frames[1]])

    def _readable(self) -> None:
        drain(self.dealer, lambda frames: self.answered.append(frames[0]))

    def say(self, text: bytes, seconds: float = 0.1) -> None:
        assert sockets.send_to(self.dealer, [text])
        self.world.run(seconds)


@pytest.fixture
def line() -> Line:
    return Line()


def test_questions_and_answers_take_their_way(line: Line) -> None:
    line.say(b"one")
    assert (line.heard, line.answered) == ([b"one"], [b"re: one"])


def test_what_was_said_to_nobody_waits_for_whoever_comes(line: Line) -> None:
    line.server.end("killed")
    line.world.run(0.1)
    line.say(b"early")
    assert line.heard == []
    line.server = line.process("server")
    line.serve()
    line.world.run(3.0)
    assert line.answered == [b"re: early"]


def test_a_process_that_stands_still_hears_it_later(line: Line) -> None:
    line.say(b"before")
    line.server.pause(1.0)
    line.say(b"meanwhile")
    assert line.heard == [b"before"]
    line.world.run(1.0)
    assert line.heard == [b"before", b"meanwhile"]


def test_one_that_stands_still_for_long_is_given_up_and_called_again(line: Line) -> None:
    line.say(b"before")
    line.server.pause(6.0)
    line.world.run(4.0)
    line.say(b"again", seconds=5.0)
    assert line.answered == [b"re: before", b"re: again"]


def test_a_cut_in_one_direction_holds_answers_and_a_short_one_loses_nothing(line: Line) -> None:
    line.say(b"before")
    line.wires.cut(["server"], ["client"], both=False)
    line.say(b"meanwhile", seconds=1.0)
    assert (line.heard[-1], line.answered[-1]) == (b"meanwhile", b"re: before")
    line.wires.mend()
    line.world.run(0.1)
    assert line.answered[-1] == b"re: meanwhile"


def test_a_machine_that_is_down_says_nothing_and_may_come_up_again(line: Line) -> None:
    line.say(b"before")
    line.wires.machine_down("server")
    line.server.end("its machine is down", silently=True)
    line.say(b"meanwhile", seconds=4.0)
    line.wires.machine_up("server")
    line.server = line.process("server")
    line.serve()
    line.say(b"after", seconds=5.0)
    assert line.answered[-1] == b"re: after"


def test_a_handler_that_raises_ends_its_process(line: Line) -> None:
    def fails() -> None:
        raise RuntimeError("on purpose")

    line.server.call_soon(fails)
    line.world.run(0.1)
    assert not line.server.alive
    assert "on purpose" in line.world.crashes[0]


def test_a_member_whose_connection_is_cut_while_it_is_made_gets_it_in_the_end(line: Line) -> None:
    told: list[str] = []
    lines = Engine(line.client, lambda: None)
    lines.open(
        ADDRESS, on_up=lambda: told.append("up"), on_down=lambda: told.append("down"),
        on_answers=lambda _: None,
    )  # fmt: skip
    line.world.run(HANDSHAKE_SECONDS / 2)
    line.wires.cut(["client"], ["server"], both=True)
    line.world.run(1.0)
    assert not told
    line.wires.mend()
    line.world.run(SILENCE_SECONDS)
    assert told == ["up"]


def test_a_socket_that_connects_once_tells_when_nobody_is_there(line: Line) -> None:
    dealer = sockets.dealer(Sockets(line.client))
    dealer.setsockopt(zmq.RECONNECT_IVL, -1)
    events = dealer.get_monitor_socket(zmq.EVENT_CLOSED)
    dealer.connect("tcp://server:5999")
    line.world.run(0.1)
    assert cast("int", events.getsockopt(zmq.EVENTS)) & zmq.POLLIN


def test_clocks_of_machines_differ(line: Line) -> None:
    fast = Process(line.world, line.wires, "p", "m", Clocks(line.world, rate=1.01))
    rang: list[float] = []
    fast.call_later(1.01, lambda: rang.append(line.world.now))
    began = line.world.now
    line.world.run(2.0)
    assert rang[0] - began == pytest.approx(1.0, abs=1e-3)


# --- ZooKeeper ------------------------------------------------------------------------------------


class Session:
    """A registry in a process, and what it is told about its session."""

    def __init__(self) -> None:
        self.world = World(1)
        self.wires = Wires(self.world)
        self.ensemble = Ensemble(self.world, self.wires, 3.0)
        self.process = Process(self.world, self.wires, "p", "machine", Clocks(self.world))
        self.told: list[SessionState] = []
        self.registry = self.ensemble.registry(self.process)
        self.registry.start(self.told.append)
        self.world.run(0.5)
        (self.store,) = self.ensemble.stores
        self.first = self.store.session


CONNECTED, SUSPENDED, LOST = SessionState.CONNECTED, SessionState.SUSPENDED, SessionState.LOST


def test_a_session_outlives_a_short_cut() -> None:
    session = Session()
    session.wires.cut([MACHINE], ["machine"], both=True)
    session.world.run(2.6)
    session.wires.mend()
    session.world.run(1.0)
    assert session.told == [CONNECTED, SUSPENDED, CONNECTED]
    assert session.store.session == session.first


def test_a_session_that_was_silent_for_too_long_is_over() -> None:
    session = Session()
    session.process.pause(5.0)
    session.world.run(7.0)
    assert session.told == [CONNECTED, SUSPENDED, LOST, CONNECTED]
    assert session.store.session != session.first


def test_sessions_live_on_while_the_ensemble_is_away_and_not_when_it_comes_back_empty() -> None:
    session = Session()
    session.ensemble.go_away()
    session.world.run(10.0)
    session.ensemble.come_back()
    session.world.run(1.0)
    assert session.told == [CONNECTED, SUSPENDED, CONNECTED]
    session.ensemble.go_away()
    session.world.run(1.0)
    session.ensemble.come_back(empty=True)
    session.world.run(1.0)
    assert session.told[3:] == [SUSPENDED, LOST, CONNECTED]


def test_the_session_of_a_process_that_was_killed_ends_when_its_time_is_over() -> None:
    session = Session()
    session.process.end("killed")
    session.world.run(2.0)
    assert session.ensemble.lives(session.first)
    session.world.run(2.0)
    assert not session.ensemble.lives(session.first)
