import math

import msgspec
import pytest
from monitor_driver import CONTROL, EPOCH, QUEUE_ID, Driver, answers, info, peer_of, pushes

from roq.errors import NotLeader
from roq.machine import Tick
from roq.model import ElasticRules, Limits
from roq.monitor.events import Confirmed, Effect, Finished, Listened, Note, Push, Received, Send
from roq.monitor.machine import State
from roq.protocol.control import (
    Assigned,
    Elasticity,
    ElasticityRequest,
    ExchangeAck,
    ExchangeReport,
    Failure,
    Join,
    Topology,
    Version,
)
from roq.protocol.public_answers import failure_of
from roq.protocol.reports import ExchangeLoad, PublisherLoad
from roq.timing import EXCHANGE_LOST_SECONDS


def numbers(topology) -> list[tuple[int, int]]:
    assert isinstance(topology, Topology)
    return [(each.number, each.epoch) for each in topology.exchanges]


# --- exchanges ------------------------------------------------------------------------------------


def test_an_exchange_becomes_known_by_its_report_and_is_announced() -> None:
    driver = Driver()
    assert numbers(driver.join("s")[0]) == []
    assert driver.report(1) == [ExchangeAck(id=1, epoch=EPOCH)]
    [topology] = pushes(driver.effects, "s", Topology)
    assert numbers(topology) == [(1, 1)]
    assert topology.id == 0


def test_a_report_that_tells_nothing_new_is_not_announced() -> None:
    driver = Driver()
    driver.report(1)
    driver.join("s")
    driver.effects.clear()
    driver.report(1, messages_in=10)
    assert pushes(driver.effects, "s", Topology) == []


def test_a_higher_epoch_replaces_the_old_process_of_the_same_number() -> None:
    driver = Driver()
    driver.join("s")
    driver.report(1, 1)
    driver.report(1, 2)
    assert [numbers(each) for each in pushes(driver.effects, "s", Topology)] == [[(1, 1)], [(1, 2)]]


def test_a_lower_epoch_is_told_that_it_is_stale() -> None:
    driver = Driver()
    driver.report(1, 2)
    assert driver.report(1, 1) == [ExchangeAck(id=1, code="stale_epoch")]
    assert numbers(driver.join("s")[0]) == [(1, 2)]


def test_a_lower_epoch_stays_stale_after_the_newer_process_was_lost() -> None:
    driver = Driver()
    driver.report(1, 2)
    driver.advance(4)
    assert driver.report(1, 1) == [ExchangeAck(id=1, code="stale_epoch")]
    assert numbers(driver.join("s")[0]) == []


def test_an_exchange_is_lost_after_three_seconds_without_a_report() -> None:
    driver = Driver()
    driver.report(1)
    driver.report(2)
    driver.join("s")
    driver.effects.clear()
    driver.advance(2.9, (2, 1))
    assert pushes(driver.effects, "s", Topology) == []
    driver.advance(0.2, (2, 1))
    assert [numbers(each) for each in pushes(driver.effects, "s", Topology)] == [[(2, 1)]]


def test_clients_are_told_which_logs_a_durable_queue_has_and_when_that_changes() -> None:
    driver = Driver()
    driver.report(1)
    driver.report(2)
    driver.join("s")
    driver.leader_names(1, 2, logs=[1, 2])
    driver.effects.clear()
    driver.advance(3.1, (2, 1))
    (told,) = pushes(driver.effects, "s", Topology)
    assert (numbers(told), told.logs) == ([(2, 1)], [1, 2])
    driver.advance(1.1, (2, 1))
    nothing = driver.leader_names(2, logs=[1, 2])
    assert pushes(nothing, "s", Topology) == [], "its host is lost, and the log is not"
    driver.advance(1.1, (2, 1))
    (told,) = pushes(driver.leader_names(2, logs=[2]), "s", Topology)
    assert (numbers(told), told.logs) == ([(2, 1)], [2])


