"""A small queue around a monitor's machine: exchanges that report, publishers that obey or do not.

No test in here. Time goes in steps of a quarter of a second; everything answers at once.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from monitor_driver import EPOCH, QUEUE_ID, Driver, info, peer_of

from roq.errors import Unavailable
from roq.model import ElasticRules, Limits
from roq.monitor.events import Ask, Effect, Event, LeaderAnswered, Note, Publish, Push, Send
from roq.policy.snapshot import Decision, Memory, Policy, QueueView
from roq.protocol import kpi
from roq.protocol.control import (
    Answer,
    Assigned,
    Control,
    Done,
    Elasticity,
    ElasticityRequest,
    Emptied,
    Empty,
    ExchangeAck,
    ExchangeReport,
    Failure,
    Passed,
    Relocate,
    Relocated,
    ScaledOut,
    ScaleIn,
    ScaleOut,
)
from roq.protocol.reports import ExchangeLoad, PublisherLoad

STEP = 0.25
PERIOD = 1.0


@dataclass
class Script:
    """A policy that decides what it was told to, once, and remembers what it was shown."""

    wanted: list[Decision] = field(default_factory=list)
    views: list[QueueView] = field(default_factory=list)

    def decide(self, view: QueueView, memory: Memory) -> tuple[list[Decision], Memory]:
        self.views.append(view)
        wanted, self.wanted = self.wanted, []
        return wanted, memory


@dataclass
class Publisher:
    name: str
    rate: float
    """Bytes per second."""
    at: list[tuple[int, int]] = field(default_factory=list)
    epoch: int = 0
    mood: str = "obeys"
    """Or `ignores`, or `fails`: it says that it cannot reach the target."""
    told: list[Relocate] = field(default_factory=list)

    @property
    def id(self) -> bytes:
        return self.name.encode()

    @property
    def numbers(self) -> list[int]:
        return [number for number, _ in self.at]


@dataclass
class Exchange:
    number: int
    epoch: int = 1
    reports: bool = True
    stopping: bool = False
    disk_full: str = ""
    finds_at: float = 0.0
    """When it learns where the present monitor is."""
    bytes_in: float = 0.0
    end: int = 0
    floor: int = 0
    retired: bool = False
    groups: bytes = b""
    more: dict[str, int] = field(default_factory=dict)
    """Further fields of its load."""
    brought: dict[str, float] = field(default_factory=dict)
    passed: list[Passed] = field(default_factory=list)

    @property
    def key(self) -> tuple[int, int]:
        return (self.number, self.epoch)


class Queue(Driver):
    """See the module.

    Args:
        exchanges: how many there are at the beginning.
        limit: of one exchange, bytes per second.
        policy: decides; a name asks for RoQ's own.
        rules: further ones.
    """

    def __init__(
        self,
        exchanges: int = 1,
        *,
        limit: int = 1_000,
        policy: Policy | None = None,
        restarted: bool = False,
        epoch: int = EPOCH,
        **rules: object,
    ) -> None:
        self.rules = ElasticRules(exchange_bytes=limit * 60, **rules)  # type: ignore[arg-type]
        self.manager = "obeys"
        """How the configuration manager is: or `refuses`, `silent`, `away`, `forgets`: it says that
        there is a new exchange, and there is none."""
        self.scaled: list[int] = []
        self.durable = False
        self.missing: list[int] = []
        """Numbers of exchanges that the queue has, and that do not serve at the moment."""
        self.refusal: Failure | None = None
        """Instead of rules."""
        self.unwanted: set[int] = set()
        """Numbers of exchanges that report, and that the queue does not have."""
        self.exchanges: dict[int, Exchange] = {}
        self.publishers: dict[str, Publisher] = {}
        self.readers: dict[str, str] = {}
        self.asked: list[Ask] = []
        self.notes: list[Note] = []
        self._next_number = 1
        self._reported_at = 0.0
        self._told_at = 0.0
        super().__init__(
            restarted=restarted,
            limits=Limits(throughput_bytes=limit * 60),
            policy_named=(lambda _name: policy) if policy is not None else None,
            epoch=epoch,
        )
        for _ in range(exchanges):
            self.add_exchange()

    # --- what there is ----------------------------------------------------------------------------

    def add_exchange(self) -> Exchange:
        exchange = self.exchanges[self._next_number] = Exchange(self._next_number)
        self._next_number += 1
        self._report_of(exchange)
        return exchange

    def add_publisher(self, name: str, rate: float, mood: str = "obeys") -> Publisher:
        publisher = self.publishers[name] = Publisher(name, rate, mood=mood)
        self.attach(name)
        return publisher

    def add_subscriber(self, name: str, mood: str = "reads") -> None:
        """Or `lags`: it lives, and does not get to the end."""
        self.readers[name] = mood
        self.join(name)

    def kill(self, number: int) -> None:
        """An exchange is gone, and says nothing any more."""
        del self.exchanges[number]

    def take_over(self, *delays: float) -> None:
        """Another monitor takes the place of this one, which has died without a word.

        Args:
            delays: seconds until the exchanges, by number, find it; 0 for those that are not named.
        """
        super().take_over()
        for exchange, delay in zip(self.exchanges.values(), delays, strict=False):
            exchange.finds_at = self.now + delay

    def placed(self) -> dict[int, list[str]]:
        """Who publishes at which exchange."""
        return {
            number: sorted(name for name, each in self.publishers.items() if number in each.numbers)
            for number in self.exchanges
        }

    # --- time -------------------------------------------------------------------------------------

    def run(self, seconds: float, step: float = STEP) -> list[Effect]:
        """Let everything go on for a while."""
        effects: list[Effect] = []
        for _ in range(round(seconds / step)):
            effects += self.advance(step)
            for exchange in self.exchanges.values():
                self._flow(exchange, step)
            if self.now - self._told_at >= PERIOD:
                self._told_at = self.now
                for publisher in list(self.publishers.values()):
                    self._reattach(publisher)
                    effects += self._alive(publisher)
                for name, mood in self.readers.items():
                    effects += self._read(name, mood)
            if self.now - self._reported_at >= PERIOD:
                self._reported_at = self.now
                for exchange in list(self.exchanges.values()):
                    effects += self._report_of(exchange)
        return effects

    def periods(self, count: int) -> list[Effect]:
        return self.run(count * PERIOD)

    def settle(self) -> None:
        """Let everybody do what is wanted of them, until nothing is left to be done."""
        self.manager = "obeys"
        for publisher in self.publishers.values():
            publisher.mood = "obeys"
        for exchange in self.exchanges.values():
            exchange.reports = True
        self.readers = dict.fromkeys(self.readers, "reads")
        self.run(90, step=1.0)

    def _flow(self, exchange: Exchange, step: float) -> None:
        for publisher in self.publishers.values():
            if exchange.key in publisher.at and publisher.rate:
                brought = publisher.rate * step / len(publisher.at)
                exchange.bytes_in += brought
                before = exchange.brought.get(publisher.name, 0.0)
                exchange.brought[publisher.name] = before + brought
                exchange.end += 1

    def _alive(self, publisher: Publisher) -> list[Effect]:
        mark = len(self.effects)
        self.alive(
            publisher.name, role="publisher", version=self.machine.version,
            at=publisher.at, epoch=publisher.epoch,
        )  # fmt: skip
        return self.effects[mark:]

    def _read(self, name: str, mood: str) -> list[Effect]:
        mark = len(self.effects)
        read = [
            (each.number, each.epoch, each.end if mood == "reads" else 0)
            for each in self.exchanges.values()
        ]
        self.alive(name, version=self.machine.version, read=read)
        return self.effects[mark:]

    def _report_of(self, exchange: Exchange) -> list[Effect]:
        if not exchange.reports or self.now < exchange.finds_at:
            return []
        mark = len(self.effects)
        here = [each for each in self.publishers.values() if exchange.key in each.at]
        top = [PublisherLoad(each.id, 0, int(exchange.brought.get(each.name, 0))) for each in here]
        load = ExchangeLoad(
            bytes_in=int(exchange.bytes_in),
            publishers=len(here),
            end_offset=exchange.end,
            floor_offset=exchange.floor,
            **exchange.more,
        )
        self.receive(
            f"exchange {exchange.number}.{exchange.epoch}",
            ExchangeReport(
                id=1, queue_id=QUEUE_ID, exchange=info(exchange.number, exchange.epoch),
                load=load, top=top, stopping=exchange.stopping, disk_full=exchange.disk_full,
                retired=exchange.retired, groups=exchange.groups,
            ),
        )  # fmt: skip
        for effect in self.effects[mark:]:
            if isinstance(effect, Send) and isinstance(effect.message, ExchangeAck):
                exchange.retired = effect.message.retire
        return self.effects[mark:]

    # --- what the monitor wants -------------------------------------------------------------------

    def handle(self, event: Event) -> list[Effect]:
        effects = super().handle(event)
        self.look(effects)
        for effect in effects:
            match effect:
                case Push(peers, Relocate() as message):
                    for publisher in self.publishers.values():
                        if peer_of(publisher.name) in peers:
                            self._relocate(publisher, message)
                case Push(peers, Passed() as message):
                    for exchange in self.exchanges.values():
                        if peer_of(f"exchange {exchange.number}.{exchange.epoch}") in peers:
                            exchange.passed.append(message)
                case Send((name, _), Assigned() as message):
                    self._assigned(self.publishers.get(name.decode()), message)
                case Send((name, _), ExchangeAck(code="removed")):
                    del self.exchanges[int(name.decode().removeprefix("exchange ").split(".")[0])]
                case Ask():
                    self.asked.append(effect)
                    self._asked(effect)
                case Note():
                    self.notes.append(effect)
        return effects

    def look(self, effects: list[Effect]) -> None:
        """For those who want to see what the monitor does before it is done."""

    def _assigned(self, publisher: Publisher | None, message: Assigned) -> None:
        if publisher is not None and message.epoch > publisher.epoch:
            publisher.at = [(message.exchange.number, message.exchange.epoch)]
            publisher.epoch = message.epoch

    def _relocate(self, publisher: Publisher, message: Relocate) -> None:
        publisher.told.append(message)
        targets = [(each.number, each.epoch) for each in message.exchanges]
        away = [key for key in targets if key not in self._keys()]
        if publisher.mood == "ignores" or message.epoch <= publisher.epoch:
            return
        if publisher.mood == "fails" or away:
            self.relocated(
                publisher, message.epoch, "failed", failed=away or targets,
                reason="connection refused",
            )  # fmt: skip
            return
        publisher.at, publisher.epoch = targets, message.epoch
        self.relocated(publisher, message.epoch, "accepted", pause_us=2_500)

    def _keys(self) -> set[tuple[int, int]]:
        return {each.key for each in self.exchanges.values()}

    def _reattach(self, publisher: Publisher) -> None:
        """Leave what is gone; if that is all there was, ask for an exchange."""
        gone = [key for key in publisher.at if key not in self._keys()]
        publisher.at = [key for key in publisher.at if key not in gone]
        if not publisher.at:
            self.attach(publisher.name, failed=gone)

    def relocated(
        self, publisher: Publisher, epoch: int, outcome: str, **more: object
    ) -> list[Effect]:
        mark = len(self.effects)
        self.receive(
            publisher.name,
            Relocated(
                queue_id=QUEUE_ID, publisher=publisher.id, epoch=epoch, outcome=outcome,
                **more,  # type: ignore[arg-type]
            ),
        )  # fmt: skip
        return self.effects[mark:]

    def _asked(self, ask: Ask) -> None:
        if isinstance(ask.message, ElasticityRequest):
            self.answer(ask, self.refusal or self._elasticity())
            return
        match self.manager:
            case "refuses":
                self.answer(
                    ask, Failure(RESULT=1101, COMMENT="no host has room", CODE="no_capacity")
                )
            case "away":
                self.answer(ask, Unavailable("no answer within 60 s"))
            case "silent":
                return
            case mood:
                self._scale(ask, exists=mood == "obeys")

    def _scale(self, ask: Ask, *, exists: bool) -> None:
        match ask.message:
            case ScaleOut():
                number = self._next_number
                self.scaled.append(number)
                if exists:
                    self.add_exchange()
                self.answer(ask, ScaledOut(number=number, host="127.0.0.3"))
            case ScaleIn(number=number):
                self.exchanges.pop(number, None)
                self.answer(ask, Done())

    def _elasticity(self) -> Elasticity:
        return Elasticity(
            queue_id=QUEUE_ID, rules=self.rules, scaled=list(self.scaled),
            exchanges=sorted({*self.exchanges, *self.missing} - self.unwanted),
            unwanted=sorted(self.unwanted & set(self.exchanges)),
            logs=sorted({*self.exchanges, *self.missing}) if self.durable else [],
        )  # fmt: skip

    def answer(self, ask: Ask, answer: Answer | Unavailable) -> list[Effect]:
        """The configuration manager answers a question."""
        return self.handle(LeaderAnswered(ask.serial, answer))

    def empty(self, number: int, request: int = 9, **more: object) -> list[object]:
        """Ask for an exchange to be emptied; gives what was answered at once."""
        message = Empty(id=request, queue_id=QUEUE_ID, number=number, **more)  # type: ignore[arg-type]
        return list(self.receive("gcm", message))

    # --- what was told ----------------------------------------------------------------------------

    def documents(self, kind: type) -> list:  # type: ignore[type-arg]
        """The numeric documents of one kind that were published."""
        found = [
            kpi.decode_numeric(each.frames)
            for each in self.effects
            if isinstance(each, Publish) and each.frames[0].startswith(kpi.NUMERIC_TOPIC)
        ]
        return [each for each in found if isinstance(each, kind)]

    def moves(self) -> list[tuple[str, str, list[int], list[int]]]:
        """(publisher, state, sources, targets) of everything told about moves."""
        return [
            (bytes.fromhex(each.publisher).decode(), each.state, each.sources, each.targets)
            for each in self.documents(kpi.MoveKpi)
        ]

    def scales(self) -> list[tuple[str, str, int]]:
        """(direction, state, number) of everything told about exchanges that come and go."""
        return [(each.direction, each.state, each.number) for each in self.documents(kpi.ScaleKpi)]

    def answers_to(self, request: int) -> list[object]:
        """All answers to the request with this id."""
        return [
            each.message
            for each in self.effects
            if isinstance(each, Send) and each.message.id == request
        ]

    @staticmethod
    def emptied(answers: list[object], request: int) -> bool:
        """Whether it was answered once that the exchange is empty."""
        return [(type(each), each.id) for each in answers if isinstance(each, Control)] == [
            (Emptied, request)
        ]

    def questions(self, kind: type) -> list:  # type: ignore[type-arg]
        """What the configuration manager was asked."""
        return [each.message for each in self.asked if isinstance(each.message, kind)]
