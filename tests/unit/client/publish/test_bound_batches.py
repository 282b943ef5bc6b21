"""What must not be in two logs waits for the exchange that may have it."""

from __future__ import annotations

import pytest
from msgspec import structs
from publisher_script import X1, X2, Script, accepted, acked, link_at, opened, relocate, sent, told

from roq.client.publish.bound_batches import AGAIN_SECONDS, LINKS_MAX, PATIENCE_SECONDS
from roq.client.publish.events import AskAttach, ConnectionLost, Leave, Received, Serving
from roq.client.publish.link import Drop
from roq.client.publish.receipt import Outcome
from roq.client.publish.relocation import DRAIN_BOUND_SECONDS, DRAIN_SECONDS
from roq.machine import Tick
from roq.model import ExchangeInfo
from roq.protocol import channel, documents
from roq.protocol.delayed import DELAYED_TOPIC

LATER = DELAYED_TOPIC.decode()

BACK = structs.replace(X1, epoch=9, data="tcp://h:9")


@pytest.fixture
def bound() -> Script:
    """At a durable exchange; what is published to `once` must not be in two logs."""
    script = Script()
    script.links.bound.topics.add("once")
    script.assign()
    script.accept(durable=True)
    return script


def killed(script: Script) -> None:
    """The exchange of the only link; the monitor assigns another one."""
    script.lost("killed")
    script.lost("refused")
    script.assign(X2, 2)


def back(script: Script, expected: int, taken: int = 0) -> list[int]:
    """The exchange serves its log again, and says what is in it; what it is sent."""
    hello = opened(script.feed(Serving((BACK, X2))))
    assert hello.epoch == 1
    return sent(says(script, BACK, expected, taken))


def says(script: Script, exchange: ExchangeInfo, expected: int, taken: int = 0) -> list[object]:
    ready = channel.Ready(
        exchange=exchange.number, exchange_epoch=exchange.epoch, generation=exchange.generation,
        expected=expected, taken=taken, message_bytes=1, batch_bytes=1, batch_messages=1,
        window_bytes=1 << 20, window_batches=4, durable=True,
    )  # fmt: skip
    body = documents.encode(ready)
    return list(script.links.receive(link_at(script, exchange), [channel.READY, body], script.now))


def outcomes(script: Script) -> list[str]:
    return ["" if each.status is None else str(each.status.outcome) for each in script.receipts]


@pytest.mark.parametrize("there", [True, False])
def test_what_may_be_in_the_log_of_a_dead_exchange_is_sent_nowhere_else(
    bound: Script, there: bool
) -> None:
    assert bound.publish("once") == [1]
    killed(bound)
    assert sent(accepted(bound, X2)) == []
    assert bound.publish("once") == [1], "others go where they can"
    acked(bound, X2, 1)
    assert outcomes(bound) == ["", "ok"]
    assert back(bound, 2 if there else 1) == ([] if there else [1])
    if not there:
        acked(bound, BACK, 1)
    bound.feed(Tick())
    assert outcomes(bound) == ["ok", "ok"]
    assert bound.receipts[0].status is not None
    assert bound.receipts[0].status.log == X1.log
    assert bound.links.exchanges == (X2,)
    assert len(bound.links.all) == 1, "nothing is waited for there any more"


def test_what_has_not_left_and_what_may_be_in_two_logs_goes_elsewhere(bound: Script) -> None:
    bound.publish("again")
    bound.publish("once")
    bound.publish("again")
    bound.lost("killed")
    bound.publish("once")
    bound.lost("refused")
    bound.assign(X2, 2)
    assert sent(accepted(bound, X2)) == [1, 2, 3]
    acked(bound, X2, 3)
    assert outcomes(bound) == ["ok", "", "ok", "ok"]
    assert back(bound, 2) == [2], "and what others have sent by now is in no second log"
    acked(bound, BACK, 2)
    assert outcomes(bound) == ["ok"] * 4


