from collections.abc import Iterator

import pytest
from answering import Answering

from roq.exchange import events, monitor_link
from roq.exchange.monitor_link import MonitorLink
from roq.model import ExchangeInfo
from roq.protocol.control import FAILED, Control, ExchangeAck, ExchangeReport, Failure
from roq.protocol.defined_services import DefinedServices
from roq.protocol.reports import ExchangeLoad

QUEUE_ID = b"q" * 16
PERIOD = 0.1
SILENCE = 0.4
INFO = ExchangeInfo(
    number=1,
    epoch=3,
    generation=3,
    host="127.0.0.1",
    data="tcp://127.0.0.1:6001",
    live="tcp://127.0.0.1:6002",
)


class World(Answering):
    """An exchange that notes what it hears."""

    def __init__(self) -> None:
        super().__init__()
        self.heard: list[str] = []
        self.reports = 0
        self.idle = False
        self.period = PERIOD
        self.services: list[DefinedServices] = []

    def linked(self, endpoint: str) -> MonitorLink:
        self.link = MonitorLink(
            self.reactor, self.context, endpoint,
            queue=QUEUE_ID, kpi_seconds=self.period, shell=self,
        )  # fmt: skip
        return self.link

    def monitor(self, epoch: int) -> str:
        return self.server(lambda _: ExchangeAck(epoch=epoch))

    info = INFO

    def report(self) -> ExchangeReport:
        self.reports += 1
        load = ExchangeLoad(messages_in=self.reports)
        return ExchangeReport(queue_id=QUEUE_ID, exchange=INFO, load=load, idle=self.idle)

    def passed(self, event: events.Passed) -> None:
        self.heard.append(f"passed {event.epoch}")

    def acknowledged(self, hold_seconds: int | None, *, retire: bool, same_groups: bool) -> None:
        self.hold, self.retire, self.same_groups = hold_seconds, retire, same_groups
        self.heard.append("acknowledged")

    def defined(self, services: DefinedServices) -> None:
        self.services.append(services)

    def unheard(self) -> None:
        self.heard.append("unheard")

    def superseded(self) -> None:
        self.heard.append("superseded")

    def dismissed(self) -> None:
        self.heard.append("dismissed")


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.setattr(monitor_link, "MONITOR_UNHEARD_SECONDS", SILENCE)
    with World() as world:
        yield world
        world.link.close()


def test_the_first_report_leaves_at_once(world: World) -> None:
    world.linked(world.monitor(7))
    assert world.reports == 1
    world.run(lambda: world.heard == ["acknowledged"])


@pytest.mark.parametrize(
    "answer",
    [ExchangeAck(code="stale_epoch"), Failure(RESULT=FAILED, COMMENT="", CODE="stale_epoch")],
)
def test_a_newer_process_of_the_same_number_ends_this_one(world: World, answer) -> None:
    world.linked(world.server(lambda _: answer))
    world.run(lambda: world.heard == ["superseded"])


def test_an_exchange_that_its_queue_does_not_have_any_more_is_told_so(world: World) -> None:
    world.linked(world.server(lambda _: ExchangeAck(code="removed", epoch=7)))
    world.run(lambda: world.heard == ["dismissed"])


def test_a_monitor_that_says_nothing_is_looked_for(world: World) -> None:
    world.linked(world.server(lambda _: None))
    world.run(lambda: "unheard" in world.heard)
    assert world.reports >= SILENCE / PERIOD
    world.link.move(world.monitor(8))
    world.run(lambda: "acknowledged" in world.heard)
    world.heard.clear()
    world.run(lambda: len(world.heard) > 1)
    assert set(world.heard) == {"acknowledged"}


