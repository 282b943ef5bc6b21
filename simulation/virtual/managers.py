"""A configuration manager: `GcmMachine` and `Definitions`, with sockets of the simulation."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import msgspec

from roq.errors import Unavailable
from roq.gcm import events
from roq.gcm.machine import GcmMachine, Settings
from roq.gcm.persistence.definitions import Definitions
from roq.gcm.state.records import BESIDE_QUEUES, Manager, QueueRecord
from roq.machine import Tick
from roq.protocol.control import Answer, StartExchange, StartMonitor
from roq.runtime.rpc import Peer, RpcClient
from roq.simulation.virtual.ensemble import Ensemble
from roq.simulation.virtual.process import Process
from roq.simulation.virtual.shells import Driver, Server
from roq.simulation.virtual.sockets import Sockets
from roq.simulation.virtual.watch import Watch

QUEUE_DEPTH = 2
"""Slashes in the path of a definition: /queues/name."""

Answered = Callable[[bytes], None]


class ManagerShell:
    """One process of a configuration manager.

    Args:
        client, management: its addresses, the same in each life.
        watch: notices under which epochs managers lead.

    Attributes:
        machine: what decides.
    """

    def __init__(
        self,
        process: Process,
        ensemble: Ensemble,
        client: str,
        management: str,
        watch: Watch,
    ) -> None:
        random = process.world.random
        self.process = process
        self.manager = Manager(
            id=random.randbytes(16).hex(), client=client, management=management,
            broadcast=f"tcp://{process.machine}:5005",
        )  # fmt: skip
        self.machine = GcmMachine(Settings(manager=self.manager))
        self._context = Sockets(process)
        self._clients: dict[str, RpcClient] = {}
        self._driver: Driver[events.Event, events.Effect] = Driver(
            process, self.machine, Tick(), self._perform
        )
        self._client_server = Server(process, client, self._client_frame)
        self._management_server = Server(process, management, self._management_frame)
        self._registry = ensemble.registry(process)
        self._watch = watch
        self._definitions = Definitions(
            self._registry, self.manager, self._feed, lambda: None, process.call_later
        )
        self._definitions.start()

    @property
    def leads(self) -> bool:
        """Whether it leads, as far as it knows."""
        return self.process.alive and self.machine.leads

    def ask(self, data: bytes, answered: Answered) -> None:
        """A management command from a console on the same machine."""
        unique, wall = self.process.world.random.randbytes(16), self.process.clocks.wall_clock()
        event = events.ManagementFrame(answered, data, unique=unique, wall=wall)
        self.process.turn(lambda: self._driver.feed(event))

    def _feed(self, event: events.Event) -> None:
        if isinstance(event, events.Elected):
            self._watch.elected(self.manager.client, event.epoch)
        self._driver.feed(event)

    def _client_frame(self, peer: Peer, data: bytes) -> None:
        reply = partial(self._client_server.send_raw, peer)
        self._driver.feed(events.ClientFrame(reply, data))

    def _management_frame(self, peer: Peer, data: bytes) -> None:
        reply = partial(self._management_server.send_raw, peer)
        unique, wall = self.process.world.random.randbytes(16), self.process.clocks.wall_clock()
        self._driver.feed(events.ManagementFrame(reply, data, unique=unique, wall=wall))

    def _perform(self, effect: events.Effect) -> None:
        match effect:
            case events.Reply():
                if callable(effect.peer):
                    effect.peer(effect.data)
            case events.Commit():
                self._commit(effect)
            case events.ReadAgain():
                self.process.call_soon(self._definitions.read_again)
            case events.LeadAnew():
                self.process.call_soon(partial(self._definitions.lead_anew, effect.epoch))
            case events.DrawEpoch():
                self.process.call_soon(partial(self._definitions.draw, effect))
            case events.HangUp():
                self._hang_up(effect.endpoint)
            case events.AskHost():
                self._ask(effect)
            case events.LogLine():
                self.process.world.note(self.process.name, effect.text)
            case _:
                return  # broadcasts, listeners and providers are not simulated

    def _commit(self, effect: events.Commit) -> None:
        for change in effect.changes:
            if not isinstance(change, events.Put) or change.path in BESIDE_QUEUES:
                continue
            if change.path.count("/") == QUEUE_DEPTH:
                self._watch.defined(msgspec.json.decode(change.data, type=QueueRecord))
        self.process.call_soon(partial(self._definitions.commit, effect))

    def _ask(self, ask: events.AskHost) -> None:
        client = self._clients.get(ask.endpoint)
        if client is None:
            client = RpcClient(self.process, self._context, ask.endpoint)
            self._clients[ask.endpoint] = client
        client.request(ask.message, ask.timeout, partial(self._answered, ask))

    def _hang_up(self, endpoint: str) -> None:
        client = self._clients.pop(endpoint, None)
        if client is not None:
            client.close()

    def _answered(self, ask: events.AskHost, answer: Answer | Unavailable) -> None:
        token = ask.token
        if isinstance(answer, Unavailable):
            client = self._clients.get(ask.endpoint)
            start = isinstance(ask.message, StartMonitor | StartExchange)
            if start and client is not None and not client.waiting:
                self._hang_up(ask.endpoint)
            self._driver.feed(events.Unanswered(token, str(answer)))
        else:
            self._driver.feed(events.Answered(token, answer))
