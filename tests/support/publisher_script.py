"""Drives a publisher's machine and speaks for exchanges and the monitor; no test in here."""

from __future__ import annotations

from collections.abc import Callable

from roq.client.publish.events import (
    Assignment,
    ConnectionLost,
    Effect,
    Received,
    Relocate,
    TellRelocated,
)
from roq.client.publish.latency import LatencyBook
from roq.client.publish.link import Open, Transmit
from roq.client.publish.links import Links
from roq.client.publish.receipt import Receipt
from roq.model import ExchangeInfo, Limits, PublisherId
from roq.protocol import channel, documents
from roq.runtime.backoff import Jitter

LIMITS = Limits(window_batches=4)
X1 = ExchangeInfo(number=1, epoch=5, generation=5, host="h", data="tcp://h:1", live="")
X2 = ExchangeInfo(number=2, epoch=8, generation=6, host="h", data="tcp://h:2", live="")
X3 = ExchangeInfo(number=3, epoch=7, generation=7, host="h", data="tcp://h:3", live="")


class NoWaiter:
    def wait_for(self, condition: Callable[[], bool], timeout: float | None) -> bool:
        raise AssertionError("nothing here waits")


class Script:
    """Drives a link and remembers what it did."""

    def __init__(
        self,
        jitter: Jitter | None = None,
        *,
        offsets: bool = False,
        latency: LatencyBook | None = None,
        delivery_seconds: float = 20.0,
    ) -> None:
        self.links = Links(
            PublisherId(b"p" * 16), LIMITS, delivery_seconds=delivery_seconds, jitter=jitter,
            offsets=offsets, latency=latency,
        )  # fmt: skip
        self.now = 100.0
        self.receipts: list[Receipt] = []

    @property
    def link(self) -> int:
        return self.links.all[-1].number

    def lost(self, reason: str) -> list[Effect]:
        return self.feed(ConnectionLost(self.link, reason))

    def feed(self, event: object) -> list[Effect]:
        effects = self.links.handle(event, self.now)  # type: ignore[arg-type]
        self.links.check()
        return effects

    def says(self, kind: bytes, document: object) -> list[Effect]:
        frames = [kind, documents.encode(document)]  # type: ignore[arg-type]
        return self.feed(Received(self.link, frames))

    def assign(self, exchange: ExchangeInfo = X1, epoch: int = 1) -> list[Effect]:
        return self.feed(Assignment(b"q" * 16, exchange, epoch, LIMITS))

    def accept(
        self,
        expected: int = 1,
        exchange: ExchangeInfo = X1,
        *,
        durable: bool = False,
        ahead: bool = False,
        places: list[channel.Run] | None = None,
    ) -> list[Effect]:
        return self.says(
            channel.READY,
            channel.Ready(
                exchange=exchange.number, exchange_epoch=exchange.epoch,
                generation=exchange.generation, expected=expected,
                message_bytes=1, batch_bytes=1, batch_messages=1,
                window_bytes=1 << 20, window_batches=4, durable=durable, ahead=ahead,
                places=places or [],
            ),
        )  # fmt: skip

    def ack(self, number: int) -> list[Effect]:
        return self.feed(Received(self.link, [channel.ACK, channel.NUMBER.pack(number)]))

    def publish(self, topic: str = "t", payload: bytes = b"x") -> list[int]:
        receipt = Receipt(NoWaiter())
        self.receipts.append(receipt)
        stream = self.links.topics.stream(topic)
        self.links.chooser.seal(stream, [payload], receipt, self.now, 1)
        sent = [s.link_number for link in self.links.all for s in link.transmit(self.now)]
        self.links.check()
        return sent


def opened(effects: list[Effect]) -> channel.Hello:
    effect = next(e for e in effects if isinstance(e, Open))
    assert effect.hello[0] == channel.HELLO
    return documents.decode(effect.hello[1], channel.Hello)


def sent(effects: list[Effect]) -> list[int]:
    return [s.link_number for e in effects if isinstance(e, Transmit) for s in e.batches]


def relocate(script: Script, epoch: int, *exchanges: ExchangeInfo) -> list[Effect]:
    return script.feed(Relocate(epoch, exchanges))


def told(effects: list[Effect]) -> TellRelocated:
    (one,) = (effect for effect in effects if isinstance(effect, TellRelocated))
    return one


def link_at(script: Script, exchange: ExchangeInfo) -> int:
    return next(link.number for link in script.links.all if link.exchange == exchange)


def from_link(script: Script, link: int, kind: bytes, body: bytes) -> list[Effect]:
    return script.feed(Received(link, [kind, body]))


def acked(script: Script, exchange: ExchangeInfo, number: int) -> list[Effect]:
    link = link_at(script, exchange)
    return from_link(script, link, channel.ACK, channel.NUMBER.pack(number))


def accepted(script: Script, exchange: ExchangeInfo) -> list[Effect]:
    ready = channel.Ready(
        exchange=exchange.number, exchange_epoch=exchange.epoch, generation=exchange.generation,
        expected=1, message_bytes=1, batch_bytes=1, batch_messages=1,
        window_bytes=1 << 20, window_batches=4,
    )  # fmt: skip
    link = link_at(script, exchange)
    return from_link(script, link, channel.READY, documents.encode(ready))


def places(effects: list[Effect]) -> list[tuple[int, int]]:
    """Link and first sequence of what is sent."""
    return [
        (effect.link, sealed.first_sequence)
        for effect in effects
        if isinstance(effect, Transmit)
        for sealed in effect.batches
    ]