def test_an_idle_exchange_reports_half_as_often_until_somebody_comes(world: World) -> None:
    world.idle = True
    monitor = world.monitor(7)
    link = world.linked(monitor)

    def seconds_for(reports: int) -> float:
        since, wanted = world.reactor.now(), world.reports + reports
        world.run(lambda: world.reports >= wanted)
        return world.reactor.now() - since

    seconds_for(1)  # the first pause was the usual one: nothing had been reported yet
    assert seconds_for(3) > 5 * PERIOD
    world.idle = False
    before = world.reports
    link.report_on()
    assert world.reports == before + 1
    world.run(lambda: len(world.asked_at(monitor)) > before)
    assert [each.idle for each in world.asked_at(monitor)] == [True] * before + [False]


def test_a_refusal_is_no_word_that_counts(world: World) -> None:
    refusal = Failure(RESULT=FAILED, COMMENT="another queue", CODE="queue_not_found")
    world.linked(world.server(lambda _: refusal))
    world.run(lambda: "unheard" in world.heard)
    assert "acknowledged" not in world.heard


def test_an_older_monitor_is_told_that_there_is_a_newer_one(world: World) -> None:
    old, new = world.monitor(7), world.monitor(9)
    world.linked(old)
    world.run(lambda: world.heard)
    world.link.told(new)
    world.run(lambda: len(world.asked_at(old)) == 2)
    [first, farewell] = world.asked_at(old)
    assert isinstance(first, ExchangeReport)
    assert isinstance(farewell, ExchangeReport)
    assert (first.monitor, farewell.monitor, farewell.id) == (0, 9, 0)


@pytest.mark.parametrize(("before", "after"), [(9, 7), (9, 9), (0, 9), (9, 0)])
def test_a_monitor_that_is_not_older_is_left_without_a_word(world: World, before, after) -> None:
    old, new = world.monitor(before), world.monitor(after)
    world.linked(old)
    world.run(lambda: world.heard)
    world.link.told(new)
    world.run(lambda: len(world.asked_at(new)) == 2)
    assert len(world.asked_at(old)) == 1


def test_the_same_word_of_the_host_manager_does_not_lead_back(world: World) -> None:
    old, new = world.monitor(7), world.monitor(9)
    world.linked(old)
    world.link.move(new)  # somebody else has told
    for _ in range(3):
        world.link.told(old)
        world.link.told("")
    world.run(lambda: world.asked_at(new))
    assert world.link._client is not None
    assert world.link._client.endpoint == new


def test_a_monitor_that_never_answered_is_no_reason_to_stay(world: World) -> None:
    addresses = [world.server(lambda _: None) for _ in range(3)]
    world.linked(addresses[0])
    for address in [*addresses[1:], world.monitor(9)]:
        world.link.told(address)
    world.run(lambda: world.heard == ["acknowledged"])


def test_as_long_as_no_monitor_is_known_nothing_is_reported(world: World) -> None:
    asked: list[Control] = []
    world.linked("")
    world.run(lambda: "unheard" in world.heard)
    assert (world.reports, asked) == (0, [])


def test_what_is_retired_says_so_at_once_and_again_only_when_its_time_comes(world: World) -> None:
    world.period = 60.0
    world.linked(world.server(lambda _: ExchangeAck(epoch=7, retire=True)))
    world.run(lambda: len(world.heard) == 2)
    world.link.report_now()
    world.run(lambda: len(world.heard) == 3)
    assert world.reports == 3


def test_what_the_queue_defines_of_services_is_passed_on_if_it_can_be_in_force(
    world: World,
) -> None:
    world.period = 60.0
    services = [None, {"s": {"delay": 2.0}}, {"s": {"unheard of": 2.0}}, {}]
    world.linked(world.server(lambda _: ExchangeAck(epoch=7, services=services.pop(0))))
    for count in range(1, 5):
        world.run(lambda count=count: len(world.heard) == count)
        world.link.report_now()
    assert world.services == [{"s": {"delay": 2.0}}, {}]
    world.link._pushed(ExchangeAck(services={"t": {"delay": 1.0}}))
    assert world.services[-1] == {"t": {"delay": 1.0}}, "also unasked"
    assert len(world.heard) == 4
