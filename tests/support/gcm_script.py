"""A configuration manager's machine with a registry and hosts of paper, driven step by step."""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass, field
from itertools import count

import bson
import msgspec

from roq.errors import RegistryAway
from roq.gcm import events
from roq.gcm.machine import GcmMachine, Settings
from roq.gcm.provision.hosts import ProvisionSettings
from roq.gcm.state import records
from roq.machine import Tick
from roq.model import VOLATILE, child_epoch
from roq.protocol import broadcast, documents
from roq.protocol.control import (
    UNAVAILABLE,
    Answer,
    Configure,
    Control,
    Done,
    ElasticityRequest,
    Emptied,
    Empty,
    Failure,
    HostReport,
    Started,
    StartExchange,
    StartMonitor,
    StopQueue,
)
from roq.protocol.documents import RawDocument
from roq.protocol.reports import ChildInfo
from roq.protocol.version import WIRE_VERSION

ME = records.Manager(
    id="me", client="tcp://h:5000", management="tcp://h:5003", broadcast="tcp://h:5005"
)
OTHER = records.Manager(
    id="other", client="tcp://o:5000", management="tcp://o:5003", broadcast="tcp://o:5005"
)
CLUSTER = "c1"


@dataclass
class PaperHost:
    """What a host manager does, without processes."""

    name: str
    epoch: int = 1
    exchange_max: int = 0
    cpu: float = 0.0
    control: str = ""
    children: dict[tuple[str, int], ChildInfo] = field(default_factory=dict)
    refuse: set[type] = field(default_factory=set)
    late: bool = False
    """Whether what it is to start does not run in time."""
    bad_logs: set[tuple[str, int]] = field(default_factory=set)
    """(queue, number of an exchange) whose log is here, and is refused by its process."""
    mute: set[type] = field(default_factory=set)
    asked: list[Control] = field(default_factory=list)
    started: int = 0
    bases: dict[tuple[str, int], int] = field(default_factory=dict)
    """The lowest epoch under which a child counts, as it was told when it was started."""
    durability: dict[tuple[str, int], str] = field(default_factory=dict)
    """What becomes of the log of an exchange."""
    logs: dict[tuple[bytes, int], int] = field(default_factory=dict)
    """By queue id and number: the epoch of the process that has made the log on its disk."""
    folder_since: int = 0
    """Host epoch since which its data.dir is in use, as far as it tells."""
    log_stays: str = ""
    """Why its disk removes no log."""
    up: bool = True
    """Whether its manager answers and reports."""

    def __post_init__(self) -> None:
        self.control = self.control or f"tcp://{self.name}:5100"

    def answer(self, message: Control) -> Control | None:
        """The answer to a command of the configuration manager; None for none."""
        if not self.up:
            return None
        self.asked.append(message)
        if type(message) in self.mute:
            return None
        refused = self._refused(message)
        if refused is not None:
            return refused
        match message:
            case StartMonitor():
                child = self.start(message.queue, message.queue_id, 0, message.base)
                return Started(id=message.id, child=child)
            case StartExchange():
                number = message.number
                self.durability[message.queue, number] = message.durability
                child = self.start(message.queue, message.queue_id, number, message.base)
                return Started(id=message.id, child=child)
            case StopQueue():
                self._end(message)
                gone = self._erase(message) if message.erase else True
                return Done(id=message.id, no_log_since=0 if gone else self.folder_since)
        raise AssertionError(message)

    def _refused(self, message: Control) -> Failure | None:
        if self.late and isinstance(message, StartExchange):
            text = "it has not reported yet"
            return Failure(id=message.id, RESULT=1101, COMMENT=text, CODE=UNAVAILABLE)
        if type(message) in self.refuse:
            return Failure(id=message.id, RESULT=1101, COMMENT="no room", CODE="no_capacity")
        match message:
            case StartExchange(queue=queue, number=number) if (queue, number) in self.bad_logs:
                text = f"{queue}.x{number} does not run: ended: exit code 74; log.json is damaged"
                return Failure(id=message.id, RESULT=1101, COMMENT=text, CODE="failed")
            case StartExchange(queue_id=queue_id, number=number, has_log=True):
                if (queue_id, number) not in self.logs:
                    text = f"the log of x{number} is not there: mount the disk"
                    return Failure(id=message.id, RESULT=1101, COMMENT=text, CODE="log_missing")
            case StopQueue(erase=True) if self.log_stays and self._names(message):
                self._end(message)
                text = self.log_stays
                return Failure(id=message.id, RESULT=1101, COMMENT=text, CODE="failed")
        return None

    def _names(self, message: StopQueue) -> list[int]:
        """The exchanges with logs here that it means."""
        numbers = [number for queue_id, number in self.logs if queue_id == message.queue_id]
        return [each for each in numbers if each and message.number in (-1, each)]

    def _end(self, message: StopQueue) -> None:
        for key, child in list(self.children.items()):
            same = message.queue_id in (b"", child.queue_id)
            if key[0] == message.queue and same and message.number in (-1, key[1]):
                del self.children[key]

    def _erase(self, message: StopQueue) -> bool:
        """Whether there was a log that was to go."""
        gone = self._names(message)
        for each in [] if message.empty else gone:
            del self.logs[message.queue_id, each]
        return bool(gone)

    def mount(self, logs: dict[tuple[bytes, int], int], since: int) -> dict[tuple[bytes, int], int]:
        """It has another disk from now on; gives what is on the one before."""
        before, self.logs, self.folder_since = self.logs, logs, since
        return before

    def start(self, queue: str, queue_id: bytes, number: int, base: int = 0) -> ChildInfo:
        known = self.children.get((queue, number))
        if known is not None and known.queue_id == queue_id and known.state == "running":
            return known
        self.bases[queue, number] = base
        return self.restart(queue, queue_id, number)

    def fail(self, queue: str, number: int, reason: str) -> None:
        """It ended too often, and is not started again."""
        child = self.children[queue, number]
        self.children[queue, number] = msgspec.structs.replace(
            child, state="failed", reason=reason, pid=0
        )

    def restart(self, queue: str, queue_id: bytes, number: int) -> ChildInfo:
        self.started += 1
        port = 6000 + self.started
        address = f"tcp://{self.name}:{port}"
        monitor = number == 0
        epoch = child_epoch(max(self.epoch, self.bases.get((queue, number), 0)), self.started)
        durability = self.durability.get((queue, number), "none")
        known = self.logs.setdefault((queue_id, number), epoch)
        child = ChildInfo(
            child=f"{queue}.monitor" if monitor else f"{queue}.x{number}",
            role="monitor" if monitor else "exchange",
            queue=queue,
            queue_id=queue_id,
            number=number,
            epoch=epoch,
            generation=0 if monitor else epoch if durability == "none" else known,
            state="running",
            pid=port,
            control=address if monitor else "",
            statistics=f"tcp://{self.name}:{port + 1000}" if monitor else "",
            data="" if monitor else address,
            live="" if monitor else f"tcp://{self.name}:{port + 1000}",
            durability=durability,
        )
        self.children[queue, number] = child
        return child

    def report(self, **more: object) -> HostReport:
        return msgspec.structs.replace(
            HostReport(
                id=9,
                host=self.name,
                epoch=self.epoch,
                control=self.control,
                exchange_max=self.exchange_max,
                cpu_percent=self.cpu,
                children=list(self.children.values()),
            ),
            **more,
        )


