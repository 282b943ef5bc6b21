"""Sockets and timers of a queue's monitor; what to do is the machine's business."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Final, TypeVarTuple

import msgspec
import zmq
from msgspec.structs import replace

from roq.errors import ConfigError, Unavailable
from roq.machine import Tick
from roq.model import Limits, endpoint_of
from roq.monitor.events import (
    Ask,
    Confirmed,
    Disowned,
    Effect,
    Event,
    Finished,
    LeaderAnswered,
    Listened,
    Note,
    Peer,
    Publish,
    Push,
    Received,
    Send,
    StopWanted,
)
from roq.monitor.machine import MonitorMachine
from roq.monitor.scaling_rules import PolicyNamed
from roq.policy.snapshot import Policy
from roq.protocol import documents
from roq.protocol.control import (
    Answer,
    ChildAck,
    Failure,
    MonitorRequest,
)
from roq.protocol.reports import ChildInfo
from roq.protocol.spec import MonitorSpec
from roq.runtime import plugins, sockets
from roq.runtime.flight import FlightKind, Recorder, kept_kilobytes, save
from roq.runtime.interfaces import Timer
from roq.runtime.leader_client import LeaderClient
from roq.runtime.manager import ManagerLink
from roq.runtime.reactor import Reactor, drain
from roq.runtime.rpc import Peer as RpcPeer
from roq.runtime.rpc import RpcServer, read_request
from roq.runtime.structured_logs import RateLimited

SUBSCRIBED: Final = b"\x01"
UNSUBSCRIBED: Final = b"\x00"
ANSWERS_MAX: Final = 16_384
"""That wait for one client: all its publishers and subscribers may have asked at once."""
SUBSCRIPTIONS_MAX: Final = 10_000
"""Read at a time; subscribers to the statistics come seldom."""

FLIGHT_KILOBYTES: Final = 256
"""What is kept of events and effects; there may be many monitors in a process."""

log = logging.getLogger(__name__)

Ts = TypeVarTuple("Ts")


def _alone(method: Callable[[Monitor, *Ts], None]) -> Callable[[Monitor, *Ts], None]:
    """What goes wrong in here ends this queue's monitor, and not those beside it."""

    @wraps(method)
    def guarded(self: Monitor, *args: *Ts) -> None:
        try:
            method(self, *args)
        except Exception as error:
            log.exception(
                "the monitor of queue %s fails", self.spec.queue, extra={"event": "failed"}
            )
            save(self.spec.child, [self.recorder], crashed=True)
            self.end(f"{type(error).__name__}: {error}")

    return guarded


def child_info(spec: MonitorSpec) -> ChildInfo:
    """How the monitor of a spec presents itself to its host manager before it runs."""
    return ChildInfo(
        child=spec.child, role="monitor", queue=spec.queue, queue_id=spec.queue_id,
        epoch=spec.epoch, state="starting", pid=os.getpid(),
    )  # fmt: skip


