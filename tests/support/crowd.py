"""A thousand clients in one thread: the protocol and the waits of real ones, and nothing else."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from typing import Final

import bson
import zmq

from roq.model import ExchangeInfo, PublisherId
from roq.protocol import batch, channel, documents
from roq.protocol.channel import Hello, Ready, StreamState
from roq.protocol.control import Answer, Assigned, Attach, Located
from roq.protocol.documents import RawDocument
from roq.protocol.framing import split_answer
from roq.runtime import sockets
from roq.runtime.backoff import Backoff
from roq.runtime.leader_finder import SEARCH_MOST_SECONDS

ASK_SECONDS: Final = 10.0
"""Nothing was heard for so long: it is asked again, and patience grows as that of real clients."""
PATIENCE_MOST: Final = 4
PERIOD_MS: Final = 50
SOCKETS_MAX: Final = 60_000


class Member:
    """One of the crowd: what it does when a socket can be read, and when its time has come."""

    def __init__(self, crowd: Crowd, jitter: Callable[[], float], most: float) -> None:
        self.crowd = crowd
        self.backoff = Backoff(jitter, most)
        self.attempts = 0
        self.due = 0.0
        """When it gives up waiting."""

    def be_patient(self) -> None:
        """Something was heard, or asked: wait from now on."""
        patience = ASK_SECONDS * min(max(1, self.attempts), PATIENCE_MOST)
        self.due = time.monotonic() + patience

    def tick(self) -> None:
        """It has waited long enough."""
        raise NotImplementedError

    @property
    def content(self) -> bool:
        """Whether it has what it wants."""
        raise NotImplementedError


class Crowd:
    """All members, their sockets, and one loop."""

    def __init__(self) -> None:
        self.context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.context.set(zmq.MAX_SOCKETS, SOCKETS_MAX)
        self.members: list[Member] = []
        self._poller = zmq.Poller()
        self._readers: dict[zmq.Socket[bytes], Callable[[list[bytes]], None]] = {}

    def connect(self, endpoint: str, read: Callable[[list[bytes]], None]) -> zmq.Socket[bytes]:
        """A connection that does not reconnect."""
        socket = sockets.dealer(self.context)
        socket.setsockopt(zmq.RECONNECT_IVL, -1)
        socket.setsockopt(zmq.HEARTBEAT_IVL, 0)  # the servers' suffice
        socket.connect(endpoint)
        self._poller.register(socket, zmq.POLLIN)
        self._readers[socket] = read
        return socket

    def leave(self, socket: zmq.Socket[bytes] | None) -> None:
        if socket is not None:
            self._poller.unregister(socket)
            del self._readers[socket]
            socket.close(0)

    def run(self, condition: Callable[[], bool], seconds: float = 180.0) -> float:
        """Let all of them act until a condition holds; gives how many seconds that took."""
        begin = time.monotonic()
        while not condition():
            now = time.monotonic()
            assert now < begin + seconds, (seconds, self._discontent()[:5])
            for socket, _ in self._poller.poll(PERIOD_MS):
                self._read(socket)
            now = time.monotonic()
            for member in self._discontent():
                if member.due <= now:
                    member.attempts += 1
                    member.be_patient()
                    member.tick()
        return time.monotonic() - begin

    def all_content(self, seconds: float = 180.0) -> float:
        """Until everybody has what it wants; gives how many seconds that took."""
        return self.run(lambda: not self._discontent(), seconds)

    def _discontent(self) -> list[Member]:
        return [member for member in self.members if not member.content]

    def close(self) -> None:
        for socket in list(self._readers):
            self.leave(socket)
        self.context.term()

    def _read(self, socket: zmq.Socket[bytes]) -> None:
        while socket in self._readers:
            try:
                frames = socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            self._readers[socket](frames)


class CrowdPublisher(Member):
    """A publisher with one topic: attached by the monitor, replays all when its exchange died."""

    def __init__(self, crowd: Crowd, number: int, queue: Located, dice: random.Random) -> None:
        super().__init__(crowd, dice.random, 2.0)
        self.id = PublisherId(f"crowd {number}".encode().ljust(16, b"."))
        self.topic = f"crowd-{number}".encode()
        self.sent = 0
        """Messages that it wants to get through."""
        self.acked = 0
        self._queue = queue
        self._epoch = 0
        self._connections = 0
        self._under_way = 0
        self._exchange: ExchangeInfo | None = None
        self._failed: list[tuple[int, int]] = []
        self._data: zmq.Socket[bytes] | None = None
        self._ready = False
        self._monitor = crowd.connect(queue.monitor, self._from_monitor)

    @property
    def content(self) -> bool:
        return self.acked == self.sent

    def __repr__(self) -> str:
        where = f"{self._exchange}, {'ready' if self._ready else 'not ready'}"
        return f"{self.acked} of {self.sent} in {self.attempts} attempts: {where}"

    def publish(self) -> None:
        self.sent += 1
        if self._ready:
            self.be_patient()
            self._transmit()

    def lost(self) -> None:
        """The exchange is gone."""
        if self._exchange is not None:
            self._failed = [(self._exchange.number, self._exchange.epoch)]
        self.due, self.attempts = 0.0, 0
        self._disconnect()

    def _disconnect(self) -> None:
        self._exchange, self._ready, self.acked = None, False, 0
        self.crowd.leave(self._data)
        self._data = None

    def tick(self) -> None:
        # Nothing was heard: either connection may be gone, and nothing here would tell.
        self._disconnect()
        if self.attempts > 1:
            self.crowd.leave(self._monitor)
            self._monitor = self.crowd.connect(self._queue.monitor, self._from_monitor)
        attach = Attach(
            id=self.attempts, queue_id=self._queue.queue_id, publisher=self.id, failed=self._failed
        )
        self._monitor.send(documents.encode(attach), zmq.NOBLOCK)

    def _from_monitor(self, frames: list[bytes]) -> None:
        answer: Answer = documents.decode(frames[-1], Answer)  # type: ignore[arg-type]
        if self._exchange is not None:
            return
        if not isinstance(answer, Assigned):
            self.due = time.monotonic() + self.backoff.wait()
            return
        if (answer.exchange.number, answer.exchange.epoch) in self._failed:
            return  # it was asked before the exchange was lost
        self.be_patient()
        self.backoff.reset()
        self._exchange, self._epoch = answer.exchange, answer.epoch
        self._connections += 1
        self._data = self.crowd.connect(answer.exchange.data, self._from_exchange)
        hello = Hello(
            queue=self._queue.queue_id, publisher=self.id,
            epoch=self._epoch, attempt=self._connections,
            streams=[StreamState(topic=self.topic, first=0, idle_us=0)],
        )  # fmt: skip
        self._data.send_multipart([channel.HELLO, documents.encode(hello)], zmq.NOBLOCK)

    def _from_exchange(self, frames: list[bytes]) -> None:
        frames = split_answer(frames[0])
        letter, body = frames
        self.be_patient()
        if letter == channel.READY:
            self._under_way = documents.decode(body, Ready).expected - 1
            self._ready = True
            self._transmit()
        elif letter == channel.ACK:
            self.acked = channel.read_number(body)
        else:
            raise AssertionError(frames)

    def _transmit(self) -> None:
        assert self._data is not None
        while self._under_way < self.sent:
            self._under_way += 1
            data = batch.pack(
                [b"%d" % self._under_way], publisher=self.id, epoch=self._epoch,
                link_number=self._under_way, first_sequence=self._under_way - 1,
                created_us=time.time_ns() // 1_000,
            )  # fmt: skip
            self._data.send_multipart([self.topic, data], zmq.NOBLOCK)


class CrowdConsole(Member):
    """Asks one management command, of whoever leads, until it is answered."""

    def __init__(
        self, crowd: Crowd, managers: Sequence[str], command: RawDocument, dice: random.Random
    ) -> None:
        super().__init__(crowd, dice.random, SEARCH_MOST_SECONDS)
        self.answer: RawDocument = {}
        self.refusals = 0
        self._managers = list(managers)
        self._turn = 0
        self._data = bson.encode(command)
        self._socket: zmq.Socket[bytes] | None = None

    @property
    def content(self) -> bool:
        return bool(self.answer)

    def tick(self) -> None:
        address = self._managers[self._turn % len(self._managers)]
        self._turn += 1
        self._ask(address)

    def __repr__(self) -> str:
        return f"refused {self.refusals} times in {self.attempts} attempts: {self.answer}"

    def _ask(self, address: str) -> None:
        self.crowd.leave(self._socket)
        self._socket = self.crowd.connect(address, self._answered)
        self._socket.send(self._data, zmq.NOBLOCK)

    def _answered(self, frames: list[bytes]) -> None:
        answer = bson.decode(frames[-1])
        if answer.get("CODE") != "not_leader":
            self.answer = answer
            self.crowd.leave(self._socket)
            self._socket = None
            return
        self.refusals += 1
        self.due = time.monotonic() + self.backoff.wait()