@dataclass
class PaperMonitor:
    """What the monitor of a queue answers to the configuration manager."""

    waits_for: str = ""
    """Why an exchange is not empty; "" if every one is."""
    last: int = 0
    """Number of the exchange that is the last one to take publishers."""
    mute: bool = False
    ends: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Epoch of an exchange, and where its log ends."""
    asked: list[Control] = field(default_factory=list)

    def answer(self, message: Control) -> Control | None:
        """The answer to a command of the configuration manager; None for none."""
        self.asked.append(message)
        if self.mute:
            return None
        match message:
            case Empty() if message.number == self.last:
                return Failure(id=message.id, RESULT=1101, COMMENT="the last", CODE="no_capacity")
            case Empty() if self.waits_for:
                text = f"x{message.number} is not empty: {self.waits_for}"
                return Failure(id=message.id, RESULT=1101, COMMENT=text, CODE="unavailable")
            case Empty():
                epoch, end = self.ends.get(message.number, (0, -1))
                return Emptied(id=message.id, number=message.number, epoch=epoch, end=end)
            case Configure():
                return Done(id=message.id)
        raise AssertionError(message)


class Script:
    """The machine, and everything that it talks to."""

    def __init__(
        self,
        *hosts: PaperHost,
        leads: bool = True,
        provision: ProvisionSettings | None = None,
        durability: str = VOLATILE,
    ) -> None:
        cloud: RawDocument = {"cloud.use": False, "cloud.user": "u"}
        self.machine = GcmMachine(
            Settings(
                manager=ME, period=5.0, cloud=cloud, provision=provision, durability=durability
            )
        )
        self.now = 100.0
        self.registry: dict[str, bytes] = {}
        self.registry_fails = 0
        self.hosts: dict[str, PaperHost] = {host.name: host for host in hosts}
        self.nodes: set[str] = {host.name for host in hosts}
        """The hosts that stand in the registry."""
        self.numbers = max([host.epoch for host in hosts], default=0)
        """The registry's counter of host epochs."""
        self.monitors: defaultdict[str, PaperMonitor] = defaultdict(PaperMonitor)
        """By the name of their queue."""
        self.pending: deque[events.Commit | events.DrawEpoch | events.AskHost] = deque()
        self.calls: list[events.CallProvider] = []
        """Of the provider; whoever scripts them feeds what comes of them."""
        self.answers: defaultdict[object, list[bytes]] = defaultdict(list)
        self.broadcasts: list[broadcast.Configuration] = []
        self.pushed: list[tuple[str, RawDocument]] = []
        self.forgotten: list[str] = []
        self.outbid: list[int] = []
        self.peers = count(1)
        self.epoch = 0
        self.notes: list[str] = []
        self.feed(events.ClusterNamed(CLUSTER))
        self.feed(events.HostsPresent(frozenset(self.nodes)))
        if leads:
            self.elect()
            for host in hosts:
                self.report(host)

    # --- events -----------------------------------------------------------------------------------

    def feed(self, event: events.Event) -> None:  # noqa: C901 - one per effect
        again = False
        for effect in self.machine.handle(event, self.now):
            match effect:
                case events.Reply():
                    self.answers[effect.peer].append(effect.data)
                case events.Commit() | events.DrawEpoch() | events.AskHost():
                    self.pending.append(effect)
                case events.HangUp():
                    self.hang_up(effect.endpoint)
                case events.ReadAgain():
                    again = True
                case events.LeadAnew():
                    self.outbid.append(effect.epoch)
                case events.CallProvider():
                    self.calls.append(effect)
                case events.Broadcast():
                    self.broadcasts.append(broadcast.decode(effect.frames))
                case events.PushRules():
                    self.pushed.append((effect.address, bson.decode(effect.data)))
                case events.ForgetListener():
                    self.forgotten.append(effect.address)
                case events.LogLine():
                    self.notes.append(effect.text)
        self.machine.check()
        if again:
            self.feed(events.RegistryBack(self.snapshot()))

    def hang_up(self, endpoint: str) -> None:
        """No start that was asked there arrives."""
        for each in list(self.pending):
            if isinstance(each, events.AskHost) and each.endpoint == endpoint:
                self.pending.remove(each)

    def elect(self) -> None:
        self.epoch += 1
        self.feed(events.Elected(self.epoch, self.snapshot()))

    def snapshot(self) -> records.Snapshot:
        return records.decode_snapshot(self.registry)

    def report(self, host: PaperHost, /, **more: object) -> Answer:
        peer = next(self.peers)
        self.feed(events.ClientFrame(peer, documents.encode(host.report(**more))))
        (data,) = self.answers.pop(peer)
        return documents.decode(data, Answer)  # type: ignore[arg-type]

    def pass_time(self, seconds: float) -> None:
        """Let time pass, with a tick at each deadline, as a shell does."""
        end = self.now + seconds
        while (deadline := self.machine.next_deadline()) is not None and deadline <= end:
            self.now = max(self.now, deadline)
            self.feed(Tick())
        self.now = end

    # --- hosts that fail --------------------------------------------------------------------------

    def vanish(self, name: str, *, with_children: bool = True) -> None:
        """A host is lost at once and with everything on it, or its manager alone.

        Its node is still there; `expire_node` removes it.
        """
        host = self.hosts[name]
        host.up = False
        if with_children:
            host.children.clear()

    def expire_node(self, name: str) -> None:
        """The session of a host manager has ended."""
        self.nodes.discard(name)
        self.feed(events.HostsPresent(frozenset(self.nodes)))

    def come_back(self, name: str) -> None:
        """A host manager starts anew; it has taken over what still runs."""
        host = self.hosts[name]
        host.up, host.epoch = True, self.draw()
        self.nodes.add(name)
        self.feed(events.HostsPresent(frozenset(self.nodes)))
        self.report(host)

    def live(self, seconds: float, *, heartbeats: bool = True) -> None:
        """Let time pass in a cluster in which everybody who is up reports every second."""
        end = self.now + seconds
        while self.now < end:
            for host in self.hosts.values():
                if host.up:
                    self.report(host)
            if heartbeats:
                self.prove()
            self.settle()
            self.pass_time(min(0.5, end - self.now))
            self.settle()

    def prove(self) -> None:
        """Every monitor that runs asks for its rules, and tells what it hears."""
        running = [child for host in self.hosts.values() for child in host.children.values()]
        for monitor in running:
            if monitor.role != "monitor" or monitor.state != "running":
                continue
            heard = [
                (child.number, child.epoch)
                for child in running
                if child.queue_id == monitor.queue_id and child.role == "exchange"
            ]
            message = ElasticityRequest(
                id=1, queue=monitor.queue, queue_id=monitor.queue_id, epoch=monitor.epoch,
                control=monitor.control, exchanges=heard,
            )  # fmt: skip
            self.send_raw(documents.encode(message), port=5000)

    # --- completions ------------------------------------------------------------------------------

    def step(self, which: int = 0) -> None:
        """Complete one of the effects under way."""
        effect = self.pending[which]
        del self.pending[which]
        if not isinstance(effect, events.AskHost):
            self._registry_answers(effect)
            return
        answer = self.answerer(effect.endpoint).answer(effect.message)
        if answer is None:
            self.feed(events.Unanswered(effect.token, f"no answer within {effect.timeout:g} s"))
        else:
            self.feed(events.Answered(effect.token, answer))

    def _registry_answers(self, effect: events.Commit | events.DrawEpoch) -> None:
        if self.registry_fails:
            self.registry_fails -= 1
            self.feed(events.CommitFailed(effect.token, RegistryAway("registry away")))
            return
        if isinstance(effect, events.DrawEpoch):
            self.feed(events.EpochDrawn(effect.token, self.draw()))
            return
        self.commit(effect)
        self.feed(events.Committed(effect.token))

    def commit(self, effect: events.Commit) -> None:
        """Change the registry, without telling the machine."""
        for change in effect.changes:
            if isinstance(change, events.Put):
                self.registry[change.path] = change.data
                continue
            for path in [
                path for path in self.registry if f"{path}/".startswith(f"{change.path}/")
            ]:
                del self.registry[path]

    def draw(self) -> int:
        """The next number of the counter of host epochs."""
        self.numbers += 1
        return self.numbers

    def answerer(self, endpoint: str) -> PaperHost | PaperMonitor:
        """Who answers at this address; nobody does where a process has ended."""
        for host in self.hosts.values():
            if host.control == endpoint:
                return host
            for child in host.children.values():
                if child.control == endpoint and child.state == "running":
                    return self.monitors[child.queue]
        return PaperMonitor(mute=True)

    def settle(self) -> None:
        """Complete everything."""
        while self.pending:
            self.step()

    # --- requests ---------------------------------------------------------------------------------

    def send(self, command: int, *, port: int = 5003, **fields: object) -> int:
        """Send a request; gives the peer, whose answers stand in `answers`."""
        said = {"wire": WIRE_VERSION} if command >= 3000 else {}
        return self.send_raw(bson.encode({"CMD": command, **said, **fields}), port=port)

    def send_raw(self, data: bytes, *, port: int = 5003, party: str | None = None) -> int:
        peer = next(self.peers)
        if port == 5003:
            unique = peer.to_bytes(16, "big")
            self.feed(events.ManagementFrame(peer, data, unique=unique, wall=1e9, party=party))
        else:
            self.feed(events.ClientFrame(peer, data))
        return peer

    def answer(self, peer: int) -> RawDocument:
        (data,) = self.answers[peer]
        return bson.decode(data)

    def ask(self, command: int, *, port: int = 5003, **fields: object) -> RawDocument:
        """Send a request, complete everything, give its answer."""
        peer = self.send(command, port=port, **fields)
        self.settle()
        return self.answer(peer)

    def record(self, name: str) -> records.QueueRecord:
        """What the registry says about a queue."""
        return msgspec.json.decode(self.registry[f"/queues/{name}"], type=records.QueueRecord)

    def figures(self) -> dict[tuple[str, ...], float]:
        """Name and labels of each figure that the machine tells now, and its value."""
        told = self.machine.figures()
        return {(each.metric.name, *each.labels): each.value for each in told}
