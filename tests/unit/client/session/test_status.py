"""Which reason is named when nothing flows, and when it is told."""

from __future__ import annotations

from dataclasses import replace

import pytest

from roq.client.session.events import Cause, ClientState, SessionFacts, SessionState
from roq.client.session.status import (
    CONNECTED,
    QUIET_SECONDS,
    ExchangeFacts,
    PublisherFacts,
    Status,
    StatusLog,
    SubscriberFacts,
    publisher_status,
    subscriber_status,
    why_not_sent,
)

WELL = SessionFacts(SessionState.ACTIVE, Cause.NONE, "", 0.5)
LOST = SessionFacts(
    SessionState.UNAVAILABLE, Cause.NO_MONITOR, "the monitor of queue orders: refused", 9.0
)
NOBODY = SessionFacts(
    SessionState.UNAVAILABLE, Cause.NO_MANAGER, "no configuration manager answers", 9.0
)
STOPPED = SessionFacts(SessionState.STOPPED, Cause.NO_MONITOR, "queue orders is stopped", 9.0)

PUBLISHER = PublisherFacts("orders", WELL, exchange="x1", ready=True, used=True)
AWAY = replace(PUBLISHER, ready=False, reason="connecting to exchange x1", away=0.5)

X1 = ExchangeFacts("x1", "tcp://h:1", connected=True, read=0.1, silent=0.1)
SUBSCRIBER = SubscriberFacts("orders", WELL, confirmed=True, exchanges=(X1,))


# --- publishers -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "facts", [PUBLISHER, replace(PUBLISHER, owed=3, quiet=1.9), replace(PUBLISHER, quiet=9.0)]
)
def test_a_publisher_whose_batches_are_acknowledged_has_no_trouble(facts: PublisherFacts) -> None:
    assert publisher_status(facts) == CONNECTED


def test_without_trouble_there_is_still_a_reason_why_a_window_is_full() -> None:
    assert why_not_sent(PUBLISHER) == "exchange x1 does not acknowledge fast enough"


def test_an_exchange_that_does_not_acknowledge_is_named() -> None:
    status = publisher_status(replace(PUBLISHER, owed=17, quiet=2.5))
    assert (status.state, status.cause) == (ClientState.WAITING, Cause.NOT_ACKNOWLEDGED)
    assert status.reason == (
        "exchange x1 has acknowledged nothing for 2.5 s; 17 batches wait for it"
    )


def test_a_publisher_that_is_held_says_by_whom() -> None:
    facts = replace(PUBLISHER, owed=17, held="held back by s", stalled=2.5)
    status = publisher_status(facts)
    assert (status.state, status.cause) == (ClientState.WAITING, Cause.HELD)
    assert status.reason == "held back by s; 17 batches wait for it"
    assert publisher_status(replace(facts, stalled=1.0)) == CONNECTED
    assert why_not_sent(replace(facts, stalled=1.0)) == "held back by s"


def test_a_subscriber_that_was_left_behind_says_so_first() -> None:
    status = subscriber_status(replace(SUBSCRIBER, behind=("x1",), untaken=9.0, batches=3))
    assert (status.state, status.cause) == (ClientState.WAITING, Cause.LEFT_BEHIND)
    assert "left behind by exchange x1" in status.reason
    assert "has taken nothing for 9.0 s" in status.reason


def test_a_publisher_reconnects_first_and_waits_when_that_lasts() -> None:
    assert publisher_status(AWAY).state is ClientState.RECONNECTING
    assert publisher_status(replace(AWAY, used=False)).state is ClientState.CONNECTING
    waiting = publisher_status(replace(AWAY, away=QUIET_SECONDS))
    assert waiting == Status(ClientState.WAITING, Cause.NO_EXCHANGE, "connecting to exchange x1")


@pytest.mark.parametrize(
    ("session", "cause"), [(LOST, Cause.NO_MONITOR), (NOBODY, Cause.NO_MANAGER)]
)
def test_whoever_is_missing_besides_the_exchange_is_named(
    session: SessionFacts, cause: Cause
) -> None:
    status = publisher_status(replace(AWAY, session=session))
    assert status.cause is cause
    assert status.reason == f"connecting to exchange x1; {session.reason}"


