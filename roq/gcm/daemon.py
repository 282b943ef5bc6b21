"""The shell of the configuration manager: sockets, registry, timers; performs what is decided.

A ROUTER for clients and host managers, one for management, an XPUB for the broadcast, a DEALER to
each host manager that is asked something, a PUSH to each listener for rules. Nothing here waits for
a peer.
"""

from __future__ import annotations

import logging
import os
import time
import uuid
from collections.abc import Callable, Iterable
from functools import partial
from typing import Final, NamedTuple

import msgspec
import zmq

from roq.coordination.addresses import name_of, remedy, unreachable
from roq.coordination.registry_contract import Post, Registry
from roq.errors import Unavailable
from roq.gcm import events
from roq.gcm.config import WILDCARDS, GcmConfig
from roq.gcm.events import Event
from roq.gcm.interfaces import metrics
from roq.gcm.interfaces.listeners import Listeners
from roq.gcm.machine import GcmMachine, Settings
from roq.gcm.persistence.definitions import Definitions
from roq.gcm.provision.calls import ProviderCalls
from roq.gcm.provision.hosts import ProvisionSettings
from roq.gcm.state.records import Manager
from roq.machine import Tick
from roq.model import VOLATILE, endpoint_of, host_epoch
from roq.protocol.control import Answer, Health, StartExchange, StartMonitor
from roq.protocol.metrics import Sample
from roq.protocol.reports import Check
from roq.provider.choice import open_provider
from roq.provider.port import HostRequest
from roq.runtime import exits, plugins, resources, sockets
from roq.runtime.flight import FlightKind, Recorder, kept_kilobytes, save
from roq.runtime.interfaces import Timer
from roq.runtime.metrics import Telemetry
from roq.runtime.reactor import Reactor, drain
from roq.runtime.rpc import Peer, RpcClient, RpcServer
from roq.runtime.structured_logs import RateLimited

log = logging.getLogger(__name__)

IDLE_CLIENT_SECONDS: Final = 60.0
"""A connection to a host manager is closed when nothing was asked for so long."""
GOODBYE_SECONDS: Final = 0.1
"""So long the last answers have to leave."""
FLIGHT_KILOBYTES: Final = 1_024
"""What is kept of events and effects."""
_SUBSCRIBE: Final = 1

Readiness = Callable[[dict[str, str]], None]


class _Asker(NamedTuple):
    """Who gets an answer, and through which socket."""

    management: bool
    peer: Peer


