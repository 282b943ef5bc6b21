"""A configuration manager of a few lines over real sockets: takes reports, gives orders."""

from __future__ import annotations

import threading
from queue import Queue
from types import TracebackType
from typing import Self

import psutil
from waiting import eventually

from roq.errors import Unavailable
from roq.model import Limits, endpoint_of
from roq.protocol import documents
from roq.protocol.control import (
    Answer,
    Control,
    Failure,
    HostReport,
    HostReportAck,
    Join,
    Started,
    StartExchange,
    StartMonitor,
    Topology,
)
from roq.protocol.reports import ChildInfo
from roq.runtime import sockets
from roq.runtime.reactor import Reactor
from roq.runtime.rpc import Peer, RpcClient, RpcServer, read_request

DEADLINE = 30.0
QUEUE_ID = b"q" * 16
HOST = "127.0.0.1"


class FakeLeader:
    """Leads without a registry. One thread of its own; `ask` may come from any other."""

    def __init__(self) -> None:
        self.reports: dict[str, HostReport] = {}
        self.monitors: dict[str, str] = {}
        self.pushed: list[Answer] = []
        self._clients: dict[str, RpcClient] = {}
        self._reactor = Reactor()
        self._context = sockets.new_context()
        socket = sockets.router(self._context)
        self.endpoint = endpoint_of("127.0.0.1", sockets.bind_port(socket, "127.0.0.1", 0))
        self._server = RpcServer(self._reactor, socket, self._request)
        self._thread = threading.Thread(target=self._reactor.run, name="fake leader")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._reactor.stop()
        self._thread.join()
        for client in self._clients.values():
            client.close()
        self._server.close()
        self._context.term()
        self._reactor.close()

    @property
    def address(self) -> str:
        """host:port"""
        return self.endpoint.removeprefix("tcp://")

    def ask(self, endpoint: str, message: Control, timeout: float = DEADLINE) -> Answer:
        """Ask anybody anything, and wait for the answer."""
        answers: Queue[Answer | Unavailable] = Queue()

        def send() -> None:
            client = self._clients.get(endpoint)
            if client is None:
                client = RpcClient(self._reactor, self._context, endpoint, self.pushed.append)
                self._clients[endpoint] = client
            client.request(message, timeout, answers.put)

        self._reactor.call_soon(send)
        answer = answers.get(timeout=timeout + 5)
        if isinstance(answer, Unavailable):
            raise answer
        return answer

    def start(self, endpoint: str, message: Control) -> ChildInfo:
        """Let a host manager start something; gives the child that runs."""
        answer = self.ask(endpoint, message)
        assert isinstance(answer, Started), answer
        return answer.child

    def child(self, host: str, name: str) -> ChildInfo | None:
        """A child as its host has reported it last."""
        report = self.reports.get(host)
        children = {} if report is None else {child.child: child for child in report.children}
        return children.get(name)

    def _request(self, peer: Peer, data: bytes) -> None:
        report: HostReport | Failure = read_request(data, HostReport)
        if isinstance(report, HostReport):
            self.reports[report.host] = report
            for child in report.children:
                if child.role == "monitor" and child.control:
                    self.monitors[child.queue] = child.control
            ack = HostReportAck(id=report.id, cluster="test", monitors=dict(self.monitors))
            self._server.send(peer, documents.encode(ack))
        else:
            self._server.send(peer, documents.encode(report))


def start_monitor(leader: FakeLeader, control: str) -> ChildInfo:
    return leader.start(
        control, StartMonitor(queue="orders", queue_id=QUEUE_ID, leader_epoch=1, limits=Limits())
    )


def start_exchange(leader: FakeLeader, control: str, number: int, monitor: str) -> ChildInfo:
    return leader.start(
        control,
        StartExchange(
            queue="orders", queue_id=QUEUE_ID, number=number, leader_epoch=1, monitor=monitor,
            limits=Limits(ring_bytes=1 << 20),
        ),
    )  # fmt: skip


def topology(leader: FakeLeader, monitor: str) -> dict[int, int]:
    """Number → epoch of the exchanges that a monitor shows, once it does."""
    join = Join(queue_id=QUEUE_ID, subscriber=b"test")
    answers: list[Answer] = []

    def shows() -> bool:
        answers.append(leader.ask(monitor, join))
        found = answers[-1]  # one that has just taken over says that it does not know yet
        return not isinstance(found, Failure) or found.CODE != "unavailable"

    eventually(shows, "the monitor shows its exchanges")
    answer = answers[-1]
    assert isinstance(answer, Topology), answer
    return {exchange.number: exchange.epoch for exchange in answer.exchanges}


def is_gone(pid: int) -> bool:
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
