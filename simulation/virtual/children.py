"""Monitors and exchanges as processes: their machines and links, with sockets of the simulation."""

from __future__ import annotations

from functools import partial
from typing import Final

from roq.errors import Unavailable
from roq.exchange.consumer_peers import Delivery
from roq.exchange.events import Passed, Stop
from roq.exchange.kpi_report import busiest_publishers, load_of
from roq.exchange.monitor_finder import MonitorFinder
from roq.exchange.monitor_link import MonitorLink
from roq.log.service_group import ServiceGroup
from roq.machine import Tick
from roq.model import ExchangeInfo
from roq.monitor import events
from roq.monitor.machine import MonitorMachine
from roq.monitor.scaling_rules import PolicyNamed
from roq.protocol.control import (
    Answer,
    ExchangeReport,
    Failure,
    MonitorRequest,
    OrderAsk,
    OrderTold,
)
from roq.protocol.defined_services import DefinedServices
from roq.protocol.reports import ChildInfo
from roq.protocol.spec import ExchangeSpec, MonitorSpec
from roq.runtime import exits
from roq.runtime.leader_client import LeaderClient
from roq.runtime.manager import ManagerLink
from roq.runtime.rpc import Peer, read_request
from roq.simulation.virtual.actors.exchange import Exchange
from roq.simulation.virtual.disks import Disk, DiskLog
from roq.simulation.virtual.process import LocalWorld, Process
from roq.simulation.virtual.shells import Driver, Ports, Server
from roq.simulation.virtual.sockets import Sockets
from roq.simulation.virtual.watch import Watch

DRAIN_SECONDS: Final = 0.3
"""What an exchange that is stopped takes to end."""
SEALED_SECONDS: Final = 2.0
"""How long a log that could not be written is only read; real ones are tried again later."""


class MonitorShell:
    """One process of a monitor."""

    def __init__(
        self,
        process: Process,
        spec: MonitorSpec,
        pid: int,
        ports: Ports,
        policy_named: PolicyNamed,
    ) -> None:
        self.process = process
        self.spec = spec
        self.control = ports.take(process.machine)
        self._pid = pid
        self._stopping = False
        self._statistics = ports.take(process.machine)
        self.machine = MonitorMachine(
            queue=spec.queue, queue_id=spec.queue_id, epoch=spec.epoch, limits=spec.limits,
            kpi_seconds=spec.kpi_seconds, restarted=spec.restarted, now=process.now(),
            control=self.control, policy_named=policy_named,
        )  # fmt: skip
        dialer = Sockets(process)
        self._driver: Driver[events.Event, events.Effect] = Driver(
            process, self.machine, Tick(), self._perform
        )
        self._leader = LeaderClient(process, dialer, spec.managers)
        self._server = Server(process, self.control, self._request)
        self._manager = ManagerLink(
            process, dialer, spec.manager, orphan_seconds=spec.orphan_seconds
        ).add(
            self._child,
            on_keep=lambda ack: self._leader.move(ack.leader), on_stop=self.stop,
        )  # fmt: skip
        self._driver.arm()

    def terminate(self) -> None:
        """SIGTERM."""
        self.process.turn(lambda: self._manager.ask_reason(self.stop))

    def stop(self, reason: str = "") -> None:
        """Say goodbye and end."""
        if not self._stopping:
            self._stopping = True
            self.process.world.note(self.process.name, f"stops ({reason})")
            self._driver.feed(events.StopWanted(reason))

    def _child(self) -> ChildInfo:
        spec = self.spec
        return ChildInfo(
            child=spec.child, role="monitor", queue=spec.queue, queue_id=spec.queue_id,
            epoch=spec.epoch, state="running", pid=self._pid, control=self.control,
            statistics=self._statistics,
        )  # fmt: skip

    def _request(self, peer: Peer, data: bytes) -> None:
        request: MonitorRequest | Failure = read_request(data, MonitorRequest)  # type: ignore[arg-type]
        if isinstance(request, Failure):
            self._server.send(peer, request)
        else:
            self._driver.feed(events.Received(peer, request))

    def _perform(self, effect: events.Effect) -> None:
        match effect:
            case events.Send(peer, message):
                self._server.send(peer, message)
            case events.Push(peers, message):
                self._server.push(peers, message)
            case events.Ask():
                self._ask(effect)
            case events.Note():
                self.process.world.note(self.process.name, effect.text)
            case events.Confirmed():
                self._manager.confirmed()
            case events.Disowned():
                self._manager.disowned()
            case events.Finished():
                self.process.stop()
            case _:
                return  # there is no listener of the statistics

    def _ask(self, ask: events.Ask) -> None:
        def answered(answer: Answer | Unavailable) -> None:
            self._driver.feed(events.LeaderAnswered(ask.serial, answer))

        self._leader.ask(ask.message, ask.seconds, answered)


