"""How a client finds its queue's monitor, loses it, and finds it again."""

from __future__ import annotations

import pytest

from roq.client.session.events import (
    LOCATE_SECONDS,
    AliveWanted,
    AskManager,
    AskMonitor,
    AttachWanted,
    Close,
    DropMonitor,
    Effect,
    ManagerAnswered,
    MonitorAnswered,
    MonitorLost,
    OpenMonitor,
    Pushed,
    ReportAssigned,
    ReportRelocate,
    ReportState,
    ReportTopology,
    SessionState,
    Start,
    Tell,
    TellMonitor,
    TopologyWanted,
)
from roq.client.session.machine import (
    ATTACH_MOST_SECONDS,
    PATIENCE_MOST,
    REMOVED_SECONDS,
    SILENCE_SPREAD,
    STEADY_SECONDS,
    SessionMachine,
)
from roq.errors import InvalidRequest, Unavailable
from roq.machine import Tick
from roq.model import ExchangeInfo, Limits
from roq.protocol.control import (
    FAILED,
    NOT_LEADER,
    Alive,
    Assigned,
    Attach,
    Failure,
    Join,
    Leave,
    Located,
    Relocate,
    Relocated,
    Topology,
    Version,
)
from roq.timing import CLIENT_ALIVE_SECONDS, CLIENT_ASKS_SECONDS, MONITOR_SILENT_SECONDS

QUEUE_ID = b"q" * 16
EXCHANGE = ExchangeInfo(
    number=1, epoch=7, generation=7, host="h", data="tcp://h:1", live="tcp://h:2"
)
LOCATED = Located(
    QName="orders", queue_id=QUEUE_ID, monitor="tcp://m:1", statistics="", limits=Limits()
)


def machine(
    role: str = "publisher",
    managers: tuple[str, ...] = ("tcp://a:1", "tcp://b:1"),
    jitter: float = 0.0,
) -> SessionMachine:
    return SessionMachine(
        queue="orders", client=b"c" * 16, role=role, managers=managers, jitter=lambda: jitter
    )


def wait(session: SessionMachine, now: float) -> float:
    """Let the machine wait as long as it wants; the time then."""
    wake = session.next_deadline()
    assert wake is not None
    assert wake >= now
    return wake


def topology(version: int = 1, epoch: int = 1, state: str = "running") -> Topology:
    return Topology(
        queue_id=QUEUE_ID, epoch=epoch, version=version, exchanges=[EXCHANGE], state=state
    )


def assigned(epoch: int = 1) -> Assigned:
    return Assigned(exchange=EXCHANGE, epoch=epoch, limits=Limits())


def refused(code: str, result: int = FAILED, endpoint: str = "") -> Failure:
    return Failure(RESULT=result, COMMENT=f"it is {code}", CODE=code, ENDPOINT=endpoint)


def asked(effects: list[Effect]) -> AskMonitor:
    return next(effect for effect in effects if isinstance(effect, AskMonitor))


def states(effects: list[Effect]) -> list[SessionState]:
    return [effect.state for effect in effects if isinstance(effect, ReportState)]


def active_subscriber() -> SessionMachine:
    session = machine("subscriber")
    session.handle(Start(), 0.0)
    ask = asked(session.handle(ManagerAnswered(LOCATED), 0.0))
    assert isinstance(ask.message, Join)
    effects = session.handle(MonitorAnswered(ask.serial, topology()), 0.0)
    assert states(effects) == [SessionState.ACTIVE]
    assert ReportTopology(topology()) in effects
    return session


def active_publisher() -> SessionMachine:
    session = machine()
    session.handle(Start(), 0.0)
    ask = asked(session.handle(ManagerAnswered(LOCATED), 0.0))
    assert isinstance(ask.message, Attach)
    effects = session.handle(MonitorAnswered(ask.serial, assigned()), 0.0)
    assert ReportAssigned(assigned()) in effects
    return session


def test_a_role_that_does_not_exist_is_refused() -> None:
    with pytest.raises(InvalidRequest):
        machine("reader")


def test_it_asks_the_manager_then_opens_the_monitor() -> None:
    session = machine()
    assert session.handle(Start(), 0.0) == [AskManager("tcp://a:1")]
    effects = session.handle(ManagerAnswered(LOCATED), 0.0)
    assert effects[0] == OpenMonitor("tcp://m:1")
    assert session.queue_id == QUEUE_ID
    assert session.limits == Limits()


