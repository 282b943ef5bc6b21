"""Which exchanges a publisher has links to, and what becomes of what they hold."""

from __future__ import annotations

import pytest
from msgspec import structs
from publisher_script import X1, X2, Script, from_link, opened, sent

from roq.client.publish.events import AskAttach, Elsewhere, Leave, Serving
from roq.client.publish.latency import LatencyBook
from roq.client.publish.link import Drop, Transmit
from roq.client.publish.receipt import Outcome
from roq.machine import Tick
from roq.model import ExchangeInfo
from roq.protocol import batch as wire
from roq.protocol import channel
from roq.runtime.backoff import MOST_SECONDS


def test_an_assignment_opens_a_connection_with_a_hello() -> None:
    script = Script()
    hello = opened(script.assign())
    assert (hello.epoch, hello.attempt, hello.queue) == (1, 1, b"q" * 16)
    assert hello.streams == []
    assert not script.links.detached
    assert not script.links.ready


def test_an_exchange_that_cannot_be_reached_is_reported_as_failed() -> None:
    script = Script()
    script.assign()
    effects = script.lost("refused")
    assert effects == [Drop(2), AskAttach(((1, 5),))]
    assert script.links.detached
    assert "refused" in script.links.reason


@pytest.mark.parametrize("durable", [True, False])
def test_at_a_durable_log_that_is_assigned_again_it_goes_on_under_its_numbers(
    durable: bool,
) -> None:
    script = Script()
    script.assign()
    script.accept(durable=durable)
    assert [script.publish(), script.publish()] == [[1], [2]]
    script.lost("killed")
    script.lost("refused")
    later = structs.replace(X1, epoch=9, data="tcp://h:9")
    hello = opened(script.assign(later, 2))
    assert hello.epoch == (1 if durable else 2)
    if not durable:
        return
    # The log has the first one, whose acknowledgement died with the process.
    assert sent(script.accept(expected=2, exchange=later, durable=True)) == [2]
    assert [receipt.done() for receipt in script.receipts] == [True, False]
    assert script.publish() == [3]


def test_the_second_failure_in_a_row_waits_before_it_asks_again() -> None:
    script = Script()
    script.assign()
    script.lost("refused")
    script.assign(X2, 2)
    assert script.lost("refused") == [Drop(3)]
    deadline = script.links.next_deadline()
    assert deadline is not None
    script.now = deadline
    assert script.feed(Tick()) == [AskAttach(((2, 8),))]


def test_what_a_dead_exchange_had_acknowledged_is_kept_until_another_is_found(
    ready: Script,
) -> None:
    ready.publish()
    ready.ack(1)
    ready.lost("killed")
    for _ in range(20):
        ready.now += 1.0
        ready.feed(Tick())
    ready.assign(X2, epoch=2)
    assert sent(ready.accept(exchange=X2)) == [1]


def test_a_forgotten_link_is_over_and_the_next_one_has_a_higher_epoch(ready: Script) -> None:
    ready.publish()
    ready.publish()
    ready.ack(1)
    ready.lost("cut")
    assert AskAttach(((1, 5),)) in ready.accept(expected=1)
    assert ready.links.tally.forgotten == 1
    assert opened(ready.assign(epoch=2)).epoch == 2
    assert sent(ready.accept(expected=1)) == [1]
    ready.ack(1)
    assert all(receipt.done() for receipt in ready.receipts)


@pytest.mark.parametrize("said", ["refused", "nothing known", "too much known"])
def test_what_is_bound_to_a_link_that_a_log_has_forgotten_is_not_sent_into_it_again(
    said: str,
) -> None:
    script = Script()
    script.links.bound.topics.add("r")
    script.assign()
    script.accept(durable=True)
    for topic in ("t", "r", "t"):
        script.publish(topic)
    script.ack(1)
    script.lost("cut")
    if said == "refused":
        refused = channel.Refused(code="forgotten", text="a crowd came by")
        effects = script.says(channel.REFUSED, refused)
    else:
        effects = script.accept(1 if said == "nothing known" else 9, durable=True)
    assert AskAttach(((1, 5),)) in effects
    assert opened(script.assign(epoch=2)).epoch == 2
    assert sent(script.accept(durable=True)) == [1]
    script.ack(1)
    outcomes = [each.status and each.status.outcome for each in script.receipts]
    assert outcomes == [Outcome.OK, Outcome.UNKNOWN, Outcome.OK]