def test_an_idle_exchange_is_lost_after_six_seconds_and_any_other_after_three() -> None:
    driver = Driver()
    driver.report(1, idle=True)
    driver.report(2, idle=True)
    driver.join("s")
    driver.effects.clear()
    driver.advance(3.0)
    driver.report(2)
    driver.alive("s", version=driver.machine.version)
    driver.advance(2.9)
    assert pushes(driver.effects, "s", Topology) == []
    driver.advance(0.2)
    assert [numbers(each) for each in pushes(driver.effects, "s", Topology)] == [[]]


def test_a_monitor_that_wakes_up_as_seldom_as_it_wants_to_loses_no_time() -> None:
    driver = Driver()
    driver.handle(Listened(anybody=False))
    driver.report(1, idle=True)
    driver.leader_names(1)
    since, wakes = driver.now, 0
    while driver.machine.metrics()["exchanges"]:
        deadline = driver.machine.next_deadline()
        assert deadline is not None
        driver.now = deadline
        driver.handle(Tick())
        wakes += 1
    assert driver.now - since == pytest.approx(2 * EXCHANGE_LOST_SECONDS)
    assert wakes <= 8


def rules_asked(driver: Driver, seconds: float, *, idle: bool) -> list[ElasticityRequest]:
    """What the manager is asked meanwhile; it answers at once, and the exchange reports."""
    driver.effects.clear()
    until = driver.now + seconds
    while driver.now < until:
        driver.report(1, idle=idle)
        before = len(driver.questions())
        driver.advance(0.25)
        if len(driver.questions()) > before:
            driver.leader_names(1)
    return [each.message for each in driver.questions()]


def test_the_monitor_of_an_idle_queue_asks_for_its_rules_half_as_often() -> None:
    driver = Driver()
    rules_asked(driver, 1.0, idle=False)
    assert [each.idle for each in rules_asked(driver, 4.0, idle=False)] == [False] * 4
    rules_asked(driver, 2.0, idle=True)
    assert [each.idle for each in rules_asked(driver, 8.0, idle=True)] == [True] * 4
    driver.join("s")
    rules_asked(driver, 2.0, idle=True)
    assert not any(each.idle for each in rules_asked(driver, 2.0, idle=True))


def test_a_queue_that_gets_no_rules_is_not_idle() -> None:
    driver = Driver()
    driver.report(1, idle=True)
    driver.advance(4.0, (1, 1))
    assert not any(each.message.idle for each in driver.questions())


def test_an_exchange_that_was_silent_for_a_while_comes_back_with_its_epoch() -> None:
    driver = Driver()
    driver.report(1)
    driver.advance(4)
    assert numbers(driver.join("s")[0]) == []
    driver.report(1)
    assert numbers(pushes(driver.effects, "s", Topology)[-1]) == [(1, 1)]


def test_a_report_for_another_queue_is_refused() -> None:
    driver = Driver()
    [answer] = driver.report(1, queue_id=b"x" * 16)
    assert isinstance(answer, Failure)
    assert answer.CODE == "queue_not_found"
    assert numbers(driver.join("s")[0]) == []


@pytest.mark.parametrize(
    "wrong",
    [{"number": 0}, {"epoch": 0}, {"data": "ipc:///tmp/x"}, {"live": "tcp://a\nb"}, {"data": ""}],
)
def test_a_report_that_no_exchange_can_send_is_refused(wrong) -> None:
    driver = Driver()
    exchange = msgspec.structs.replace(info(1), **wrong)
    [answer] = driver.receive(
        "x", ExchangeReport(id=3, queue_id=b"q" * 16, exchange=exchange, load=ExchangeLoad())
    )
    assert isinstance(answer, Failure)
    assert answer.CODE == "invalid_request"
    assert answer.id == 3


@pytest.mark.parametrize(
    "wrong",
    [{"bytes_in": 2**62}, {"publishers": -1}, {"cpu_percent": math.nan}, {"lag_ms": math.inf}],
)
def test_counters_that_no_exchange_can_have_are_refused(wrong) -> None:
    driver = Driver()
    assert isinstance(driver.report(1)[0], ExchangeAck)
    [answer] = driver.report(1, **wrong)
    assert isinstance(answer, Failure)
    assert next(iter(wrong)) in answer.COMMENT
    [answer] = driver.report(1, top=[PublisherLoad(b"p", 0, 2**60)])
    assert isinstance(answer, Failure)


