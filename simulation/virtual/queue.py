"""One queue on a virtual clock, for exact situations: its monitor does what a test or a dispatcher
wants, and there are no managers and hosts. `cluster` has all of it.

cluster = VirtualQueue(seed=7)
...
cluster.world.run(10.0)
assert cluster.settle(60.0)
assert cluster.verdict().ok
"""

from __future__ import annotations

from typing import Final

from roq.client.subscribe.machine import Starts
from roq.errors import Unavailable
from roq.model import Limits, PublisherId
from roq.simulation.virtual.actors.exchange import Exchange
from roq.simulation.virtual.actors.monitor import Monitor
from roq.simulation.virtual.actors.publisher import Publisher
from roq.simulation.virtual.actors.subscriber import LATEST, Subscriber
from roq.simulation.virtual.network import Network
from roq.simulation.virtual.world import World
from roq.testing.history import History, Verdict

QUEUE: Final = b"q" * 16
START_SECONDS: Final = 5.0
QUIET_SECONDS: Final = 2.5
"""After the last message: time for everything that was missed to be noticed and fetched."""


class VirtualQueue:
    """One queue.

    Args:
        seed: of all chance.
        limits: of the queue.
        naive: publishers change exchanges without draining and without sending anything again.
        check_duplicates, repair: of subscribers; off only to show what they are good for.
        held_bytes_max: of subscribers, for what waits for its turn.

    Attributes:
        exchanges: those that were not killed or stopped.
        history: what was published and received.
    """

    def __init__(
        self,
        seed: int,
        limits: Limits,
        *,
        naive: bool = False,
        check_duplicates: bool = True,
        repair: bool = True,
        held_bytes_max: int | None = None,
    ) -> None:
        self.world = World(seed)
        self.network = Network(self.world)
        self.limits = limits
        self.monitor = Monitor(self.world, self.network.weather, QUEUE, limits)
        self.history = History()
        self.exchanges: list[Exchange] = []
        self.publishers: list[Publisher] = []
        self.subscribers: list[Subscriber] = []
        self._naive = naive
        self._check_duplicates = check_duplicates
        self._repair = repair
        self._held_bytes_max = held_bytes_max
        self._epochs = 0

    # --- the cast ---------------------------------------------------------------------------------

    def add_exchange(self, number: int) -> Exchange:
        """Start an exchange; it serves at once."""
        self._epochs += 1
        exchange = Exchange(self.world, self.network, QUEUE, number, self._epochs, self.limits)
        self.exchanges.append(exchange)
        self.monitor.add(exchange)
        return exchange

    def kill(self, exchange: Exchange) -> None:
        """Kill an exchange; the monitor does not know yet."""
        self.exchanges.remove(exchange)
        exchange.kill()

    def add_publisher(self) -> Publisher:
        """Start a publisher."""
        publisher = Publisher(
            self.world, self.network, QUEUE, PublisherId(self.world.random.randbytes(16)),
            self.monitor, self.limits, naive=self._naive,
        )  # fmt: skip
        self.publishers.append(publisher)
        self.monitor.enter(publisher.id, publisher)
        return publisher

    def add_subscriber(
        self, prefixes: tuple[bytes, ...] = (b"",), start: Starts = LATEST
    ) -> Subscriber:
        """Start a subscriber, and wait until it is in force.

        Raises:
            Unavailable: it is not, after some seconds.
        """
        name = f"s{len(self.subscribers) + 1}"
        subscriber = Subscriber(
            self.world, self.network, QUEUE, name,
            on_batch=lambda batch: self.history.received(name, batch),
            on_gap=lambda gap: self.history.gap(name, gap),
            on_read=lambda read: self.monitor.told_read(name, read),
            prefixes=prefixes, start=start, check_duplicates=self._check_duplicates,
            held_bytes_max=self._held_bytes_max, repair=self._repair,
        )  # fmt: skip
        self.history.subscribed(name, [prefix.decode() for prefix in prefixes])
        self.subscribers.append(subscriber)
        self.monitor.join(subscriber)
        if not self.world.run_until(lambda: subscriber.machine.confirmed, START_SECONDS):
            raise Unavailable(f"not confirmed: {subscriber.machine.trouble()}")
        return subscriber

    # --- the end ----------------------------------------------------------------------------------

    def settle(self, seconds: float) -> bool:
        """Let time pass until all is acknowledged and no subscriber waits for anything.

        Returns:
            False if it is still not so after `seconds`.
        """
        done = self.world.run_until(
            lambda: all(publisher.settled for publisher in self.publishers), seconds
        )
        self.world.run(QUIET_SECONDS)
        return done and self.world.run_until(
            lambda: not any(each.machine.resequencer.waiting for each in self.subscribers), seconds
        )

    def verdict(self) -> Verdict:
        """Lost, duplicated and reordered, for every subscriber."""
        return self.history.check()