@pytest.mark.parametrize("code", ["stale_epoch", "moved", "full", "foreign_queue", "version"])
def test_a_refused_link_asks_for_another_exchange(ready: Script, code: str) -> None:
    effects = ready.says(channel.REFUSED, channel.Refused(code=code, text="no"))
    assert AskAttach(((1, 5),)) in effects
    assert code in ready.links.reason


def test_a_lost_exchange_has_what_it_acknowledged_replayed_at_the_next(ready: Script) -> None:
    ready.publish()
    ready.ack(1)
    ready.lost("killed")
    ready.lost("refused")
    assert opened(ready.assign(X2, 2)).streams[0].first == 0
    assert sent(ready.accept(exchange=X2)) == [1]


@pytest.mark.parametrize("code", ["moved", "full"])
def test_an_exchange_that_goes_on_has_nothing_replayed_elsewhere(ready: Script, code: str) -> None:
    ready.publish()
    ready.ack(1)
    ready.says(channel.REFUSED, channel.Refused(code=code, text="no"))
    assert opened(ready.assign(X2, 2)).streams[0].first == 1
    assert sent(ready.accept(exchange=X2)) == []


def test_a_planned_move_replays_only_what_is_not_acknowledged(ready: Script) -> None:
    ready.publish()
    ready.publish()
    ready.ack(1)
    ready.assign(X2, 2)
    assert sent(ready.accept(exchange=X2)) == [1]
    assert ready.links.tally.replayed_batches == 1


def test_an_assignment_that_was_overtaken_is_ignored(ready: Script) -> None:
    assert ready.assign(X2, 1) == []
    assert ready.links.exchanges == (X1,)


def test_an_exchange_that_left_the_topology_is_given_up_unless_it_works(ready: Script) -> None:
    assert ready.feed(Serving((X2,))) == []
    assert AskAttach(((1, 5),)) in ready.lost("cut")


def test_an_exchange_that_subscribers_do_not_read_is_left_although_it_works(ready: Script) -> None:
    ready.feed(Serving((X2,)))
    ready.publish()
    ready.ack(1)
    ready.now += 2.9
    assert ready.feed(Tick()) == []
    ready.now += 0.2
    assert AskAttach(((1, 5),)) in ready.feed(Tick())
    ready.assign(X2, 2)
    assert sent(ready.accept(exchange=X2)) == [1]


@pytest.mark.parametrize("back", [(X1, X2), ()])
def test_an_exchange_that_works_is_kept_if_it_comes_back_or_there_is_no_other(
    ready: Script, back: tuple[ExchangeInfo, ...]
) -> None:
    ready.feed(Serving((X2,)))
    ready.now += 1.0
    ready.feed(Serving(back))
    ready.now += 5.0
    assert ready.feed(Tick()) == []
    assert ready.links.exchanges == (X1,)


def test_a_log_of_another_generation_at_the_same_number_is_another_log(ready: Script) -> None:
    ready.publish()
    effects = ready.feed(Serving((structs.replace(X1, epoch=9, generation=9),)))
    assert effects == []  # the link works; it is watched, as its exchange is not counted any more
    ready.now += 5.0
    assert AskAttach(((1, 5),)) in ready.feed(Tick())


def test_what_is_not_acknowledged_in_time_is_given_up(ready: Script) -> None:
    ready.publish()
    ready.now += 20.0
    ready.feed(Tick())
    status = ready.receipts[0].status
    assert status is not None
    assert status.outcome is Outcome.UNKNOWN
    assert "20 s" in status.reason


def test_a_status_names_the_exchange(ready: Script) -> None:
    ready.publish()
    ready.ack(1)
    status = ready.receipts[0].status
    assert status is not None
    assert (status.exchange, status.exchange_epoch, status.ok) == ("x1", 5, True)


def test_leaving_says_bye_and_settles_everything(ready: Script) -> None:
    ready.publish()
    effects = ready.feed(Leave("closed"))
    assert isinstance(effects[0], Drop)
    assert effects[0].bye[0] == channel.BYE
    assert ready.receipts[0].done()
    assert ready.assign(X2, 9) == []
    assert ready.links.next_deadline() is None


def test_publishers_that_lose_their_exchange_at_the_same_time_ask_at_different_ones() -> None:
    waits = set()
    for jitter in (0.1, 0.5, 0.9):
        script = Script(lambda jitter=jitter: jitter)
        script.assign()
        assert AskAttach(((1, 5),)) in script.lost("refused")
        script.assign(X2, 2)
        assert AskAttach(((2, 8),)) not in script.lost("refused")
        wake = script.links.next_deadline()
        assert wake is not None
        waits.add(wake - script.now)
    assert len(waits) == 3


