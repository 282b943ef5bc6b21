"""How a publisher goes to another exchange by order of the monitor, whatever fails meanwhile."""

from __future__ import annotations

import pytest
from publisher_script import (
    X1,
    X2,
    X3,
    Script,
    accepted,
    acked,
    from_link,
    link_at,
    opened,
    places,
    relocate,
    told,
)

from roq.client.publish.events import AskAttach, ConnectionLost, Serving, TellRelocated
from roq.client.publish.link import READY_SECONDS, Drop, Say
from roq.client.publish.relocation import DRAIN_SECONDS, PublishedLogs
from roq.machine import Tick
from roq.model import NO_LOG, LogId
from roq.protocol import channel, documents
from roq.protocol.batch import LOGS_MAX


def test_a_move_opens_its_target_first_and_goes_on_at_the_old_exchange(ready: Script) -> None:
    hello = opened(relocate(ready, 2, X2))
    assert hello.epoch == 2
    ready.publish()
    assert ready.links.exchanges == (X1,)
    assert len(ready.links.all[0].window) == 1
    assert not ready.links.pausing


def test_a_move_switches_when_the_old_exchange_has_acknowledged_everything(ready: Script) -> None:
    ready.publish()
    relocate(ready, 2, X2)
    assert accepted(ready, X2) == []
    assert ready.links.pausing
    assert ready.publish() == [], "it waits for the old exchange"
    ready.now += 0.01
    effects = acked(ready, X1, 1)
    drop = next(effect for effect in effects if isinstance(effect, Drop))
    assert documents.decode(drop.bye[1], channel.Bye).epoch == 2
    assert places(effects) == [(link_at(ready, X2), 1)]
    answer = told(effects)
    assert (answer.epoch, answer.accepted, answer.pause_us) == (2, True, 10_000)
    assert (ready.links.exchanges, ready.links.epoch, ready.links.at) == ((X2,), 2, [(2, 8)])
    assert ready.links.tally.replayed_batches == 0


def test_an_idle_publisher_moves_without_a_pause(ready: Script) -> None:
    relocate(ready, 2, X2)
    assert told(accepted(ready, X2)).pause_us == 0


def test_the_target_hears_of_the_streams_that_have_moved_on_since_its_hello(ready: Script) -> None:
    ready.publish("old")
    ready.ack(1)
    relocate(ready, 2, X2)
    ready.publish("new")
    acked(ready, X1, 2)
    say = next(effect for effect in accepted(ready, X2) if isinstance(effect, Say))
    hello = documents.decode(say.frames[1], channel.Hello)
    assert [(state.topic, state.first) for state in hello.streams] == [(b"new", 1)]


def test_what_the_old_exchange_does_not_acknowledge_in_time_goes_first(ready: Script) -> None:
    ready.publish()
    relocate(ready, 2, X2)
    accepted(ready, X2)
    ready.publish()
    ready.now += DRAIN_SECONDS
    effects = ready.feed(Tick())
    assert places(effects) == [(link_at(ready, X2), 0), (link_at(ready, X2), 1)]
    assert told(effects).accepted


@pytest.mark.parametrize("how", ["refused", "unreachable", "silent"])
def test_a_target_that_cannot_be_used_changes_nothing(ready: Script, how: str) -> None:
    ready.publish()
    relocate(ready, 2, X2)
    link = link_at(ready, X2)
    if how == "refused":
        refused = channel.Refused(code="full", text="no")
        effects = from_link(ready, link, channel.REFUSED, documents.encode(refused))
    elif how == "unreachable":
        effects = ready.feed(ConnectionLost(link, "refused"))
    else:
        ready.now += READY_SECONDS
        effects = ready.feed(Tick())
    answer = told(effects)
    assert (answer.accepted, answer.failed) == (False, ((2, 8),))
    assert not any(isinstance(effect, AskAttach) for effect in effects)
    assert (ready.links.exchanges, ready.links.epoch) == ((X1,), 1)
    acked(ready, X1, 1)
    assert ready.publish() == [2]


