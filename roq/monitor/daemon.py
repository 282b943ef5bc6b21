"""Sockets, timers and signals of a monitor; what to do is the machine's business."""

from __future__ import annotations

import gc
import logging
import os

from roq.errors import ConfigError, Unavailable
from roq.machine import Tick
from roq.model import endpoint_of
from roq.monitor.events import (
    Ask,
    Confirmed,
    Disowned,
    Effect,
    Event,
    Finished,
    LeaderAnswered,
    Note,
    Peer,
    Publish,
    Push,
    Received,
    Send,
    StopWanted,
)
from roq.monitor.leader import LeaderClient
from roq.monitor.machine import MonitorMachine
from roq.monitor.policy_timeout import PolicyTimeout
from roq.protocol import documents
from roq.protocol.control import (
    Answer,
    Failure,
    MonitorRequest,
)
from roq.protocol.facts import ChildInfo
from roq.protocol.request import read_request
from roq.protocol.spec import MonitorSpec
from roq.runtime import exits, sockets
from roq.runtime.logs import RateLimited
from roq.runtime.manager import ManagerLink
from roq.runtime.reactor import Reactor, Timer, drain
from roq.runtime.rpc import Peer as RpcPeer
from roq.runtime.rpc import RpcServer
from roq.runtime.signals import on_stop

log = logging.getLogger(__name__)


