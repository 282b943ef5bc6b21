"""A queue with faults between it and clients that tell how they stand; no test in here."""

from __future__ import annotations

import os
from collections.abc import Callable

from fake_control import FakeControl, ThreadExchange
from standings import Standings
from tcp_relay import TcpRelay

from roq.client.io.engine import Engine
from roq.client.publish.publisher import Publisher
from roq.client.subscribe.subscriber import Subscriber
from roq.model import ExchangeInfo
from roq.testing.faults import LossyLive, Relay, parse_endpoint


class Scene:
    """One queue, two exchanges, and faults between them and the clients."""

    def __init__(self) -> None:
        self.control = FakeControl()
        self.exchanges = [ThreadExchange(self.control, number, number) for number in (1, 2)]
        self.serve(1)
        self.detours: dict[str, str] = {}
        """What connects from now on goes this way."""
        self.engine = Engine(translate=lambda address: self.detours.get(address, address))
        self.engine.start()
        self.told = Standings()
        self.managers = [self.control.address]
        self._closers: list[Callable[[], None]] = []

    def add(self, number: int) -> None:
        """One more exchange, which is not part of the queue yet."""
        self.exchanges.append(ThreadExchange(self.control, number, number))

    def serve(self, *numbers: int) -> None:
        """These make up the queue from now on."""
        self.control.exchanges = [self.exchanges[number - 1].info for number in numbers]

    def info(self, number: int) -> ExchangeInfo:
        return self.exchanges[number - 1].info

    def finally_(self, close: Callable[[], None]) -> None:
        """Call this in the end, after the clients are closed."""
        self._closers.append(close)

    def relay(self, address: str) -> TcpRelay:
        relay = TcpRelay(parse_endpoint(address))
        self.detours[address] = f"tcp://{relay.address}"
        self.finally_(relay.close)
        return relay

    def by_way(self, address: str) -> Relay:
        """Another address of the same exchange."""
        relay = Relay(address)
        self.finally_(relay.close)
        return relay

    def drop_batches(self, number: int) -> None:
        live = self.info(number).live
        lossy = LossyLive(live, drop=1.0)
        self.detours[live] = lossy.address
        self.finally_(lossy.close)

    def publisher(self, **options: object) -> Publisher:
        publisher = Publisher(
            self.engine, self.managers, "orders", publisher_id=os.urandom(16),
            **{"on_state": self.told, "timeout": 30.0, **options},  # type: ignore[arg-type]
        )  # fmt: skip
        self._closers.insert(0, publisher.abort)
        return publisher

    def subscriber(self, **options: object) -> Subscriber:
        subscriber = Subscriber(
            self.engine, self.managers, "orders", on_state=self.told,
            **options,  # type: ignore[arg-type]
        )  # fmt: skip
        self._closers.insert(0, subscriber.close)
        return subscriber

    def close(self) -> None:
        for close in self._closers:
            close()
        self.engine.close()
        for exchange in self.exchanges:
            exchange.kill()
        self.control.close()
