"""Sockets, processes, the registry and signals of a host manager; its machine decides."""

from __future__ import annotations

import fcntl
import json
import logging
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import IO, Final

import msgspec
import psutil
import zmq

from roq.coordination.addresses import remedy, unreachable
from roq.coordination.registry_contract import Committed, Conflict, Post, Registry, SessionState
from roq.errors import ConfigError, RegistryAway, Unavailable
from roq.hcm import metrics
from roq.hcm.children import draw_above, port_of
from roq.hcm.config import HcmConfig, advertised_address, bind_address, settings_of
from roq.hcm.cpu import CpuSample
from roq.hcm.events import (
    Announce,
    Discard,
    Effect,
    Erase,
    Event,
    Finished,
    Forget,
    Kill,
    LeaderAnswered,
    LeaderLost,
    Measured,
    Note,
    Pressed,
    Probe,
    Registered,
    Release,
    Remember,
    RememberEpoch,
    RememberLeader,
    Reply,
    ReportToLeader,
    Requested,
    Spawn,
    StopWanted,
    Terminate,
)
from roq.hcm.host_name_lock import HostNameLock
from roq.hcm.leader import ANSWER_SECONDS
from roq.hcm.machine import HostMachine
from roq.hcm.processes import Processes
from roq.hcm.specs import Settings
from roq.machine import Tick
from roq.protocol import documents
from roq.protocol.control import ChildReport, Failure, HcmRequest, Health, HostReport
from roq.protocol.metrics import Sample
from roq.protocol.reports import Check
from roq.runtime import exits, sockets
from roq.runtime.flight import FlightKind, Recorder, kept_kilobytes, save
from roq.runtime.interfaces import Timer
from roq.runtime.metrics import Telemetry
from roq.runtime.pressure import Quota, waited_us
from roq.runtime.reactor import Reactor
from roq.runtime.resources import Resources, measure
from roq.runtime.rpc import Peer, RpcServer, read_request
from roq.runtime.rpc_connections import RpcConnections
from roq.runtime.structured_logs import RateLimited

RETRY_SECONDS: Final = 0.5
SAID_MAX: Final = 4_000
SAID_BYTES_MAX: Final = 2_048
FLIGHT_KILOBYTES: Final = 1_024
"""What is kept of events and effects."""

log = logging.getLogger(__name__)

MakeRegistry = Callable[[Post], Registry]
Readiness = Callable[[dict[str, object]], None]