def test_a_second_start_changes_nothing() -> None:
    session = machine()
    session.handle(Start(), 0.0)
    assert session.handle(Start(), 0.0) == []


def test_a_follower_sends_it_to_the_leader_but_not_in_circles() -> None:
    session = machine()
    session.handle(Start(), 0.0)
    answer = ManagerAnswered(refused("not_leader", NOT_LEADER, "tcp://leader:1"))
    assert session.handle(answer, 0.0) == [AskManager("tcp://leader:1")]
    effects = session.handle(answer, 0.0)
    assert states(effects) == [SessionState.UNAVAILABLE]
    assert effects[-1] == AskManager("tcp://b:1")


def test_a_dead_leader_is_left_for_the_others_and_a_living_one_remembered() -> None:
    session = machine("subscriber")
    session.handle(Start(), 0.0)
    follower = ManagerAnswered(refused("not_leader", NOT_LEADER, "tcp://leader:1"))
    session.handle(follower, 0.0)
    effects = session.handle(ManagerAnswered(Unavailable("silence")), 2.0)
    assert effects[-1] == AskManager("tcp://b:1")
    assert session.handle(follower, 2.0) == [AskManager("tcp://leader:1")]
    ask = asked(session.handle(ManagerAnswered(LOCATED), 2.1))
    session.handle(MonitorAnswered(ask.serial, topology()), 2.1)
    effects = session.handle(MonitorLost("connection closed"), 9.0)
    assert effects[-1] == AskManager("tcp://leader:1")


def test_the_next_manager_is_asked_at_once_and_all_again_after_a_while() -> None:
    session = machine(jitter=0.5)
    session.handle(Start(), 0.0)
    silence = ManagerAnswered(Unavailable("silence"))
    for second in (1.0, 2.0):
        effects = session.handle(silence, second)
        assert states(effects) == [SessionState.UNAVAILABLE]
        assert effects[-1] == AskManager("tcp://b:1" if second == 1.0 else "tcp://a:1")
    session.handle(silence, 3.0)
    assert AskManager("tcp://a:1") not in session.handle(silence, 4.0)
    wake = wait(session, 4.0)
    assert session.handle(Tick(), wake - 0.001) == []
    assert session.handle(Tick(), wake) == [AskManager("tcp://a:1")]


@pytest.mark.parametrize(
    ("answer", "role", "most"),
    [
        (Unavailable("silence"), "publisher", 5.0),
        (refused("queue_stopped"), "subscriber", 2.0),
        (refused("queue_stopped"), "publisher", 1.0),
    ],
)
def test_waiting_grows_and_is_bounded_for_ever(
    answer: Failure | Unavailable, role: str, most: float
) -> None:
    session = machine(role, managers=("tcp://a:1",), jitter=0.999)
    session.handle(Start(), 0.0)
    waits = []
    now = 0.0
    session.handle(ManagerAnswered(answer), now)
    for _ in range(20):
        session.handle(ManagerAnswered(answer), now)
        wake = wait(session, now)
        waits.append(wake - now)
        now = wake
        session.handle(Tick(), now)
        session.check()
    assert waits == pytest.approx(sorted(waits))
    assert waits[0] <= 0.1
    assert most / 2 < waits[-1] <= most


def test_a_stopped_queue_is_told_and_asked_for_again() -> None:
    session = machine(jitter=0.5)
    session.handle(Start(), 0.0)
    answer = ManagerAnswered(refused("queue_stopped"))
    effects = session.handle(answer, 0.0)
    assert states(effects) == [SessionState.STOPPED]
    assert effects[-1] == AskManager("tcp://a:1")
    session.handle(answer, 0.0)
    assert session.next_deadline() is not None


def test_a_queue_that_was_never_there_is_told_at_once() -> None:
    session = machine()
    session.handle(Start(), 0.0)
    effects = session.handle(ManagerAnswered(refused("queue_not_found")), 0.0)
    assert states(effects) == [SessionState.REMOVED]