def test_a_target_that_dies_while_the_old_exchange_drains_gives_back_what_it_collected(
    ready: Script,
) -> None:
    ready.publish()
    relocate(ready, 2, X2)
    accepted(ready, X2)
    ready.publish()
    effects = ready.feed(ConnectionLost(link_at(ready, X2), "killed"))
    assert not told(effects).accepted
    assert places(effects) == [(link_at(ready, X1), 1)]
    acked(ready, X1, 2)
    assert all(receipt.done() for receipt in ready.receipts)


def test_an_old_exchange_that_dies_while_it_drains_does_not_stop_the_move(ready: Script) -> None:
    ready.publish()
    ready.ack(1)
    ready.publish()
    relocate(ready, 2, X2)
    accepted(ready, X2)
    ready.publish()
    effects = ready.feed(ConnectionLost(link_at(ready, X1), "killed"))
    link = link_at(ready, X2)
    assert places(effects) == [(link, 0), (link, 1), (link, 2)], "what it had acknowledged as well"
    assert told(effects).accepted


def test_an_old_exchange_that_dies_before_the_target_is_ready_is_not_asked_about(
    ready: Script,
) -> None:
    ready.publish()
    relocate(ready, 2, X2)
    old = link_at(ready, X1)
    ready.feed(ConnectionLost(old, "killed"))
    assert not any(isinstance(e, AskAttach) for e in ready.feed(ConnectionLost(old, "refused")))
    effects = accepted(ready, X2)
    assert places(effects) == [(link_at(ready, X2), 0)]
    assert told(effects).accepted


def test_when_both_are_gone_the_monitor_is_asked(ready: Script) -> None:
    relocate(ready, 2, X2)
    old = link_at(ready, X1)
    ready.feed(ConnectionLost(old, "killed"))
    ready.feed(ConnectionLost(old, "refused"))
    effects = ready.feed(ConnectionLost(link_at(ready, X2), "refused"))
    assert not told(effects).accepted
    assert AskAttach(((1, 5), (2, 8))) in effects


def test_a_repeated_relocate_is_answered_the_same_and_an_older_one_not_at_all(
    ready: Script,
) -> None:
    relocate(ready, 3, X2)
    assert relocate(ready, 3, X2) == [], "it is under way"
    answer = told(accepted(ready, X2))
    assert relocate(ready, 3, X2) == [answer]
    assert relocate(ready, 2, X3) == []
    assert ready.links.exchanges == (X2,)


def test_of_two_relocations_the_higher_epoch_wins(ready: Script) -> None:
    relocate(ready, 2, X2)
    relocate(ready, 3, X3)
    assert {link.exchange for link in ready.links.all} == {X1, X3}
    assert told(accepted(ready, X3)).epoch == 3
    assert ready.links.exchanges == (X3,)


def test_a_relocation_that_comes_while_another_drains_follows_it(ready: Script) -> None:
    ready.publish()
    relocate(ready, 2, X2)
    accepted(ready, X2)
    assert relocate(ready, 3, X3) == []
    effects = acked(ready, X1, 1)
    assert told(effects).epoch == 2
    assert opened(effects).epoch == 3
    assert told(accepted(ready, X3)).epoch == 3
    assert ready.links.exchanges == (X3,)


def test_a_relocation_to_where_it_is_already_is_accepted_at_once(ready: Script) -> None:
    effects = relocate(ready, 2, X1)
    assert effects == [TellRelocated(2, accepted=True)]
    assert ready.links.epoch == 2
    assert ready.publish() == [1]


def test_a_relocation_to_nowhere_fails(ready: Script) -> None:
    assert not told(relocate(ready, 2)).accepted
    assert ready.links.ready


def test_a_detached_publisher_is_relocated_as_well() -> None:
    script = Script()
    script.assign()
    script.lost("refused")
    script.publish()
    relocate(script, 2, X2)
    effects = accepted(script, X2)
    assert places(effects) == [(link_at(script, X2), 0)]
    assert script.assign(X3, 1) == [], "the answer was overtaken"


def test_an_assignment_ends_a_relocation(ready: Script) -> None:
    ready.publish()
    relocate(ready, 2, X2)
    accepted(ready, X2)
    ready.publish()
    ready.assign(X3, 3)
    assert places(accepted(ready, X3)) == [(link_at(ready, X3), 0), (link_at(ready, X3), 1)]
    assert len(ready.links.all) == 1


