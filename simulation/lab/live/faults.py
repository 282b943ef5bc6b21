"""What goes wrong on purpose during a live run, in a cluster of its own.

Only processes can be harmed here: they are killed, or stand still for a while. Links of real hosts
are the business of `simulation.experiments.chaos`.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import TracebackType
from typing import Final, Protocol, Self

import roq
from roq.errors import ConfigError, RoQError
from roq.protocol.public_answers import HostSummary
from roq.simulation.scenario.scenario import Fault, Scenario

ENSEMBLES: Final = (1, 3, 5)
"""How many ZooKeeper servers there may be."""
LOOK_SECONDS: Final = 0.05
_POSSIBLE: Final = {"kill", "pause"}
_TARGETS: Final = {"exchange", "monitor", "host_manager", "manager", "zookeeper", "host"}

Tell = Callable[[str], None]


class Parts(Protocol):
    """The processes of a cluster of one's own."""

    @property
    def hosts(self) -> tuple[str, ...]:
        """Names of the hosts."""
        ...

    def pid(self, part: str) -> int:
        """The process of a part such as `gcm`, `zookeeper 2`, `host 127.0.0.1`."""
        ...


def check(scenario: Scenario, *, own: bool, where: str = "") -> None:
    """Make sure that all faults can be made.

    Args:
        scenario: with the faults.
        own: whether the cluster is one that the run starts itself.
        where: file of the scenario, for errors.

    Raises:
        ConfigError: one cannot; says which and why.
    """
    if problems := list(_problems(scenario, own=own)):
        name = where or f"scenario {scenario.name}"
        raise ConfigError("\n".join(f"{name}: {each}" for each in problems))


def managers(faults: Iterable[Fault]) -> int:
    """How many configuration managers the cluster needs."""
    return 1 + max((each.index for each in faults if each.target == "manager"), default=0)


def zookeepers(faults: Iterable[Fault]) -> int:
    """How many ZooKeeper servers the cluster needs."""
    least = 1 + max((each.index for each in faults if each.target == "zookeeper"), default=0)
    return min((count for count in ENSEMBLES if count >= least), default=ENSEMBLES[-1])


class Faults:
    """Makes faults when their time has come, in a thread. A context manager.

    Whatever stands still goes on at the end of the block.

    Args:
        faults: of the scenario.
        parts: processes of the cluster.
        cluster: a connection, to find exchanges and monitors.
        queue: whose exchanges and monitor are meant.
        elapsed: seconds since the load began.
        tell: told what was done, in a clause; in the thread.
    """

    def __init__(
        self, faults: Sequence[Fault], parts: Parts, cluster: roq.Cluster, queue: str,
        elapsed: Callable[[], float], tell: Tell,
    ) -> None:  # fmt: skip
        self._faults = sorted(faults, key=lambda fault: fault.at)
        self._parts = parts
        self._cluster = cluster
        self._queue = queue
        self._elapsed = elapsed
        self._tell = tell
        self._paused: list[tuple[float, list[int], str]] = []
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="faults", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ending.set()
        self._thread.join()
        self._resume(float("inf"))

    # --- the thread -------------------------------------------------------------------------------

    def _run(self) -> None:
        left = list(self._faults)
        while (left or self._paused) and not self._ending.wait(LOOK_SECONDS):
            now = self._elapsed()
            self._resume(now)
            while left and left[0].at <= now:
                self._make(left.pop(0))

    def _make(self, fault: Fault) -> None:
        name = f"{fault.target} {fault.index}"
        try:
            pids = self._pids(fault)
        except (RoQError, LookupError) as error:
            self._tell(f"{fault.kind} {name}: not done: {error}")
            return
        if fault.kind == "kill":
            done = _signal(pids, signal.SIGKILL)
            self._tell(f"kill {name}" if done else f"kill {name}: it was gone already")
        else:
            _signal(pids, signal.SIGSTOP)
            self._paused.append((self._elapsed() + fault.seconds, pids, name))
            self._tell(f"pause {name} for {fault.seconds:g} s")

    def _resume(self, now: float) -> None:
        for item in [item for item in self._paused if item[0] <= now]:
            self._paused.remove(item)
            _signal(item[1], signal.SIGCONT)

    # --- who is meant -----------------------------------------------------------------------------

    def _pids(self, fault: Fault) -> list[int]:
        match fault.target:
            case "manager":
                return [self._part("gcm", fault.index)]
            case "zookeeper":
                return [self._part("zookeeper", fault.index)]
            case "host_manager":
                return [self._parts.pid(f"host {self._parts.hosts[fault.index]}")]
            case "host":
                host = self._parts.hosts[fault.index]
                children = [pid for name, _, _, pid in self._children() if name == host]
                # The manager first: it would start again what it sees dying.
                return [self._parts.pid(f"host {host}"), *children]
            case _:
                return [self._child(fault)]

    def _part(self, name: str, index: int) -> int:
        """Of several they have numbers."""
        try:
            return self._parts.pid(f"{name} {index + 1}")
        except RoQError:
            if index:
                raise
            return self._parts.pid(name)

    def _child(self, fault: Fault) -> int:
        found = sorted(
            (number, pid)
            for _, role, number, pid in self._children(self._queue)
            if role == fault.target
        )
        if fault.index >= len(found):
            raise LookupError(f"the queue has only {len(found)} of them")
        return found[fault.index][1]

    def _children(self, queue: str = "") -> Iterator[tuple[str, str, int, int]]:
        """Host, role, number and process of all that runs for a queue, or for any."""
        hosts: list[HostSummary] = self._cluster.hosts()
        for host in hosts:
            for child in host.children:
                if child.pid and (not queue or child.queue == queue):
                    yield host.host, child.role, child.number, child.pid


def _signal(pids: Iterable[int], number: signal.Signals) -> int:
    """Gives how many were there to get it."""
    done = 0
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
            done += 1
    return done


def _problems(scenario: Scenario, *, own: bool) -> Iterator[str]:
    for number, fault in enumerate(scenario.faults):
        here = f"faults[{number}]"
        if not own:
            yield f"{here}: faults need a cluster that the run starts itself: leave --cluster away"
        elif fault.kind not in _POSSIBLE:
            yield (
                f"{here}.kind: {fault.kind!r} needs links that can be broken, which this cluster "
                "has not; live runs can kill and pause (see simulation.experiments.chaos for links)"
            )
        elif fault.target not in _TARGETS:
            yield f"{here}.target: a {fault.target} of a live run cannot be harmed, only RoQ"
        elif fault.target in {"host", "host_manager"} and fault.index >= scenario.hosts:
            yield f"{here}.index: there are {scenario.hosts} hosts, counted from 0"
        elif fault.target == "zookeeper" and fault.index >= ENSEMBLES[-1]:
            yield f"{here}.index: there are at most {ENSEMBLES[-1]} ZooKeeper servers"
        elif fault.target == "monitor" and fault.index:
            yield f"{here}.index: a queue has one monitor"