def test_nobody_is_lost_because_the_monitor_itself_stood_still() -> None:
    driver = Driver()
    driver.report(1)
    driver.join("s")
    driver.now += 60
    driver.effects.clear()
    driver.advance(0.5)
    assert pushes(driver.effects, "s", Topology) == []
    assert driver.alive("s", version=driver.machine.version) == []


# --- publishers -----------------------------------------------------------------------------------


def test_a_publisher_gets_the_exchange_with_the_fewest_publishers() -> None:
    driver = Driver()
    driver.report(1, publishers=3)
    driver.report(2, publishers=1)
    [assigned] = driver.attach("p")
    assert isinstance(assigned, Assigned)
    assert assigned.exchange == info(2)
    assert assigned.id == 5
    assert assigned.limits == Limits()


def test_a_crowd_between_two_reports_spreads() -> None:
    driver = Driver()
    for number in (1, 2, 3):
        driver.report(number)
    chosen = [driver.attach(f"p{i}")[0].exchange.number for i in range(9)]
    assert sorted(chosen) == [1, 1, 1, 2, 2, 2, 3, 3, 3]


def test_publishers_that_have_not_arrived_yet_count_after_the_next_report_too() -> None:
    driver = Driver()
    driver.report(1)
    driver.report(2, publishers=1)
    assert driver.attach("p1")[0].exchange.number == 1
    driver.report(1, publishers=0)
    driver.report(2, publishers=1)
    assert [driver.attach(f"q{i}")[0].exchange.number for i in range(2)] == [1, 2]


def test_with_load_the_exchange_with_the_lowest_throughput_is_chosen() -> None:
    driver = Driver(limits=Limits(throughput_bytes=75_000_000))
    for second in range(4):
        driver.report(1, publishers=1, bytes_in=second * 1_000_000)
        driver.report(2, publishers=5, bytes_in=second * 100_000)
        driver.advance(1)
    assert driver.attach("p")[0].exchange.number == 2


def test_publisher_epochs_rise_and_carry_the_monitors_own() -> None:
    driver = Driver()
    driver.report(1)
    epochs = [driver.attach("p")[0].epoch for _ in range(3)]
    assert epochs == [EPOCH << 27 | n for n in (1, 2, 3)]


def test_a_publisher_that_asks_again_stays_where_it_is() -> None:
    driver = Driver()
    driver.report(1, publishers=5)
    assert driver.attach("p")[0].exchange.number == 1
    driver.report(2)
    assert driver.attach("p")[0].exchange.number == 1


def test_failed_exchanges_are_avoided() -> None:
    driver = Driver()
    driver.report(1)
    driver.report(2, publishers=9)
    assert driver.attach("p", failed=[(1, 1)])[0].exchange.number == 2


def test_a_failed_exchange_is_given_again_once_it_has_reported_since() -> None:
    driver = Driver()
    driver.report(1)
    assert driver.attach("p", failed=[(1, 1)]) == []
    driver.now += 0.4
    driver.effects.clear()
    driver.report(1)
    assert [each.exchange.number for each in answers(driver.effects, "p")] == [1]


def test_a_publisher_waits_for_the_restarted_process_of_a_failed_exchange() -> None:
    driver = Driver()
    driver.report(1, 1)
    assert driver.attach("p", failed=[(1, 1)]) == []
    driver.effects.clear()
    driver.report(1, 2)
    assert answers(driver.effects, "p")[0].exchange.epoch == 2


def test_a_publisher_waits_for_the_first_exchange_and_subscribers_learn_of_it_first() -> None:
    driver = Driver()
    driver.join("s")
    assert driver.attach("p") == []
    driver.effects.clear()
    driver.report(1)
    order = [type(each.message) for each in driver.effects if isinstance(each, Send | Push)]
    assert order == [ExchangeAck, Topology, Assigned]


def test_waiting_is_bounded_and_ends_with_a_reason() -> None:
    driver = Driver()
    driver.attach("p")
    driver.advance(2.4)
    assert answers(driver.effects, "p") == []
    driver.advance(0.2)
    [failure] = answers(driver.effects, "p")
    assert (failure.CODE, failure.id) == ("unavailable", 5)
    assert "orders" in failure.COMMENT