def test_an_exchange_that_was_left_and_is_gone_has_its_last_batches_replayed(
    ready: Script,
) -> None:
    ready.publish()
    ready.ack(1)
    relocate(ready, 2, X2)
    accepted(ready, X2)
    ready.now += 5.0
    both, one = (X1, X2), (X2,)
    assert ready.feed(Serving(both)) == []
    assert places(ready.feed(Serving(one))) == [(link_at(ready, X2), 0)]
    assert ready.feed(Serving(one)) == []


def test_an_exchange_that_was_left_may_die_with_the_monitor_for_however_long(
    ready: Script,
) -> None:
    ready.publish()
    ready.ack(1)
    ready.feed(Serving((X1, X2)))
    relocate(ready, 2, X2)
    accepted(ready, X2)
    ready.now += 60.0
    assert ready.feed(Tick()) == []
    assert places(ready.feed(Serving((X2,)))) == [(link_at(ready, X2), 0)]


def test_an_exchange_that_was_emptied_and_is_gone_has_nothing_replayed(ready: Script) -> None:
    ready.publish()
    ready.ack(1)
    relocate(ready, 2, X2)
    accepted(ready, X2)
    ready.now += 5.0
    one, emptied = (X2,), frozenset({X1.log})
    assert ready.feed(Serving(one, emptied)) == []
    assert ready.feed(Serving(one)) == []


def test_an_exchange_that_was_gone_before_it_was_left_has_its_batches_replayed(
    ready: Script,
) -> None:
    ready.publish()
    ready.ack(1)
    relocate(ready, 2, X2)
    ready.feed(Serving((X2,)))
    effects = accepted(ready, X2)
    assert places(effects) == [(link_at(ready, X2), 0)]


def test_an_exchange_that_was_never_counted_is_not_trusted_after_it_was_left(
    ready: Script,
) -> None:
    ready.feed(Serving((X1,)))
    relocate(ready, 2, X2)
    accepted(ready, X2)
    ready.publish()
    acked(ready, X2, 1)
    relocate(ready, 3, X1)
    assert places(accepted(ready, X1)) == [(link_at(ready, X1), 0)]


def test_a_relocation_that_waits_for_another_follows_its_failure_as_well(ready: Script) -> None:
    ready.publish()
    relocate(ready, 2, X2)
    accepted(ready, X2)
    relocate(ready, 3, X3)
    effects = ready.feed(ConnectionLost(link_at(ready, X2), "killed"))
    assert not told(effects).accepted
    assert opened(effects).epoch == 3


def test_who_has_published_nowhere_names_nothing() -> None:
    assert opened(Script().assign()).logs == []


def test_who_is_moved_names_where_it_was(ready: Script) -> None:
    ready.publish()
    ready.ack(1)
    assert opened(relocate(ready, 2, X2)).logs == [X1.log]


def test_who_was_assigned_and_never_heard_names_nothing() -> None:
    script = Script()
    script.assign()
    script.publish()
    assert opened(script.assign(X2, epoch=2)).logs == []


def test_where_it_has_sent_since_the_hello_it_says_before_it_sends_more() -> None:
    script = Script()
    script.assign()
    script.publish()
    assert opened(relocate(script, 2, X2)).logs == []
    accepted(script, X1)
    accepted(script, X2)
    (said,) = (each for each in acked(script, X1, 1) if isinstance(each, Say))
    assert documents.decode(said.frames[1], channel.Hello).logs == [X1.log]


def test_the_newest_are_named_and_none_twice() -> None:
    made = PublishedLogs()
    made.resume([NO_LOG, *(LogId(number, 1) for number in range(1, LOGS_MAX + 3)), LogId(4, 1)])
    named = made.before([], LogId(9, 1))
    assert len(named) == len(set(named)) == LOGS_MAX - 1
    assert named[-1] == LogId(4, 1)
    assert LogId(1, 1) not in named
    assert not made.changed
    made.resume([LogId(99, 1)])
    assert made.changed