def test_a_queue_that_was_there_is_removed_when_managers_have_not_known_it_for_a_while() -> None:
    session = active_subscriber()
    session.handle(MonitorLost("connection closed"), 10.0)
    now = 10.0
    unknown = ManagerAnswered(refused("queue_not_found"))
    while now < 10.0 + REMOVED_SECONDS:
        assert states(session.handle(unknown, now)) == [SessionState.UNAVAILABLE]
        now += 0.5
        session.handle(Tick(), now)
    assert states(session.handle(unknown, now)) == [SessionState.REMOVED]


def test_a_registry_that_was_restored_in_time_ends_nobody() -> None:
    session = active_subscriber()
    session.handle(MonitorLost("connection closed"), 10.0)
    unknown = ManagerAnswered(refused("queue_not_found"))
    for now in (10.0, 10.5, 11.0):
        session.handle(unknown, now)
        session.handle(Tick(), now + 0.4)
    ask = asked(session.handle(ManagerAnswered(LOCATED), 14.0))
    assert states(session.handle(MonitorAnswered(ask.serial, topology()), 14.0)) == [
        SessionState.ACTIVE
    ]


def test_another_queue_of_the_same_name_is_not_taken_for_the_old_one() -> None:
    session = active_subscriber()
    session.handle(Tick(), MONITOR_SILENT_SECONDS)
    other = Located(
        QName="orders", queue_id=b"x" * 16, monitor="tcp://m:1", statistics="", limits=Limits()
    )
    assert states(session.handle(ManagerAnswered(other), 4.0)) == [SessionState.REMOVED]
    assert session.queue_id == QUEUE_ID


def test_it_says_that_it_is_alive_every_two_seconds() -> None:
    session = active_subscriber()
    session.handle(Pushed(Version(queue_id=QUEUE_ID, epoch=1, version=1)), 1.9)
    effects = session.handle(Tick(), CLIENT_ALIVE_SECONDS)
    assert len(effects) == 1
    assert isinstance(effects[0], TellMonitor)
    assert isinstance(effects[0].message, Alive)
    assert effects[0].message.version == 1
    assert session.handle(Tick(), CLIENT_ALIVE_SECONDS + 0.1) == []


def test_what_is_not_to_wait_is_told_at_once_if_there_is_a_monitor() -> None:
    session = machine("subscriber")
    assert session.handle(AliveWanted(), 0.0) == []
    session = active_subscriber()
    (effect,) = session.handle(AliveWanted(), 1.0)
    assert isinstance(effect, TellMonitor)
    assert isinstance(effect.message, Alive)
    assert session.handle(Tick(), CLIENT_ALIVE_SECONDS) == []
    session.check()


def test_silence_sends_it_back_to_the_manager() -> None:
    session = active_subscriber()
    effects = session.handle(Tick(), MONITOR_SILENT_SECONDS)
    assert effects[0] == DropMonitor()
    assert states(effects) == [SessionState.CONNECTING]
    assert AskManager("tcp://a:1") in effects


def test_a_monitor_whose_connection_ends_is_looked_for_at_once() -> None:
    session = active_subscriber()
    effects = session.handle(MonitorLost("connection closed"), 5.0)
    assert effects[0] == DropMonitor()
    assert states(effects) == [SessionState.CONNECTING]
    assert effects[-1] == AskManager("tcp://a:1")
    assert session.handle(MonitorLost("connection closed"), 5.0) == []


def test_a_monitor_that_refuses_connections_is_looked_for_again_after_a_while() -> None:
    session = machine("subscriber", jitter=0.5)
    session.handle(Start(), 0.0)
    for _ in range(2):
        session.handle(ManagerAnswered(LOCATED), 0.0)
        effects = session.handle(MonitorLost("connection refused"), 0.0)
        assert states(effects) == [SessionState.UNAVAILABLE]
    assert session.handle(Tick(), wait(session, 0.0)) == [AskManager("tcp://a:1")]


def test_a_monitor_that_goes_as_soon_as_it_has_come_is_not_chased() -> None:
    session = active_subscriber()
    now, searches = 5.0, 0
    session._jitter = session._backoff._jitter = lambda: 0.999  # type: ignore[assignment]
    while now < 15.0:
        session.handle(MonitorLost("connection closed"), now)
        now = wait(session, now) if session.next_deadline() else now
        session.handle(Tick(), now)
        ask = asked(session.handle(ManagerAnswered(LOCATED), now))
        session.handle(MonitorAnswered(ask.serial, topology()), now)
        searches += 1
    assert searches < 15