def test_a_second_question_of_a_waiting_publisher_answers_the_first() -> None:
    driver = Driver()
    driver.attach("p", request=1)
    [failure] = driver.attach("p", request=2)
    assert (failure.CODE, failure.id) == ("unavailable", 1)
    driver.effects.clear()
    driver.report(1)
    assert [each.id for each in answers(driver.effects, "p")] == [2]


def test_a_draining_exchange_gets_no_publishers_but_stays_visible() -> None:
    driver = Driver()
    driver.report(1)
    driver.report(2, publishers=9)
    driver.report(1, stopping=True)
    assert driver.attach("p")[0].exchange.number == 2
    assert numbers(driver.join("s")[0]) == [(1, 1), (2, 1)]


# --- sessions -------------------------------------------------------------------------------------


def test_every_client_hears_the_version_each_second() -> None:
    driver = Driver()
    driver.join("s")
    driver.report(1)
    driver.attach("p")
    driver.effects.clear()
    driver.advance(3.1, (1, 1))
    for name in ("s", "p"):
        versions = pushes(driver.effects, name, Version)
        assert len(versions) == 3
        assert {(each.epoch, each.version) for each in versions} == {(EPOCH, 2)}


def test_alive_is_answered_only_if_the_version_differs() -> None:
    driver = Driver()
    driver.join("s")
    driver.report(1)
    assert driver.alive("s", version=2) == []
    assert numbers(driver.alive("s", version=1)[0]) == [(1, 1)]


def test_a_client_that_an_earlier_monitor_knew_is_taken_up_and_shown_everything() -> None:
    driver = Driver()
    driver.report(1)
    [topology] = driver.alive("s", version=driver.machine.version)
    assert numbers(topology) == [(1, 1)]
    driver.effects.clear()
    driver.advance(1, (1, 1))
    assert pushes(driver.effects, "s", Version)


def test_a_silent_client_is_forgotten_after_ten_seconds() -> None:
    driver = Driver()
    driver.join("s")
    driver.join("t")
    for _ in range(3):
        driver.advance(4)
        driver.alive("t")
    driver.effects.clear()
    driver.advance(1)
    assert pushes(driver.effects, "s", Version) == []
    assert pushes(driver.effects, "t", Version)


def test_a_client_that_leaves_is_forgotten_at_once() -> None:
    driver = Driver()
    driver.join("s")
    assert driver.leave("s") == []
    driver.effects.clear()
    driver.advance(1)
    assert pushes(driver.effects, "s", Version) == []


def test_a_publisher_that_leaves_while_it_waits_is_not_assigned() -> None:
    driver = Driver()
    driver.attach("p")
    driver.leave("p")
    driver.effects.clear()
    driver.report(1)
    assert answers(driver.effects, "p") == []


def test_a_client_that_reconnected_is_pushed_to_at_its_new_address() -> None:
    driver = Driver()
    driver.receive("old", Join(queue_id=b"q" * 16, subscriber=b"s"))
    driver.receive("new", Join(queue_id=b"q" * 16, subscriber=b"s"))
    driver.effects.clear()
    driver.report(1)
    assert pushes(driver.effects, "old", Topology) == []
    assert pushes(driver.effects, "new", Topology)


@pytest.mark.parametrize("client", [b"", b"x" * 65])
def test_a_client_without_a_proper_id_is_refused(client) -> None:
    [failure] = Driver().receive("s", Join(id=1, queue_id=b"q" * 16, subscriber=client))
    assert failure.CODE == "invalid_request"


# --- a restarted monitor --------------------------------------------------------------------------


def test_a_restarted_monitor_shows_the_exchanges_as_soon_as_all_have_reported() -> None:
    driver = Driver(restarted=True)
    assert driver.join("s") == []
    assert driver.alive("t", version=17) == []
    driver.leader_names(1, 2)
    driver.report(1)
    driver.advance(1, (1, 1))
    assert not any(answers(driver.effects, name) for name in "st")
    assert not any(pushes(driver.effects, name, Topology | Version) for name in "st")
    driver.report(2)
    [answer] = answers(driver.effects, "s")
    assert (numbers(answer), answer.id) == ([(1, 1), (2, 1)], 6)
    assert numbers(pushes(driver.effects, "t", Topology)[0]) == [(1, 1), (2, 1)]