@pytest.mark.parametrize(("taken", "numbers"), [(0, [1, 2]), (1, [1, 2, 3]), (3, [1, 2, 3])])
def test_numbers_that_the_exchange_has_taken_and_not_committed_are_given_to_no_other_batch(
    bound: Script, taken: int, numbers: list[int]
) -> None:
    assert bound.publish("free") == [1]
    assert bound.publish("once") == [2]
    assert bound.publish("once") == [3]
    killed(bound)
    assert sent(accepted(bound, X2)) == [1], "what may be in two logs"
    assert back(bound, 1, taken) == numbers
    acked(bound, BACK, 2 if taken else 1)
    assert outcomes(bound) == ["ok" if taken else "", "ok", ""]


def test_a_volatile_exchange_comes_back_with_nothing(bound: Script) -> None:
    script = Script()
    script.links.bound.topics.add("once")
    script.assign()
    script.accept()
    script.publish("once")
    killed(script)
    assert sent(accepted(script, X2)) == [1]


def test_what_never_comes_back_is_unknown_when_its_time_is_over(bound: Script) -> None:
    bound.publish("once")
    killed(bound)
    accepted(bound, X2)
    bound.now += 20.0
    bound.feed(Tick())
    (receipt,) = bound.receipts
    assert receipt.status is not None
    assert receipt.status.outcome is Outcome.UNKNOWN
    assert "exchange x1 may have it" in receipt.status.reason
    assert len(bound.links.all) == 1


def test_at_the_log_that_is_assigned_again_all_goes_on_behind_it(bound: Script) -> None:
    bound.publish("once")
    killed(bound)
    bound.publish("once")
    hello = opened(bound.assign(BACK, 3))
    assert hello.epoch == 1
    assert sent(says(bound, BACK, 2)) == [2]  # type: ignore[arg-type]
    acked(bound, BACK, 2)
    assert outcomes(bound) == ["ok", "ok"]
    assert len(bound.links.all) == 1


def test_what_comes_back_to_a_log_that_may_have_it_goes_on_there_under_its_number(
    bound: Script,
) -> None:
    assert bound.publish("free") == [1]
    assert bound.publish("once") == [2]
    killed(bound)
    assert sent(accepted(bound, X2)) == [1]
    assert opened(bound.assign(BACK, 3)).epoch == 1
    assert sent(says(bound, BACK, 1, 2)) == [1, 2]
    assert outcomes(bound) == ["", ""]
    acked(bound, BACK, 2)
    assert outcomes(bound) == ["ok", "ok"]
    bound.links.check()


def test_what_a_power_cut_has_taken_and_was_sent_again_goes_nowhere_else_either() -> None:
    script = Script()
    script.links.bound.topics.add("once")
    script.assign()
    script.accept(durable=True, ahead=True)
    script.publish("once")
    script.publish("free")
    script.ack(2)
    script.lost("power cut")
    assert sent(script.accept(durable=True, ahead=True)) == [1, 2]
    killed(script)
    assert sent(accepted(script, X2)) == [1], "what may be in two logs"
    assert len(script.links.all) == 1


def test_who_is_assigned_an_exchange_that_it_was_about_to_open_goes_on_under_that_epoch(
    bound: Script,
) -> None:
    bound.publish("free")
    bound.lost("killed")
    bound.lost("refused")
    assert opened(relocate(bound, 2, X1)).epoch == 2
    assert opened(bound.assign(X1, 3)).epoch == 2, "a lower one is passed when its Hello comes"
    assert len(bound.links.all) == 1
    assert sent(bound.accept(durable=True)) == [1]


