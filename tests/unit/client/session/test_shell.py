"""The shell of a session performs what its machine wants, in order, and tells its owner."""

from __future__ import annotations

import errno
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
import zmq

from roq.client.session.events import SessionState
from roq.client.session.machine import GOODBYE_MS
from roq.client.session.shell import MonitorSession
from roq.errors import Unavailable
from roq.model import ExchangeInfo, Limits
from roq.protocol.control import (
    Alive,
    Assigned,
    Attach,
    Join,
    Leave,
    Located,
    LocateRequest,
    Relocate,
    Topology,
)
from roq.runtime.rpc_connections import NotReached
from roq.timing import CLIENT_ALIVE_SECONDS

ID, CLIENT = b"q" * 16, b"c" * 16
X1 = ExchangeInfo(number=1, epoch=1, generation=1, host="h", data="tcp://h:1", live="tcp://h:2")
LOCATED = Located(QName="q", queue_id=ID, monitor="tcp://m:1", statistics="", limits=Limits())
ASSIGNED = Assigned(exchange=X1, epoch=1, limits=Limits())
TOPOLOGY = Topology(queue_id=ID, epoch=1, version=1, exchanges=[X1], state="running")


class PaperTimer:
    def __init__(self, when: float, call: Callable[[], None]) -> None:
        self.when, self.call, self.cancelled = when, call, False

    def cancel(self) -> None:
        self.cancelled = True


class PaperMonitor:
    """A connection to a monitor."""

    def __init__(self, address: str, pushed: Any, lost: Any) -> None:
        self.address, self.pushed, self.lost = address, pushed, lost
        self.asked: list[tuple[Any, Any]] = []
        self.told: list[Any] = []
        self.closed: list[tuple[int, bool]] = []
        self.read = lambda: self.told.append("read")

    def request(self, message: Any, _seconds: float, answered: Any) -> None:
        self.asked.append((message, answered))

    def send(self, message: Any) -> None:
        self.told.append(message)

    def close(self, linger_ms: int, *, given_up: bool) -> None:
        self.closed.append((linger_ms, given_up))


class PaperEngine:
    """The I/O thread of a client, in the thread of the test."""

    def __init__(self) -> None:
        self.now = 100.0
        self.inside = True
        self.asked: list[tuple[str, Any, Any]] = []
        self.opened: list[PaperMonitor] = []
        self.timers: list[PaperTimer] = []
        self.soon: list[Callable[[], None]] = []
        self.waited = 0
        self.no_socket = False
        self.managers = SimpleNamespace(ask=self._ask)
        self.monitors = SimpleNamespace(open=self._open)
        self.reactor = SimpleNamespace(
            now=lambda: self.now, call_at=self._call_at, call_soon=self.soon.append
        )

    def jitter(self) -> float:
        return 0.0

    def translate(self, address: str) -> str:
        return f"{address}/t"

    def call_soon(self, function: Callable[[], None]) -> None:
        self.soon.append(function)

    def run_sync(self, function: Callable[[], None]) -> None:
        self.waited += 1
        function()

    def turn(self) -> None:
        while self.soon:
            self.soon.pop(0)()

    def _ask(self, address: str, request: Any, _seconds: float, answered: Any) -> None:
        self.asked.append((address, request, answered))

    def _open(self, address: str, _client: bytes, pushed: Any, lost: Any) -> PaperMonitor:
        if self.no_socket:
            raise zmq.ZMQError(errno.EMFILE)
        self.opened.append(PaperMonitor(address, pushed, lost))
        return self.opened[-1]

    def _call_at(self, when: float, call: Callable[[], None]) -> PaperTimer:
        self.timers.append(PaperTimer(when, call))
        return self.timers[-1]


class Scene:
    """A session that has begun."""

    def __init__(self, role: str = "publisher", **more: Any) -> None:
        self.engine = PaperEngine()
        self.said: list[Any] = []
        self.session = MonitorSession(
            cast("Any", self.engine), ["tcp://a:1"], "q", client_id=CLIENT, role=role,
            on_state=lambda state, reason: self.said.append(state), **more,
        )  # fmt: skip
        self.session.start()
        self.engine.turn()

    @property
    def monitor(self) -> PaperMonitor:
        return self.engine.opened[-1]

    def locate(self) -> None:
        self.engine.asked[-1][2](LOCATED)

    def attach(self) -> Scene:
        self.locate()
        self.monitor.asked[-1][1](ASSIGNED)
        return self


def test_it_asks_a_manager_and_then_the_monitor_by_translated_addresses() -> None:
    scene = Scene(name="till")
    ((address, request, _),) = scene.engine.asked
    assert (address, request) == ("tcp://a:1/t", LocateRequest(QName="q"))
    scene.locate()
    assert scene.monitor.address == "tcp://m:1/t"
    assert (scene.session.queue_id, scene.session.limits) == (ID, Limits())
    ((attach, _),) = scene.monitor.asked
    assert isinstance(attach, Attach)
    assert attach.name == "till"