class Monitor:
    """One monitor process. Construct (binds), `run()`, `close()`.

    Raises:
        Unavailable: no port of the range is free.
        ConfigError: this machine does not have the address to bind to.
    """

    def __init__(self, spec: MonitorSpec) -> None:
        self._spec = spec
        self._reactor = Reactor()
        self._context = sockets.new_context()
        self._limited = RateLimited(log)
        self._timer: Timer | None = None
        self._stopping = False
        self._control = sockets.router(self._context)
        self._statistics = sockets.publisher(self._context)
        try:
            self._bind()
        except (Unavailable, ConfigError):
            self._control.close(0)
            self._statistics.close(0)
            self._context.term()
            self._reactor.close()
            raise
        self._machine = MonitorMachine(
            queue=spec.queue, queue_id=spec.queue_id, epoch=spec.epoch, limits=spec.limits,
            kpi_seconds=spec.kpi_seconds, restarted=spec.restarted, now=self._reactor.now(),
            control=self.control, policy_named=PolicyTimeout(self._reactor.now).policy_named,
        )  # fmt: skip
        self._leader = LeaderClient(self._reactor, self._context, spec.managers)
        self._server = RpcServer(self._reactor, self._control, self._request)
        self._reactor.add(self._statistics, self._subscriptions)
        self._manager = ManagerLink(
            self._reactor, self._context, spec.manager,
            orphan_seconds=spec.orphan_seconds, child=self.child, metrics=self._machine.metrics,
            on_keep=lambda ack: self._leader.move(ack.leader), on_stop=self.stop,
        )  # fmt: skip

    def child(self) -> ChildInfo:
        """How this process presents itself to its host manager."""
        spec = self._spec
        return ChildInfo(
            child=spec.child, role="monitor", queue=spec.queue, queue_id=spec.queue_id,
            epoch=spec.epoch, state="running", pid=os.getpid(), control=self.control,
            statistics=self.statistics,
        )  # fmt: skip

    def run(self) -> None:
        """Serve until the host manager, a signal or the orphan rule ends it."""
        log.info(
            "serves queue %s at %s, statistics at %s", self._spec.queue, self.control,
            self.statistics, extra={"event": "started", "epoch": self._spec.epoch},
        )  # fmt: skip
        self._arm()
        self._reactor.run()
        log.info("stopped", extra={"event": "stopped"})

    def watch_signals(self) -> None:
        """Stop in an orderly way at SIGTERM and SIGINT. Main thread only."""
        on_stop(self._reactor, self._terminated)

    def stop(self, reason: str = "") -> None:
        """Say goodbye and end; loop thread only.

        Args:
            reason: `stopped` or `removed` if that is what happens to the queue.
        """
        if not self._stopping:
            self._stopping = True
            self._handle(StopWanted(reason))

    def close(self) -> None:
        """Give all sockets back."""
        self._manager.close()
        self._leader.close()
        self._server.close()
        self._reactor.remove(self._statistics)
        self._statistics.close(0)
        self._context.term()
        self._reactor.close()

    def _bind(self) -> None:
        spec = self._spec
        port = sockets.bind(self._control, spec.bind, spec.ports, spec.avoid_ports)
        self.control = endpoint_of(spec.advertise, port)
        port = sockets.bind(self._statistics, spec.bind, spec.statistics_ports, spec.avoid_ports)
        self.statistics = endpoint_of(spec.advertise, port)

    def _terminated(self) -> None:
        # Only the host manager knows whether the queue ends or just this process.
        self._manager.ask_reason(self.stop)

    def _request(self, peer: RpcPeer, data: bytes) -> None:
        request: MonitorRequest | Failure = read_request(data, MonitorRequest)  # type: ignore[arg-type]
        if isinstance(request, Failure):
            self._limited.warning(
                "malformed_request", self._reactor.now(), "refused a request: %s", request.COMMENT
            )
            self._server.send(peer, documents.encode(request))
            return
        self._handle(Received(peer, request))

    def _subscriptions(self) -> None:
        # An XPUB hands them out; who listens does not matter here.
        drain(self._statistics, lambda _frames: None)

    def _handle(self, event: Event) -> None:
        for effect in self._machine.handle(event, self._reactor.now()):
            self._perform(effect)
        self._arm()

    def _perform(self, effect: Effect) -> None:
        match effect:
            case Send(peer, message):
                self._send((peer,), documents.encode(message))
            case Push(peers, message):
                self._send(peers, documents.encode(message))
            case Publish(frames):
                sockets.send_to(self._statistics, list(frames))
            case Ask():
                self._ask(effect)
            case Note():
                self._note(effect)
            case Confirmed():
                self._manager.confirmed()
            case Disowned():
                self._manager.disowned()
            case Finished():
                if self._machine.superseded:
                    self._manager.superseded()
                self._reactor.stop()

    def _ask(self, ask: Ask) -> None:
        def answered(answer: Answer | Unavailable) -> None:
            self._handle(LeaderAnswered(ask.serial, answer))

        self._leader.ask(ask.message, ask.seconds, answered)

    def _note(self, note: Note) -> None:
        if note.warning:
            self._limited.warning(note.event, self._reactor.now(), "%s", note.text)
        else:
            log.info("%s", note.text, extra={"event": note.event})

    def _send(self, peers: tuple[Peer, ...], data: bytes) -> None:
        # A peer that is gone expires by its silence; one that does not read asks again.
        for peer in peers:
            self._server.send(RpcPeer(*peer), data)

    def _arm(self) -> None:
        deadline = self._machine.next_deadline()
        if deadline is None:
            return
        if self._timer is not None and self._timer.call is not None:
            if self._timer.when <= deadline:
                return
            self._timer.cancel()
        self._timer = self._reactor.call_at(deadline, lambda: self._handle(Tick()))


def run(spec: MonitorSpec) -> int:
    """Be the monitor that `spec` describes, until told to stop; gives the exit code."""
    try:
        monitor = Monitor(spec)
    except ConfigError as error:
        log.error("cannot start: %s", error, extra={"event": "start_failed"})  # noqa: TRY400
        return exits.CONFIG
    except Unavailable as error:
        log.error("cannot start: %s", error, extra={"event": "start_failed"})  # noqa: TRY400
        return exits.UNAVAILABLE
    try:
        monitor.watch_signals()
        # What exists now stays, and need not be looked at again.
        gc.collect()
        gc.freeze()
        monitor.run()
    finally:
        monitor.close()
    return exits.STOPPED