class Monitor:
    """The monitor of one queue, in a process that may have others. Construct (binds), `end()`.

    Args:
        reactor, context, link, leader: of the process.
        policy_named: finds policies.
        on_end: called once, when this monitor is no more, with the reason; empty: it was to end.

    Raises:
        Unavailable: no port of the range is free.
        ConfigError: this machine does not have the address to bind to.
    """

    def __init__(
        self,
        spec: MonitorSpec,
        *,
        reactor: Reactor,
        context: zmq.Context[zmq.Socket[bytes]],
        link: ManagerLink,
        leader: LeaderClient,
        policy_named: Callable[[str], Policy],
        on_end: Callable[[Monitor, str], None],
    ) -> None:
        kilobytes = kept_kilobytes(os.environ, FLIGHT_KILOBYTES)
        self.spec = spec
        self._reactor = reactor
        self._link = link
        self._leader = leader
        self._on_end = on_end
        self._limited = RateLimited(log)
        self._timer: Timer | None = None
        self._stopping = False
        self._ended = False
        self._control = sockets.router(context)
        self._control.setsockopt(zmq.SNDHWM, ANSWERS_MAX)
        self._statistics = sockets.publisher(context)
        try:
            self._bind()
        except (Unavailable, ConfigError):
            self._control.close(0)
            self._statistics.close(0)
            raise
        birth = Birth(
            queue=spec.queue, queue_id=spec.queue_id, epoch=spec.epoch, limits=spec.limits,
            kpi_seconds=spec.kpi_seconds, restarted=spec.restarted, now=reactor.now(),
            control=self.control,
        )  # fmt: skip
        self._machine = make(birth, policy_named)
        self.recorder = Recorder(KIND, spec.child, lambda: birth, self._machine, kilobytes)
        self._wanted = 0
        """Topics of the statistics that somebody wants."""
        self._server = RpcServer(reactor, self._control, self._request)
        self._manager = link.add(
            self.child, on_keep=self._keep, on_stop=self.stop, metrics=self._metrics
        )
        log.info(
            "serves queue %s at %s, statistics at %s", spec.queue, self.control,
            self.statistics, extra={"event": "started", "epoch": spec.epoch},
        )  # fmt: skip
        self._handle(Listened(anybody=False))

    def child(self) -> ChildInfo:
        """How this monitor presents itself to its host manager."""
        return replace(
            child_info(self.spec), state="running", control=self.control, statistics=self.statistics
        )

    def ask_to_stop(self) -> None:
        """Stop as the host manager says; only it knows whether the queue ends or this monitor."""
        self._manager.ask_reason(self.stop)

    @_alone
    def stop(self, reason: str = "") -> None:
        """Say goodbye and end; loop thread only.

        Args:
            reason: `stopped` or `removed` if that is what happens to the queue.
        """
        if not self._stopping:
            self._stopping = True
            self._handle(StopWanted(reason))

    def end(self, reason: str = "") -> None:
        """Be no more, without another word to clients.

        Args:
            reason: what went wrong; empty: nothing did.
        """
        if self._ended:
            return
        self._ended = True
        if self._timer is not None:
            self._timer.cancel()
        self._server.close()
        self._statistics.close(0)
        self._link.remove(self._manager)
        log.info("serves queue %s no more", self.spec.queue, extra={"event": "stopped"})
        self._on_end(self, reason)

    def _bind(self) -> None:
        spec = self.spec
        port = sockets.bind(self._control, spec.bind, spec.ports, spec.avoid_ports)
        self.control = endpoint_of(spec.advertise, port)
        port = sockets.bind(self._statistics, spec.bind, spec.statistics_ports, spec.avoid_ports)
        self.statistics = endpoint_of(spec.advertise, port)

    def _keep(self, ack: ChildAck) -> None:
        self._leader.move(ack.leader)

    def _metrics(self) -> Mapping[str, float]:
        return self._machine.metrics()

    @_alone
    def _request(self, peer: RpcPeer, data: bytes) -> None:
        if self._ended:
            return
        request: MonitorRequest | Failure = read_request(data, MonitorRequest)  # type: ignore[arg-type]
        if isinstance(request, Failure):
            self._limited.warning(
                "malformed_request", self._reactor.now(), "refused a request: %s", request.COMMENT
            )
            self._server.send(peer, documents.encode(request))
            return
        self._handle(Received(peer, request))

    def _read_subscriptions(self) -> None:
        # Nobody waits for them: statistics come once a second, and are made if anybody wants some.
        before = self._wanted > 0
        drain(self._statistics, self._subscribed, most=SUBSCRIPTIONS_MAX)
        if before != (self._wanted > 0):
            self._handle(Listened(not before))

    def _subscribed(self, frames: list[bytes]) -> None:
        self._wanted += {SUBSCRIBED: 1, UNSUBSCRIBED: -1}.get(frames[0][:1], 0)

    @_alone
    def _tick(self) -> None:
        self._read_subscriptions()
        self._handle(Tick())

    def _handle(self, event: Event) -> None:
        if self._ended:
            return
        for effect in self.recorder.handle(event, self._reactor.now()):
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
                self.end()

    def _ask(self, ask: Ask) -> None:
        self._leader.ask(ask.message, ask.seconds, lambda answer: self._answered(ask, answer))

    @_alone
    def _answered(self, ask: Ask, answer: Answer | Unavailable) -> None:
        self._handle(LeaderAnswered(ask.serial, answer))

    def _note(self, note: Note) -> None:
        text = f"queue {self.spec.queue}: {note.text}"
        if note.warning:
            self._limited.warning(note.event, self._reactor.now(), "%s", text)
        else:
            log.info("%s", text, extra={"event": note.event})

    def _send(self, peers: tuple[Peer, ...], data: bytes) -> None:
        # A peer that is gone expires by its silence; one that does not read asks again.
        for peer in peers:
            self._server.send(RpcPeer(*peer), data)

    def _arm(self) -> None:
        deadline = None if self._ended else self._machine.next_deadline()
        if deadline is None:
            return
        if self._timer is not None and self._timer.call is not None:
            if self._timer.when <= self._reactor.beat_after(deadline):
                return
            self._timer.cancel()
        self._timer = self._reactor.call_at(self._reactor.beat_after(deadline), self._tick)


# How a flight of a monitor is flown again.
#
# A policy of another package is asked anew, without the bound on its time.


class Birth(msgspec.Struct, frozen=True, kw_only=True):
    """What a monitor's machine is made of."""

    queue: str
    queue_id: bytes
    epoch: int
    limits: Limits
    kpi_seconds: float
    restarted: bool
    now: float
    control: str


def make(given: Birth, policy_named: PolicyNamed = plugins.policy) -> MonitorMachine:
    """A machine as it was, or shall be, at its birth."""
    return MonitorMachine(
        queue=given.queue, queue_id=given.queue_id, epoch=given.epoch, limits=given.limits,
        kpi_seconds=given.kpi_seconds, restarted=given.restarted, now=given.now,
        control=given.control, policy_named=policy_named,
    )  # fmt: skip


KIND: Final = FlightKind("monitor", Birth, Event, make)