class HostManager:
    """One host manager. Construct (binds), `run()`, `close()`.

    Args:
        config: checked settings.
        make_registry: gives the registry, built with the function that posts into our loop.
        on_ready: called with a description of this host once the leading GCM knows it.

    Raises:
        ConfigError: a port is in use, an address is not ours, the data folder is not usable.
    """

    def __init__(
        self,
        config: HcmConfig,
        make_registry: MakeRegistry,
        on_ready: Readiness | None = None,
    ) -> None:
        self._config = config
        self._on_ready = on_ready
        kilobytes = kept_kilobytes(os.environ, FLIGHT_KILOBYTES)
        self._host = advertised_address(config.network)
        bind = bind_address(config.network)
        folder = Path(config.data.dir).absolute()
        self._lock = _take_folder(folder)
        self._reactor = Reactor()
        self._context = sockets.new_context()
        self._processes = Processes(
            self._reactor, folder, self._handle, config.monitor.queues_per_process
        )
        self._rested, self._adopted = self._processes.adopt()
        socket = sockets.router(self._context)
        try:
            port = self._bind(socket, bind)
            self._telemetry = Telemetry(
                self._reactor,
                config.metrics,
                metrics.METRICS,
                measure=self._measure,
                look=self._look,
            )
        except (ConfigError, Unavailable):
            socket.close(0)
            self._processes.close(kill=False)
            self._context.term()
            self._reactor.close()
            self._lock.close()
            raise
        self._settings = settings_of(config, port)
        self._machine = HostMachine(self._settings)
        self._recorder = Recorder(KIND, "host", lambda: self._settings, self._machine, kilobytes)
        self._server = RpcServer(self._reactor, socket, self._request)
        self._registry = make_registry(self._reactor.call_soon)
        self._managers = RpcConnections(
            self._reactor, self._context,
            on_lost=lambda endpoint, reason: self._handle(LeaderLost(endpoint, reason)),
        )  # fmt: skip
        self._name_lock = HostNameLock(
            self._managers, self._registry, self._host, self._settings.control
        )
        self._processor = CpuWatch(self._reactor, lambda sample: self._handle(Pressed(sample)))
        self._said: dict[bytes, ChildReport] = {}
        """Reports that come again and again, as they were read."""
        self._limited = RateLimited(log)
        self._events: deque[Event] = deque()
        self._busy = False
        self._timer: Timer | None = None
        self._registering = False
        self._resources = Resources(files=0, files_max=0)
        self._exit_code = exits.STOPPED
        _warn_when_reachable(bind)

    @property
    def reactor(self) -> Reactor:
        """The loop, for signals and other sources."""
        return self._reactor

    @property
    def control(self) -> str:
        """Address where configuration managers reach this host manager."""
        return self._settings.control

    def run(self) -> int:
        """Serve until told to stop; gives the exit code."""
        log.info("host manager of %s at %s", self._host, self.control, extra={"event": "started"})
        psutil.cpu_percent()  # the first call only begins the measurement
        self._handle(self._rested)
        for adopted in self._adopted:
            self._handle(adopted)
        self._registry.start(self._session_changed)
        self._telemetry.start()
        self._processor.start()
        self._reactor.call_later(self._config.zk.connect_seconds, self._start_too_late)
        try:
            self._reactor.run()
        except Exception:
            self.save_flight(crashed=True)
            raise
        log.info("stopped", extra={"event": "stopped"})
        return self._exit_code

    def stop(self) -> None:
        """Stop all children, then end; from any thread."""
        self._reactor.call_soon(self._stop)

    def drain(self) -> None:
        """Have all children go to other hosts, as far as that is possible, then stop."""
        self._reactor.call_soon(lambda: self._handle(StopWanted(drain=True)))

    def save_flight(self, *, crashed: bool = False) -> None:
        """Write down what was decided last."""
        save("host", [self._recorder], crashed=crashed)

    def close(self) -> None:
        """Give back what this process holds; nothing of it is left behind after a stop."""
        self._telemetry.close()
        self._registry.close()
        self._processes.close(kill=self._machine.stopping)
        self._managers.close()
        self._server.close()
        self._context.term()
        self._reactor.close()
        self._lock.close()

    def _bind(self, socket: zmq.Socket[bytes], address: str) -> int:
        """Listen where our children look for us: those of an earlier life know only its port."""
        port = self._config.network.port
        known = {port_of(each.spec.manager) for each in self._adopted} - {None}
        for former in sorted(each for each in known if each is not None and not port):
            try:
                return sockets.bind_port(socket, address, former)
            except ConfigError as error:
                log.warning("%s", error, extra={"event": "port_lost"})
        port = sockets.bind_port(socket, address, port)
        if known - {port}:
            log.warning(
                "children of an earlier life report to port %s and not to %d: they are started "
                "again", ", ".join(map(str, known)), port, extra={"event": "port_changed"},
            )  # fmt: skip
        return port

    # --- the registry -----------------------------------------------------------------------------

    def _session_changed(self, state: SessionState) -> None:
        if state is not SessionState.CONNECTED:
            log.warning(
                "the registry (%s) is %s; children go on",
                self._config.registry_address, state, extra={"event": "registry_away"},
            )  # fmt: skip
        elif not self._registering:
            self._registering = True
            self._name_lock.ask(self._claimed)

    def _claimed(self, other: str) -> None:
        if not other:
            self._draw()
            return
        log.error(
            "a host manager at %s is host %s already, and it answers: stop it, or give this host "
            "another name (network.advertise)", other, self._host, extra={"event": "name_taken"},
        )  # fmt: skip
        self._exit_code = exits.CONFIG
        self._reactor.stop()  # what an earlier life has left running here is the other one's affair

    def _draw(self, above: int = 0) -> None:
        self._registry.next_host_epoch(self._epoch_drawn, above)

    def _epoch_drawn(self, epoch: int | RegistryAway) -> None:
        if isinstance(epoch, RegistryAway):
            self._reactor.call_later(RETRY_SECONDS, self._draw)
            return
        given = self._rested.epoch
        if epoch <= given:
            try:
                above = draw_above(epoch, given)
            except ConfigError as error:
                log.error("%s", error, extra={"event": "epochs_used_up"})  # noqa: TRY400 - no traceback
                self._exit_code = exits.CONFIG
                self._reactor.stop()  # what an earlier life has left running here goes on
                return
            log.error(
                "the registry has given epoch %d, and this host has started processes under %d: %s",
                epoch, given,
                f"counting on from {above} (has the registry an older state?)" if above
                else "this cluster cannot have given that; was data.dir that of another one?",
                extra={"event": "epoch_given_before"},
            )  # fmt: skip
            if above:
                self._draw(above)
                return
        data = json.dumps(
            {"host": self._host, "epoch": epoch, "control": self.control, "pid": os.getpid()}
        )
        self._registry.register_host(
            self._host, data.encode(), lambda result: self._registered(epoch, result)
        )

    def _registered(self, epoch: int, result: Committed | Conflict) -> None:
        if isinstance(result, Conflict):
            log.error(
                "another host manager has taken the name %s over: stopping. Set "
                "network.advertise if these are two hosts", self._host,
                extra={"event": "name_taken"},
            )  # fmt: skip
            self._exit_code = exits.CONFIG
            self._stop()
            return
        log.info("registered as %s, epoch %d", self._host, epoch, extra={"event": "registered"})
        self._handle(Registered(epoch))

    def _start_too_late(self) -> None:
        if self._machine.registered or self._machine.stopping:
            return
        if self._machine.children:
            log.warning(
                "%s; %d children of an earlier life go on, trying again",
                unreachable(self._config.registry_address), self._machine.children,
                extra={"event": "registry_away"},
            )  # fmt: skip
            self._reactor.call_later(self._config.zk.connect_seconds, self._start_too_late)
        else:
            log.error(
                "%s within %g s: %s", unreachable(self._config.registry_address),
                self._config.zk.connect_seconds, remedy(self._config.registry_address),
                extra={"event": "start_failed"},
            )  # fmt: skip
            self._exit_code = exits.UNAVAILABLE
            self._stop()

    # --- how it is --------------------------------------------------------------------------------

    def _measure(self) -> Iterable[Check]:
        folder = Path(self._config.data.dir)
        self._resources = measure(folder, self._processes.open_files())
        state = self._registry.state
        connected = state is SessionState.CONNECTED
        detail = "connected" if connected else f"{state}; children go on, nothing is changed"
        registry = Check(name="registry", ok=connected, detail=detail, essential=False)
        checks = [*self._resources.checks(folder), self._processes.logs_left()]
        self._handle(Measured((registry, *checks)))
        return checks  # of the registry the log has told already

    def _look(self) -> tuple[Iterable[Sample], Health]:
        found = self._resources
        used = metrics.of_machine(found.disk_bytes, found.disk_free_bytes, found.others)
        return chain(used, self._machine.figures()), self._machine.health()

    # --- events -----------------------------------------------------------------------------------

    def _stop(self) -> None:
        self._handle(StopWanted())

    def _request(self, peer: Peer, data: bytes) -> None:
        # Most of what comes is what the same child has said a moment ago.
        request = self._said.get(data) or self._read(data)
        if isinstance(request, Failure):
            self._limited.warning(
                "malformed_request", self._reactor.now(), "refused a request: %s", request.COMMENT
            )
            self._server.send(peer, documents.encode(request))
            return
        self._handle(Requested(peer, request))

    def _read(self, data: bytes) -> HcmRequest | Failure:
        request: HcmRequest | Failure = read_request(data, HcmRequest)  # type: ignore[arg-type]
        if isinstance(request, ChildReport) and not request.id and len(data) <= SAID_BYTES_MAX:
            if len(self._said) >= SAID_MAX:
                self._said.clear()
            self._said[data] = request
        return request

    def _handle(self, event: Event) -> None:
        # Performing an effect may bring the next event, which waits for its turn.
        self._events.append(event)
        if self._busy:
            return
        self._busy = True
        try:
            while self._events:
                for effect in self._recorder.handle(self._events.popleft(), self._reactor.now()):
                    self._perform(effect)
        finally:
            self._busy = False
        self._arm()

    def _arm(self) -> None:
        deadline = self._machine.next_deadline()
        if deadline is None:
            return
        if self._timer is not None and self._timer.call is not None:
            if self._timer.when <= deadline:
                return
            self._timer.cancel()
        self._timer = self._reactor.call_at(deadline, lambda: self._handle(Tick()))

    # --- effects ----------------------------------------------------------------------------------

    def _perform(self, effect: Effect) -> None:
        match effect:
            case Reply(peer, message):
                if isinstance(message, HostReport):
                    message = _with_load(message)
                self._server.send(Peer(*peer), documents.encode(message))
            case Probe():
                self._events.extend(map(Pressed, self._processor.sample_if_old()))
                self._events.extend(self._processes.perform(effect))
            case (
                Spawn() | Release() | Remember() | RememberLeader() | RememberEpoch() | Terminate()
                | Kill() | Discard() | Forget() | Erase()
            ):  # fmt: skip
                self._events.extend(self._processes.perform(effect))
            case ReportToLeader(endpoint, report):
                self._managers.ask(
                    endpoint, _with_load(report), ANSWER_SECONDS,
                    lambda answer: self._handle(LeaderAnswered(answer)),
                )  # fmt: skip
            case Announce(cluster):
                self._announce(cluster)
            case Note(name, text, repeated=True):
                # Limited by what it says: a line is not left out because of another one.
                self._limited.warning(text, self._reactor.now(), "%s", text, event=name)
            case Note(name, text, warning):
                log.log(logging.WARNING if warning else logging.INFO, text, extra={"event": name})
            case Finished():
                self._reactor.stop()

    def _announce(self, cluster: str) -> None:
        log.info("ready in cluster %s", cluster, extra={"event": "ready"})
        if self._on_ready is not None:
            self._on_ready(
                {"host": self._host, "control": self.control, "cluster": cluster,
                 "pid": os.getpid()}
            )  # fmt: skip