def test_asking_for_an_exchange_is_tried_for_ever_with_bounded_waits() -> None:
    script = Script(lambda: 0.999)
    for epoch in range(1, 30):
        script.assign(epoch=epoch)
        if AskAttach(((1, 5),)) in script.lost("refused"):
            continue
        wake = script.links.next_deadline()
        assert wake is not None
        assert wake - script.now <= MOST_SECONDS
        script.now = wake
        assert AskAttach(((1, 5),)) in script.feed(Tick())


def test_receipts_tell_offsets_where_they_were_asked_for() -> None:
    script = Script(offsets=True)
    assert opened(script.assign()).places == 1
    script.accept()
    for _ in range(4):
        script.publish()
    body = channel.NUMBER.pack(3) + channel.pack_runs([(1, 40, 2), (3, 90, 7)])
    from_link(script, script.link, channel.ACK, body)
    statuses = [receipt.status for receipt in script.receipts[:3]]
    assert [status and status.offset for status in statuses] == [40, 41, 90]
    assert [status and (status.log, status.stored) for status in statuses] == [(X1.log, True)] * 3
    assert not script.receipts[3].done(), "a run that is too long acknowledges nothing"
    hello = opened(script.lost("cut"))
    assert hello.places == 4
    script.accept(expected=5, places=[(4, 95, 1)])
    status = script.receipts[3].status
    assert status is not None
    assert (status.ok, status.offset) == (True, 95)


def test_what_waits_is_tried_at_another_exchange_under_its_sequence(ready: Script) -> None:
    ready.publish()
    ready.publish()
    effects = ready.feed(Elsewhere("a message waits"))
    assert effects == [Drop(2), AskAttach(((1, 5),))]
    ready.assign(X2, 2)
    effects = ready.accept(exchange=X2)
    assert sent(effects) == [1, 2]
    firsts = [
        wire.read_header(sealed.data).first_sequence
        for effect in effects
        if isinstance(effect, Transmit)
        for sealed in effect.batches
    ]
    assert firsts == [0, 1], "the same messages, and no copies of them"


def test_an_exchange_that_owes_nothing_is_not_left_unless_it_is_named(ready: Script) -> None:
    assert ready.feed(Elsewhere("a message waits")) == []
    assert ready.feed(Elsewhere("too many topics", "x2")) == []
    assert ready.feed(Elsewhere("too many topics", "x1")) == [Drop(2), AskAttach(((1, 5),))]


def slow_exchange() -> Script:
    script = Script(latency=LatencyBook(0.1))
    script.feed(Serving((X1, X2)))
    script.assign()
    script.accept()
    return script


def test_an_exchange_that_acknowledges_too_slowly_is_left_and_named() -> None:
    script = slow_exchange()
    for number in range(1, 4):
        script.publish()
        script.now += 0.2
        effects = script.ack(number)
    assert effects == [Drop(2), AskAttach(((1, 5),))]
    assert "0.20 s" in script.links.reason
    script.assign(X2, 2)
    script.accept(exchange=X2)
    script.lost("cut")
    script.lost("refused")
    script.now += 1.0  # the second failure in a row waits before it asks
    assert script.feed(Tick()) == [AskAttach(((2, 8), (1, 5)))]


def test_one_that_says_nothing_is_left_as_well_but_not_one_that_is_held_back() -> None:
    script = slow_exchange()
    script.publish()
    held = channel.Held(reader=b"r" * 16, seconds=1, most=10)
    script.says(channel.HELD, held)
    script.now += 0.5
    assert script.feed(Tick()) == []
    script.ack(1)
    script.publish()
    for _ in range(4):
        script.now += 0.2
        assert script.feed(Tick()) == []
    script.now += 0.2
    assert script.feed(Tick()) == [Drop(2), AskAttach(((1, 5),))], "ten times too long"


def test_one_acknowledgement_that_is_slow_counts_once_however_often_it_was_looked_for() -> None:
    script = slow_exchange()
    for number in (1, 2):
        script.publish()
        for _ in range(4):
            script.now += 0.1
            assert script.feed(Tick()) == []
        assert script.ack(number) == []
    script.publish()
    script.now += 0.05
    assert script.feed(Tick()) == [], "young, and not yet quick"
    script.now += 0.1
    assert script.ack(3) == [Drop(2), AskAttach(((1, 5),))], "the third one"


def test_the_only_exchange_is_used_however_slow_it_is() -> None:
    script = slow_exchange()
    script.feed(Serving((X1,)))
    for number in range(1, 9):
        script.publish()
        script.now += 0.5
        assert script.ack(number) == []