def test_clients_do_not_all_miss_the_same_monitor_at_the_same_instant() -> None:
    early, late = machine("subscriber"), machine("subscriber", jitter=0.999)
    times = []
    for session in (early, late):
        session.handle(Start(), 0.0)
        ask = asked(session.handle(ManagerAnswered(LOCATED), 0.0))
        session.handle(MonitorAnswered(ask.serial, topology()), 0.0)
        now = 0.0
        while session.state is SessionState.ACTIVE:
            now = wait(session, now)
            session.handle(Tick(), now)
        times.append(now)
    assert times[0] == MONITOR_SILENT_SECONDS
    assert times[1] == pytest.approx(MONITOR_SILENT_SECONDS * (1 + SILENCE_SPREAD), rel=0.01)


def test_a_jump_of_the_version_makes_a_subscriber_join_again() -> None:
    session = active_subscriber()
    effects = session.handle(Pushed(Version(queue_id=QUEUE_ID, epoch=1, version=2)), 1.0)
    assert isinstance(asked(effects).message, Join)
    effects = session.handle(MonitorAnswered(asked(effects).serial, topology(2)), 1.0)
    assert effects == [ReportTopology(topology(2))]


def test_publishers_and_subscribers_hear_each_second_that_their_topology_is_still_the_one() -> None:
    same = Pushed(Version(queue_id=QUEUE_ID, epoch=1, version=1))
    assert active_subscriber().handle(same, 1.0) == [ReportTopology(topology())]
    publisher = active_publisher()
    assert ReportTopology(topology()) in publisher.handle(Pushed(topology()), 0.5)
    assert publisher.handle(same, 1.0) == [ReportTopology(topology())]
    assert publisher.handle(Pushed(topology()), 1.1) == []


def test_a_subscriber_in_doubt_asks_for_the_topology_and_hears_it_again() -> None:
    assert machine("subscriber").handle(TopologyWanted(), 0.0) == []
    session = active_subscriber()
    (effect,) = session.handle(TopologyWanted(), 1.0)
    assert isinstance(effect, AskMonitor)
    assert isinstance(effect.message, Join)
    answer = MonitorAnswered(effect.serial, topology())
    assert session.handle(answer, 1.1) == [ReportTopology(topology())]
    session.check()


def test_the_same_topology_is_told_once_and_an_older_one_never() -> None:
    session = active_subscriber()
    assert session.handle(Pushed(topology(1)), 1.0) == []
    assert session.handle(Pushed(topology(3)), 1.0) == [ReportTopology(topology(3))]
    assert session.handle(Pushed(topology(2)), 1.0) == []
    assert session.handle(Pushed(topology(1, epoch=2)), 1.0) == [
        ReportTopology(topology(1, epoch=2))
    ]


def test_a_topology_of_another_queue_is_ignored() -> None:
    session = active_subscriber()
    foreign = Topology(queue_id=b"x" * 16, epoch=9, version=9, exchanges=[])
    assert session.handle(Pushed(foreign), 1.0) == []


@pytest.mark.parametrize(
    ("word", "state"), [("stopped", SessionState.STOPPED), ("removed", SessionState.REMOVED)]
)
def test_the_monitors_last_word_is_told(word: str, state: SessionState) -> None:
    session = active_subscriber()
    effects = session.handle(Pushed(topology(2, state=word)), 1.0)
    assert DropMonitor() in effects
    assert states(effects) == [state]


def test_a_publisher_with_a_link_does_not_ask_a_new_monitor_for_an_exchange() -> None:
    session = active_publisher()
    session.handle(Tick(), MONITOR_SILENT_SECONDS)
    ask = asked(session.handle(ManagerAnswered(LOCATED), 4.0))
    assert isinstance(ask.message, Alive)
    effects = session.handle(MonitorAnswered(ask.serial, topology(5)), 4.0)
    assert states(effects) == [SessionState.ACTIVE]


def test_a_publisher_that_a_new_monitor_does_not_know_asks_it_for_an_exchange() -> None:
    session = active_publisher()
    session.handle(Tick(), MONITOR_SILENT_SECONDS)
    ask = asked(session.handle(ManagerAnswered(LOCATED), 4.0))
    session.handle(MonitorAnswered(ask.serial, refused("failed")), 4.0)
    session.handle(Tick(), 10.0)
    assert isinstance(asked(session.handle(ManagerAnswered(LOCATED), 10.0)).message, Attach)


