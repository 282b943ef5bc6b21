"""A whole cluster on a virtual clock: managers, hosts, a queue, publishers, subscribers, a history.

cluster = Cluster(seed=7)
cluster.start(exchanges=2)
cluster.add_subscriber()
cluster.add_publisher(profile)
cluster.world.run(10.0)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Final

from roq.client.subscribe.backpressure import AHEAD_BYTES
from roq.errors import Unavailable
from roq.hcm.specs import Settings
from roq.model import VOLATILE
from roq.monitor.scaling_rules import own_policy
from roq.policy.snapshot import Policy
from roq.protocol import documents
from roq.protocol.consuming import MODES
from roq.protocol.documents import RawDocument
from roq.protocol.public import CreateExchange, CreateQueue, Public
from roq.simulation.virtual.children import ExchangeShell, MonitorShell
from roq.simulation.virtual.clients import PublisherShell, SubscriberShell
from roq.simulation.virtual.console import Console
from roq.simulation.virtual.ensemble import Ensemble
from roq.simulation.virtual.hosts import Host
from roq.simulation.virtual.load import Profile
from roq.simulation.virtual.managers import ManagerShell
from roq.simulation.virtual.members import MemberShell
from roq.simulation.virtual.policies import Restless
from roq.simulation.virtual.process import Clocks, Process
from roq.simulation.virtual.requests import RequesterShell, ServiceShell
from roq.simulation.virtual.shells import Ports
from roq.simulation.virtual.watch import Watch
from roq.simulation.virtual.wires import Wires
from roq.simulation.virtual.world import World
from roq.testing.history import History

QUEUE: Final = "q"
LOGS: Final = "/logs"
START_SECONDS: Final = 30.0
RETRY_SECONDS: Final = 0.3
ASK_SECONDS: Final = 20.0
CLIENTS_PORT: Final = 5000
CONTROL_PORT: Final = 5100


@dataclass(frozen=True, slots=True)
class Shape:
    """How large a cluster is, and how fast it is.

    Attributes:
        managers, hosts: how many there are.
        start_seconds: what a child takes to come up, between these two.
        session_seconds: of the sessions with ZooKeeper.
        delay_seconds: what the network takes for a message, between these two.
        limits: of the queue, where they differ from the defaults.
        clock_rates: monotonic clocks differ by up to this.
        orphan_seconds: children that no queue wants end after so long.
        restless: publishers are moved all the time.
        check_duplicates: of subscribers; off only to show that the promises can be broken.
        ahead_bytes: what waits in a subscriber before it leaves exchanges alone that are ahead.
        queue_max: see `Weather`.
        durability: of the queue.
        disk_seconds: see `Disk`.
        mode: of the consumer group, if there is one.
        topics: what subscribers receive begins with one of these.
    """

    managers: int = 1
    hosts: int = 1
    start_seconds: tuple[float, float] = (0.05, 0.3)
    session_seconds: float = 2.0
    delay_seconds: tuple[float, float] = (0.0002, 0.002)
    limits: tuple[tuple[str, int], ...] = ()
    clock_rates: float = 0.0
    orphan_seconds: float = 60.0
    restless: bool = False
    check_duplicates: bool = True
    ahead_bytes: int = AHEAD_BYTES
    queue_max: int | None = None
    durability: str = VOLATILE
    disk_seconds: tuple[float, float] = (0.0001, 0.003)
    mode: str = MODES[0]
    topics: tuple[str, ...] = ("",)

    @property
    def durable(self) -> bool:
        """Whether the logs of the queue are on disks."""
        return self.durability != VOLATILE


class ManagerSlot:
    """A machine with a configuration manager: its addresses stay the same over its lives."""

    def __init__(self, cluster: Cluster, number: int) -> None:
        self.machine = f"10.0.1.{number}"
        self.client = f"tcp://{self.machine}:{CLIENTS_PORT}"
        self.shell: ManagerShell | None = None
        self._cluster = cluster
        self._management = f"tcp://{self.machine}:{CLIENTS_PORT + 3}"
        self._number = number
        self.clocks = cluster.new_clocks()

    def start(self) -> None:
        """Start its process, if there is none."""
        if self.shell is None or not self.shell.process.alive:
            world, wires = self._cluster.world, self._cluster.wires
            name = f"gcm-{self._number}"
            process = Process(world, wires, name, self.machine, self.clocks)
            world.note(name, "starts")
            self.shell = ManagerShell(
                process, self._cluster.ensemble, self.client, self._management, self._cluster.watch
            )


class Cluster:
    """The whole of it.

    Attributes:
        managers, hosts, publishers, subscribers, members, requesters, services: those that there
            are or were; a service is one instance of it.
        history: what was published and received.
        watch: what is to be noticed while it happens.
        console: where people ask for changes.
    """

    def __init__(self, seed: int, shape: Shape) -> None:
        self.world = World(seed)
        self.shape = shape
        self.wires = Wires(self.world)
        self.wires.weather.delay_seconds = shape.delay_seconds
        self.wires.weather.queue_max = shape.queue_max
        self.ensemble = Ensemble(self.world, self.wires, shape.session_seconds)
        self.history = History()
        self.watch = Watch(self.world)
        self.ensemble.on_write = self.watch.written
        self.ports = Ports()
        self._restless = Restless(Random(f"moves of {seed}"))
        self.publishers: list[PublisherShell] = []
        self.subscribers: list[SubscriberShell] = []
        self.members: list[MemberShell] = []
        self.requesters: list[RequesterShell] = []
        self.services: list[ServiceShell] = []
        self.managers = [ManagerSlot(self, number + 1) for number in range(shape.managers)]
        for slot in self.managers:
            slot.start()
        self.hosts = [self._host(number + 1) for number in range(shape.hosts)]
        self._clients = 0
        self.console = Console(self)

    # --- the cast ---------------------------------------------------------------------------------

    def new_clocks(self) -> Clocks:
        """Of one more machine."""
        skew = self.shape.clock_rates
        rate = 1.0 + self.world.random.uniform(-skew, skew)
        return Clocks(self.world, rate)

    @property
    def addresses(self) -> list[str]:
        """Of the configuration managers."""
        return [slot.client for slot in self.managers]

    @property
    def leaders(self) -> list[ManagerShell]:
        """The managers that believe that they lead."""
        shells = [slot.shell for slot in self.managers if slot.shell is not None]
        return [shell for shell in shells if shell.leads]

    def _host(self, number: int) -> Host:
        machine = f"10.0.0.{number}"
        control = f"tcp://{machine}:{CONTROL_PORT}"
        settings = Settings(
            host=machine, bind=machine, control=control, control_local=control,
            managers=tuple(self.addresses), orphan_seconds=self.shape.orphan_seconds, logs=LOGS,
        )  # fmt: skip
        return Host(
            self.world, self.wires, self.ensemble, self.ports, self.new_clocks(), settings,
            self.shape.start_seconds, self._policy, self.watch, self.shape.disk_seconds,
        )  # fmt: skip

    def _policy(self, name: str) -> Policy:
        return self._restless if self.shape.restless else own_policy(name)

    def start(self, exchanges: int) -> None:
        """Create the queue, with so many exchanges.

        Raises:
            Unavailable: it does not come up in time.
        """
        self.world.run_until(self._ready, START_SECONDS)
        limits = dict(self.shape.limits)
        self.manage(CreateQueue(QName=QUEUE, Limits=limits, Durability=self.shape.durability))
        for number in range(1, exchanges):
            host = self.hosts[number % len(self.hosts)]
            self.manage(CreateExchange(QName=QUEUE, Host=host.machine, TransactionID=number))

    def _ready(self) -> bool:
        return any(
            all(shell.machine.hosts.live(host.machine) for host in self.hosts)
            for shell in self.leaders
        )

    def manage(self, request: Public, seconds: float = ASK_SECONDS) -> RawDocument:
        """Have a management command carried out; repeated until it is.

        Raises:
            Unavailable: it was not, in time.
        """
        answers: list[RawDocument] = []
        end = self.world.now + seconds
        while self.world.now < end:
            for leader in self.leaders[:1]:
                leader.ask(
                    documents.encode(request),
                    lambda data: answers.append(documents.decode_raw(data)),
                )
            if self.world.run_until(lambda: bool(answers), ASK_SECONDS):
                if answers[-1].get("RESULT") in {0, "0"}:
                    return answers[-1]
                self.world.note("console", f"{answers[-1]}")
                answers.clear()
            self.world.run(RETRY_SECONDS)
        raise Unavailable(f"{request} was not carried out")

    def add_publisher(self, profile: Profile) -> PublisherShell:
        """Start a publisher with a user who publishes."""
        process = self._client("pub")
        shell = PublisherShell(process, self.addresses, QUEUE, profile, self.history, self.watch)
        self.publishers.append(shell)
        return shell

    def add_subscriber(self, *, from_first: bool = False) -> SubscriberShell:
        """Start a subscriber; it is in force when it is `confirmed`."""
        process = self._client("sub")
        shell = SubscriberShell(
            process, self.addresses, QUEUE, process.name, self.history,
            watch=self.watch, from_first=from_first, topics=self.shape.topics,
            check_duplicates=self.shape.check_duplicates, ahead_bytes=self.shape.ahead_bytes,
        )  # fmt: skip
        self.subscribers.append(shell)
        return shell

    def add_member(self) -> MemberShell:
        """Start a member of the consumer group."""
        process = self._client("member")
        shell = MemberShell(process, self.addresses, QUEUE, self.shape.mode, self.watch.sharing)
        self.members.append(shell)
        return shell

    def add_requester(self) -> RequesterShell:
        """Start a requester with a user who makes requests."""
        process = self._client("requester")
        shell = RequesterShell(process, self.addresses, QUEUE, self.watch.asking)
        self.requesters.append(shell)
        return shell

    def add_service(self) -> ServiceShell:
        """Start an instance of the service."""
        process = self._client("service")
        shell = ServiceShell(process, self.addresses, QUEUE, self.watch.asking)
        self.services.append(shell)
        return shell

    def _client(self, kind: str) -> Process:
        self._clients += 1
        machine = f"10.0.2.{self._clients}"
        name = f"{kind}-{self._clients}"
        return Process(self.world, self.wires, name, machine, self.new_clocks())

    # --- the queue --------------------------------------------------------------------------------

    @property
    def children(self) -> list[MonitorShell | ExchangeShell]:
        """The monitors and exchanges that run."""
        shells = [each.shell for host in self.hosts for each in host.running.values()]
        return [shell for shell in shells if shell is not None and shell.process.alive]

    @property
    def monitors(self) -> list[MonitorShell]:
        """The monitors that run."""
        return [each for each in self.children if isinstance(each, MonitorShell)]

    @property
    def exchanges(self) -> list[ExchangeShell]:
        """The exchanges that run."""
        return [
            each.shell
            for host in self.hosts
            for each in host.running.values()
            if isinstance(each.shell, ExchangeShell) and each.shell.process.alive
        ]

    def until(self, condition: Callable[[], bool], seconds: float) -> bool:
        """Let time pass until this is so; False if it is not in time."""
        return self.world.run_until(condition, seconds)