class Gcm:
    """One configuration manager; construct (binds), `run`, `stop`.

    Args:
        config: the settings.
        make_registry: makes the registry for the loop's `post`.
        on_ready: called once with the addresses, when it leads or knows who does.

    Raises:
        ConfigError: a port is in use, an address is not of this machine, or not one at all; or the
            provider of hosts cannot be used as it is configured.
    """

    def __init__(
        self,
        config: GcmConfig,
        make_registry: Callable[[Post], Registry],
        on_ready: Readiness | None = None,
    ) -> None:
        self._config = config
        self._on_ready = on_ready
        self._code = exits.STOPPED
        self._timer: Timer | None = None
        self._stopping = False
        self._ready = False
        self._fed = 0.0
        self._clients: dict[str, tuple[RpcClient, float]] = {}
        self._limited = RateLimited(log)
        kilobytes = kept_kilobytes(os.environ, FLIGHT_KILOBYTES)
        self._reactor = Reactor()
        self._context = sockets.new_context()
        try:
            provider = open_provider(config.provider)
            self._open()
            registry = make_registry(self._reactor.call_soon)
            self._telemetry = Telemetry(
                self._reactor,
                config.metrics,
                metrics.METRICS,
                measure=self._measure,
                look=self._look,
            )
        except BaseException:
            self._context.destroy(0)
            self._reactor.close()
            raise
        self._listeners = Listeners()
        settings = Settings(
            manager=self.manager,
            period=config.broadcast.period / 1000,
            cloud=config.cloud_properties(),
            provision=config.provision_settings() if provider is not None else None,
            policies=plugins.policies,
            registry=name_of(config.registry_address),
            durability=config.queues.durability,
        )
        self.machine = GcmMachine(settings)
        self._recorder = Recorder(KIND, "gcm", lambda: birth(settings), self.machine, kilobytes)
        self._provider = (
            ProviderCalls(
                self._reactor,
                provider,
                cluster=lambda: self.machine.cluster,
                make_request=self._host_request,
                seconds=config.provider.call_seconds,
            )
            if provider is not None
            else None
        )
        self._definitions = Definitions(
            registry,
            self.manager,
            self._feed,
            self._connected,
            self._reactor.call_later,
            self._highest_epoch,
            # The last word from the ensemble is up to two thirds of the session older.
            config.zk.session_seconds / 3,
        )

    @property
    def reactor(self) -> Reactor:
        """The loop, for signal handling."""
        return self._reactor

    def run(self) -> int:
        """Serve until `stop`; gives the exit code."""
        self._warn_if_open()
        self._definitions.start()
        self._give_up = self._reactor.call_later(
            self._config.zk.connect_seconds, self._registry_unreachable
        )
        self._reactor.call_later(IDLE_CLIENT_SECONDS, self._close_idle_clients)
        self._telemetry.start()
        try:
            self._reactor.run()
        except Exception:
            self.save_flight(crashed=True)
            raise
        finally:
            self._close()
        return self._code

    def stop(self) -> None:
        """Answer what is under way, then end `run`. From any thread."""
        self._reactor.call_soon(self._stop)

    def save_flight(self, *, crashed: bool = False) -> None:
        """Write down what was decided last."""
        save("gcm", [self._recorder], crashed=crashed)

    # --- opening and closing ----------------------------------------------------------------------

    def _open(self) -> None:
        client = sockets.router(self._context)
        management = sockets.router(self._context)
        publisher = sockets.publisher(self._context)
        publisher.setsockopt(zmq.XPUB_VERBOSE, 1)
        self.manager = Manager(
            id=uuid.uuid4().hex,
            client=self._bind(client, "client"),
            management=self._bind(management, "management"),
            broadcast=self._bind(publisher, "broadcast"),
        )
        self._client_server = RpcServer(self._reactor, client, self._client_frame)
        self._management_server = RpcServer(self._reactor, management, self._management_frame)
        self._publisher = publisher
        self._reactor.add(publisher, self._subscriptions)

    def _bind(self, socket: zmq.Socket[bytes], name: str) -> str:
        port = sockets.bind_port(socket, self._config.network.bind, self._config.port(name))
        return endpoint_of(self._config.advertise, port)

    def _warn_if_open(self) -> None:
        bind = self._config.network.bind
        if bind in WILDCARDS or not sockets.is_loopback(bind):
            log.warning(
                "bound to %s: anyone who reaches it can use and change this cluster, since nothing "
                "is authenticated; bind to a loopback or private address if that is not wanted",
                bind,
                extra={"event": "unauthenticated"},
            )

    def _stop(self) -> None:
        if self._stopping:
            self._reactor.stop()
            return
        self._stopping = True
        log.info("stopping", extra={"event": "stopping"})
        # Those that wait are answered first; then the registry is told, so that another one leads.
        self._feed(events.Following(None))
        self._definitions.close()
        self._reactor.call_later(GOODBYE_SECONDS, self._reactor.stop)

    def _close(self) -> None:
        self._telemetry.close()
        self._definitions.close()
        for client, _ in self._clients.values():
            client.close()
        self._clients.clear()
        self._listeners.close()
        if self._provider is not None:
            self._provider.close()
        self._client_server.close()
        self._management_server.close()
        self._reactor.remove(self._publisher)
        self._publisher.close(0)
        self._context.term()
        self._reactor.close()
        log.info("stopped", extra={"event": "stopped"})

    # --- events -----------------------------------------------------------------------------------

    def _connected(self) -> None:
        self._give_up.cancel()

    def _highest_epoch(self, below: int) -> int:
        """The highest host epoch below this number that a report or definition has told of."""
        machine = self.machine
        reports = [host.report for host in machine.hosts if host.report is not None]
        children = [child.epoch for report in reports for child in report.children]
        floors = [epoch for queue in machine.queues for epoch in queue.record.epochs]
        heard = [report.epoch for report in reports]
        known = [*heard, *map(host_epoch, children), *map(host_epoch, floors)]
        return max((epoch for epoch in known if epoch < below), default=0)

    def _registry_unreachable(self) -> None:
        log.error(
            "%s within %g s: %s",
            unreachable(self._config.registry_address),
            self._config.zk.connect_seconds,
            remedy(self._config.registry_address),
            extra={"event": "registry_unreachable"},
        )
        self._code = exits.UNAVAILABLE
        self._reactor.stop()

    def _measure(self) -> Iterable[Check]:
        checks = resources.measure().checks()
        self._feed(events.Measured(checks))
        return checks

    def _look(self) -> tuple[Iterable[Sample], Health]:
        return self.machine.figures(), self.machine.health()

    def _client_frame(self, peer: Peer, data: bytes) -> None:
        self._feed(events.ClientFrame(_Asker(management=False, peer=peer), data))

    def _management_frame(self, peer: Peer, data: bytes) -> None:
        self._feed(
            events.ManagementFrame(
                _Asker(management=True, peer=peer),
                data,
                unique=os.urandom(16),
                wall=time.time(),
                party=peer.party,
            )
        )

    def _subscriptions(self) -> None:
        subscribed = False

        def look(frames: list[bytes]) -> None:
            nonlocal subscribed
            subscribed = subscribed or frames[0][:1] == bytes([_SUBSCRIBE])

        drain(self._publisher, look)
        if subscribed:
            self._feed(events.Subscribed())

    def _feed(self, event: events.Event) -> None:
        now = self._reactor.now()
        stood_still = now - self._fed
        self._fed = now
        if self.machine.leads and stood_still > self._config.zk.session_seconds / 2:
            # A leader has something to do all the time. What comes first now may be a request that
            # has waited for it for so long that another manager leads.
            self._definitions.doubt()
        for effect in self._recorder.handle(event, now):
            self._perform(effect)
        self._arm()
        if not self._ready and isinstance(event, events.Elected | events.Following):
            self._announce(event)

    def _announce(self, event: events.Elected | events.Following) -> None:
        if isinstance(event, events.Following) and event.leader is None:
            return
        self._ready = True
        addresses = {
            "client": self.manager.client,
            "management": self.manager.management,
            "broadcast": self.manager.broadcast,
        }
        log.info(
            "ready: clients %s, management %s, broadcast %s",
            *addresses.values(),
            extra={"event": "ready"},
        )
        if self._on_ready is not None:
            self._on_ready(addresses)

    def _arm(self) -> None:
        """See to it that the machine gets its tick in time (an early one does no harm)."""
        deadline = self.machine.next_deadline()
        if deadline is None:
            return
        timer = self._timer
        if timer is not None and timer.call is not None:
            if timer.when <= deadline:
                return
            timer.cancel()
        self._timer = self._reactor.call_at(deadline, partial(self._feed, Tick()))

    # --- effects ----------------------------------------------------------------------------------

    def _perform(self, effect: events.Effect) -> None:  # noqa: C901, PLR0912 - one case per effect
        match effect:
            case events.Reply():
                if isinstance(effect.peer, _Asker):
                    management = effect.peer.management
                    server = self._management_server if management else self._client_server
                    server.send(effect.peer.peer, effect.data)
            case events.Commit():
                # Soon, not at once: the machine may be in the middle of a list of effects.
                self._reactor.call_soon(partial(self._definitions.commit, effect))
            case events.ReadAgain():
                self._reactor.call_soon(self._definitions.read_again)
            case events.LeadAnew():
                self._reactor.call_soon(partial(self._definitions.lead_anew, effect.epoch))
            case events.DrawEpoch():
                self._reactor.call_soon(partial(self._definitions.draw, effect))
            case events.HangUp():
                self._hang_up(effect.endpoint)
            case events.AskHost():
                self._ask(effect)
            case events.Broadcast():
                sockets.send_to(self._publisher, list(effect.frames))
            case events.PushRules():
                if not self._listeners.push(effect.address, effect.data):
                    gone = events.ListenerGone(effect.address)
                    self._reactor.call_soon(partial(self._feed, gone))
            case events.ForgetListener():
                self._listeners.forget(effect.address)
            case events.CallProvider():
                self._call_provider(effect)
            case events.LogLine(provoked=True):
                self._limited.warning(effect.event, self._reactor.now(), "%s", effect.text)
            case events.LogLine():
                log.info("%s", effect.text, extra={"event": effect.event})

    def _call_provider(self, call: events.CallProvider) -> None:
        if self._provider is not None:
            self._provider.call(
                call.action,
                lambda answer: self._feed(events.ProviderAnswered(call.token, answer)),
            )

    def _host_request(self, action: events.CreateHost) -> HostRequest:
        """What a new host is told: where the cluster is, and how much it may take."""
        machine, config = self.machine, self._config
        return HostRequest(
            cluster=machine.cluster,
            name=action.name,
            managers=[address.removeprefix("tcp://") for address in machine.manager_addresses],
            zookeeper=config.registry_address,
            zookeeper_root=config.zk.root,
            taken=machine.hosts.known(),
            settings={"exchange": {"max_perhost": config.provider.slots}},
            labels={"queue": action.queue},
        )

    def _ask(self, ask: events.AskHost) -> None:
        known = self._clients.get(ask.endpoint)
        try:
            client = known[0] if known else RpcClient(self._reactor, self._context, ask.endpoint)
        except zmq.ZMQError as error:  # no descriptor, or no socket, is left
            reason = f"cannot connect to {ask.endpoint}: {error.strerror}"
            self._reactor.call_soon(partial(self._feed, events.Unanswered(ask.token, reason)))
            return
        self._clients[ask.endpoint] = (client, self._reactor.now() + ask.timeout)
        client.request(ask.message, ask.timeout, partial(self._answered, ask))

    def _hang_up(self, endpoint: str) -> None:
        known = self._clients.pop(endpoint, None)
        if known is not None:
            known[0].close()

    def _answered(self, ask: events.AskHost, answer: Answer | Unavailable) -> None:
        token = ask.token
        if isinstance(answer, Unavailable):
            known = self._clients.get(ask.endpoint)
            start = isinstance(ask.message, StartMonitor | StartExchange)
            if start and known is not None and not known[0].waiting:
                self._hang_up(ask.endpoint)  # it may not have left yet
            self._feed(events.Unanswered(token, str(answer)))
        else:
            self._feed(events.Answered(token, answer))

    def _close_idle_clients(self) -> None:
        self._reactor.call_later(IDLE_CLIENT_SECONDS, self._close_idle_clients)
        for endpoint, (client, used) in list(self._clients.items()):
            if self._reactor.now() - used > IDLE_CLIENT_SECONDS:
                client.close()
                del self._clients[endpoint]


# How a flight of a configuration manager is flown again.


class Birth(msgspec.Struct, frozen=True):
    """The settings as plain values, with the policies that were installed."""

    manager: Manager
    period: float
    cloud: dict[str, bool | int | float | str]
    provision: ProvisionSettings | None
    policies: list[str]
    registry: str
    durability: str = VOLATILE
    """As it was before it was a setting."""


def birth(settings: Settings) -> Birth:
    """What a machine with these settings is made of."""
    return Birth(
        manager=settings.manager,
        period=settings.period,
        cloud=settings.cloud,  # type: ignore[arg-type] # only `[cloud]` of gcm.toml
        provision=settings.provision,
        policies=sorted(settings.policies()),
        registry=settings.registry,
        durability=settings.durability,
    )


def make(given: Birth) -> GcmMachine:
    """A machine as it was at its birth."""
    return GcmMachine(
        Settings(
            manager=given.manager,
            period=given.period,
            cloud=dict(given.cloud),
            provision=given.provision,
            policies=lambda: given.policies,
            registry=given.registry,
            durability=given.durability,
        )
    )


KIND: Final = FlightKind("gcm", Birth, Event, make)