def test_a_failed_exchange_is_reported_and_another_one_asked_for() -> None:
    session = active_publisher()
    ask = asked(session.handle(AttachWanted(((1, 7),)), 1.0))
    assert isinstance(ask.message, Attach)
    assert ask.message.failed == [(1, 7)]
    effects = session.handle(MonitorAnswered(ask.serial, assigned(2)), 1.0)
    assert effects == [ReportAssigned(assigned(2))]


def test_an_answer_to_an_older_question_does_not_count() -> None:
    session = active_publisher()
    first = asked(session.handle(AttachWanted(((1, 7),)), 1.0))
    second = asked(session.handle(AttachWanted(((1, 8),)), 1.0))
    assert session.handle(MonitorAnswered(first.serial, assigned(2)), 1.0) == []
    assert session.handle(MonitorAnswered(first.serial, refused("failed")), 1.0) == []
    effects = session.handle(MonitorAnswered(second.serial, assigned(3)), 1.0)
    assert effects == [ReportAssigned(assigned(3))]


def test_an_exchange_that_is_wanted_while_a_new_monitor_is_greeted_is_asked_for() -> None:
    session = active_publisher()
    session.handle(Tick(), MONITOR_SILENT_SECONDS)
    session.handle(ManagerAnswered(LOCATED), 4.0)
    assert isinstance(asked(session.handle(AttachWanted(((1, 7),)), 4.0)).message, Attach)


def test_a_monitor_without_an_exchange_is_asked_again_as_long_as_it_lives() -> None:
    session = active_publisher()
    ask = asked(session.handle(AttachWanted(), 1.0))
    effects = session.handle(MonitorAnswered(ask.serial, Unavailable("late")), 2.9)
    assert states(effects) == [SessionState.UNAVAILABLE]
    assert isinstance(asked(effects).message, Attach)
    assert session.handle(MonitorAnswered(ask.serial, Unavailable("late")), 2.9) == []


def test_a_monitor_that_has_no_exchange_is_not_left_for_it_but_asked_again_soon() -> None:
    session = machine(jitter=0.999)
    session.handle(Start(), 0.0)
    ask = asked(session.handle(ManagerAnswered(LOCATED), 0.0))
    effects = session.handle(MonitorAnswered(ask.serial, refused("unavailable")), 2.5)
    assert states(effects) == [SessionState.ACTIVE, SessionState.UNAVAILABLE]
    now = 2.5
    for _ in range(10):
        effects = session.handle(
            MonitorAnswered(asked(effects).serial, refused("unavailable")), now
        )
        assert DropMonitor() not in effects
        session.handle(Pushed(Version(queue_id=QUEUE_ID, epoch=1, version=1)), now)
        asked_at = now
        effects = []
        while not any(isinstance(effect, AskMonitor) for effect in effects):
            now = wait(session, now)
            effects = session.handle(Tick(), now)
        assert now <= asked_at + ATTACH_MOST_SECONDS
    effects = session.handle(MonitorAnswered(asked(effects).serial, assigned(2)), now)
    assert states(effects) == [SessionState.ACTIVE]
    assert ReportAssigned(assigned(2)) in effects


def test_wanting_an_exchange_without_a_monitor_is_remembered() -> None:
    session = machine()
    session.handle(Start(), 0.0)
    assert session.handle(AttachWanted(((1, 7),)), 0.0) == []
    ask = asked(session.handle(ManagerAnswered(LOCATED), 0.0))
    assert isinstance(ask.message, Attach)
    assert ask.message.failed == [(1, 7)]


def test_a_monitor_that_does_not_answer_is_looked_for_again() -> None:
    session = machine()
    session.handle(Start(), 0.0)
    ask = asked(session.handle(ManagerAnswered(LOCATED), 0.0))
    effects = session.handle(MonitorAnswered(ask.serial, Unavailable("late")), 3.0)
    assert states(effects) == [SessionState.UNAVAILABLE]


def test_a_monitor_that_does_not_know_a_subscriber_hears_its_join_again() -> None:
    session = active_subscriber()
    assert isinstance(asked(session.handle(Pushed(refused("failed")), 1.0)).message, Join)


