"""What goes wrong, and when: drawn from the seed, one kind at a time or several at once.

A plan is a list of troubles, each with chance of its own: leaving kinds out (`without`) changes
nothing about the others. Each ends by itself after its time, at the latest when all are called off.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Final, TypeVar

from roq.model import VOLATILE
from roq.protocol.public import (
    CordonHost,
    CreateExchange,
    CreateQueue,
    DrainHost,
    Public,
    RemoveExchange,
    RemoveQueue,
    UncordonHost,
)
from roq.simulation.virtual.children import ExchangeShell, MonitorShell
from roq.simulation.virtual.clients import SubscriberShell
from roq.simulation.virtual.cluster import QUEUE, Cluster
from roq.simulation.virtual.ensemble import DELAY_SECONDS, MACHINE
from roq.simulation.virtual.kinds import KINDS, Does, that
from roq.simulation.virtual.members import MemberShell
from roq.simulation.virtual.network import Connection
from roq.simulation.virtual.process import Process
from roq.simulation.virtual.requests import RequesterShell, ServiceShell

T = TypeVar("T")
Frail = MemberShell | ServiceShell | RequesterShell
CUTTING_OFF: Final = that(Does.CUTS_OFF)
HARM_MOST: Final = 4
"""How often the same process on the same host is paused or killed."""
NEVER: Final = 1e9
LEAVES: Final = 0.4
"""How many members leave before they end."""
TWICE: Final = 0.4
"""How many of a publisher's lost messages are none, but come again."""
FIT_SECONDS: Final = (0.1, 0.4)
FREE_SECONDS: Final = (0.02, 0.1)
LATER_SHARE: Final = 0.2
"""The part of the seeds in which such a kind comes."""
DURABLE_KINDS: Final = frozenset({"power", "disk"})
"""Of clusters with logs on disks only."""
POWERLESS: Final = frozenset({"power", "kill-host"})
"""What is not synced is gone then."""
MEMBER_KINDS: Final = frozenset({"kill-member", "pause-member", "cut-member"})
"""Of clusters with a consumer group, or a service, only: what happens to its members, or to
instances and requesters."""
MEMBER_SHARE: Final = 0.7
DISK_SHARE: Final = 0.6


@dataclass(frozen=True, slots=True)
class Trouble:
    """One thing that goes wrong.

    Attributes:
        at: seconds after the beginning.
        seconds: how long.
        chance: seed of what is left to chance when it happens.
    """

    at: float
    kind: str
    seconds: float
    chance: int


def draw(
    seed: int,
    seconds: float,
    only: Collection[str] = (),
    without: Collection[str] = (),
    *,
    durable: bool = False,
    shared: bool = False,
) -> list[Trouble]:
    """The plan of a seed.

    Args:
        seconds: all begin within this time.
        only: leave the other kinds out; empty: none is left out.
        without: leave these kinds out.
        durable: there are logs on disks, so these fail, too.
        shared: there is a consumer group, or a service, whose members fail, too.
    """
    random = Random(f"troubles of {seed}")
    special = that(Does.SPECIAL) - DURABLE_KINDS - MEMBER_KINDS
    usual = [kind for kind in KINDS if kind not in that(Does.SPECIAL)]
    kinds = random.sample(usual, random.choice([1, 1, 2, 2, 3, 4, 6]))
    if "empty" in kinds:
        # Managers remember what the registry has forgotten: nothing is left if they die as well.
        kinds = [kind for kind in kinds if kind != "kill-gcm"]
    many = random.choice([1, 1, 1, 3])
    many *= random.randint(1, 3) + len(kinds) * random.randint(1, 2)
    plan = [_one(random, random.choice(kinds), seconds) for _ in range(many)]
    later = Random(f"special troubles of {seed}")
    for kind in filter(special.__contains__, KINDS):
        if kind == "drain":
            later = Random(f"drains of {seed}")
        elif kind == "uneven":
            later = Random(f"uneven ways of {seed}")
        if later.random() < LATER_SHARE:
            plan += [_one(later, kind, seconds) for _ in range(later.randint(1, 3))]
    if durable:
        later = Random(f"disks of {seed}")
        for kind in sorted(DURABLE_KINDS):
            if later.random() < DISK_SHARE:
                plan += [_one(later, kind, seconds) for _ in range(later.randint(1, 3))]
    if shared:
        later = Random(f"members of {seed}")
        for kind in sorted(MEMBER_KINDS):
            if later.random() < MEMBER_SHARE:
                plan += [_one(later, kind, seconds) for _ in range(later.randint(1, 3))]
    plan.sort(key=lambda trouble: trouble.at)
    return [
        trouble
        for trouble in plan
        if (not only or trouble.kind in only) and trouble.kind not in without
    ]