def test_owners_are_told_of_exchanges_moves_and_states() -> None:
    told: list[Any] = []
    more = {f"on_{name}": told.append for name in ("assigned", "relocate", "topology")}
    scene = Scene(**more).attach()
    relocate = Relocate(queue_id=ID, publisher=CLIENT, epoch=2, exchanges=[X1])
    for message in (relocate, TOPOLOGY):
        scene.monitor.pushed(message)
    assert told == [ASSIGNED, relocate, TOPOLOGY]
    assert scene.said == [SessionState.ACTIVE]
    assert scene.session.state is SessionState.ACTIVE


def test_an_owner_that_wants_to_hear_nothing_is_told_nothing() -> None:
    scene = Scene().attach()
    scene.monitor.pushed(TOPOLOGY)
    scene.monitor.pushed(Relocate(queue_id=ID, publisher=CLIENT, epoch=2, exchanges=[X1]))
    assert scene.session.facts().silent == 0.0


def test_a_sign_of_life_has_the_figures_of_its_owner_and_its_name() -> None:
    figures = {"epoch": 7, "at": [(1, 1)]}
    scene = Scene(name="till", alive=lambda: figures).attach()
    timer = scene.engine.timers[-1]
    assert timer.when == 100.0 + CLIENT_ALIVE_SECONDS
    scene.engine.now = timer.when
    timer.call()
    read, alive = scene.monitor.told
    assert read == "read", "a monitor is not silent if only this thread was late"
    assert isinstance(alive, Alive)
    assert (alive.name, alive.epoch, alive.at) == ("till", 7, [(1, 1)])
    scene.session.tell_alive()
    assert isinstance(scene.monitor.told[-1], Alive)


def test_there_is_one_timer_at_a_time() -> None:
    scene = Scene().attach()
    scene.session.tell_alive()
    assert [each.cancelled for each in scene.engine.timers][-2:] == [True, False]


def test_what_a_callback_wants_is_done_after_what_is_being_done() -> None:
    """The effects of one event are all performed before the next event is taken in."""
    order: list[str] = []

    def assigned(_: Assigned) -> None:
        order.append("assigned")
        scene.session.attach([(1, 1)])
        order.append(f"{len(scene.monitor.asked)} asked")

    scene = Scene(on_assigned=assigned)
    scene.attach()
    assert order == ["assigned", "1 asked"], "not again yet"
    assert scene.said == [SessionState.ACTIVE]
    again = scene.monitor.asked[-1][0]
    assert isinstance(again, Attach)
    assert list(map(tuple, again.failed)) == [(1, 1)]
    assert len(scene.monitor.asked) == 2


@pytest.mark.parametrize(("error", "patient"), [(Unavailable, True), (NotReached, False)])
def test_only_an_answer_that_is_late_is_a_reason_to_be_patient(
    error: type[Unavailable], patient: bool
) -> None:
    seconds: list[float] = []
    scene = Scene()
    scene.engine.managers.ask = lambda *given: seconds.append(given[2])
    scene.engine.asked[-1][2](error("no"))
    assert (seconds[0] > 2.0) is patient


def test_answers_of_a_monitor_that_was_left_count_no_more() -> None:
    told: list[Any] = []
    scene = Scene(on_assigned=told.append)
    scene.locate()
    first = scene.monitor
    first.lost("gone")
    assert first.closed == [(0, True)]
    scene.locate()
    assert len(scene.engine.opened) == 2
    first.asked[0][1](ASSIGNED)
    assert (told, scene.session.state) == ([], SessionState.UNAVAILABLE)
    scene.monitor.asked[-1][1](ASSIGNED)
    assert told == [ASSIGNED]


def test_a_monitor_to_which_there_is_no_socket_is_lost_and_looked_for_again() -> None:
    scene = Scene()
    scene.engine.no_socket = True
    scene.locate()
    assert len(scene.engine.asked) == 1, "not in the middle of what is being done"
    scene.engine.turn()
    assert len(scene.engine.asked) == 2
    assert scene.said == [SessionState.UNAVAILABLE]
    assert "tcp://m:1/t" in scene.session.facts().reason


def test_what_is_said_without_a_monitor_is_dropped() -> None:
    scene = Scene()
    leave = Leave(queue_id=ID, client=CLIENT)
    scene.session.tell(leave)
    scene.attach()
    scene.session.tell(leave)
    assert scene.monitor.told == [leave]


def test_a_subscriber_that_doubts_asks_for_the_exchanges_again() -> None:
    told: list[Any] = []
    scene = Scene("subscriber", on_topology=told.append)
    scene.locate()
    for _ in range(2):
        message, answered = scene.monitor.asked[-1]
        assert isinstance(message, Join)
        answered(TOPOLOGY)
        scene.session.ask_topology()
    assert told == [TOPOLOGY] * 2


@pytest.mark.parametrize("inside", [True, False])
def test_closing_says_goodbye_and_leaves_it_the_time_to_arrive(inside: bool) -> None:
    scene = Scene().attach()
    scene.engine.inside = inside
    scene.session.close()
    assert scene.engine.waited == (not inside)
    assert scene.monitor.told == [Leave(queue_id=ID, client=CLIENT)]
    assert scene.monitor.closed == [(GOODBYE_MS, False)]
    assert scene.engine.timers[-1].cancelled