def test_a_restarted_monitor_does_not_wait_for_ever_for_an_exchange_that_does_not_serve() -> None:
    driver = Driver(restarted=True)
    driver.leader_names(1, 2)
    driver.alive("s")
    driver.advance(5.9, (1, 1))
    assert not pushes(driver.effects, "s", Topology)
    driver.advance(0.2, (1, 1))
    assert numbers(pushes(driver.effects, "s", Topology)[-1]) == [(1, 1)]


def test_as_long_as_no_manager_has_spoken_exchanges_may_be_unable_to_find_the_monitor() -> None:
    driver = Driver(restarted=True)
    for _ in range(30):
        driver.alive("s")
        driver.advance(2, (1, 1))
    assert not pushes(driver.effects, "s", Topology)
    driver.leader(Failure(RESULT=1101, COMMENT="registry away"))
    driver.advance(2.4, (1, 1))
    assert not pushes(driver.effects, "s", Topology)
    driver.report(2)
    driver.advance(0.2, (1, 1))
    assert numbers(pushes(driver.effects, "s", Topology)[-1]) == [(1, 1), (2, 1)]


@pytest.mark.parametrize("endpoint", ["", "tcp://10.0.0.1:5000"])
def test_a_manager_that_does_not_lead_has_not_spoken(endpoint: str) -> None:
    driver = Driver(restarted=True)
    driver.alive("s")
    driver.leader(failure_of(NotLeader("not me", endpoint)))
    driver.advance(10, (1, 1))
    assert not pushes(driver.effects, "s", Topology)


def test_whoever_wants_to_join_meanwhile_is_told_in_time_that_this_takes_longer() -> None:
    driver = Driver(restarted=True)
    driver.join("s")
    driver.advance(2.6)
    [answer] = answers(driver.effects, "s")
    assert (answer.CODE, answer.id) == ("unavailable", 6)


def test_a_restarted_monitor_serves_publishers_from_the_first_exchange_on() -> None:
    driver = Driver(restarted=True)
    driver.report(1)
    assert driver.attach("p")[0].exchange.number == 1


# --- proof of life, and a newer monitor -----------------------------------------------------------


def test_the_leader_is_asked_every_second_and_told_who_lives() -> None:
    driver = Driver(restarted=True)
    driver.report(1, 3)
    driver.report(2, 4)
    driver.advance(1.1, (1, 3))
    driver.advance(3.5, (1, 3))
    asked = [each.message for each in driver.questions()]
    assert {(each.epoch, each.control) for each in asked} == {(EPOCH, CONTROL)}
    assert len(asked) == 5
    assert asked[1].exchanges == [(1, 3), (2, 4)]
    assert asked[-1].exchanges == [(1, 3)]


def test_whoever_is_wanted_by_the_leader_says_so_to_its_host_manager() -> None:
    assert Confirmed() in Driver().leader_names()
    assert Confirmed() not in Driver().leader(Failure(RESULT=1101, COMMENT="no"))


def assert_has_stepped_aside(driver: Driver, effects: list[Effect]) -> None:
    assert [each.event for each in effects if isinstance(each, Note)] == ["superseded"]
    driver.effects.clear()
    assert driver.alive("s") == []
    assert driver.attach("p")[0].CODE == "unavailable"
    driver.advance(5.0)  # no exchange reports any more
    assert Finished() in driver.effects
    assert not pushes(driver.effects, "s", Topology | Version)


def test_a_monitor_that_the_leader_calls_stale_steps_aside_and_shows_nobody_as_gone() -> None:
    driver = Driver()
    driver.report(1)
    driver.join("s")
    stale = Failure(RESULT=1101, COMMENT="there is a newer monitor", CODE="stale_epoch")
    assert_has_stepped_aside(driver, driver.leader(stale))


