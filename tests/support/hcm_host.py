"""A host manager's machine with processes of paper, driven step by step; no test in here."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import msgspec

from roq.errors import Unavailable
from roq.hcm.events import (
    Adopted,
    Announce,
    Effect,
    Erase,
    Erased,
    Event,
    Exited,
    Finished,
    Kill,
    LeaderAnswered,
    Probe,
    Probed,
    Registered,
    Release,
    Remember,
    RememberEpoch,
    RememberLeader,
    Reply,
    ReportToLeader,
    Requested,
    Rested,
    Spawn,
    Spawned,
    SpawnFailed,
    StopWanted,
    Terminate,
)
from roq.hcm.machine import HostMachine
from roq.hcm.specs import Settings
from roq.machine import Tick
from roq.model import Limits, host_epoch
from roq.protocol.control import (
    Answer,
    ChildReport,
    Control,
    Failure,
    HostReportAck,
    StartExchange,
    StartMonitor,
    StopQueue,
)
from roq.protocol.reports import ChildInfo
from roq.protocol.spec import ExchangeSpec, MonitorSpec

QUEUE_ID = b"q" * 16
HOST_EPOCH = 3


def settings(**changes: object) -> Settings:
    values: dict[str, object] = {
        "host": "127.0.0.2",
        "bind": "127.0.0.2",
        "control": "tcp://127.0.0.2:5100",
        "control_local": "tcp://127.0.0.2:5100",
        "managers": ("tcp://127.0.0.1:5000", "tcp://127.0.0.1:5010"),
        "monitor_ports": (5500, 5510),
        "statistics_ports": (5800, 5810),
        "exchange_ports": (6000, 6100),
        **changes,
    }
    return Settings(**values)  # type: ignore[arg-type]


@dataclass
class Process:
    """One process of paper: does nothing by itself."""

    spec: MonitorSpec | ExchangeSpec
    pid: int
    ports: tuple[int, int]
    asked_to_end: bool = False
    state: str = ""
    """As in /proc, for one that says nothing any more; else it reports when it is looked at."""

    def info(self, state: str = "running") -> ChildInfo:
        spec = self.spec
        first, second = (f"tcp://{spec.advertise}:{port}" for port in self.ports)
        exchange = isinstance(spec, ExchangeSpec)
        return ChildInfo(
            child=spec.child, role="exchange" if exchange else "monitor", queue=spec.queue,
            queue_id=spec.queue_id, number=spec.number if isinstance(spec, ExchangeSpec) else 0,
            epoch=spec.epoch, state=state, pid=self.pid,
            control="" if exchange else first, statistics="" if exchange else second,
            data=first if exchange else "", live=second if exchange else "",
        )  # fmt: skip


class Host:
    """The machine at a time, its processes, and everything it wanted done since the last look."""

    def __init__(self, *, registered: bool = True, share: int = 1, **changes: object) -> None:
        self.now = 1_000.0
        self.share = share
        """So many monitors share a process."""
        self._alone: set[int] = set()
        """Processes that no other monitor may join."""
        self._settings = settings(**changes)
        self.machine = HostMachine(self._settings)
        self.leader_epoch = self.counted = self.since = 0
        self.has_log = True
        """Whether there is a log where one is to be removed that does not run."""
        self.log_stays = ""
        """Why its disk does not remove it."""
        self.effects: list[Effect] = []
        self.processes: dict[str, Process] = {}
        self.remembered: dict[tuple[str, int], tuple[int, ...]] = {}
        self.spawned: list[MonitorSpec | ExchangeSpec] = []
        self.reports: list[ReportToLeader] = []
        self.announced: list[str] = []
        self.finished = False
        self.spawn_fails = ""
        self.disk_is_there = True
        """Whether logs that exchanges have had are."""
        self.obedient = True
        self.answers_leader = True
        self.drains = True
        self.stuck = ""
        """Why the leader cannot drain this host."""
        self._pids = 100
        if registered:
            self.handle(Registered(HOST_EPOCH))

    # --- events -----------------------------------------------------------------------------------

    def handle(self, event: Event) -> list[Effect]:
        """Feed an event in and do what is wanted, as the shell does; gives all effects."""
        done: list[Effect] = []
        events = [event]
        while events:
            effects = self.machine.handle(events.pop(0), self.now)
            done += effects
            for effect in effects:
                events += self._perform(effect)
        self.machine.check()
        self.effects += done
        return done

    def ask(self, peer: str, message: Control) -> list[Answer]:
        """Give what this peer is answered at once."""
        return answers(self.handle(Requested(peer_of(peer), message)), peer)  # type: ignore[arg-type]

    def start_monitor(self, peer: str = "gcm", queue: str = "orders", *, queue_id: bytes = QUEUE_ID,
                      leader_epoch: int = 1, base: int = 0) -> list[Answer]:  # fmt: skip
        return self.ask(
            peer,
            StartMonitor(id=1, queue=queue, queue_id=queue_id, leader_epoch=leader_epoch,
                         limits=Limits(), base=base),
        )  # fmt: skip

    def start_exchange(self, number: int = 1, peer: str = "gcm", queue: str = "orders", *,
                       queue_id: bytes = QUEUE_ID, leader_epoch: int = 1,
                       monitor: str = "tcp://m:1", base: int = 0,
                       durability: str = "none",
                       has_log: bool = False) -> list[Answer]:  # fmt: skip
        return self.ask(
            peer,
            StartExchange(id=2, queue=queue, queue_id=queue_id, number=number,
                          leader_epoch=leader_epoch, monitor=monitor, limits=Limits(), base=base,
                          durability=durability, has_log=has_log),
        )  # fmt: skip

    def stop_queue(self, peer: str = "gcm", queue: str = "orders", *, queue_id: bytes = b"",
                   number: int = -1, leader_epoch: int = 1,
                   reason: str = "stopped", erase: bool = False,
                   empty: bool = False) -> list[Answer]:  # fmt: skip
        return self.ask(
            peer,
            StopQueue(id=3, queue=queue, queue_id=queue_id, number=number,
                      leader_epoch=leader_epoch, reason=reason, erase=erase, empty=empty),
        )  # fmt: skip

    def report(self, child: str, state: str = "running") -> list[Answer]:
        """A child reports; gives what it is answered."""
        return self.ask(child, ChildReport(id=9, child=self.processes[child].info(state)))

    def crash(self, child: str, status: str = "exit code 70", last_line: str = "") -> list[Effect]:
        """The process of a child ends, with all that it serves."""
        effects: list[Effect] = []
        for each in [self.processes.pop(name) for name in self.beside(child)]:
            effects += self.handle(Exited(each.spec.child, each.spec.epoch, status, last_line))
        return effects

    def beside(self, child: str) -> list[str]:
        """All children of the process of this one."""
        pid = self.processes[child].pid
        return [name for name, each in self.processes.items() if each.pid == pid]

    def end(self, child: str, reason: str = "") -> list[Answer]:
        """A monitor ends, and its process tells so."""
        process = self.processes.pop(child)
        info = msgspec.structs.replace(process.info("ended"), reason=reason)
        return self.ask(child, ChildReport(id=9, child=info))

    def running(self, *children: str) -> None:
        """Start these (monitor or exchange of a queue) and let them report."""
        for child in children:
            queue, _, name = child.rpartition(".")
            if name == "monitor":
                self.start_monitor(queue=queue)
            else:
                self.start_exchange(int(name[1:]), queue=queue)
            self.report(child)

    def end_asked(self) -> None:
        """The processes that were asked to end do so."""
        for child, process in list(self.processes.items()):
            if child in self.processes and process.asked_to_end:
                if len(self.beside(child)) > 1:
                    self.end(child)
                else:
                    self.crash(child, "exit code 0")

    def next_life(self, host_epoch: int = HOST_EPOCH + 1, *, registered: bool = True) -> None:
        """The host manager is killed, and started again; it finds what still runs."""
        self.machine = HostMachine(self._settings)
        resting = {port for each in self.processes.values() for port in each.spec.avoid_ports}
        self.handle(Rested(tuple(sorted(resting)), self.leader_epoch, self.counted, self.since))
        for child, process in list(self.processes.items()):
            ports = self.remembered.get((child, process.spec.epoch), ())
            self.handle(Adopted(process.spec, process.pid, ports))
        if registered:
            self.handle(Registered(host_epoch))

    def leader(self, answer: Answer | Unavailable) -> list[Effect]:
        return self.handle(LeaderAnswered(answer))

    def stop(self, *, drain: bool = False) -> list[Effect]:
        return self.handle(StopWanted(drain=drain))

    def advance(self, seconds: float) -> list[Effect]:
        """Let time pass as a shell would."""
        effects: list[Effect] = []
        until = self.now + seconds
        for _ in range(10_000):
            deadline = self.machine.next_deadline()
            self.now = until if deadline is None else max(self.now, min(deadline, until))
            effects += self.handle(Tick())
            if self.now >= until:
                return effects
        raise AssertionError("the machine wants a tick for ever without time passing")

    # --- effects ----------------------------------------------------------------------------------

    def _perform(self, effect: Effect) -> list[Event]:  # noqa: C901, PLR0912 - one per effect
        match effect:
            case Spawn(spec, alone):
                assert host_epoch(spec.epoch) <= self.counted, "a later life would give it again"
                return [self._spawn(spec, alone=alone)]
            case Release(child, retire):
                process = self.processes.pop(child, None)
                if process is not None and retire:
                    self._alone.add(process.pid)
            case Remember(child, ports):
                self.remembered[child, self.processes[child].spec.epoch] = ports
            case RememberLeader(epoch):
                self.leader_epoch = epoch
            case Erase():
                return [Erased(effect, self.has_log, self.log_stays)]
            case RememberEpoch(epoch):
                assert epoch > self.counted
                self.counted = epoch
            case Probe(child, epoch):
                return [self._probe(child, epoch)]
            case Terminate(child):
                self.processes[child].asked_to_end = True
            case Kill(child) if self.obedient and child in self.processes:
                killed = [self.processes.pop(name) for name in self.beside(child)]
                return [
                    Exited(each.spec.child, each.spec.epoch, "ended by signal 9", "")
                    for each in killed
                ]
            case ReportToLeader():
                self.reports.append(effect)
                if self.answers_leader:
                    return [
                        LeaderAnswered(
                            HostReportAck(cluster="c1", drains=self.drains, stuck=self.stuck)
                        )
                    ]
            case Announce(cluster):
                self.announced.append(cluster)
            case Finished():
                assert not self.finished
                self.finished = True
            case _:
                pass
        return []

    def _probe(self, child: str, epoch: int) -> Event:
        process = self.processes.get(child)
        if process is None or process.state:
            return Probed(child, epoch, process.state if process else "", 0)
        return Requested(peer_of(child), ChildReport(child=process.info()))

    def _spawn(self, spec: MonitorSpec | ExchangeSpec, *, alone: bool) -> Event:
        assert spec.child not in self.processes, "two live processes of one child"
        self.spawned.append(spec)
        if self.spawn_fails:
            return SpawnFailed(spec.child, spec.epoch, self.spawn_fails)
        if isinstance(spec, ExchangeSpec) and spec.has_log and not self.disk_is_there:
            why = f"the log of x{spec.number} is not in {spec.log}"
            return SpawnFailed(spec.child, spec.epoch, why, no_log=True)
        pid = self._with_room() if isinstance(spec, MonitorSpec) and not alone else None
        if pid is None:
            self._pids += 1
            pid = self._pids
            if alone:
                self._alone.add(pid)
        second = spec.statistics_ports if isinstance(spec, MonitorSpec) else spec.ports
        taken = set(spec.avoid_ports) | {p for each in self.processes.values() for p in each.ports}
        one = next(port for port in range(*spec.ports) if port not in taken)
        two = next(port for port in range(*second) if port not in taken and port != one)
        self.processes[spec.child] = Process(spec, pid, (one, two))
        return Spawned(spec.child, spec.epoch, pid)

    def _with_room(self) -> int | None:
        """A process that may be given one monitor more."""
        monitors = Counter(
            each.pid for each in self.processes.values() if isinstance(each.spec, MonitorSpec)
        )
        found = [
            pid for pid, count in monitors.items() if count < self.share and pid not in self._alone
        ]
        return min(found, default=None)

    @property
    def last_report(self) -> dict[str, ChildInfo]:
        """The children as the leader was told last."""
        return {child.child: child for child in self.reports[-1].report.children}


def peer_of(name: str) -> tuple[bytes, bool]:
    return (name.encode(), False)


def answers(effects: list[Effect], peer: str) -> list[Answer]:
    return [
        each.message for each in effects if isinstance(each, Reply) and each.peer == peer_of(peer)
    ]


def failure(found: list[Answer]) -> Failure:
    assert len(found) == 1, found
    assert isinstance(found[0], Failure), found
    return found[0]