def test_a_relocate_is_told_to_the_publisher_whom_it_concerns() -> None:
    session = active_publisher()
    relocate = Relocate(queue_id=QUEUE_ID, publisher=b"c" * 16, epoch=9, exchanges=[EXCHANGE])
    assert session.handle(Pushed(relocate), 1.0) == [ReportRelocate(relocate)]
    for other in (
        Relocate(queue_id=b"z" * 16, publisher=b"c" * 16, epoch=9, exchanges=[EXCHANGE]),
        Relocate(queue_id=QUEUE_ID, publisher=b"d" * 16, epoch=9, exchanges=[EXCHANGE]),
    ):
        assert session.handle(Pushed(other), 1.0) == []


def test_a_monitor_that_relocates_is_not_silent() -> None:
    session = active_publisher()
    relocate = Relocate(queue_id=QUEUE_ID, publisher=b"c" * 16, epoch=9, exchanges=[EXCHANGE])
    session.handle(Pushed(relocate), MONITOR_SILENT_SECONDS - 0.1)
    effects = session.handle(Tick(), MONITOR_SILENT_SECONDS + 0.1)
    assert not any(isinstance(effect, DropMonitor) for effect in effects)


def test_what_became_of_a_relocation_is_told_if_there_is_a_monitor() -> None:
    told = Relocated(queue_id=QUEUE_ID, publisher=b"c" * 16, epoch=9, outcome="accepted")
    assert machine().handle(Tell(told), 0.0) == []
    assert active_publisher().handle(Tell(told), 0.0) == [TellMonitor(told)]


def test_closing_says_goodbye_and_ends_everything() -> None:
    session = active_subscriber()
    effects = session.handle(Close(), 1.0)
    assert isinstance(effects[0], TellMonitor)
    assert isinstance(effects[0].message, Leave)
    assert isinstance(effects[1], DropMonitor)
    assert effects[1].linger_ms > 0
    assert session.handle(Start(), 2.0) == []
    assert session.next_deadline() is None


def test_closing_before_a_monitor_was_found_says_nothing() -> None:
    session = machine()
    session.handle(Start(), 0.0)
    assert session.handle(Close(), 0.0) == [DropMonitor()]


def test_answers_that_come_too_late_are_ignored() -> None:
    session = active_subscriber()
    assert session.handle(ManagerAnswered(LOCATED), 1.0) == []
    session.handle(Tick(), MONITOR_SILENT_SECONDS)
    assert session.handle(MonitorAnswered(1, topology(9)), 4.0) == []
    assert session.handle(Pushed(topology(9)), 4.0) == []


def test_whoever_does_not_answer_in_time_gets_more_time() -> None:
    session = machine("subscriber", managers=("tcp://a:1",), jitter=0.5)
    effects = session.handle(Start(), 0.0)
    timeouts = []
    for _ in range(4):
        (ask,) = [effect for effect in effects if isinstance(effect, AskManager)]
        timeouts.append(ask.timeout)
        effects = session.handle(ManagerAnswered(Unavailable("silence"), late=True), 0.0)
        if session.next_deadline() is not None:
            effects = session.handle(Tick(), wait(session, 0.0))
    assert timeouts == [LOCATE_SECONDS * factor for factor in (1, 2, 4, 4)]
    join = asked(session.handle(ManagerAnswered(LOCATED), 20.0))
    assert join.timeout == CLIENT_ASKS_SECONDS * PATIENCE_MOST
    session.handle(MonitorAnswered(join.serial, topology()), 20.0)
    session.handle(Pushed(Version(queue_id=QUEUE_ID, epoch=1, version=1)), 20.0 + STEADY_SECONDS)
    (again,) = [
        effect
        for effect in session.handle(MonitorLost("closed"), 26.0)
        if isinstance(effect, AskManager)
    ]
    assert again.timeout == LOCATE_SECONDS


def test_whoever_refuses_connections_costs_no_patience() -> None:
    session = machine("subscriber", managers=("tcp://a:1",))
    session.handle(Start(), 0.0)
    for _ in range(3):
        effects = session.handle(ManagerAnswered(Unavailable("refused")), 0.0)
    assert effects[-1] == AskManager("tcp://a:1", LOCATE_SECONDS)