class ExchangeShell:
    """One process of an exchange: see `roq.exchange.daemon.ExchangeServer`."""

    def __init__(
        self, process: Process, spec: ExchangeSpec, pid: int, ports: Ports, watch: Watch, disk: Disk
    ) -> None:
        self.process = process
        self.spec = spec
        self._pid = pid
        self._stopping = False
        self._watch = watch
        world = LocalWorld(process)
        self.disk: DiskLog | None = None
        if spec.log:
            self.disk = DiskLog(
                process, disk, spec, world.time_us, self._committed, self._disk_failed
            )
        self.info = ExchangeInfo(
            number=spec.number, epoch=spec.epoch, host=spec.host,
            generation=spec.epoch if self.disk is None else self.disk.log.generation,
            data=ports.take(process.machine), live=ports.take(process.machine),
        )  # fmt: skip
        self.exchange = Exchange(
            world, process, spec.queue_id, spec.number, spec.epoch, spec.limits,
            info=self.info, late=None if self.disk is None else self.disk.log, ahead=spec.ahead,
            on_append=partial(watch.appended, spec, self.info.generation),
            on_settled=self._write_on, on_woken=self._report_on, on_leased=self._leased,
            on_tell=self._tell,
        )  # fmt: skip
        if self.disk is not None:
            self._recover(self.disk, world)
        dialer = Sockets(process)
        self._monitor = MonitorLink(
            process, dialer, spec.monitor,
            queue=spec.queue_id, kpi_seconds=spec.kpi_seconds, shell=self,
        )  # fmt: skip
        self._finder = MonitorFinder(
            process, dialer, spec.managers, spec.queue, spec.queue_id,
            found=self._monitor.move, gone=self._disowned,
            jitter=process.world.random.random,
        )  # fmt: skip
        self._link = ManagerLink(process, dialer, spec.manager, orphan_seconds=spec.orphan_seconds)
        self._manager = self._link.add(
            self._child,
            on_keep=lambda ack: self._monitor.told(ack.monitor), on_stop=self.stop,
            idle=lambda: self.exchange.core.idle,
        )  # fmt: skip

    def _recover(self, disk: DiskLog, world: LocalWorld) -> None:
        """Go on with what an earlier process has left in the log."""
        core, recovered = self.exchange.core, disk.log.recovered
        core.begin(world.now, world.time_us)
        core.backpressure.rule(0)
        disk.changes_kept = core.consumers.kept
        core.recover(world.now, recovered.snapshot, recovered.since, recovered.changes)

    def _write_on(self) -> None:
        if self.disk is not None:
            core = self.exchange.core
            self.disk.write_on(core.snapshot, core.consumers.take_changes)

    def _committed(self) -> None:
        self.exchange.committed()

    def _tell(self, message: OrderAsk | OrderTold) -> None:
        self._monitor.say(message)

    def _leased(self, delivery: Delivery[bytes]) -> None:
        lease = delivery.lease
        run = range(lease.first, lease.first + lease.length)
        name, log = lease.member.name, self.info.log
        if isinstance(delivery.peer.group, ServiceGroup):
            now = self.process.world.now
            self._watch.asking.leased(name, log, lease.offset, run, lease.number, now)
        else:
            self._watch.sharing.leased(name, log, lease.offset, run, lease.number)

    def _disk_failed(self, why: str) -> None:
        """Nothing can be kept any more: it is read on, until another process tries."""
        self.process.world.note(self.process.name, f"cannot write its log: {why}")
        self.exchange.core.disk.seal(why, self.process.now())
        self._report_on()
        self.process.call_later(
            SEALED_SECONDS, partial(self.process.end, f"exit code {exits.DISK}")
        )

    def terminate(self) -> None:
        """SIGTERM."""
        self.process.turn(lambda: self.stop("told by a signal"))

    def stop(self, reason: str = "") -> None:
        """Take no more publishers, let those who are sending finish, end."""
        if self._stopping:
            return
        self._stopping = True
        self.process.world.note(self.process.name, f"stops ({reason})")
        self.exchange.handle(Stop())
        self._manager.report_now()
        self._monitor.report_now()
        self.process.call_later(DRAIN_SECONDS, self.process.stop)

    def report(self) -> ExchangeReport:
        """The present report."""
        core = self.exchange.core
        return ExchangeReport(
            queue_id=self.spec.queue_id, exchange=self.info, load=load_of(core, 1.0),
            top=busiest_publishers(core), stopping=self._stopping, idle=core.idle,
            disk_full=core.disk_full, retired=core.retired, groups=core.groups_digest,
            group_names=core.group_names, held=core.held,
        )  # fmt: skip

    def passed(self, event: Passed) -> None:
        """A publisher has gone elsewhere."""
        self.exchange.handle(event)

    def ordered(self, message: OrderAsk | OrderTold) -> None:
        """Another exchange asks how far groups are here, or answers."""
        self.exchange.handle(message)

    def acknowledged(self, hold_seconds: int | None, *, retire: bool, same_groups: bool) -> None:
        """The monitor counts on this exchange, or has it accept nothing more."""
        self.exchange.core.disk.retire(retired=retire)
        self.exchange.core.same_groups(self.process.now(), same=same_groups)
        if self.disk is None and hold_seconds is not None:
            self.exchange.core.backpressure.rule(hold_seconds)
        self._finder.reset()
        self._manager.confirmed()

    def defined(self, services: DefinedServices) -> None:
        """What the definition of the queue says of its services; settled with what comes next."""
        self.exchange.core.consumers.services.define(services)

    def unheard(self) -> None:
        """The monitor says nothing."""
        self._finder.look()

    def superseded(self) -> None:
        """A newer process has this number."""
        self.process.stop()

    def dismissed(self) -> None:
        """The queue does not have it any more."""
        self._manager.superseded()
        self.stop("removed")

    def _report_on(self) -> None:
        self._monitor.report_on()
        self._link.report_on()

    def _disowned(self) -> None:
        self._manager.disowned()

    def _child(self) -> ChildInfo:
        spec = self.spec
        return ChildInfo(
            child=spec.child, role="exchange", queue=spec.queue, queue_id=spec.queue_id,
            number=spec.number, epoch=spec.epoch, generation=self.info.generation, pid=self._pid,
            data=self.info.data, live=self.info.live,
            state="stopping" if self._stopping else "running",
        )  # fmt: skip