def _one(random: Random, kind: str, seconds: float) -> Trouble:
    low, high = KINDS[kind].seconds
    # Short ones are as frequent as long ones.
    lasts = low * (high / low) ** random.random() if low else 0.0
    return Trouble(random.uniform(0.0, seconds), kind, lasts, random.getrandbits(32))


class NobodyThere(Exception):
    """What a trouble is to happen to is not there, or has had enough."""


def _pick(random: Random, items: Sequence[T]) -> T:
    """Any of them; there has to be one."""
    if not items:
        raise NobodyThere
    return random.choice(items)


class Troubles:
    """Has the troubles of a plan happen in a cluster.

    Attributes:
        happened: how often, by kind.
        cut_off: seconds in which a process was cut off, all together.
    """

    def __init__(self, cluster: Cluster, plan: list[Trouble]) -> None:
        self.happened: Counter[str] = Counter()
        self.cut_off = 0.0
        self._cluster = cluster
        self._world = cluster.world
        self._harmed: Counter[str] = Counter()
        self._undo: list[Callable[[], None]] = []
        self._over = False
        for trouble in plan:
            self._plan(trouble)

    def end(self) -> None:
        """Nothing goes wrong any more, and what was wrong is put right."""
        self._over = True
        while self._undo:
            self._undo[0]()

    def _plan(self, trouble: Trouble) -> None:
        def happen() -> None:
            if self._over:
                return
            act = getattr(self, f"_{trouble.kind.replace('-', '_')}")
            try:
                what = act(Random(trouble.chance), trouble.seconds)
            except NobodyThere:
                return
            if what:
                self.happened[trouble.kind] += 1
                self.cut_off += trouble.seconds if trouble.kind in CUTTING_OFF else 0.0
                self._world.note("trouble", f"{trouble.kind}: {what}")

        self._world.call_later(trouble.at, happen)

    def _for(self, seconds: float, undo: Callable[[], object]) -> None:
        """Have this done after so many seconds, or when all troubles end."""

        def once() -> None:
            if once in self._undo:
                self._undo.remove(once)
                self._world.note("trouble", "…over")
                undo()

        self._undo.append(once)
        if seconds < NEVER:
            self._world.call_later(seconds, once)

    # --- the network ------------------------------------------------------------------------------

    def _connections(self, random: Random) -> list[Connection]:
        """Of one process, any one."""
        return _pick(random, [each for each in self._processes() if each.connections]).connections

    def _cut(self, random: Random, _seconds: float) -> str:
        _pick(random, self._connections(random)).cut()
        return "one connection"

    def _lose(self, random: Random, _seconds: float) -> str:
        """A publisher's batches vanish, or come twice, and its connection stands.

        Its exchange has to notice.
        """
        living = [each for each in self._cluster.publishers if each.process.alive]
        found = [each.publisher for each in living if each.publisher is not None]
        connections = _pick(random, found).connections
        if not connections:
            return ""
        many = random.randint(1, 3)
        connection, twice = random.choice(connections), random.random() < TWICE
        if twice:
            connection.repeat(many)
        else:
            connection.lose(many)
        return f"{many} messages of a publisher {'come twice' if twice else 'vanish'}"

    def _stall(self, random: Random, seconds: float) -> str:
        connections = self._connections(random)
        up, down = random.choice([(True, True), (True, False), (False, True)])
        for connection in random.sample(connections, random.randint(1, len(connections))):
            connection.stall(seconds, up=up, down=down)
        return f"connections for {seconds:.2f} s"

    def _drop(self, random: Random, seconds: float) -> str:
        weather = self._cluster.wires.weather
        weather.drop = random.uniform(0.05, 0.5)
        self._for(seconds, lambda: setattr(weather, "drop", 0.0))
        return f"{weather.drop:.0%} of all fan-outs for {seconds:.2f} s"

    def _lag(self, random: Random, seconds: float) -> str:
        weather = self._cluster.wires.weather
        calm = self._cluster.shape.delay_seconds
        weather.delay_seconds = (0.001, random.uniform(0.01, 0.15))
        self._for(seconds, lambda: setattr(weather, "delay_seconds", calm))
        return f"up to {weather.delay_seconds[1]:.3f} s for {seconds:.2f} s"

    def _machines(self) -> list[str]:
        cluster = self._cluster
        clients = [each.machine for each in self._clients()]
        machines = [slot.machine for slot in cluster.managers]
        machines += [host.machine for host in cluster.hosts]
        return list(dict.fromkeys([*machines, MACHINE, *clients]))

    def _split(self, ones: list[str], others: list[str], seconds: float, *, both: bool) -> str:
        wires = self._cluster.wires
        wires.cut(ones, others, both=both)
        self._for(seconds, wires.mend)
        arrow = "|" if both else "-/->"
        return f"{' '.join(ones)} {arrow} {' '.join(others)} for {seconds:.2f} s"

    def _partition(self, random: Random, seconds: float) -> str:
        machines = self._machines()
        ones = random.sample(machines, random.randint(1, max(1, len(machines) // 2)))
        others = [machine for machine in machines if machine not in ones]
        return self._split(ones, others, seconds, both=True)

    def _one_way(self, random: Random, seconds: float) -> str:
        machines = self._machines()
        ones = random.sample(machines, random.randint(1, len(machines) - 1))
        others = [machine for machine in machines if machine not in ones]
        others = random.sample(others, random.randint(1, len(others)))
        return self._split(ones, others, seconds, both=False)

    def _isolate(self, random: Random, seconds: float) -> str:
        """Two machines do not hear each other; all others hear both."""
        one, other = random.sample(self._machines(), 2)
        return self._split([one], [other], seconds, both=random.random() < 0.7)

    # --- processes --------------------------------------------------------------------------------

    def _processes(self) -> list[Process]:
        cluster = self._cluster
        found = [slot.shell.process for slot in cluster.managers if slot.shell is not None]
        for host in cluster.hosts:
            found += host.processes
        found += self._clients()
        return [process for process in found if process.alive]

    def _clients(self) -> list[Process]:
        publishers = [each.process for each in self._cluster.publishers]
        subscribers = [each.process for each in self._cluster.subscribers]
        cluster = self._cluster
        others: list[Frail] = [*cluster.members, *cluster.requesters, *cluster.services]
        return publishers + subscribers + [each.process for each in others]

    def _pause(self, random: Random, seconds: float) -> str:
        process = random.choice(self._processes())
        self._harm(process)
        process.pause(seconds)
        self._for(seconds, process.resume)
        return f"{process} for {seconds:.2f} s"

    def _harm(self, process: Process) -> None:
        """See that a child can stand it: one that ends five times within a minute is given up."""
        self._harmed[process.name] += 1
        if self._harmed[process.name] > HARM_MOST:
            raise NobodyThere

    def _kill_child(self, random: Random, kind: type[MonitorShell] | type[ExchangeShell]) -> str:
        found = [each.process for each in self._cluster.children if isinstance(each, kind)]
        process = _pick(random, found)
        self._harm(process)
        process.end("killed by a trouble")
        return f"{process}"

    def _kill_exchange(self, random: Random, _seconds: float) -> str:
        return self._kill_child(random, ExchangeShell)

    def _mute(self, random: Random, seconds: float) -> str:
        """Subscribers do not hear an exchange any more, and then it dies.

        What it took meanwhile died with it: publishers have to send that again.
        """
        cluster = self._cluster
        exchange = _pick(random, cluster.exchanges)
        self._harm(exchange.process)
        machines = [each.machine for each in (s.process for s in cluster.subscribers) if each.alive]
        for connection in cluster.wires.between(exchange.process.machine, machines):
            connection.stall(2 * seconds, up=False, down=True)
        self._for(seconds, lambda: exchange.process.end("killed by a trouble"))
        return f"{exchange.process} for {seconds:.2f} s"

    def _kill_monitor(self, random: Random, _seconds: float) -> str:
        return self._kill_child(random, MonitorShell)

    def _kill_hcm(self, random: Random, seconds: float) -> str:
        hosts = [host for host in self._cluster.hosts if host.managed]
        host = _pick(random, hosts)
        manager = host.manager
        assert manager is not None  # noqa: S101 - `managed`
        manager.process.end("killed by a trouble")
        for_good = random.random() < KINDS["kill-hcm"].for_good
        if len(hosts) > 1 and for_good and not self._cluster.shape.durable:
            return f"{host.machine} for good"
        self._for(seconds, host.start_manager)
        return f"{host.machine} for {seconds:.2f} s"

    def _kill_gcm(self, random: Random, seconds: float) -> str:
        cluster = self._cluster
        living = [s for s in cluster.managers if s.shell is not None and s.shell.process.alive]
        leading = [slot for slot in living if slot.shell in cluster.leaders]
        slot = _pick(random, leading if leading and random.random() < 0.7 else living)
        assert slot.shell is not None  # noqa: S101 - it lives
        slot.shell.process.end("killed by a trouble")
        if len(living) > 1 and random.random() < KINDS["kill-gcm"].for_good:
            return f"{slot.machine} for good"
        self._for(seconds, slot.start)
        return f"{slot.machine} for {seconds:.2f} s"

    def _kill_host(self, random: Random, seconds: float) -> str:
        hosts = [host for host in self._cluster.hosts if host.up]
        host = _pick(random, hosts)
        host.go_down()
        managed = [each for each in hosts if each is not host and each.managed]
        for_good = random.random() < KINDS["kill-host"].for_good
        if managed and for_good and not self._cluster.shape.durable:
            return f"{host.machine} for good"
        self._for(seconds, host.come_up)
        return f"{host.machine} for {seconds:.2f} s"

    def _power(self, random: Random, seconds: float) -> str:
        """The power of some hosts, or of all, is cut at the same moment."""
        hosts = [host for host in self._cluster.hosts if host.up]
        if not hosts:
            return ""
        chosen = random.sample(hosts, random.randint(1, len(hosts)))
        for host in chosen:
            host.go_down()
            self._for(seconds * random.random(), host.come_up)
        return f"of {', '.join(host.machine for host in chosen)} for up to {seconds:.2f} s"

    def _disk(self, random: Random, seconds: float) -> str:
        """The disk of a host is slow for a while, or a write or sync of it fails."""
        host = random.choice(self._cluster.hosts)
        if random.random() < 0.5:
            usual = self._cluster.shape.disk_seconds
            host.disk.seconds = (usual[0], random.choice([0.05, 0.3]))
            self._for(seconds, lambda: setattr(host.disk, "seconds", usual))
            return f"of {host.machine} is slow for {seconds:.2f} s"
        exchanges = [each for each in host.processes if ".x" in each.name]
        for exchange in exchanges:
            self._harm(exchange)
        if not exchanges:
            return ""
        host.disk.fails = random.choice(["write", "sync", "sync_folder"])
        return f"of {host.machine}: the next {host.disk.fails} fails"

    def _kill_publisher(self, random: Random, seconds: float) -> str:
        cluster = self._cluster
        living = [each for each in cluster.publishers if each.process.alive]
        publisher = _pick(random, living)
        publisher.process.end("killed by a trouble")
        profile = publisher.profile
        self._for(seconds, lambda: cluster.add_publisher(profile))
        return f"{publisher.process}"

    def _kill_subscriber(self, random: Random, seconds: float) -> str:
        subscriber = self._subscriber(random)
        subscriber.process.end("killed by a trouble")
        self._for(seconds, lambda: self._cluster.add_subscriber(from_first=True))
        return f"{subscriber.process}"

    def _subscriber(self, random: Random) -> SubscriberShell:
        return _pick(random, [each for each in self._cluster.subscribers if each.process.alive])

    def _member(self, random: Random) -> Frail:
        """A member of the group, an instance of the service, or a requester."""
        cluster = self._cluster
        kinds: list[Sequence[Frail]] = [cluster.members, cluster.services, cluster.requesters]
        living = [[each for each in kind if each.process.alive and not each.left] for kind in kinds]
        found = list(filter(None, living))
        # Groups alone draw once, so that their histories stay as they were.
        return _pick(random, found[0] if len(found) == 1 else _pick(random, found))

    def _kill_member(self, random: Random, seconds: float) -> str:
        """A member dies, or leaves; another one comes."""
        cluster, member = self._cluster, self._member(random)
        another: Callable[[], object] = cluster.add_member
        if isinstance(member, ServiceShell):
            another = cluster.add_service
        elif isinstance(member, RequesterShell):
            another = cluster.add_requester
        leaves = random.random() < LEAVES
        if leaves:
            member.leave()
        else:
            member.process.end("killed by a trouble")
        self._for(seconds, another)
        return f"{member.process} {'leaves' if leaves else 'dies'}"

    def _pause_member(self, random: Random, seconds: float) -> str:
        member = self._member(random)
        member.process.pause(seconds)
        self._for(seconds, member.process.resume)
        return f"{member.process} for {seconds:.2f} s"

    def _cut_member(self, random: Random, seconds: float) -> str:
        """What a member says, or hears, or both, comes late or not at all."""
        member = self._member(random)
        if not member.process.connections:
            return ""
        up, down = random.choice([(True, True), (True, False), (False, True), (False, False)])
        for connection in member.process.connections:
            if up or down:
                connection.stall(seconds, up=up, down=down)
            else:
                connection.cut()
        return f"{member.process} for {seconds:.2f} s, {up=} {down=}"

    def _sluggish(self, random: Random, seconds: float) -> str:
        """The application of a subscriber takes nothing, at once or again and again."""
        shell = self._subscriber(random)
        subscriber = shell.subscriber
        if subscriber is None or not subscriber.machine.confirmed:
            return ""
        times = random.choice([1, 1, 10])
        for turn in range(times):
            self._world.call_later(turn * seconds / times, self._while_it_lasts(subscriber.rest))
            self._world.call_later((turn + 0.8) * seconds / times, subscriber.go_on)
        self._for(seconds, subscriber.go_on)
        return f"{shell.process} for {seconds:.2f} s, {times} times"

    def _uneven(self, random: Random, seconds: float) -> str:
        """A subscriber hears one exchange in fits, which are short: others are to wait for it."""
        shell = self._subscriber(random)
        subscriber = shell.subscriber
        if subscriber is None or not subscriber.machine.readers:
            return ""
        source = random.choice(sorted(subscriber.machine.readers))
        at = 0.0
        while at < seconds:
            fit = random.uniform(*FIT_SECONDS)
            act = self._while_it_lasts(partial(subscriber.hear_nothing, source, fit))
            self._world.call_later(at, act)
            at += fit + random.uniform(*FREE_SECONDS)
        return f"{shell.process} hears x{source[0]} in fits for {seconds:.2f} s"

    def _while_it_lasts(self, act: Callable[[], None]) -> Callable[[], None]:
        return lambda: None if self._over else act()

    # --- disks, clocks, ZooKeeper -----------------------------------------------------------------

    def _slow_disk(self, random: Random, seconds: float) -> str:
        cluster = self._cluster
        if random.random() < 0.5:
            cluster.ensemble.slow = random.uniform(0.05, 1.0)
            self._for(seconds, lambda: setattr(cluster.ensemble, "slow", DELAY_SECONDS[1]))
            return f"of ZooKeeper, {cluster.ensemble.slow:.2f} s, for {seconds:.2f} s"
        host = random.choice(cluster.hosts)
        usual = cluster.shape.start_seconds
        host.start_seconds = (usual[0], random.uniform(0.5, 4.0))
        self._for(seconds, lambda: setattr(host, "start_seconds", usual))
        return f"of {host.machine}, {host.start_seconds[1]:.2f} s, for {seconds:.2f} s"

    def _clock(self, random: Random, _seconds: float) -> str:
        process = random.choice(self._processes())
        process.clocks.wall += random.choice([-1, 1]) * random.choice([0.5, 60.0, 86_400.0])
        return f"of {process.machine} is {process.clocks.wall:g} s ahead"

    def _expiry(self, random: Random, _seconds: float) -> str:
        ensemble = self._cluster.ensemble
        store = _pick(random, ensemble.stores)
        ensemble.expire(store)
        return f"of {store.process}"

    def _away(self, _random: Random, seconds: float) -> str:
        ensemble = self._cluster.ensemble
        if ensemble.away:
            return ""
        ensemble.go_away()
        self._for(seconds, ensemble.come_back)
        return f"ZooKeeper for {seconds:.2f} s"

    def _empty(self, _random: Random, seconds: float) -> str:
        ensemble = self._cluster.ensemble
        if ensemble.away:
            return ""
        ensemble.go_away()
        self._for(seconds, lambda: ensemble.come_back(empty=True))
        return f"ZooKeeper for {seconds:.2f} s, and comes back with nothing"

    # --- people who want something meanwhile ------------------------------------------------------

    def _ask(self, request: Public) -> str:
        return f"{request}" if self._cluster.console.ask(request) else ""

    def _insist(self, random: Random, _seconds: float) -> str:
        host = random.choice(self._cluster.hosts)
        request = CreateExchange(
            QName=QUEUE, Host=host.machine, TransactionID=random.getrandbits(30)
        )
        self._cluster.console.insist(request)
        return f"{request}, several times"

    def _grow(self, random: Random, _seconds: float) -> str:
        host = random.choice(self._cluster.hosts)
        return self._ask(
            CreateExchange(QName=QUEUE, Host=host.machine, TransactionID=random.getrandbits(30))
        )

    def _shrink(self, random: Random, _seconds: float) -> str:
        numbers = [each.info.number for each in self._cluster.exchanges if each.spec.queue == QUEUE]
        return self._ask(RemoveExchange(QName=QUEUE, Exchange=f"x{_pick(random, numbers)}"))

    def _another_queue(self, random: Random, _seconds: float) -> str:
        name = f"other-{random.randint(1, 2)}"
        if random.random() < 0.7:
            return self._ask(CreateQueue(QName=name, Durability=VOLATILE))
        return self._ask(RemoveQueue(QName=name))

    def _drain(self, random: Random, seconds: float) -> str:
        """A host is drained or cordoned, and that is taken back; the leader by then hears it."""
        console = self._cluster.console
        name = random.choice(self._cluster.hosts).machine
        request = random.choice([DrainHost, DrainHost, CordonHost])(Host=name)
        if not console.ask(request):
            return ""
        self._for(seconds, lambda: console.see_to(UncordonHost(Host=name)))
        return f"{request} for {seconds:.2f} s"