def test_a_monitor_steps_aside_for_the_newer_one_to_which_an_exchange_reports() -> None:
    driver = Driver()
    driver.report(1)
    driver.join("s")
    assert_has_stepped_aside(driver, driver.handle(farewell(driver, EPOCH + 1)))


@pytest.mark.parametrize("epoch", [0, EPOCH - 1, EPOCH, 1 << 62])
def test_the_word_about_a_monitor_that_is_not_newer_changes_nothing(epoch) -> None:
    driver = Driver()
    driver.handle(farewell(driver, epoch))
    assert driver.machine.state is State.RUNNING


def farewell(driver: Driver, epoch: int) -> Received:
    report = ExchangeReport(
        id=0, queue_id=QUEUE_ID, exchange=info(1), load=ExchangeLoad(), monitor=epoch
    )
    return Received(peer_of("exchange 1.1"), report)


# --- the end --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reason", "code"), [("stopped", "queue_stopped"), ("removed", "queue_not_found")]
)
def test_the_end_of_the_queue_is_told_to_all(reason, code) -> None:
    driver = Driver()
    driver.attach("p")
    driver.join("s")
    effects = driver.stop(reason)
    assert code == answers(effects, "p")[0].CODE
    for name in ("p", "s"):
        assert pushes(effects, name, Topology)[0].state == reason
    assert code == driver.join("late")[0].CODE
    assert code == driver.attach("late")[0].CODE
    assert Finished() not in driver.effects
    driver.advance(0.4)
    assert driver.effects.count(Finished()) == 1


def test_a_monitor_that_only_goes_away_tells_no_end_of_the_queue() -> None:
    driver = Driver()
    driver.attach("p")
    driver.join("s")
    effects = driver.stop()
    assert answers(effects, "p")[0].CODE == "unavailable"
    assert pushes(effects, "s", Topology) == []
    driver.advance(0.4)
    assert Finished() in driver.effects


def test_a_monitor_that_stops_wants_no_tick_but_for_its_end() -> None:
    driver = Driver()
    driver.report(1, 10)
    driver.attach("p")
    driver.stop("stopped")
    deadline = driver.machine.next_deadline()
    assert deadline is not None
    assert deadline > driver.now
    driver.advance(10.0)
    assert driver.effects.count(Finished()) == 1
    assert driver.machine.next_deadline() is None


def test_stopping_twice_changes_nothing() -> None:
    driver = Driver()
    driver.stop("stopped")
    assert driver.stop("removed") == []
    driver.advance(1)
    assert driver.effects.count(Finished()) == 1


def test_a_restarted_monitor_that_stops_answers_those_who_wait_to_join() -> None:
    driver = Driver(restarted=True)
    driver.join("s")
    assert answers(driver.stop("stopped"), "s")[0].CODE == "queue_stopped"


def test_exchanges_are_told_what_the_queue_defines_of_services_and_at_once_when_it_changes() -> (
    None
):
    driver = Driver()
    (ack,) = driver.report(1)
    assert isinstance(ack, ExchangeAck)
    assert ack.services is None, "nobody knows"
    driver.leader_names(1)
    (ack,) = driver.report(1)
    assert isinstance(ack, ExchangeAck)
    assert ack.services == {}
    driver.handle(Tick())
    services = {"s": {"delay": 2.0}}
    told = Elasticity(queue_id=QUEUE_ID, rules=ElasticRules(), exchanges=[1], services=services)
    driver.advance(1, (1, 1))
    effects = driver.leader(told)
    sent = [each.message for each in effects if isinstance(each, Send)]
    assert sent == [ExchangeAck(epoch=EPOCH, services=services)]
    (ack,) = driver.report(1)
    assert isinstance(ack, ExchangeAck)
    assert ack.services == services
    driver.advance(1, (1, 1))
    assert not any(isinstance(each, Send) for each in driver.leader(told)), "nothing has changed"


def test_what_cannot_be_in_force_of_services_changes_nothing() -> None:
    driver = Driver()
    driver.report(1)
    services = {"s": {"unheard of": 2.0}}
    driver.leader(Elasticity(queue_id=QUEUE_ID, rules=ElasticRules(), services=services))
    (ack,) = driver.report(1)
    assert isinstance(ack, ExchangeAck)
    assert ack.services is None