def test_an_exchange_that_is_away_is_asked_again_and_no_other_is_looked_for(bound: Script) -> None:
    bound.publish("once")
    killed(bound)
    accepted(bound, X2)
    bound.feed(Serving((BACK, X2)))
    effects = bound.feed(ConnectionLost(link_at(bound, BACK), "refused"))
    assert not any(isinstance(effect, AskAttach) for effect in effects)
    assert bound.links.ready
    deadline = bound.links.next_deadline()
    assert deadline == bound.now + AGAIN_SECONDS
    bound.now = deadline
    assert opened(bound.feed(Tick())).epoch == 1


def test_while_it_is_asked_another_exchange_can_be_lost_and_found(bound: Script) -> None:
    bound.publish("once")
    killed(bound)
    accepted(bound, X2)
    bound.feed(Serving((BACK, X2)))
    at_x2 = link_at(bound, X2)
    bound.feed(ConnectionLost(at_x2, "killed"))
    bound.feed(ConnectionLost(at_x2, "refused"))
    assert not bound.links.ready
    assert bound.links.detached


@pytest.mark.parametrize("code", ["moved", "stale_epoch"])
def test_an_exchange_that_has_passed_this_link_leaves_it_unknown(bound: Script, code: str) -> None:
    bound.publish("once")
    killed(bound)
    accepted(bound, X2)
    bound.feed(Serving((BACK, X2)))
    refused = documents.encode(channel.Refused(code=code, text="no"))
    bound.links.receive(link_at(bound, BACK), [channel.REFUSED, refused], bound.now)
    assert outcomes(bound) == ["unknown"]
    assert len(bound.links.all) == 1


def test_a_planned_move_waits_longer_for_what_must_not_be_in_two_logs(bound: Script) -> None:
    bound.publish("once")
    relocate(bound, 2, X2)
    accepted(bound, X2)
    bound.publish("once")
    bound.now += DRAIN_SECONDS
    assert bound.feed(Tick()) == []
    effects = acked(bound, X1, 1)
    assert told(effects).accepted
    assert sent(effects) == [1]


def test_a_planned_move_that_is_over_leaves_it_where_it_is(bound: Script) -> None:
    bound.publish("once")
    relocate(bound, 2, X2)
    accepted(bound, X2)
    bound.publish("once")
    bound.now += DRAIN_BOUND_SECONDS
    effects = bound.feed(Tick())
    assert told(effects).accepted
    assert not any(isinstance(effect, Drop) for effect in effects), "it is still listened to"
    assert sent(effects) == [1]
    effects = acked(bound, X1, 1)
    assert [type(effect) for effect in effects] == [Drop]
    assert outcomes(bound) == ["ok", ""]


def test_a_planned_move_is_as_short_as_ever_for_everything_else(bound: Script) -> None:
    bound.publish("again")
    relocate(bound, 2, X2)
    accepted(bound, X2)
    bound.now += DRAIN_SECONDS
    assert sent(bound.feed(Tick())) == [1]


def test_more_exchanges_than_are_waited_for_leave_the_oldest_unknown(bound: Script) -> None:
    for turn in range(LINKS_MAX + 1):
        here = structs.replace(X2, number=10 + turn)
        bound.assign(here, 2 + turn)
        says(bound, here, 1)
        bound.publish("once")
    bound.assign(X1, 2 + LINKS_MAX + 1)
    assert outcomes(bound) == ["unknown", *[""] * LINKS_MAX]
    bound.feed(Tick())
    assert len(bound.links.all) == LINKS_MAX + 1


def test_who_leaves_waits_for_nothing(bound: Script) -> None:
    bound.publish("once")
    killed(bound)
    bound.feed(Leave("closed"))
    assert outcomes(bound) == ["unknown"]


# --- delayed messages -----------------------------------------------------------------------------