def _with_load(report: HostReport) -> HostReport:
    """The report with how busy this machine is, as far as the system tells."""
    try:
        memory = psutil.virtual_memory()
        cpu_percent = psutil.cpu_percent()
    except OSError:
        return report  # no descriptor is left to read it with; the children count more
    return msgspec.structs.replace(
        report,
        cpu_percent=cpu_percent,
        memory_bytes=memory.total - memory.available,
        memory_free_bytes=memory.available,
    )


def _take_folder(folder: Path) -> IO[bytes]:
    """Make the data folder ours alone."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / "lock").open("wb")
    except OSError as error:
        raise ConfigError(f"data.dir: {folder} cannot be used: {error.strerror}") from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        lock.close()
        raise ConfigError(
            f"data.dir: another host manager uses {folder}; set another one"
        ) from None
    return lock


def _warn_when_reachable(bind: str) -> None:
    if not sockets.is_loopback(bind):
        log.warning(
            "bound to %s, not only to loopback: anyone who reaches this address can use and "
            "control the cluster, there is no authentication yet",
            bind, extra={"event": "reachable"},
        )  # fmt: skip


# How a flight of a host manager is flown again.

KIND: Final = FlightKind("host", Settings, Event, HostMachine)


# Looks twice a second what processor this host gets.

PERIOD_SECONDS: Final = 0.5
OLD_SECONDS: Final = 0.2
"""Before a child is judged the last look is to be younger than this."""


class CpuWatch:
    """Takes samples.

    Args:
        handle: called with each of them.
    """

    def __init__(self, reactor: Reactor, handle: Callable[[CpuSample], None]) -> None:
        self._reactor = reactor
        self._handle = handle
        self._quota = Quota()
        self._due = self._taken = 0.0

    def start(self) -> None:
        """Look from now on."""
        self._due = self._reactor.now()
        self._look()

    def sample_if_old(self) -> Iterator[CpuSample]:
        """One more sample if the last one is some time ago."""
        if self._reactor.now() - self._taken > OLD_SECONDS:
            yield self._sample(0.0)

    def _look(self) -> None:
        now = self._reactor.now()
        late = max(0.0, now - self._due)
        self._due = now + PERIOD_SECONDS
        self._reactor.call_at(self._due, self._look)
        self._handle(self._sample(late))

    def _sample(self, late: float) -> CpuSample:
        self._taken = self._reactor.now()
        periods, throttled = self._quota.periods() or (None, None)
        return CpuSample(late=late, waited_us=waited_us(), periods=periods, throttled=throttled)
