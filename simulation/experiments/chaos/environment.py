"""A cluster under load, its clients, and whether it is whole."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Final

import roq
from roq.client.operate.survey import ask_all
from roq.errors import RoQError
from roq.model import VOLATILE
from roq.protocol.control import ClusterInfo, ClusterInfoRequest
from roq.simulation.real.answering import Answering
from roq.simulation.real.machines import Machines, Node, machines
from roq.simulation.real.parts import Daemon, Parts
from roq.simulation.real.waiting import until
from roq.simulation.real.workers import ScenarioError, Workers

START_SECONDS: Final = 60.0
ASK_SECONDS: Final = 2.0
"""What the cluster has for an answer when it is asked how it is."""
LOG_BYTES: Final = 4 * 1024 * 1024
"""Of each exchange of a durable queue: several of them share a small disk for hours."""
LEADS_SECONDS: Final = 0.25
LOOK_SECONDS: Final = 0.2
"""Between two such questions."""


@dataclass(frozen=True, slots=True)
class Wish:
    """A queue that there shall be."""

    name: str
    exchanges: int
    publishers: int
    subscribers: int
    rate: float = 40.0
    """Messages a second of each publisher."""
    far: int = 0
    """So many publishers, and so many subscribers, of these have a bad line, where there is one."""
    host: int = 0
    """Monitor and first exchange are on this host, the next exchange on the next one, …"""
    durability: str = VOLATILE
    members: int = 0
    """Of a consumer group that works beside the subscribers."""
    mode: str = "shared"
    """Of that group."""
    instances: int = 0
    """Of a service; with them there are as many requesters."""
    calls: float = 5.0
    """A second of each requester."""

    @property
    def durable(self) -> bool:
        """Whether its logs are on disks: nothing of it may be lost, whatever happens."""
        return self.durability != VOLATILE


class Environment:
    """Where chaos plays.

    Attributes:
        machines, parts, workers: where it runs, its processes, its clients.
        cluster: a connection for questions.
        wishes: the queues.
        changes: what goes on behind a fault.
        last_complaint: what kept the cluster from being whole for the longest, the last time.
    """

    def __init__(
        self,
        where: Machines,
        parts: Parts,
        workers: Workers,
        cluster: roq.Cluster,
        wishes: list[Wish],
    ) -> None:
        self.machines = where
        self.parts = parts
        self.workers = workers
        self.cluster = cluster
        self.wishes = wishes
        self.changes: list[Future[None]] = []
        self.last_complaint = ""

    def tend(self) -> None:
        """Start again what is wanted and has ended, and read what the clients have written."""
        self.parts.tend()
        self.workers.read()

    def until(self, condition: Callable[[], bool], seconds: float, step: float = 0.02) -> bool:
        """Let it go on until something holds; False if it does not after `seconds`."""

        def holds() -> bool:
            self.tend()
            return condition()

        return until(holds, seconds, step)

    def rest(self, seconds: float) -> None:
        """Let it go on for so long."""
        self.until(lambda: False, seconds)

    def whole(self, seconds: float) -> list[str]:
        """Wait until the cluster is whole; gives what is still wrong after `seconds`."""
        complaints: list[str] = []
        self.last_complaint = ""

        def holds() -> bool:
            complaints[:] = self.complaints()
            self.last_complaint = complaints[0] if complaints else self.last_complaint
            return not complaints

        self.until(holds, seconds, step=LOOK_SECONDS)
        return complaints

    def complaints(self) -> list[str]:
        """What keeps the cluster from being whole, in sentences."""
        found = [f"{each} does not serve" for each in self.parts.daemons if not each.serves()]
        if not all(each.done() for each in self.changes):
            found.append("an exchange is being replaced")
        if found:
            return found
        leaders = [address for address in self.parts.addresses if leads(address)]
        if len(leaders) != 1:
            return [f"{' and '.join(leaders) or 'no manager'} leads"]
        try:
            return [*self._host_complaints(), *self._queue_complaints(), *self.workers.troubles()]
        except RoQError as error:
            return [f"the cluster does not tell how it is: {type(error).__name__}: {error}"]

    @property
    def hosts(self) -> list[Node]:
        """The machines with a host manager."""
        return [daemon.node for daemon in self.parts.hcms]

    def daemon(self, kind: str, node: Node) -> Daemon:
        """The daemon of this kind there."""
        return next(each for each in self.parts.on(node) if each.kind == kind)

    def _host_complaints(self) -> list[str]:
        hosts = {host.host: host for host in self.cluster.hosts()}
        found = []
        for node in self.hosts:
            host = hosts.get(node.address)
            if host is None or host.state != "live":
                found.append(f"host {node.address} is {host.state if host else 'not there'}")
        known = Counter(
            (child.child, child.pid) for host in hosts.values() for child in host.children
        )
        runs = Counter((each.child, each.pid) for each in self.parts.offspring())
        found += [f"{child} runs as {pid}, and no manager knows" for child, pid in runs - known]
        found += [f"{child} is told to run as {pid}" for child, pid in known - runs]
        return found

    def _queue_complaints(self) -> list[str]:
        found = []
        runs = Counter(each.child for each in self.parts.offspring())
        for wish in self.wishes:
            queue = self.cluster.describe(wish.name)
            states = [exchange.state for exchange in queue.exchanges]
            if queue.state != "running" or not queue.running or not queue.monitor:
                found.append(f"queue {wish.name} is {queue.state}, monitor {queue.monitor or '-'}")
            # Of a durable queue those that stood in for one that was away stay.
            more = len(states) if wish.durable else 0
            if states != ["running"] * max(wish.exchanges, more):
                found.append(f"the exchanges of {wish.name} are {', '.join(states) or 'gone'}")
            wanted = [f"{wish.name}.monitor", *(f"{wish.name}.{x.name}" for x in queue.exchanges)]
            found += [f"{child} runs {runs[child]} times" for child in wanted if runs[child] != 1]
        return found


def leads(address: str) -> bool:
    """Whether the configuration manager with this client address says that it leads."""
    (answer,) = ask_all([(f"tcp://{address}", ClusterInfoRequest())], LEADS_SECONDS)
    return isinstance(answer, ClusterInfo) and answer.leader


@contextmanager
def environment(
    wishes: list[Wish],
    *,
    nodes: int = 3,
    networked: bool = True,
    managers: int = 2,
    zookeepers: int = 1,
    apart: int = 0,
    kpi_ms: int = 1_000,
    clocks_jump: bool = False,
    calls: bool = False,
) -> Iterator[Environment]:
    """Start all of it; nothing is left after the block.

    Args:
        nodes: machines.
        networked: on network namespaces; else on loopback addresses.
        managers, zookeepers: how many, on the first machines; without ZooKeeper it is a file.
        apart: so many of the first machines have no host manager.
        kpi_ms: milliseconds between two reports of an exchange.
        clocks_jump: clocks of daemons can be set, where there is a library for it.
        calls: publishers write down how long each `publish()` takes.

    Raises:
        Unavailable: namespaces cannot be made here.
        ScenarioError: it does not start.
    """
    with machines(nodes, networked=networked) as where, ExitStack() as stack:
        parts = Parts(
            where,
            managers=managers,
            zookeepers=zookeepers,
            apart=apart,
            kpi_ms=kpi_ms,
            clocks_jump=clocks_jump,
        )
        stack.enter_context(parts.running())
        cluster = stack.enter_context(roq.connect(parts.addresses, timeout=ASK_SECONDS))
        far = None if where.far is None else where.far.host
        workers = Workers(where.folder / "clients", parts.addresses, far=far)
        stack.callback(workers.close)
        made = Environment(where, parts, workers, cluster, wishes)
        for wish in wishes:
            _furnish(made, wish, calls=calls)
        if complaints := made.whole(START_SECONDS):
            raise ScenarioError("the cluster does not become whole: " + "; ".join(complaints))
        yield made


def _furnish(made: Environment, wish: Wish, *, calls: bool) -> None:
    """Make a queue and its clients."""
    nodes = made.hosts
    hosts = [nodes[(wish.host + each) % len(nodes)].address for each in range(wish.exchanges)]
    made.cluster.create_queue(
        wish.name, host=hosts[0], durability=wish.durability, limits={"log_bytes": LOG_BYTES}
    )
    for host in hosts[1:]:
        made.cluster.add_exchange(wish.name, host)
    for each in range(wish.subscribers):
        # Every second one wants one topic only.
        prefix = f"{wish.name}." if each % 2 == 0 else f"{wish.name}.1"
        made.workers.subscriber(wish.name, prefix, far=each < wish.far)
    for _ in range(wish.members):
        made.workers.member(wish.name, wish.mode)
    if wish.instances:
        made.workers.judge.requests[wish.name] = Answering(durable=wish.durable)
    # The first of each is on a machine of its own kind, whose plug can be pulled.
    serving, asking = made.machines.apart or (None, None)
    for each in range(wish.instances):
        made.workers.instance(wish.name, None if each else serving)
    readers = made.workers.subscribers + made.workers.members + made.workers.instances
    deadline = time.monotonic() + START_SECONDS
    while any(worker.opened is None for worker in readers):
        made.rest(0.05)
        if time.monotonic() > deadline:
            raise ScenarioError("; ".join(made.workers.troubles()))
    for each in range(wish.instances):
        made.workers.requester(wish.name, wish.calls, None if each else asking)
    for each in range(wish.publishers):
        made.workers.publisher(
            wish.name, f"{wish.name}.{each + 1}", rate=wish.rate, calls=calls, far=each < wish.far
        )