@pytest.mark.parametrize("there", [True, False])
def test_a_delayed_message_waits_for_the_exchange_that_may_have_it(
    bound: Script, there: bool
) -> None:
    bound.publish("again")
    bound.publish(LATER)
    bound.publish("again")
    killed(bound)
    assert sent(accepted(bound, X2)) == [1, 2], "all others go where they can"
    acked(bound, X2, 2)
    bound.now += PATIENCE_SECONDS / 2
    bound.feed(Tick())
    assert outcomes(bound) == ["ok", "", "ok"]
    assert back(bound, 3 if there else 1) == ([] if there else [1])
    if not there:
        acked(bound, BACK, 1)
    bound.feed(Tick())
    assert outcomes(bound) == ["ok"] * 3
    assert bound.receipts[1].status is not None
    assert bound.receipts[1].status.log == X1.log
    assert len(bound.links.all) == 1


def test_a_delayed_message_whose_exchange_stays_away_goes_to_another_one(bound: Script) -> None:
    bound.publish(LATER)
    bound.publish("once")
    killed(bound)
    assert sent(accepted(bound, X2)) == []
    deadline = bound.links.next_deadline()
    assert deadline == bound.now + PATIENCE_SECONDS
    bound.now = deadline
    assert sent(bound.feed(Tick())) == [1]
    assert link_at(bound, X2) == bound.links.chooser.links[0].number
    acked(bound, X2, 1)
    assert outcomes(bound) == ["ok", ""], "what must not be begun twice waits on"
    assert bound.links.next_deadline() == bound.now - PATIENCE_SECONDS + 20.0
    assert back(bound, 1) == [1]
    acked(bound, BACK, 1)
    bound.feed(Tick())
    assert outcomes(bound) == ["ok", "ok"]


def test_half_messages_of_transactions_go_to_no_other_exchange_however_long_theirs_stays_away(
    bound: Script,
) -> None:
    bound.links.bound.topics.add(LATER)
    bound.publish(LATER)
    killed(bound)
    assert sent(accepted(bound, X2)) == []
    bound.now += PATIENCE_SECONDS
    assert sent(bound.feed(Tick())) == []
    assert back(bound, 1) == [1]
    acked(bound, BACK, 1)
    assert outcomes(bound) == ["ok"]


def test_a_delayed_message_that_another_link_has_passed_goes_elsewhere_at_once(
    bound: Script,
) -> None:
    bound.publish(LATER)
    killed(bound)
    accepted(bound, X2)
    bound.feed(Serving((BACK, X2)))
    refused = channel.Refused(code="stale_epoch", text="a newer link is here")
    link = link_at(bound, BACK)
    effects = bound.feed(Received(link, [channel.REFUSED, documents.encode(refused)]))
    assert sent(effects) == [1]
    acked(bound, X2, 1)
    assert outcomes(bound) == ["ok"]


def test_no_move_passes_a_link_that_has_to_go_on(bound: Script) -> None:
    bound.publish(LATER)
    killed(bound)
    accepted(bound, X2)
    assert not told(relocate(bound, 5, BACK)).accepted
    assert back(bound, 2) == []
    bound.feed(Tick())
    assert outcomes(bound) == ["ok"]
    assert opened(relocate(bound, 6, BACK)).epoch == 6, "now it is over"


def test_a_delayed_message_goes_to_another_exchange_well_before_its_time_is_over() -> None:
    script = Script(delivery_seconds=4.0)
    script.assign()
    script.accept(durable=True)
    script.publish(LATER)
    killed(script)
    accepted(script, X2)
    script.now += 1.0
    assert sent(script.feed(Tick())) == [1]


def test_while_its_exchange_is_there_a_delayed_message_goes_nowhere_else(bound: Script) -> None:
    bound.publish(LATER)
    killed(bound)
    accepted(bound, X2)
    bound.now += PATIENCE_SECONDS - 0.5
    assert back(bound, 1) == [1]
    bound.now += 1.0
    assert sent(bound.feed(Tick())) == []
    lost = ConnectionLost(link_at(bound, BACK), "killed again")
    assert sent(bound.feed(lost)) == [1], "it has had its time"