def test_a_publisher_without_any_word_still_has_a_reason() -> None:
    facts = PublisherFacts("orders", SessionFacts(SessionState.ACTIVE, Cause.NONE, "", 0.0))
    assert publisher_status(facts).reason == "queue orders has no exchange yet"


def test_a_queue_that_is_stopped_is_waited_for() -> None:
    status = publisher_status(replace(AWAY, session=STOPPED))
    assert status == Status(ClientState.WAITING, Cause.QUEUE_STOPPED, "queue orders is stopped")


@pytest.mark.parametrize("facts", [PUBLISHER, SUBSCRIBER])
def test_a_missing_monitor_is_named_and_disturbs_nobody(
    facts: PublisherFacts | SubscriberFacts,
) -> None:
    for session in (LOST, replace(WELL, silent=2.5)):
        status = standing_of(replace(facts, session=session))
        assert (status.state, status.cause) == (ClientState.CONNECTED, Cause.NO_MONITOR)
        assert "all the same" in status.reason
    assert "2.5 s" in status.reason


# --- both -----------------------------------------------------------------------------------------


def standing_of(facts: PublisherFacts | SubscriberFacts) -> Status:
    if isinstance(facts, PublisherFacts):
        return publisher_status(facts)
    return subscriber_status(facts)


@pytest.mark.parametrize("facts", [PUBLISHER, AWAY, SUBSCRIBER])
def test_a_thread_that_does_not_run_is_named_before_everything_else(
    facts: PublisherFacts | SubscriberFacts,
) -> None:
    status = standing_of(replace(facts, late=3.0))
    assert (status.state, status.cause) == (ClientState.WAITING, Cause.STARVED)
    assert "did not run for 3.0 s" in status.reason


@pytest.mark.parametrize("facts", [PUBLISHER, SUBSCRIBER])
def test_the_end_is_the_end(facts: PublisherFacts | SubscriberFacts) -> None:
    status = standing_of(replace(facts, ended="it was closed", late=3.0))
    assert status == Status(ClientState.CLOSED, Cause.CLOSED, "it was closed")
    removed = replace(WELL, state=SessionState.REMOVED)
    assert standing_of(replace(facts, ended="gone", session=removed)).cause is Cause.QUEUE_REMOVED


# --- subscribers ----------------------------------------------------------------------------------


def test_a_subscriber_that_hears_all_exchanges_has_no_trouble() -> None:
    assert subscriber_status(SUBSCRIBER) == CONNECTED


def test_what_a_start_waits_for_is_named() -> None:
    facts = replace(SUBSCRIBER, confirmed=False, start="exchange x1 does not confirm")
    status = subscriber_status(facts)
    assert status.state is ClientState.CONNECTING
    assert status.reason == "exchange x1 does not confirm"
    assert subscriber_status(replace(facts, session=NOBODY)).reason == NOBODY.reason


@pytest.mark.parametrize(
    ("connected", "read", "state", "text"),
    [
        (True, 0.5, ClientState.CONNECTED, "its log is read instead"),
        (True, 9.0, ClientState.WAITING, "does not answer at tcp://h:2 either"),
        (False, 0.5, ClientState.WAITING, "no connection to tcp://h:2"),
    ],
)
def test_an_exchange_that_is_not_heard_is_named(
    connected: bool, read: float, state: ClientState, text: str
) -> None:
    silent = ExchangeFacts("x2", "tcp://h:2", connected=connected, read=read, silent=2.5)
    status = subscriber_status(replace(SUBSCRIBER, exchanges=(X1, silent)))
    assert (status.state, status.cause) == (state, Cause.SILENT_EXCHANGE)
    assert "exchange x2 has not been heard for 2.5 s" in status.reason
    assert text in status.reason


def test_an_exchange_that_speaks_another_format_is_not_merely_called_silent() -> None:
    other = ExchangeFacts("x2", "tcp://h:2", True, 9.0, 9.0, unreadable="it sends format 2")
    status = subscriber_status(replace(SUBSCRIBER, exchanges=(X1, other)))
    assert (status.state, status.cause) == (ClientState.WAITING, Cause.SILENT_EXCHANGE)
    assert status.reason.endswith("; it sends format 2")


