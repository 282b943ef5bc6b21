"""How long each failure lasts: one function for each row of the table of promises.

A measure is a generator that yields whenever it waits, so that several can go on at the same time;
in the end its figures stand in its rows. All times are seconds on the monotonic clock.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Generator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final

import msgspec

from roq.client.admin.views import ScalingRules
from roq.client.operate.survey import ask_all
from roq.errors import RegistryAway, RoQError
from roq.protocol.control import Health, HealthRequest
from roq.protocol.kpi import ExchangeKpi
from roq.simulation.experiments.chaos.environment import Environment, leads
from roq.simulation.real.parts import Daemon, Offspring, send
from roq.simulation.real.waiting import until
from roq.simulation.real.workers import Worker

STEADY: Final = "steady"
"""The queue whose publishers are timed; it stays on its host."""
NOMAD: Final = "nomad"
"""The queue whose host is lost."""
SESSION: Final = 6.0
TICK: Final = 1.0
"""ZooKeeper counts sessions in ticks of this length."""
LIMIT: Final = 30.0
"""What has not happened by then is a violation."""
STEP: Final = 0.005
ASK: Final = 0.25
RULES: Final = ScalingRules(name="report", exchanges_max=1)

Measure = Generator[None, None, None]
Moment = Generator[None, None, float | None]
"""Ends with when it was; None: never."""


class Row(msgspec.Struct, kw_only=True):
    """One row of the table.

    Attributes:
        what: what happened → what is measured.
        goal: seconds at most; None: for information.
    """

    what: str
    goal: float | None = None
    seconds: list[float] = []
    violations: list[str] = []

    def add(self, began: float, ended: float | None, why: str = "") -> None:
        """Note a figure; None: it did not happen in time, and why, if that is known."""
        if ended is None:
            self.violations.append(f"not within {LIMIT:.0f} s" + (f": {why}" if why else ""))
        else:
            self.seconds.append(ended - began)

    @property
    def reached(self) -> bool:
        """Whether it was measured, never took too long, and nothing was wrong."""
        if not self.seconds or self.violations:
            return False
        return self.goal is None or max(self.seconds) <= self.goal


class Rows:
    """All measures on one environment.

    Attributes:
        rows: what was found so far.
        windows: for each failure whose data flow is looked at, when it lasted.
    """

    def __init__(self, environment: Environment) -> None:
        self.environment = environment
        self.windows: dict[str, list[tuple[float, float]]] = {}
        self._pool = ThreadPoolExecutor(8, thread_name_prefix="probe")
        self._statistics = environment.cluster.statistics(STEADY)
        self._counts = (0, 0)
        self._ending = False
        self._why = ""
        self.exchange_killed = Row(what="exchange killed → first ack at the new one", goal=1.0)
        self.exchange_hung = Row(what="exchange hung → first ack at the new one", goal=2.0)
        self.everybody = Row(what="exchange killed → every publisher is acknowledged")
        self.monitor_killed = Row(what="monitor killed → a new one answers", goal=1.0)
        self.unmanaged = Row(what="HCM killed → its host is unmanaged", goal=SESSION + TICK)
        self.adopted = Row(what="HCM started again → it has adopted its children")
        self.host_lost = Row(what="host lost → its queue serves elsewhere", goal=SESSION + 2 * TICK)
        self.leader_killed = Row(what="GCM leader killed → another one leads", goal=SESSION + TICK)
        self.change = Row(what="GCM leader killed → a change is accepted")
        self.refused = Row(what="ZooKeeper away → a change is refused clearly")
        self.again = Row(what="ZooKeeper serves again → a change is accepted")
        self.client_killed = Row(what="client killed → forgotten", goal=2.0)
        self.client_hung = Row(what="client stopped (silent) → forgotten")

    @property
    def rows(self) -> list[Row]:
        """In the order of the table."""
        return [each for each in vars(self).values() if isinstance(each, Row)]

    def close(self) -> None:
        """Ask no more."""
        self._ending = True
        self._pool.shutdown()
        self._statistics.close()

    def play(self, *measures: Measure) -> None:
        """Let them go on side by side until all are done."""
        open_ones = list(measures)

        def all_done() -> bool:
            open_ones[:] = [each for each in open_ones if next(each, self) is not self]
            return not open_ones

        self.environment.until(all_done, 10 * LIMIT, step=STEP)

    # --- exchanges and monitors -------------------------------------------------------------------

    def kill_exchange(self) -> Measure:
        """SIGKILL the only exchange of the steady queue."""
        began = self._signal("exchange", signal.SIGKILL)
        yield from self._served(STEADY, began, self.exchange_killed, self.everybody)

    def hang_exchange(self) -> Measure:
        """SIGSTOP it."""
        hit = self._child(STEADY, "exchange")
        began = self._signal("exchange", signal.SIGSTOP)
        yield from self._served(STEADY, began, self.exchange_hung)
        if any(each.pid == hit.pid for each in self.environment.parts.offspring()):
            send(hit.pid, signal.SIGCONT)

    def kill_monitor(self) -> Measure:
        """SIGKILL the monitor of the steady queue."""
        old = self.environment.cluster.describe(STEADY).monitor
        began = self._signal("monitor", signal.SIGKILL)

        def answers() -> bool:
            address = self.environment.cluster.describe(STEADY).monitor
            if address in ("", old):
                return False
            return isinstance(ask_all([(address, HealthRequest())], ASK)[0], Health)

        ended = yield from self._eventually(answers)
        self.monitor_killed.add(began, ended)
        yield from self._rest(1.0)
        self._window("monitor killed", began)

    # --- host managers and hosts ------------------------------------------------------------------

    def kill_hcm(self) -> Measure:
        """SIGKILL the host manager of the steady queue, and start it again when it was noticed."""
        daemon = self.environment.daemon("hcm", self._child(STEADY, "monitor").node)
        address = daemon.node.address
        before = self._children_of(daemon)
        began = time.monotonic()
        daemon.kill()
        ended = yield from self._eventually(lambda: self._host_state(address) == "unmanaged")
        self.unmanaged.add(began, ended)
        yield from self._rest(2.0)
        if self._children_of(daemon) != before:
            self.unmanaged.violations.append(f"{before} became {self._children_of(daemon)}")
        started = time.monotonic()
        daemon.wanted = True

        def adopted() -> bool:
            host = next(each for each in self.environment.cluster.hosts() if each.host == address)
            known = {child.child: child.pid for child in host.children if child.pid}
            return host.state == "live" and known == before

        self.adopted.add(started, (yield from self._eventually(adopted)))
        self._window("HCM killed", began)
        if self._children_of(daemon) != before:
            self.adopted.violations.append(f"{before} became {self._children_of(daemon)}")

    def lose_host(self) -> Measure:
        """The host of the other queue is gone, without a last word; then it comes back."""
        node = self._child(NOMAD, "monitor").node
        began = time.monotonic()
        if node.link is not None:
            node.link.cut()
        for daemon in self.environment.parts.on(node):
            daemon.kill()
        for each in self.environment.parts.offspring():
            if each.node is node:
                send(each.pid, signal.SIGKILL)
        yield from self._served(NOMAD, began, self.host_lost)
        if node.link is not None:
            node.link.join()
        for daemon in self.environment.parts.on(node):
            daemon.wanted = True

    # --- the control plane ------------------------------------------------------------------------

    def kill_leader(self) -> Measure:
        """SIGKILL the configuration manager that leads."""
        leader = next(each for each in self.environment.parts.gcms if self._leads(each))
        others = [each for each in self.environment.parts.gcms if each is not leader]
        began = time.monotonic()
        leader.kill()
        change = self._probe(self._changes)
        ended = yield from self._eventually(lambda: any(map(self._leads, others)))
        self.leader_killed.add(began, ended)
        self.change.add(began, (yield from self._result(change)))
        leader.wanted = True
        yield from self._rest(1.0)
        self._window("GCM leader killed", began)

    def stop_zookeeper(self) -> Measure:
        """SIGKILL all servers of the registry, and start them again after more than a session."""
        began = time.monotonic()
        for daemon in self.environment.parts.zookeepers:
            daemon.kill()
        ended = yield from self._eventually(self._is_refused)
        self.refused.add(began, ended, self._why)
        yield from self._rest(max(0.0, began + SESSION + 2.0 - time.monotonic()))
        for daemon in self.environment.parts.zookeepers:
            daemon.wanted = True
        while not all(each.serves() for each in self.environment.parts.zookeepers):
            yield
        self.again.add(time.monotonic(), (yield from self._eventually(self._changes)))
        self._window("ZooKeeper away", began)

    # --- clients ----------------------------------------------------------------------------------

    def lose_clients(self, number: signal.Signals) -> Measure:
        """A publisher and a subscriber get a signal, SIGKILL or SIGSTOP."""
        workers, row = self.environment.workers, self.client_killed
        if number == signal.SIGSTOP:
            row = self.client_hung
        before = yield from self._settled_counts()
        guests = [workers.subscriber(STEADY, STEADY), workers.publisher(STEADY, f"{STEADY}.guest")]
        both = (before[0] + 1, before[1] + 1)
        if (yield from self._eventually(lambda: self._counted() == both)) is None:
            row.violations.append("the guests were never counted")
        began = time.monotonic()
        for guest in guests:
            guest.signal(number)
        row.add(began, (yield from self._eventually(lambda: self._counted() == before)))
        for guest in guests:
            workers.kill(guest)

    # --- control ----------------------------------------------------------------------------------

    def calm(self) -> Measure:
        """Nothing happens: what the data flow is compared with."""
        began = time.monotonic()
        yield from self._rest(5.0)
        self._window("control", began)

    # --- what they have in common -----------------------------------------------------------------

    def _child(self, queue: str, role: str) -> Offspring:
        found = self.environment.parts.offspring()
        return next(
            each for each in found if each.role == role and each.child.startswith(f"{queue}.")
        )

    def _signal(self, role: str, number: signal.Signals) -> float:
        hit = self._child(STEADY, role)
        began = time.monotonic()
        send(hit.pid, number)
        return began

    def _served(self, queue: str, began: float, row: Row, everybody: Row | None = None) -> Measure:
        """Until all publishers of a queue are acknowledged over a new connection."""
        workers = [each for each in self.environment.workers.publishers if each.job.queue == queue]
        deadline = began + LIMIT
        while not all(_back(each, began) for each in workers) and time.monotonic() < deadline:
            yield
        moments = [moment for each in workers if (moment := _back(each, began)) is not None]
        row.add(began, min(moments, default=None))
        if everybody is not None:
            everybody.add(began, max(moments) if len(moments) == len(workers) else None)

    def _rest(self, seconds: float) -> Measure:
        ends = time.monotonic() + seconds
        while time.monotonic() < ends:
            yield

    def _window(self, name: str, began: float) -> None:
        self.windows.setdefault(name, []).append((began, time.monotonic()))

    def _eventually(self, condition: Callable[[], bool]) -> Moment:
        return (yield from self._result(self._probe(condition)))

    def _probe(self, condition: Callable[[], bool]) -> Future[float | None]:
        """Ask again and again in a thread of its own; when it held, None if never."""
        return self._pool.submit(self._ask, condition)

    def _ask(self, condition: Callable[[], bool]) -> float | None:
        def holds() -> bool:
            try:
                held = self._ending or condition()
            except (RoQError, StopIteration) as error:
                self._why = f"{type(error).__name__}: {error}"
                return False
            self._why = "" if held else "it was answered, but not so"
            return held

        return time.monotonic() if until(holds, LIMIT, STEP) else None

    def _result(self, future: Future[float | None]) -> Moment:
        while not future.done():
            yield
        return future.result()

    def _leads(self, gcm: Daemon) -> bool:
        return leads(self.environment.parts.addresses[self.environment.parts.gcms.index(gcm)])

    def _changes(self) -> bool:
        self.environment.cluster.set_rules(STEADY, RULES)
        return True

    def _is_refused(self) -> bool:
        try:
            self.environment.cluster.set_rules(STEADY, RULES)
        except RegistryAway:
            return True
        return False

    def _host_state(self, address: str) -> str:
        return next(each.state for each in self.environment.cluster.hosts() if each.host == address)

    def _children_of(self, daemon: Daemon) -> dict[str, int]:
        found = self.environment.parts.offspring()
        return {each.child: each.pid for each in found if each.node is daemon.node}

    def _counted(self) -> tuple[int, int]:
        """Publishers and subscribers of the steady queue, as its exchange told last."""
        for sample in self._statistics.waiting():
            if isinstance(sample.document, ExchangeKpi):
                self._counts = (sample.document.publishers, sample.document.subscribers)
        return self._counts

    def _settled_counts(self) -> Generator[None, None, tuple[int, int]]:
        workers = [each for each in self.environment.workers.all if each.job.queue == STEADY]
        publishers = sum(each.job.publishes for each in workers)
        wanted = (publishers, len(workers) - publishers)
        yield from self._eventually(lambda: self._counted() == wanted)
        return wanted


def _back(worker: Worker, began: float) -> float | None:
    """When this publisher was acknowledged over a new connection since then."""
    return next((each.when for each in worker.backs if each.when > began), None)