GONE = [
    pytest.param(Serving((X2,), logs=frozenset({2})), id="removed with its log"),
    pytest.param(
        Serving((structs.replace(BACK, generation=9), X2), logs=frozenset({1, 2})),
        id="its number has another log",
    ),
]
STAYS = [
    pytest.param(Serving((X2,), logs=frozenset({1, 2})), id="it comes back"),
    pytest.param(Serving((X2,)), id="that is not known"),
]


@pytest.mark.parametrize("news", GONE)
@pytest.mark.parametrize("first", [True, False], ids=["heard before it is left", "afterwards"])
def test_what_an_exchange_may_have_that_is_gone_with_its_log_is_unknown_at_once(
    bound: Script, news: Serving, first: bool
) -> None:
    bound.feed(Serving((X1, X2), logs=frozenset({1, 2})))
    bound.publish("once")
    bound.lost("killed")
    bound.lost("refused")
    if first:
        bound.feed(news)
    bound.assign(X2, 2)
    if not first:
        assert outcomes(bound) == [""]
        bound.feed(news)
    (receipt,) = bound.receipts
    assert receipt.status is not None
    assert receipt.status.outcome is Outcome.UNKNOWN
    assert "x1 is gone with its log, and may have had it" in receipt.status.reason
    assert [link.exchange for link in bound.links.all] == [X2]


@pytest.mark.parametrize("news", STAYS)
def test_what_an_exchange_may_have_that_may_come_back_is_waited_for(
    bound: Script, news: Serving
) -> None:
    bound.feed(Serving((X1, X2), logs=frozenset({1, 2})))
    bound.publish("once")
    killed(bound)
    bound.feed(news)
    assert outcomes(bound) == [""]


def test_an_exchange_that_no_topology_has_named_yet_is_waited_for(bound: Script) -> None:
    bound.publish("once")
    killed(bound)
    bound.feed(Serving((X2,), logs=frozenset({2})))
    assert outcomes(bound) == [""]


def test_a_delayed_message_of_a_log_that_is_gone_goes_to_another_one(bound: Script) -> None:
    bound.feed(Serving((X1, X2), logs=frozenset({1, 2})))
    bound.publish(LATER)
    killed(bound)
    accepted(bound, X2)
    assert sent(bound.feed(Serving((X2,), logs=frozenset({2})))) == [1]


def test_a_delayed_request_that_must_not_be_begun_twice_goes_to_no_other(bound: Script) -> None:
    bound.links.bound.topics.add(LATER)
    bound.publish(LATER)
    killed(bound)
    accepted(bound, X2)
    bound.now += 2 * PATIENCE_SECONDS
    assert sent(bound.feed(Tick())) == []
    assert outcomes(bound) == [""]


def test_a_void_in_place_of_a_spare_one_says_nothing_of_what_others_send(bound: Script) -> None:
    for topic in ("t", "once"):
        bound.publish(topic)
    killed(bound)
    accepted(bound, X2)
    assert back(bound, expected=1, taken=1) == [1, 2]
    refused = channel.Refused(code="malformed", text="no", link_number=1)
    body = documents.encode(refused)
    bound.links.receive(link_at(bound, BACK), [channel.REFUSED, body], bound.now)
    acked(bound, BACK, 2)
    assert outcomes(bound) == ["", "ok"]
    acked(bound, X2, 1)
    assert outcomes(bound) == ["ok", "ok"]
    status = bound.receipts[0].status
    assert status is not None
    assert status.log == X2.log


def test_a_striped_publisher_that_is_assigned_one_of_its_exchanges_goes_on_there(
    bound: Script,
) -> None:
    relocate(bound, 2, X1, X2)
    says(bound, X2, 1)
    for _ in range(2):
        bound.publish("once")
    assert opened(bound.assign(X2, 3)).epoch == 2, "a newer link would pass it"
    assert sent(says(bound, X2, 1, taken=1)) == [1]
    acked(bound, X2, 1)
    acked(bound, X1, 1)
    assert outcomes(bound) == ["ok", "ok"]
