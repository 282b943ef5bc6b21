"""Random conversations with a monitor: every question is answered once, in time."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st
from monitor_driver import QUEUE_ID, Driver, info, peer_of

from roq.monitor.events import Push, Received, Send
from roq.protocol.control import (
    Alive,
    Assigned,
    Attach,
    Control,
    ExchangeAck,
    ExchangeReport,
    Join,
    Leave,
    Topology,
    Version,
)
from roq.protocol.reports import ExchangeLoad

CLIENTS = st.sampled_from(["a", "b", "c"])
NUMBERS = st.integers(1, 3)
EPOCHS = st.integers(1, 4)
TALK = st.lists(
    st.one_of(
        st.tuples(st.just("report"), NUMBERS, EPOCHS, st.integers(0, 10), st.booleans()),
        st.tuples(st.just("attach"), CLIENTS, st.lists(st.tuples(NUMBERS, EPOCHS), max_size=3)),
        st.tuples(st.just("join"), CLIENTS),
        st.tuples(st.just("alive"), CLIENTS),
        st.tuples(st.just("wait"), st.floats(0.0, 4.0)),
        st.tuples(st.just("pause"), st.floats(0.0, 100.0)),
        st.tuples(st.just("leave"), CLIENTS),
    ),
    max_size=60,
)


class Watched(Driver):
    """A monitor whose promises are checked at every step."""

    def __init__(self, *, restarted: bool) -> None:
        super().__init__(restarted=restarted)
        self.asked: Counter[int] = Counter()
        self.answered: Counter[int] = Counter()
        self.assigned_epochs: list[int] = []
        self.versions: list[int] = []
        self.highest: dict[int, int] = {}
        self._ids = 0

    def handle(self, event):  # type: ignore[no-untyped-def]
        effects = super().handle(event)
        for effect in effects:
            if isinstance(effect, Send | Push):
                self._look(effect.message)
            if isinstance(effect, Send) and effect.message.id:
                self.answered[effect.message.id] += 1
        return effects

    def _look(self, message: Control) -> None:
        match message:
            case Assigned():
                self.assigned_epochs.append(message.epoch)
                assert message.exchange.epoch == self.highest[message.exchange.number]
            case Topology():
                self.versions.append(message.version)
                for exchange in message.exchanges:
                    assert exchange.epoch == self.highest[exchange.number]
            case Version():
                self.versions.append(message.version)
            case ExchangeAck(code="stale_epoch"):
                pass

    def request(self, name: str, message: Control, kind: type[Control]) -> None:
        self.asked[message.id] += 1
        self.handle(Received(peer_of(name), message))  # type: ignore[arg-type]

    def step(self, action: tuple) -> None:  # type: ignore[type-arg]
        self._ids += 1
        number = self._ids
        match action:
            case ("report", exchange, epoch, publishers, stopping):
                self.highest[exchange] = max(epoch, self.highest.get(exchange, 0))
                self.request(
                    f"x{exchange}.{epoch}",
                    ExchangeReport(
                        id=number, queue_id=QUEUE_ID, exchange=info(exchange, epoch),
                        load=ExchangeLoad(publishers=publishers), stopping=stopping,
                    ),
                    ExchangeAck,
                )  # fmt: skip
            case ("attach", name, failed):
                self.request(
                    name,
                    Attach(id=number, queue_id=QUEUE_ID, publisher=name.encode(), failed=failed),
                    Assigned,
                )
            case ("join", name):
                self.request(
                    name, Join(id=number, queue_id=QUEUE_ID, subscriber=b"s" + name.encode()),
                    Topology,
                )  # fmt: skip
            case ("alive", name):
                self.handle(Received(peer_of(name), Alive(
                    queue_id=QUEUE_ID, client=name.encode(), role="publisher")))  # fmt: skip
            case ("wait", seconds):
                self.advance(seconds)
            case ("pause", seconds):
                self.now += seconds
            case ("leave", name):
                # Who leaves takes its open questions along.
                for waiting in self.machine._publishers:
                    if waiting.message.publisher == name.encode():
                        self.answered[waiting.message.id] += 1
                self.handle(Received(peer_of(name), Leave(
                    queue_id=QUEUE_ID, client=name.encode())))  # fmt: skip


@given(TALK, st.booleans())
@settings(max_examples=150, deadline=None)
def test_every_question_is_answered_once_and_nothing_goes_backwards(talk, restarted) -> None:
    driver = Watched(restarted=restarted)
    for action in talk:
        driver.step(action)
    driver.advance(6.0)
    assert driver.answered == driver.asked
    assert driver.assigned_epochs == sorted(set(driver.assigned_epochs))
    assert driver.versions == sorted(driver.versions)
