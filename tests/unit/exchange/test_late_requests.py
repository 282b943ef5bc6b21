"""Requests that are delayed, and those that run again."""

from __future__ import annotations

from typing import Any

import pytest
from exchange_driver import EPOCH, NUMBER, QUEUE, Exchange, Publisher, exchange
from segmented_log import SegmentedLog
from service_party import Party, pass_time, service

from roq.exchange.machine import ExchangeCore
from roq.model import Limits
from roq.protocol import consuming, documents, requesting
from roq.protocol.channel import REFUSED, Refused
from roq.protocol.consuming import (
    GROUP_ORDER,
    LEAVE,
    GroupOrder,
    LeaveGroup,
)
from roq.protocol.delayed import DELAYED_TOPIC, Delayed, encode_delayed
from roq.protocol.requesting import (
    ATTEND,
    DELAYED_FROM,
    OUTCOMES,
    REVOKED,
    WANT,
    Answer,
    Attend,
    Begun,
    Position,
    RequestState,
    Revoked,
    Want,
    delayed_message,
)

DUE = 7
"""Seconds after which they are due."""


def put_off(publisher: Publisher, *numbers: int, due: float = DUE) -> list[Position]:
    """Requests that are delayed; as what they are known."""
    places = [Position(DELAYED_FROM + number, 0) for number in numbers]
    later = [
        encode_delayed(Delayed(int(due * 1e6), b"s/do", b"x", delayed_message(place) or b""))
        for place in places
    ]
    data = publisher.batch(DELAYED_TOPIC, len(later), payloads=later)
    assert not publisher.exchange.append(publisher.route, DELAYED_TOPIC, data)
    return places


def wait_until(there: Exchange, seconds: float) -> None:
    while there.now < seconds:
        pass_time(there, 0.5)
        there.settle()


def test_a_delayed_request_is_known_before_it_is_due_and_answered_to_who_has_made_it() -> None:
    there, publisher, asker, instance = service()
    first, second = put_off(publisher, 5, 6)
    (view,) = asker.report(offset=first.offset).requests
    assert (view.state, view.offset) == ("delayed", first.offset)
    asker.want(first)
    wait_until(there, DUE - 1)
    instance.look()
    assert (instance.leases, asker.ends()) == ([], []), "nobody has it before"
    wait_until(there, DUE + 1)
    instance.look()
    ((number, at, length, _),) = instance.leases
    assert length == 2
    assert {each.state for each in asker.report().requests} == {"offered"}
    assert {each.offset for each in asker.report().requests} == {first.offset, second.offset}
    instance.done(answers=[Answer(number, at, value=b"1"), Answer(number, at + 1, value=b"2")])
    ends = {(each.offset, each.index): each.value for each in asker.ends()}
    assert ends == {tuple(first): b"1", tuple(second): b"2"}, "once each, asked for or not"
    asker.want(second)
    assert [each.value for each in asker.ends()] == [b"2"], "it is kept by that name"
    asker.want(second, fetched=[(*second, 1)])
    assert [each.state for each in asker.ends()] == ["retrieved"]
    there.core.check()


@pytest.mark.parametrize("late", [False, True])
def test_a_delayed_request_is_cancelled_before_it_is_due_and_while_it_runs(late: bool) -> None:
    there, publisher, asker, instance = service()
    waits, runs = put_off(publisher, 5), put_off(publisher, 6, due=1)
    wait_until(there, 2)
    instance.look()
    ((_, at, _, _),) = instance.leases
    word = "late" if late else "cancelled"
    asker.want(*waits, *runs, **{word: [*waits, *runs]})
    ends = asker.ends()
    assert {(each.offset, each.state) for each in ends} == {
        (waits[0].offset, word), (runs[0].offset, word)
    }  # fmt: skip
    instance.look()
    ((letter, document),) = instance.told
    assert letter == REVOKED
    assert requesting.decode(document, Revoked).requests[0][1] == at
    wait_until(there, DUE + 2)
    instance.look()
    assert len(instance.leases) == 1, "it is not published any more"


def test_a_delayed_request_is_cancelled_when_it_is_due_and_nobody_has_looked_at_it() -> None:
    there, publisher, asker, instance = service()
    (due,) = put_off(publisher, 5, due=1)
    while there.core.delayed.request(delayed_message(due) or b"") is not None:
        pass_time(there, 0.5)
        there.settle()
    asker.want(due, cancelled=[due])
    assert {each.state for each in asker.ends()} == {"cancelled"}
    wait_until(there, there.now + 1)
    instance.look()
    assert instance.leases == []
    there.core.check()


