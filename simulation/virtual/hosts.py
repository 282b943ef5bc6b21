"""A host: a machine with a host manager and its children, which outlive it and do not outlive this.

The machine remembers which processes run, as the files of a real host manager do: a restarted one
adopts them.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from roq.coordination.registry_contract import Committed, Conflict, SessionState
from roq.errors import RegistryAway
from roq.hcm import events
from roq.hcm.leader import ANSWER_SECONDS
from roq.hcm.machine import HostMachine
from roq.hcm.specs import Settings
from roq.log.files import LogRefused
from roq.machine import Tick
from roq.model import exchange_name
from roq.monitor.scaling_rules import PolicyNamed
from roq.protocol.control import (
    Failure,
    HcmRequest,
    StartExchange,
    StartMonitor,
    StopQueue,
)
from roq.protocol.spec import ExchangeSpec, MonitorSpec
from roq.runtime import exits
from roq.runtime.rpc import Peer, read_request
from roq.runtime.rpc_connections import RpcConnections
from roq.simulation.virtual.children import ExchangeShell, MonitorShell
from roq.simulation.virtual.disks import Disk
from roq.simulation.virtual.ensemble import Ensemble
from roq.simulation.virtual.process import Clocks, Process
from roq.simulation.virtual.shells import Driver, Ports, Server
from roq.simulation.virtual.sockets import Sockets
from roq.simulation.virtual.watch import Watch
from roq.simulation.virtual.wires import Wires
from roq.simulation.virtual.world import World

RETRY_SECONDS: Final = 0.5
KILL_SECONDS: Final = (0.001, 0.02)
"""What the system takes to end a process."""


@dataclass(slots=True)
class Running:
    """A process of a child, as the machine knows it.

    Attributes:
        shell: None while it has not come up yet.
    """

    spec: MonitorSpec | ExchangeSpec
    pid: int
    process: Process
    shell: MonitorShell | ExchangeShell | None = None


class Host:
    """A machine with a host manager.

    Args:
        settings: of its manager.
        start_seconds: what a process takes to come up, between these two; change it for a slow
            disk.
        policy_named: gives monitors their policies.
        watch: notices what managers obey and which processes begin.
        disk_seconds: see `Disk`.

    Attributes:
        running: its children, by name.
        manager: the present process of its manager.
        up: it has not gone down.
    """

    def __init__(
        self, world: World, wires: Wires, ensemble: Ensemble, ports: Ports, clocks: Clocks,
        settings: Settings, start_seconds: tuple[float, float], policy_named: PolicyNamed,
        watch: Watch, disk_seconds: tuple[float, float],
    ) -> None:  # fmt: skip
        self.machine = settings.host
        self.running: dict[str, Running] = {}
        self.start_seconds = start_seconds
        self.up = True
        self.leader_epoch = self.epoch = self.since = 0
        """The highest of a leader that was obeyed, as it stands on the disk."""
        self.clocks = clocks
        self.settings = settings
        self.world = world
        self._wires = wires
        self._ensemble = ensemble
        self._ports = ports
        self._pids = 100
        self.manager: ManagerOfHost | None = None
        self.watch = watch
        self._policy_named = policy_named
        self.disk = Disk(disk_seconds)
        self.start_manager()

    def start_manager(self) -> None:
        """Start its manager."""
        if self.up and (self.manager is None or not self.manager.process.alive):
            name = f"hcm-{self.machine}"
            process = Process(self.world, self._wires, name, self.machine, self.clocks)
            self.world.note(name, "starts")
            self.manager = ManagerOfHost(process, self._ensemble, self)

    def go_down(self) -> None:
        """The machine is gone, with everything on it but what its disk has for certain."""
        if not self.up:
            return
        self.up = False
        self.disk.cut_power(self.world.random)
        self._wires.machine_down(self.machine)
        running, self.running = self.running, {}
        for child in running.values():
            self.watch.ended(child.spec)
            child.process.end("its machine is down", silently=True)
            if isinstance(child.spec, ExchangeSpec) and child.spec.ahead:
                self.watch.taken_back(child.spec)
        if self.manager is not None:
            self.manager.process.end("its machine is down", silently=True)

    def come_up(self) -> None:
        """It is there again; its manager starts, and remembers no child."""
        if not self.up:
            self.up = True
            self._wires.machine_up(self.machine)
            self.start_manager()

    @property
    def managed(self) -> bool:
        """Whether its manager lives."""
        return self.up and self.manager is not None and self.manager.process.alive

    @property
    def processes(self) -> list[Process]:
        """Everything that runs here."""
        mine = [each.process for each in self.running.values()]
        return mine if self.manager is None else [self.manager.process, *mine]

    # --- for its manager --------------------------------------------------------------------------

    def spawn(self, spec: MonitorSpec | ExchangeSpec) -> events.Spawned | events.SpawnFailed:
        """Start the process of a child."""
        if isinstance(spec, ExchangeSpec) and spec.has_log and self.disk.lacks(spec.log):
            why = f"the log of x{spec.number} is not in {spec.log}"
            return events.SpawnFailed(spec.child, spec.epoch, why, no_log=True)
        self._pids += 1
        pid, name = self._pids, spec.child
        process = Process(
            self.world, self._wires, f"{name}@{self.machine}", self.machine, self.clocks,
            on_end=lambda reason: self._ended(name, spec.epoch, reason),
        )  # fmt: skip
        running = self.running[name] = Running(spec, pid, process)
        self.watch.started(self.machine, spec)
        self.world.note(process.name, f"starts, epoch {spec.epoch}")
        process.call_later(
            self.world.random.uniform(*self.start_seconds), partial(self._come_up, running)
        )
        return events.Spawned(name, spec.epoch, pid)

    def _come_up(self, running: Running) -> None:
        spec = running.spec
        self.watch.came(spec)
        make: Callable[[], MonitorShell | ExchangeShell]
        if isinstance(spec, MonitorSpec):
            make = partial(
                MonitorShell, running.process, spec, running.pid, self._ports, self._policy_named
            )
        else:
            make = partial(
                ExchangeShell, running.process, spec, running.pid, self._ports, self.watch,
                self.disk,
            )  # fmt: skip
        try:
            running.shell = make()
        except LogRefused as error:
            self.world.note(running.process.name, f"cannot start: {error}")
            running.process.end(f"exit code {exits.CONFIG}")

    def terminate(self, name: str) -> None:
        """SIGTERM."""
        child = self.running.get(name)
        if child is not None and child.shell is not None:
            child.shell.terminate()
        elif child is not None:
            self._soon(partial(child.process.end, "terminated"))

    def kill(self, name: str) -> None:
        """SIGKILL."""
        child = self.running.get(name)
        if child is not None:
            self._soon(partial(child.process.end, "killed"))

    def erase(self, queue_id: bytes, number: int, *, empty: bool) -> bool:
        """Remove the log of an exchange, or those of a queue of which nothing runs here; gives
        whether there was one."""
        folder = f"{self.settings.logs}/{queue_id.hex()}"
        path = folder if number < 0 else f"{folder}/{exchange_name(number)}"
        return self.disk.erase(path, empty=empty)

    def probe(self, probe: events.Probe) -> events.Probed:
        """How a process is, as /proc tells."""
        child = self.running.get(probe.child)
        if child is None:
            return events.Probed(probe.child, probe.epoch, "", 0)
        state = "T" if child.process.paused else "S"
        ran = int(self.world.now * 1e9)
        return events.Probed(probe.child, probe.epoch, state, ran)

    def _soon(self, call: Callable[[], None]) -> None:
        self.world.call_later(self.world.random.uniform(*KILL_SECONDS), call)

    def _ended(self, name: str, epoch: int, reason: str) -> None:
        child = self.running.get(name)
        if child is not None and child.spec.epoch == epoch:
            del self.running[name]
            self.watch.ended(child.spec)
        manager = self.manager
        if manager is not None and self.up:
            status = reason if reason.startswith("exit code") else f"ended: {reason}"
            event = events.Exited(name, epoch, status, "")
            manager.process.turn(lambda: manager.exited(event))


class ManagerOfHost:
    """One process of a host manager: see `roq.hcm.daemon.HostManager`."""

    def __init__(self, process: Process, ensemble: Ensemble, host: Host) -> None:
        self.process = process
        self.machine = HostMachine(host.settings)
        self._host = host
        self._managers = RpcConnections(
            process, Sockets(process),
            on_lost=lambda endpoint, why: self._driver.feed(events.LeaderLost(endpoint, why)),
        )  # fmt: skip
        self._registering = False
        self._refused: set[int] = set()
        self._driver: Driver[events.Event, events.Effect] = Driver(
            process, self.machine, Tick(), self._perform
        )
        self._server = Server(process, host.settings.control, self._request)
        self._driver.feed(events.Rested((), host.leader_epoch, host.epoch, host.since))
        for child in list(host.running.values()):
            self._driver.feed(events.Adopted(child.spec, child.pid))
        self._registry = ensemble.registry(process)
        self._registry.start(self._session_changed)

    def exited(self, event: events.Exited) -> None:
        """A process has ended."""
        self._driver.feed(event)

    def _session_changed(self, state: SessionState) -> None:
        if state is SessionState.CONNECTED and not self._registering:
            self._registering = True
            self._draw()

    def _draw(self) -> None:
        self._registry.next_host_epoch(self._drawn)

    def _drawn(self, epoch: int | RegistryAway) -> None:
        if isinstance(epoch, RegistryAway):
            self.process.call_later(RETRY_SECONDS, self._draw)
            return
        data = json.dumps({"host": self._host.machine, "epoch": epoch}).encode()
        self._registry.register_host(
            self._host.machine, data, lambda result: self._registered(epoch, result)
        )

    def _registered(self, epoch: int, result: Committed | Conflict) -> None:
        if isinstance(result, Conflict):
            self._driver.feed(events.StopWanted())
        else:
            self._driver.feed(events.Registered(epoch))

    def _request(self, peer: Peer, data: bytes) -> None:
        request: HcmRequest | Failure = read_request(data, HcmRequest)  # type: ignore[arg-type]
        if isinstance(request, Failure):
            self._server.send(peer, request)
        else:
            self._refused.clear()
            self._driver.feed(events.Requested(peer, request))
            if isinstance(request, StartMonitor | StartExchange | StopQueue):
                obeyed = request.id not in self._refused
                self._host.watch.commanded(self._host.machine, request.leader_epoch, obeyed=obeyed)

    def _perform(self, effect: events.Effect) -> None:  # noqa: C901, PLR0912 - one per effect
        match effect:
            case events.Reply(peer, message):
                if isinstance(message, Failure):
                    self._refused.add(message.id)
                self._server.send(peer, message)
            case events.Spawn(spec):
                self._driver.feed(self._host.spawn(spec))
            case events.RememberLeader(epoch):
                self._host.leader_epoch = epoch
            case events.RememberEpoch(epoch):
                self._host.epoch, self._host.since = epoch, self._host.since or epoch
            case events.Probe():
                self._driver.feed(self._host.probe(effect))
            case events.Terminate(child):
                self._host.terminate(child)
            case events.Kill(child):
                self._host.kill(child)
            case events.Erase(_, queue_id, number, empty):
                found = self._host.erase(queue_id, number, empty=empty)
                self._driver.feed(events.Erased(effect, found))
            case events.ReportToLeader(endpoint, report):
                self._managers.ask(
                    endpoint, report, ANSWER_SECONDS,
                    lambda answer: self._driver.feed(events.LeaderAnswered(answer)),
                )  # fmt: skip
            case events.Note():
                self.process.world.note(self.process.name, effect.text)
            case events.Finished():
                self.process.stop()
            case _:
                return  # files