def test_of_several_silent_exchanges_the_longest_is_named_and_the_others_counted() -> None:
    silent = [ExchangeFacts(f"x{n}", "", True, 0.0, 2.0 + n) for n in range(3)]
    reason = subscriber_status(replace(SUBSCRIBER, exchanges=tuple(silent))).reason
    assert reason.startswith("exchange x2 has not been heard for 4.0 s (nor 2 others)")


def test_a_queue_without_an_exchange_is_named() -> None:
    alone = subscriber_status(replace(SUBSCRIBER, exchanges=()))
    assert alone.reason == "queue orders has no exchange at present"


@pytest.mark.parametrize("silent", [0.1, 2.5])
def test_a_stopped_queue_is_named_and_not_its_silent_exchanges(silent: float) -> None:
    gone = replace(X1, connected=False, silent=silent)
    for exchanges in ((), (X1,), (gone,)):
        status = subscriber_status(replace(SUBSCRIBER, exchanges=exchanges, session=STOPPED))
        assert status == Status(ClientState.WAITING, Cause.QUEUE_STOPPED, STOPPED.reason)


def test_messages_that_wait_for_older_ones_are_named() -> None:
    facts = replace(SUBSCRIBER, hole=2.5, missing="3 messages are missing")
    status = subscriber_status(facts)
    assert status.cause is Cause.HOLE
    assert "waited for 2.5 s for older ones: 3 messages are missing" in status.reason
    assert subscriber_status(replace(facts, hole=1.9)) == CONNECTED


def test_an_application_that_takes_nothing_is_named() -> None:
    facts = replace(SUBSCRIBER, untaken=2.5, batches=7)
    status = subscriber_status(facts)
    assert (status.state, status.cause) == (ClientState.WAITING, Cause.NOT_TAKEN)
    assert "7 batches wait" in status.reason
    assert "1 batch waits" in subscriber_status(replace(facts, batches=1)).reason
    assert "nothing more is read" in subscriber_status(replace(facts, full=True)).reason


# --- telling --------------------------------------------------------------------------------------


def test_a_change_is_told_once_and_its_growing_numbers_are_not() -> None:
    watchdog = StatusLog()
    change = watchdog.look(CONNECTED)
    assert change is not None
    assert change.state is ClientState.CONNECTED
    assert watchdog.look(CONNECTED) is None
    assert watchdog.look(publisher_status(replace(PUBLISHER, owed=1, quiet=2.0))) is not None
    assert watchdog.look(publisher_status(replace(PUBLISHER, owed=1, quiet=2.5))) is None


def test_nothing_is_told_after_the_end() -> None:
    watchdog = StatusLog()
    assert watchdog.look(Status(ClientState.CLOSED, Cause.QUEUE_REMOVED, "gone")) is not None
    assert watchdog.look(Status(ClientState.CLOSED, Cause.CLOSED, "closed")) is None
    assert watchdog.look(CONNECTED) is None


def test_each_loss_is_told_with_what_has_been_added() -> None:
    watchdog = StatusLog()
    assert watchdog.lost(0, 0, "") is None
    change = watchdog.lost(3, 0, "three are lost")
    assert change is not None
    assert (change.state, change.messages) == (ClientState.LOST_DATA, 3)
    assert watchdog.lost(3, 0, "three are lost") is None
    change = watchdog.lost(3, 1, "nobody knows")
    assert change is not None
    assert change.messages == 0
    change = watchdog.lost(5, 1, "two more")
    assert change is not None
    assert change.messages == 2


def test_an_exchange_that_is_away_is_told_and_no_trouble_while_nothing_waits_for_it() -> None:
    facts = replace(SUBSCRIBER, exchanges=(replace(X1, away=True, silent=30.0, connected=False),))
    told = subscriber_status(facts)
    assert (told.state, told.cause) == (ClientState.CONNECTED, Cause.AWAY)
    assert told.reason.startswith("away: x1; ")
    told = subscriber_status(replace(facts, hole=2.0, missing="what is missing"))
    assert (told.state, told.cause) == (ClientState.WAITING, Cause.AWAY)
    assert told.reason.endswith("have waited for 2.0 s for older ones: what is missing")
