"""Configuration manager and monitor of one queue in one thread, for tests of clients."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from types import TracebackType

from roq.client.io.engine import Engine
from roq.errors import QueueNotFound, QueueStopped, RemoteProtocolError, RequestError
from roq.exchange.daemon import ExchangeServer
from roq.model import ExchangeInfo, Limits, child_epoch, endpoint_of, publisher_epoch
from roq.protocol import documents
from roq.protocol.control import (
    Alive,
    Assigned,
    Attach,
    ClusterInfo,
    ClusterInfoRequest,
    Control,
    ExchangeAck,
    ExchangeReport,
    GcmRequest,
    Join,
    Leave,
    Located,
    LocateRequest,
    MonitorRequest,
    Passed,
    Relocate,
    Relocated,
    Topology,
)
from roq.protocol.public_answers import failure_of
from roq.protocol.reports import ExchangeLoad
from roq.protocol.spec import ExchangeSpec
from roq.runtime import sockets
from roq.runtime.rpc import Peer, RpcServer


class FakeControl:
    """Answers Locate, Attach, Join and Alive like a cluster with one queue and given exchanges.

    Attributes:
        exchanges: what is assigned (the first one that has not failed) and told as topology.
        refusal: answer Locate with this error.
        relocated: what publishers have made of `relocate`.
        peers: who said something last, by the client's id or the exchange's number.
        mute: the manager answers nobody; `silent`: nor does the monitor.
        hold_seconds: for how long exchanges wait for slow subscribers; None: they are not told.
        loads: what exchanges have reported last, by number.
        askers: connections over which the manager was asked.
    """

    def __init__(self, queue: str = "orders", limits: Limits | None = None) -> None:
        self.queue = queue
        self.queue_id = os.urandom(16)
        self.limits = limits or Limits()
        self.exchanges: list[ExchangeInfo] = []
        self.refusal: RequestError | None = None
        self.attaches: list[Attach] = []
        self.alive: list[Alive] = []
        self.left: list[Leave] = []
        self.relocated: list[Relocated] = []
        self.peers: dict[bytes | int, Peer] = {}
        self.silent = False
        self.mute = False
        self.hold_seconds: int | None = None
        self.loads: dict[int, ExchangeLoad] = {}
        self.askers: set[bytes] = set()
        self._closed = False
        self._shown: list[ExchangeInfo] = []
        self._version = 0
        self._epoch = 1
        self._moves = 0
        self._engine = Engine("fake-control")
        self._engine.start()
        self.address = ""
        self.monitor = ""
        self._gcm: RpcServer | None = None
        self._mon: RpcServer | None = None
        self._engine.run_sync(self._bind)

    def _bind(self) -> None:
        engine = self._engine
        gcm = sockets.router(engine.context)
        self.address = endpoint_of("127.0.0.1", sockets.bind_port(gcm, "127.0.0.1", 0))
        monitor = sockets.router(engine.context)
        self.monitor = endpoint_of("127.0.0.1", sockets.bind_port(monitor, "127.0.0.1", 0))
        self._gcm = RpcServer(engine.reactor, gcm, self._asked_gcm)
        self._mon = RpcServer(engine.reactor, monitor, self._asked_monitor)

    def _asked_gcm(self, peer: Peer, data: bytes) -> None:
        assert self._gcm is not None
        self.askers.add(peer.routing_id)
        if self.mute:
            return
        try:
            request: Control = documents.decode(data, GcmRequest)
        except RemoteProtocolError:
            return
        if isinstance(request, ClusterInfoRequest):
            nowhere = {"management": "", "broadcast": ""}
            info = ClusterInfo(
                id=request.id, cluster="fake", leader=True, client=self.address, **nowhere
            )
            self._gcm.send(peer, documents.encode(info))
        if not isinstance(request, LocateRequest):
            return
        error = self.refusal
        if error is None and request.QName != self.queue:
            error = QueueNotFound(f"queue {request.QName} does not exist")
        answer: Control = (
            failure_of(error, request.id)
            if error is not None
            else Located(
                id=request.id, QName=self.queue, queue_id=self.queue_id,
                monitor=self.monitor, statistics="", limits=self.limits,
            )
        )  # fmt: skip
        self._gcm.send(peer, documents.encode(answer))

    def _asked_monitor(self, peer: Peer, data: bytes) -> None:
        assert self._mon is not None
        request: Control = documents.decode(data, MonitorRequest)
        answer: Control | None = None
        if self.silent:
            return
        self._remember(peer, request)
        if isinstance(request, Attach):
            self.attaches.append(request)
            good = [x for x in self.exchanges if (x.number, x.epoch) not in request.failed]
            good = good or self.exchanges
            if good:
                answer = Assigned(
                    id=request.id, exchange=self.choose(good), limits=self.limits,
                    epoch=self.next_epoch(),
                )  # fmt: skip
        elif isinstance(request, Join):
            answer = self._topology(request.id)
        elif isinstance(request, Alive):
            self.alive.append(request)
            answer = self._topology(request.id)
        elif isinstance(request, Leave):
            self.left.append(request)
        elif isinstance(request, Relocated):
            self.relocated.append(request)
        elif isinstance(request, ExchangeReport):
            answer = ExchangeAck(id=request.id, hold_seconds=self.hold_seconds)
            self.loads[request.exchange.number] = request.load
        if answer is not None:
            self._mon.send(peer, documents.encode(answer))

    def choose(self, good: list[ExchangeInfo]) -> ExchangeInfo:
        """The exchange that a publisher gets."""
        return good[0]

    def next_epoch(self) -> int:
        self._moves += 1
        return publisher_epoch(1, self._moves)

    def _remember(self, peer: Peer, request: Control) -> None:
        match request:
            case Attach(publisher=client) | Alive(client=client) | Join(subscriber=client):
                self.peers[client] = peer
            case ExchangeReport(exchange=info):
                self.peers[info.number] = peer
            case _:
                pass

    def push(self, to: bytes | int, message: Control) -> None:
        """Say something unasked to a client or exchange that has said something before."""

        def send() -> None:
            if self._mon is not None:
                self._mon.send(self.peers[to], documents.encode(message))

        self._engine.run_sync(send)

    def relocate(self, publisher: bytes, *exchanges: ExchangeInfo, epoch: int = 0) -> int:
        """Have a publisher publish there, once; the epoch."""
        epoch = epoch or self.next_epoch()
        self.push(
            publisher,
            Relocate(
                queue_id=self.queue_id, publisher=publisher, epoch=epoch, exchanges=list(exchanges)
            ),
        )
        return epoch

    def pass_by(self, exchange: ExchangeInfo, publisher: bytes, epoch: int) -> None:
        """Tell an exchange that a publisher has left it."""
        self.push(exchange.number, Passed(queue_id=self.queue_id, publisher=publisher, epoch=epoch))

    def _topology(self, number: int) -> Topology:
        if self._shown != self.exchanges:
            self._shown = list(self.exchanges)
            self._version += 1
        return Topology(
            id=number, queue_id=self.queue_id, epoch=self._epoch, version=self._version,
            exchanges=list(self.exchanges),
        )  # fmt: skip

    def tell_topology(self, client: bytes) -> None:
        """Push the exchanges that there are now to a client that has said something before."""
        self.push(client, self._topology(0))

    def silence(self) -> None:
        """The monitor answers nobody any more."""
        self.silent = True

    def stop_queue(self) -> None:
        self.refusal = QueueStopped(f"queue {self.queue} is stopped: start it first")

    def later(self, seconds: float, function: Callable[[], None]) -> None:
        """Call this after a while, in the thread of this control."""
        reactor = self._engine.reactor
        self._engine.call_soon(lambda: reactor.call_later(seconds, function))

    def move_monitor(self) -> None:
        """Another one takes its place, at another address and under a higher epoch."""
        self.close_monitor()

        def bind() -> None:
            engine = self._engine
            monitor = sockets.router(engine.context)
            self.monitor = endpoint_of("127.0.0.1", sockets.bind_port(monitor, "127.0.0.1", 0))
            self._mon = RpcServer(engine.reactor, monitor, self._asked_monitor)
            self._epoch += 1
            self.alive.clear()
            self.peers.clear()

        self._engine.run_sync(bind)

    def close_monitor(self) -> None:
        """End the monitor as a process ends: whoever is connected notices."""

        def shut() -> None:
            if self._mon is not None:
                mon, self._mon = self._mon, None
                mon.close()

        self._engine.run_sync(shut)

    def close(self) -> None:
        """Idempotent."""
        if self._closed:
            return
        self._closed = True
        self.close_monitor()

        def shut() -> None:
            assert self._gcm is not None
            self._gcm.close()

        self._engine.run_sync(shut)
        self._engine.close()

    def __enter__(self) -> FakeControl:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


class ThreadExchange:
    """A real exchange in a thread of the test."""

    def __init__(
        self, control: FakeControl, number: int = 1, counter: int = 1, log: str = ""
    ) -> None:
        self.spec = ExchangeSpec(
            child=f"{control.queue}.x{number}", queue=control.queue, queue_id=control.queue_id,
            epoch=child_epoch(1, counter), bind="127.0.0.1", advertise="127.0.0.1", ports=(0, 0),
            manager="", monitor="", number=number, host="127.0.0.1", limits=control.limits,
            log=log,
        )  # fmt: skip
        self.server = ExchangeServer(self.spec)
        self.info = self.server.info
        self._thread = threading.Thread(target=self.server.run)
        self._thread.start()
        self._hangs: list[threading.Event] = []
        self._closed = False

    def freeze(self) -> threading.Event:
        """Hang it until the event is set."""
        released, hung = threading.Event(), threading.Event()
        self._hangs.append(released)

        def hang() -> None:
            hung.set()
            released.wait(120)

        self.server.reactor.call_soon(hang)
        assert hung.wait(30)
        return released

    def withhold(self) -> threading.Event:
        """Have it acknowledge nothing until the event is set."""
        released, take = threading.Event(), self.server.core.take_acks
        vars(self.server.core)["take_acks"] = lambda: take() if released.is_set() else []
        return released

    def kill(self) -> None:
        """End it without a word, as far as a thread can."""
        if not self._closed:
            self._closed = True
            self.server.reactor.stop()
            for released in self._hangs:  # of a test that has failed meanwhile
                released.set()
            self._thread.join(30)
            assert not self._thread.is_alive(), "it uses what would be closed"
            self.server.close()
