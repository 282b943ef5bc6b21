"""What is noticed while it happens: who leads, who is obeyed, which processes begin, who writes."""

from __future__ import annotations

from collections import Counter

from roq.gcm.state.records import SCALING, QueueRecord
from roq.model import LogId
from roq.protocol.batch import Kind, read_header
from roq.protocol.spec import ExchangeSpec, MonitorSpec
from roq.simulation.virtual.asking import Asking
from roq.simulation.virtual.sharing import Sharing
from roq.simulation.virtual.world import World


class Watch:
    """Collects broken promises.

    Attributes:
        broken: one sentence for each.
        checked: how often each promise was looked at.
        spawned: monitors and exchanges that were started, by name and life of the queue.
        established: those of them that were there when all was well.
        outage: the longest time for which an exchange was not there, seconds.
        exchanges_ended: when a process of an exchange was no more, each time.
        sharing: what a consumer group does.
        asking: what becomes of requests.
    """

    def __init__(self, world: World) -> None:
        self.broken: list[str] = []
        self.checked: Counter[str] = Counter()
        self.spawned: Counter[str] = Counter()
        self.outage = 0.0
        self.established: frozenset[str] = frozenset()
        self.exchanges_ended: list[float] = []
        self.sharing = Sharing(self.found, self.checked)
        self.asking = Asking(self.found, self.checked)
        self._ended: dict[str, float] = {}
        self._world = world
        self._leader = ""
        self._leader_epoch = 0
        self._obeyed: dict[str, int] = {}
        self._reads: dict[tuple[str, int], int] = {}
        self._children: dict[tuple[str, bytes, int], int] = {}
        self._next_numbers: dict[bytes, int] = {}
        self._links: dict[tuple[object, ...], int] = {}
        self._latest: dict[tuple[object, ...], int] = {}

    def all_is_well(self) -> None:
        """Everything that was started so far is there, and wanted."""
        self.established = frozenset(self.spawned)

    def elected(self, manager: str, epoch: int) -> None:
        """A manager leads from now on, under this epoch.

        Again under the same one, if it was cut off for a while and no other one has led meanwhile.
        """
        self.checked["a leader has a higher epoch than all before it"] += 1
        again = (manager, epoch) == (self._leader, self._leader_epoch)
        if epoch <= self._leader_epoch and not again:
            self._break(f"{manager} leads with epoch {epoch}, after one with {self._leader_epoch}")
        if epoch >= self._leader_epoch:
            self._leader, self._leader_epoch = manager, epoch

    def commanded(self, machine: str, epoch: int, *, obeyed: bool) -> None:
        """A host manager was told to do something by a leader of this epoch."""
        self.checked["no host manager obeys an earlier leader"] += 1
        known = self._obeyed.get(machine, 0)
        if obeyed and epoch < known:
            self._break(f"the host manager of {machine} obeys epoch {epoch} after epoch {known}")
        if obeyed:
            self._obeyed[machine] = max(known, epoch)

    def started(self, machine: str, spec: MonitorSpec | ExchangeSpec) -> None:
        """The process of a child begins.

        A host that was cut off may start one that runs elsewhere by now; that one ends by itself.
        """
        self.checked["of two processes of a child on a host the later has the higher epoch"] += 1
        self.spawned[f"{spec.child} of {spec.queue_id.hex()[:6]}"] += 1
        key = (machine, spec.queue_id, spec.number if isinstance(spec, ExchangeSpec) else 0)
        known = self._children.get(key, 0)
        if spec.epoch <= known:
            self._break(f"{spec.child} begins with epoch {spec.epoch}, after one with {known}")
        self._children[key] = max(spec.epoch, known)

    def came(self, spec: MonitorSpec | ExchangeSpec) -> None:
        """A child has come up."""
        ended = self._ended.pop(spec.child, self._world.now)
        if isinstance(spec, ExchangeSpec):
            self.outage = max(self.outage, self._world.now - ended)

    def ended(self, spec: MonitorSpec | ExchangeSpec) -> None:
        """The process of a child is no more."""
        self._ended.setdefault(spec.child, self._world.now)
        if isinstance(spec, ExchangeSpec):
            self.exchanges_ended.append(self._world.now)

    def read(self, subscriber: str, log: LogId) -> None:
        """A subscriber begins to read a log."""
        self.checked["no client goes back to an earlier log of an exchange"] += 1
        known = self._reads.get((subscriber, log.number), 0)
        if log.generation < known:
            self._break(
                f"{subscriber} reads x{log.number} of generation {log.generation}, after one with "
                f"{known}"
            )
        self._reads[subscriber, log.number] = max(log.generation, known)

    def written(self, machine: str, leader: str) -> None:
        """A manager has written to the registry, where this stands about the leader."""
        self.checked["only the leader writes definitions"] += 1
        if f"//{machine}:" not in leader:
            self._break(
                f"the manager on {machine} writes definitions, but this one leads: {leader}"
            )

    def defined(self, record: QueueRecord) -> None:
        """A manager is about to write a definition."""
        known = self._next_numbers.get(record.queue_id, record.next_number)
        self._next_numbers[record.queue_id] = max(known, record.next_number)
        # One stands in for another one that is away with its log, and both stay.
        wanted = [each for each in record.exchanges if each.here]
        given = len(wanted) - record.surplus
        most = max(given, record.limits.exchanges_max)  # by hand it may be given more
        for exchange in wanted:
            if exchange.number < known or exchange.origin != SCALING or exchange.replaces:
                continue  # for one that goes with its host there is another one first
            self.checked["no queue grows by itself beyond what it may have"] += 1
            if len(wanted) > most:
                self._break(f"queue {record.name} grows to {len(wanted)} exchanges, of {most}")

    def appended(self, spec: ExchangeSpec, generation: int, batch: bytes) -> None:
        """An exchange has taken a batch into its log, of this generation.

        What an earlier process has written and not shown is in a log on disk as well.
        """
        header = read_header(batch)
        if header.kind in {Kind.MARKER, Kind.FENCE}:
            return  # the exchange's own
        self.checked["each batch of a link gets into a log once and in order"] += 1
        link = (spec.queue_id, spec.number, generation, header.publisher, header.epoch)
        expected = self._links.get(link, 0) + 1
        in_order = header.link_number == expected
        if not in_order and not (spec.log and header.link_number > expected):
            self._break(f"{spec.child} appends batch {header.link_number} of a link for {expected}")
        self._links[link] = header.link_number
        latest = self._latest.get(link[:-1], 0)
        if header.epoch < latest:
            self._break(f"{spec.child} takes a publisher of epoch {header.epoch} after {latest}")
        self._latest[link[:-1]] = max(latest, header.epoch)

    def taken_back(self, spec: ExchangeSpec) -> None:
        """The power of an exchange was cut whose log runs ahead of its disk: links may go back."""
        for link in [each for each in self._links if each[:2] == (spec.queue_id, spec.number)]:
            del self._links[link]

    def made(self, transaction: int, known: str, name: str) -> None:
        """An exchange was created, says the answer to a request; `known`: what the first said."""
        self.checked["a program that asks twice for an exchange gets one"] += 1
        if name != known:
            self._break(f"transaction {transaction} has made {known} and {name}")

    def published(self, name: str, owed: int, window: int) -> None:
        """A publisher has taken a batch, and has so many that are not acknowledged now."""
        self.checked["no publisher exceeds its window"] += 1
        if owed > window:
            self._break(f"{name} has {owed} batches under way and waiting, of {window}")

    def found(self, text: str) -> None:
        """Another part of the model has noticed a broken promise."""
        self._break(text)

    def _break(self, text: str) -> None:
        self.broken.append(f"at {self._world.now:.3f}: {text}")
