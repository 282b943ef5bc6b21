"""One exchange, and the connections of clients to it, on a test's clock: the real machine, without
sockets. What is sent arrives at the same time, in the order of sending."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from roq.errors import Closed
from roq.exchange.events import Effect, Received, Send, Unreachable
from roq.exchange.machine import ExchangeCore
from roq.machine import Tick
from roq.model import ExchangeInfo, Limits
from roq.protocol.channel import ACK, CONTROL, READER_TAG_BYTES
from roq.protocol.control import Topology
from roq.runtime.addresses import Translate
from roq.runtime.interfaces import Call, Loop, Timer
from roq.testing.virtual_time import GivenUp, OneThread, VirtualTime

QUEUE: Final = b"roq.testing".ljust(16, b".")
LIMITS: Final = Limits()
INFO: Final = ExchangeInfo(
    number=1, epoch=1, generation=1, host="test", data="tcp://test:1", live="tcp://test:2"
)
TOPOLOGY: Final = Topology(queue_id=QUEUE, epoch=1, version=1, exchanges=[INFO])
_TAG: Final = bytes(range(1, READER_TAG_BYTES + 1))
_LETTER_BYTES: Final = 2

Frames = Sequence[bytes]


class VirtualExchange:
    """The exchange of a queue."""

    def __init__(self, time: VirtualTime) -> None:
        self.core: ExchangeCore[bytes] = ExchangeCore(QUEUE, INFO.number, INFO.epoch, LIMITS)
        self._time = time
        self._routes: dict[bytes, Callable[[Frames], None]] = {}
        self._joined = 0
        self._awake = False
        self._timer = Timer(0.0, self._tick)
        time.call_soon(self._tick)

    def join(self, receive: Callable[[Frames], None]) -> bytes:
        """A connection begins; it gives its name."""
        self._joined += 1
        route = self._joined.to_bytes(5, "big")
        self._routes[route] = receive
        return route

    def leave(self, route: bytes) -> None:
        """It has ended, and with it what was on its way."""
        if self._routes.pop(route, None) is not None:
            self._time.call_soon(lambda: self._perform(self._handle(Unreachable(route))))

    def say(self, route: bytes, frames: Frames) -> None:
        """Something is sent to the exchange."""
        self._time.call_soon(lambda: self._take(route, tuple(frames)))

    def _take(self, route: bytes, frames: tuple[bytes, ...]) -> None:
        if frames[0][0] == CONTROL:
            self._perform(self._handle(Received(route, frames)))
        else:
            self._begin()
            topic, batch = frames
            self.core.append(route, topic, batch, len(batch))
        if not self._awake:
            self._awake = True
            self._time.call_soon(self._serve)

    def _begin(self) -> float:
        now = self._time.now()
        self.core.begin(now, int(self._time.wall_clock() * 1_000_000))
        return now

    def _handle(self, event: Received | Unreachable | Tick) -> list[Effect]:
        return self.core.handle(event, self._begin())

    def _perform(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Send):
                self._send(effect.route, effect.parts)

    def _send(self, route: bytes, frames: Frames) -> None:
        def arrive() -> None:
            receive = self._routes.get(route)
            if receive is not None:
                receive(frames)

        self._time.call_soon(arrive)

    def _tick(self) -> None:
        self._perform(self._handle(Tick()))
        self._serve()

    def _serve(self) -> None:
        """A turn: questions, what is handed out, and what all are told."""
        self._awake = False
        core, now = self.core, self._begin()
        while core.requests:
            self._perform(core.answer_next(now))
        while core.consumers.runnable():
            delivery = core.consumers.next_delivery()
            if delivery is not None:
                self._send(delivery.route, (*delivery.parts, bytes(delivery.batch)))
                core.consumers.sent(delivery)
        for link in core.take_acks():
            if link.route is not None:
                self._send(link.route, (ACK, link.acknowledgement(link.committed)))
                link.seen = link.acked_at
                if link.places is not None:
                    link.places.told = link.committed
        self._perform(core.take_answers())
        self._timer.cancel()
        self._timer = self._time.call_at(core.next_deadline(), self._tick)


class VirtualClient(OneThread, Loop):
    """A process of a client: what its shells need of the client's threads (`Engine`), in one.

    Args:
        number: of the process, from which all follows that it does at random.

    Attributes:
        alive: it was not killed.
    """

    def __init__(self, time: VirtualTime, exchange: VirtualExchange, number: int) -> None:
        self.alive = True
        self.reactor = self.exchanges = self.managers = self
        self.callbacks = self.repeats = self
        self.jitter = random.Random(number).random  # noqa: S311 - the same in each test
        self.translate: Translate = str
        self.wall_clock = time.wall_clock
        self.exchange = exchange
        self._time = time
        self._cut_until = 0.0
        self._lines: dict[VirtualLine, None] = {}

    # --- a loop -----------------------------------------------------------------------------------

    def now(self) -> float:
        """Seconds."""
        return self._time.now()

    def add(self, source: object, handler: Call) -> None:
        """There is nothing to be read here."""

    def remove(self, source: object) -> None:
        """There is nothing to be read here."""

    def call_soon(self, function: Call) -> None:
        """Call it in a turn of its own."""
        self.call_at(self.now(), function)

    call_here = call_soon

    def call_at(self, when: float, function: Call) -> Timer:
        """Call it at a time, if the process is there then."""

        def call() -> None:
            if self.alive:
                function()

        return self._time.call_at(when, call)

    # --- an engine --------------------------------------------------------------------------------

    def ask(self, *_asked: object) -> None:
        """No configuration manager answers: clients are told of the exchange when they begin."""

    def post(self, call: Callable[[], object], left_out: object = None) -> None:  # noqa: ARG002
        """Call a user back, who may wait; what that raises is raised where time passes."""

        def run() -> None:
            try:
                call()
            except GivenUp:
                raise
            except BaseException as error:  # noqa: BLE001 - such as an assertion of the test
                self._time.errors.append(error)

        self.call_soon(lambda: self.begin(run))

    def begin(self, run: Call) -> None:
        """Run this in a thread of its own; it is ended with the process."""
        self._time.begin(run, lambda: self.alive)

    def wait_for(self, condition: Callable[[], bool], timeout: float | None) -> bool:
        """As `VirtualTime.wait_for`.

        Raises:
            Closed: it was killed.
        """
        done = self._time.wait_for(lambda: not self.alive or condition(), timeout)
        if not (self.alive or condition()):
            raise Closed("the test has killed it")
        return done

    def open(
        self, address: str, *, on_up: Call, on_down: Call,  # noqa: ARG002 - there is one exchange
        on_answers: Callable[[list[list[bytes]]], None], on_heard: Call | None = None,
    ) -> VirtualLine:  # fmt: skip
        """Connect to the exchange, and again whenever that ends."""

        def answered(frames: Frames) -> None:
            letter, *rest = frames
            on_answers([[letter[:_LETTER_BYTES], *rest]])
            if on_heard is not None:
                on_heard()

        return self.connect(on_up, on_down, answered, _TAG, again=True)

    # --- its connections --------------------------------------------------------------------------

    def connect(
        self, on_up: Call, on_down: Call, on_frames: Callable[[Frames], None], tag: bytes = b"", *,
        again: bool = False,
    ) -> VirtualLine:  # fmt: skip
        """A connection to the exchange, as soon as there can be one.

        Args:
            on_up, on_down: called when it stands, and when it has ended.
            on_frames: called with what comes.
            tag: behind the letter of what is sent.
            again: it is made again whenever it has ended.
        """
        line = VirtualLine(self, on_up, on_down, on_frames, tag, again=again)
        self._lines[line] = None
        self.when_up(line.begin)
        return line

    def when_up(self, call: Call) -> None:
        """Call it as soon as the network is there."""
        self.call_at(self._cut_until, lambda: self.when_up(call) if self.is_cut else call())

    @property
    def is_cut(self) -> bool:
        """Whether nothing comes through."""
        return self.now() < self._cut_until

    def forget(self, line: VirtualLine) -> None:
        """It is used no more."""
        self._lines.pop(line, None)

    def cut(self, seconds: float) -> None:
        """All connections end, with what is on its way, and there can be none for a while."""
        self._cut_until = max(self._cut_until, self.now() + seconds)
        for line in list(self._lines):
            line.end()

    def kill(self) -> None:
        """It is no more: nothing of it is called, its connections have ended."""
        self.alive = False
        for line in list(self._lines):
            line.end()
        self._time.call_soon(lambda: None)  # so that those who wait in it are looked at


class VirtualLine:
    """A connection of a client; see `VirtualClient.connect`."""

    trouble = ""

    def __init__(
        self, client: VirtualClient, on_up: Call, on_down: Call,
        on_frames: Callable[[Frames], None], tag: bytes, *, again: bool,
    ) -> None:  # fmt: skip
        self._client = client
        self._on_up, self._on_down, self._on_frames = on_up, on_down, on_frames
        self._tag = tag
        self._again = again
        self._route = b""
        self._closed = False

    def begin(self) -> None:
        """It stands."""
        if not self._closed:
            self._route = self._client.exchange.join(self._receive)
            self._on_up()

    def end(self) -> None:
        """It is cut."""
        route, self._route = self._route, b""
        if not route:
            return
        self._client.exchange.leave(route)
        if not self._again:
            self._client.forget(self)
        if self._client.alive:
            self._on_down()
            if self._again:
                self._client.when_up(self.begin)

    def ask(self, frames: Frames) -> None:
        """Send, if it stands."""
        if self._route:
            letter, *rest = frames
            self._client.exchange.say(self._route, (letter + self._tag, *rest))

    def close(self, farewells: Sequence[Frames]) -> None:
        """Use it no more, when these are sent."""
        for frames in farewells:
            self.ask(frames)
        self._closed = True
        self._client.forget(self)
        if self._route:
            self._client.call_soon(partial(self._client.exchange.leave, self._route))
            self._route = b""

    def _receive(self, frames: Frames) -> None:
        self._on_frames(frames)