def test_a_delayed_request_that_is_too_late_when_its_service_comes_ends_as_late() -> None:
    there = exchange()
    publisher = Publisher(there)
    publisher.hello()
    (place,) = put_off(publisher, 5, due=1)
    wait_until(there, 2)
    asker, instance = Party(there, "asker"), Party(there, "instance")
    asker.want(place)
    there.now += 120.0
    pass_time(there, 0.5)
    instance.join()
    pass_time(there, 1.0)
    assert instance.leases == []
    assert [(each.offset, each.state) for each in asker.ends()] == [(place.offset, "late")]


def test_what_was_never_delayed_is_not_waited_for_by_name() -> None:
    _, _, asker, _ = service()
    asker.want((DELAYED_FROM + 9, 0))
    assert [each.state for each in asker.ends()] == ["forgotten"]
    assert requesting.delayed_position(b"short") is None
    assert requesting.delayed_position("no hex") is None
    assert requesting.delayed_message(Position(7, 0)) is None


@pytest.mark.parametrize("word", ["cancelled", "late"])
def test_one_message_cancels_only_so_many_delayed_requests(
    word: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    there, _, asker, _ = service()
    looked: list[bytes] = []
    monkeypatch.setattr(there.core.delayed, "withdraw", looked.append)
    asker.want(**{word: [Position(DELAYED_FROM + number, 0) for number in range(1_000)]})
    assert len(looked) == requesting.DELAYED_LOOKS
    assert documents.decode(asker.take(REFUSED), Refused).code == "full"


@pytest.mark.parametrize("due", [1, DUE], ids=["published", "waiting"])
def test_a_delayed_request_outlives_its_exchange(due: float) -> None:
    log: SegmentedLog[bytes] = SegmentedLog(
        QUEUE, NUMBER, EPOCH, capacity_bytes=1 << 20, topics_max=10
    )
    there = exchange(log)
    publisher = Publisher(there)
    publisher.hello()
    Party(there, "asker").say(ATTEND, documents.encode(Attend(id=1, queue=QUEUE, service="s")))
    (place,) = put_off(publisher, 5, due=due)
    wait_until(there, 2)
    core: ExchangeCore[bytes] = ExchangeCore(QUEUE, NUMBER, EPOCH + 1, Limits(), log)
    core.begin(3.0, 3_000_000)
    core.delayed.recover(b"", 0)
    after = Exchange(core, Limits(), now=3.0)
    asker, instance = Party(after, "asker"), Party(after, "instance")
    asker.attend()
    instance.join()
    asker.want(place)
    wait_until(after, DUE + 1 if due == DUE else 3.5)
    instance.look()
    ((number, at, _, _),) = instance.leases
    instance.done(answers=[Answer(number, at, value=b"v")])
    (end,) = asker.ends()
    assert (end.offset, end.value) == (place.offset, b"v")


@pytest.mark.parametrize("asks", [True, False])
def test_what_is_delayed_when_its_service_is_deleted_is_cancelled_and_never_begun(
    asks: bool,
) -> None:
    there, publisher, asker, _ = service()
    (place,) = put_off(publisher, 5)
    if asks:
        asker.want(place)
    order = GroupOrder(id=4, queue=QUEUE, group="s", order="delete")
    asker.say(GROUP_ORDER, documents.encode(order))
    asker.told = [each for each in asker.told if each[0] == OUTCOMES]
    if not asks:
        asker.want(place)
    assert [(each.state, each.text) for each in asker.ends()] == [
        ("cancelled", "an operator has deleted the service")
    ]
    asker.attend()
    assert [each.state for each in asker.report(offset=place.offset).requests] == ["cancelled"]
    late = Party(there, "late")
    late.join()
    wait_until(there, DUE + 1)
    late.look()
    assert late.leases == [], "nor by a service of the same name that comes later"
    assert [each.state for each in asker.ends()] == ["cancelled"], "who has made it is told, too"
    asker.want(place)
    assert [each.state for each in asker.ends()] == ["forgotten"]
    there.core.check()


def test_a_delayed_id_that_nobody_knows_is_said_to_be_unknown_with_its_service_or_without() -> None:
    there, publisher, asker, _ = service()
    unknown = DELAYED_FROM + 9, 0
    (place,) = put_off(publisher, 5)
    asker.say(WANT, requesting.encode(Want("other", [Position(*unknown)])))
    assert [each.state for each in asker.ends()] == ["forgotten"]
    publisher.send(b"s/do")  # not looked at yet
    asker.want(unknown, place)
    pass_time(there, 1.0)
    assert [(each.offset, each.state) for each in asker.ends()] == [(unknown[0], "forgotten")]


def again(asker: Party, offset: int, index: int, **given: Any) -> None:
    fields = {"generation": asker.there.core.log.generation, **given}
    order = GroupOrder(
        id=4, queue=QUEUE, group="s", order="retry", offset=offset, index=index, **fields
    )  # fmt: skip
    asker.say(GROUP_ORDER, documents.encode(order))


@pytest.mark.parametrize("state", ["failed", "discarded", "unknown"])
def test_a_request_that_has_ended_is_run_again_under_its_id(state: str) -> None:
    there, publisher, asker, instance = service()
    publisher.send(b"s/do", 2)
    instance.look()
    ((number, at, _, _),) = instance.leases
    if state == "unknown":
        instance.done(begun=[Begun(number, at, 2, True)])
        instance.say(LEAVE, consuming.encode(LeaveGroup(b"instance........")))
        instance.join()
    else:
        answers = [Answer(number, at + each, state=RequestState(state)) for each in (0, 1)]
        instance.done(answers=answers)
    assert [each.state for each in asker.ends()] == [state] * 2
    instance.leases.clear()
    for word in ("pause", "resume"):  # nobody looks at it between these
        order = GroupOrder(id=4, queue=QUEUE, group="s", order=word)
        asker.say(GROUP_ORDER, documents.encode(order))
        asker.take(GROUP_ORDER)
        again(asker, 0, 1)
        if word == "pause":
            asker.take(GROUP_ORDER)
            assert [each.state for each in asker.report(offset=0, index=1).requests] == ["accepted"]
        else:
            assert asker.refusal() == "invalid_request", "once is enough"
    instance.look()
    ((number, at, length, _),) = instance.leases
    assert (at, length) == (0, 1)
    instance.done(answers=[Answer(number, 0, value=b"v")])
    ends = [(each.offset, each.index, each.state, each.value) for each in asker.ends()]
    assert ends == [(0, 1, "done", b"v")], "who has made it is told"
    asker.want((0, 1))
    assert [each.value for each in asker.ends()] == [b"v"], "and it is kept by that name"
    there.core.check()


def test_what_runs_again_is_cancelled_before_anybody_has_looked_at_it() -> None:
    there, publisher, asker, instance = service()
    publisher.send(b"s/do")
    instance.look()
    instance.done(answers=[Answer(instance.leases[0][0], 0, state=RequestState.FAILED)])
    asker.ends()
    pause = GroupOrder(id=4, queue=QUEUE, group="s", order="pause")
    asker.say(GROUP_ORDER, documents.encode(pause))  # so nobody looks at it between these
    asker.take(GROUP_ORDER)
    again(asker, 0, 0)
    asker.take(GROUP_ORDER)
    asker.want((0, 0), cancelled=[Position(0, 0)])
    assert {each.state for each in asker.ends()} == {"cancelled"}
    there.core.check()


def test_what_cannot_run_again_is_refused() -> None:
    there, publisher, asker, instance = service()
    publisher.send(b"s/do")
    again(asker, 0, 0)
    assert asker.refusal() == "invalid_request", "it has not ended"
    instance.look()
    ((number, _, _, _),) = instance.leases
    instance.done(answers=[Answer(number, 0, state=RequestState.FAILED)])
    asker.ends()
    again(asker, 0, 0, generation=99)
    assert asker.refusal() == "invalid_request", "it is of a log that is gone"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(there.core.log), "record", lambda _log, _offset: None)
        patch.setattr(type(there.core.log), "is_lost", lambda _log, _offset: False)
        again(asker, 0, 0)
        assert asker.refusal() == "full", "its disk may give it later"
        patch.setattr(type(there.core.log), "is_lost", lambda _log, _offset: True)
        again(asker, 0, 0)
        assert asker.refusal() == "invalid_request", "what was requested is gone"
        patch.undo()
        patch.setattr(there.core.consumers.services, "publish", lambda *_: None)
        again(asker, 0, 0)
        assert asker.refusal() == "full"
    asker.want((0, 0), fetched=[(0, 0, 1)])
    assert [each.state for each in asker.ends()] == ["retrieved"]
    again(asker, 0, 0)
    assert asker.refusal() == "invalid_request", "its outcome was fetched"
    asker.say(
        GROUP_ORDER, documents.encode(GroupOrder(id=4, queue=QUEUE, group="x", order="drain"))
    )
    assert asker.refusal() == "no_group"
