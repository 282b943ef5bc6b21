"""What requesters and instances say to an exchange, and what they get when they say it wrongly."""

from __future__ import annotations

import pytest
from exchange_driver import QUEUE, Publisher, exchange, publisher_id
from service_party import SETTINGS, Party, pass_time, service

from roq.exchange import requesters, services
from roq.exchange.consumer_peers import BLOCKED_SECONDS, CONFIRM_SECONDS
from roq.exchange.events import Unreachable
from roq.exchange.intake import batch_bytes_max
from roq.exchange.kpi_report import load_of, metrics_of
from roq.log import service_group
from roq.model import Limits
from roq.protocol import consuming, documents, requesting
from roq.protocol.channel import REFUSED, Refused
from roq.protocol.consuming import (
    CREDIT,
    DELETED,
    DONE,
    GROUP_ORDER,
    JOIN,
    LOSSES_SHIFT,
    Credit,
    Done,
    DoneConfirmed,
    GroupOrder,
    GroupSettings,
    Join,
    Ordered,
    read_lease,
)
from roq.protocol.requesting import (
    ATTEND,
    DISCARD_REASONS,
    ENDPOINTS_MAX,
    FIGURES,
    INSTANCE_ORDER,
    REQUESTS,
    REVOKED,
    TEXT_LISTED,
    TEXT_MAX,
    WANT,
    WANT_MAX,
    Answer,
    Attend,
    Begun,
    Durations,
    Figures,
    InstanceOrder,
    Position,
    RequestsQuery,
    RequestState,
    Revoked,
    ServiceSettings,
    Want,
)


def test_who_has_asked_is_told_without_asking_again() -> None:
    _, publisher, asker, instance = service()
    assert publisher.send(b"s/do", 2)
    instance.look()
    ((number, first, length, attempt),) = instance.leases
    assert (first, length, attempt) == (0, 2, 1)
    told = instance.done(answers=[Answer(number, 1, value=b"v")])
    assert told.refused == []
    (end,) = asker.ends()
    assert (end.index, end.state, end.value, end.instance) == (1, "done", b"v", "instance")
    asker.want((0, 1))
    assert [each.value for each in asker.ends()] == [b"v"], "it is kept until that is confirmed"
    asker.want(fetched=[(0, 1, 1)])
    asker.want((0, 1))
    assert [each.state for each in asker.ends()] == ["retrieved"]


def test_an_instance_is_told_how_large_a_message_may_be() -> None:
    there = exchange(message_bytes=1_000)
    most = batch_bytes_max(Limits(message_bytes=1_000))
    assert Party(there, "instance").join().frame_bytes == most


def test_somebody_else_may_ask_and_is_told_when_it_has_ended() -> None:
    there, publisher, _, instance = service()
    publisher.send(b"s/do")
    instance.look()
    other = Party(there, "other")
    other.want((0, 0), (5, 0))
    assert [(each.offset, each.state) for each in other.ends()] == [(5, "never")]
    instance.done(answers=[Answer(instance.leases[0][0], 0, value=b"v")])
    assert [(each.offset, each.state) for each in other.ends()] == [(0, "done")]


def test_what_is_no_request_is_said_to_be_none_when_it_is_looked_at() -> None:
    there, publisher, asker, _ = service()
    publisher.send(b"other")
    publisher.send(b"s/do")
    asker.want((0, 0), (1, 7))
    pass_time(there, 1.0)
    assert sorted((each.offset, each.state) for each in asker.ends()) == [
        (0, "forgotten"), (1, "never"),
    ]  # fmt: skip


def test_a_service_that_is_not_here_has_had_no_request() -> None:
    there = exchange()
    asker = Party(there, "asker")
    asker.want((0, 0))
    assert [each.state for each in asker.ends()] == ["never"]


def test_a_request_that_came_before_its_service_is_waited_for() -> None:
    there = exchange()
    publisher = Publisher(there)
    publisher.hello()
    publisher.send(b"s/do")
    publisher.send(b"other")
    asker, instance = Party(there, "asker"), Party(there, "instance")
    asker.want((0, 0), (1, 0))
    pass_time(there, 1.0)
    assert [(each.offset, each.state) for each in asker.ends()] == [(1, "never")]
    instance.join()
    instance.done(answers=[Answer(instance.leases[0][0], 0, value=b"v")])
    assert [(each.offset, each.state) for each in asker.ends()] == [(0, "done")]
    there.ask(GROUP_ORDER, GroupOrder(id=4, queue=QUEUE, group="s", order="delete"))
    asker.want((0, 0))
    assert [each.state for each in asker.ends()] == ["forgotten"], (
        "nobody waits for what was deleted"
    )


def test_a_service_of_which_nobody_has_asked_anything_looks_at_nothing_that_is_old() -> None:
    there = exchange()
    publisher = Publisher(there)
    publisher.hello()
    for _ in range(3):
        publisher.send(b"other")
    Party(there, "asker").attend()
    assert there.core.consumers._groups["s"].next == 3
    publisher.send(b"t/do")
    Party(there, "late").attend(service="t")
    pass_time(there, 0.5)
    assert there.core.consumers._groups["t"].open_count == 1


def test_who_comes_or_has_room_while_a_request_waits_gets_it_without_any_time_passing() -> None:
    """Between two ticks of an exchange, which are half a second from each other."""
    there = exchange()
    publisher, asker = Publisher(there), Party(there, "asker")
    publisher.hello()
    patient = ServiceSettings(send_wait=60.0, result_within=600.0, chosen=True)
    asker.attend(settings=patient)
    publisher.send(b"s/do", 3)
    pass_time(there, 10.0)
    then = there.now
    instance = Party(there, "instance")
    instance.join(credit=1)
    assert [lease[1:3] for lease in instance.leases] == [(0, 1)], "one that comes"
    instance.say(DONE, consuming.encode(Done(1, answers=[Answer(instance.leases[0][0], 0)])))
    instance.grant(2)
    assert [lease[1:3] for lease in instance.leases[1:]] == [(1, 1)], "one that has room again"
    other = Party(there, "other")
    other.join(credit=0)
    assert not other.leases
    other.grant(5)
    assert [lease[1:3] for lease in other.leases] == [(2, 1)], "one that is available again"
    publisher.send(b"s/do")
    other.look()
    assert len(other.leases) == 2, "one that waits for a request"
    assert there.now == then


def test_an_instance_names_so_many_requests_at_once_and_else_nothing_is_heard_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A lease may be named a thousand times: each of these is looked at."""
    monkeypatch.setattr(services, "SETTLED_MAX", 5)
    _, publisher, asker, instance = service()
    assert publisher.send(b"s/do", 6)
    instance.look()
    ((number, *_),) = instance.leases
    some = Answer(number, 0, more=[b"", b""])
    for beyond in (
        Done(1, begun=[Begun(number, 0, 3)] * 2),
        Done(1, answers=[some, some]),
        Done(1, answers=[some], begun=[Begun(number, 0, 3)]),
    ):
        instance.say(DONE, consuming.encode(beyond))
        assert instance.refusal() == "malformed"
    assert asker.ends() == []
    assert instance.done(answers=[some], begun=[Begun(number, 3, 2)]).refused == []
    assert [each.count for each in asker.ends()] == [3]


def test_what_is_too_late_when_its_service_comes_ends_as_late_and_nobody_gets_it() -> None:
    there = exchange()
    publisher = Publisher(there)
    publisher.hello()
    publisher.send(b"s/do")
    asker, instance = Party(there, "asker"), Party(there, "instance")
    asker.want((0, 0))
    there.now += 120.0
    pass_time(there, 0.5)
    publisher.send(b"s/do")
    instance.join()
    assert [lease[1:3] for lease in instance.leases] == [(0, 1)], "the new one alone"
    pass_time(there, 0.5)
    assert [(each.offset, each.state) for each in asker.ends()] == [(0, "late")]
    other = Party(there, "other")
    other.want((0, 0))
    assert [each.state for each in other.ends()] == ["late"], "whoever asks"
    pass_time(there, 600.0)
    other.want((0, 0))
    assert [each.state for each in other.ends()] == ["forgotten"], "as any end by then"


def test_what_a_deleted_service_had_is_not_late_for_the_next_one_of_its_name() -> None:
    there, publisher, _, instance = service()
    publisher.send(b"s/do")
    instance.look()
    instance.done(answers=[Answer(instance.leases[0][0], 0, value=b"v")])
    there.ask(GROUP_ORDER, GroupOrder(id=4, queue=QUEUE, group="s", order="delete"))
    there.now += 120.0
    pass_time(there, 0.5)
    other = Party(there, "other")
    other.attend()
    other.want((0, 0))
    assert [each.state for each in other.ends()] == ["forgotten"]


def test_that_answers_are_kept_is_told_with_what_is_sent_next() -> None:
    there, publisher, asker, instance = service()

    def answered(serial: int) -> list[int]:
        """An answer under this serial; which ones the instance has heard of by now."""
        publisher.send(b"s/do")
        instance.look()
        answers = [Answer(instance.leases[-1][0], 0, value=b"v")]
        instance.say(DONE, consuming.encode(Done(serial, answers=answers)))
        assert len(asker.ends()) == 1, "who waits for it is told at once"
        return heard()

    def heard() -> list[int]:
        told, instance.told = instance.told, []
        return [consuming.decode(document, DoneConfirmed).serial for _, document in told]

    assert answered(1) == []
    assert answered(2) == [1], "with the next request"
    assert answered(3) == [], "it was told so a moment ago"
    there.now += CONFIRM_SECONDS
    assert answered(4) == [3], "with a request behind that"
    pass_time(there, 0.5)
    instance.look()
    assert heard() == [4], "or at the next tick"
    assert answered(5) == []
    instance.grant(0)
    assert heard() == [5], "or when it takes nothing more"
    instance.say(DONE, consuming.encode(Done(6)))
    assert heard() == [6], "and whatever is no answer is confirmed at once"


def test_cancelled_requests_are_told_to_both() -> None:
    _, publisher, asker, instance = service()
    publisher.send(b"s/do")
    instance.look()
    number = instance.leases[0][0]
    asker.want(cancelled=[Position(0, 0)])
    assert [each.state for each in asker.ends()] == ["cancelled"]
    instance.look()
    revoked = requesting.decode(instance.take(REVOKED), Revoked)
    assert revoked.requests == [(number, 0)]
    assert instance.done(answers=[Answer(number, 0)]).refused == [number]
    assert asker.ends() == []


def test_what_is_cancelled_before_anybody_has_looked_at_it_is_not_begun() -> None:
    there = exchange()
    publisher, asker, instance = Publisher(there), Party(there, "asker"), Party(there, "instance")
    publisher.hello()
    asker.attend()
    publisher.send(b"s/do", 2)
    asker.want(cancelled=[Position(0, 1)])
    assert [each.state for each in asker.ends()] == ["cancelled"]
    instance.join()
    instance.look()
    ((_, first, length, _),) = instance.leases
    assert (first, length) == (0, 1)


def test_what_was_cancelled_while_a_connection_was_full_is_not_sent() -> None:
    there, publisher, asker, _ = service()
    served = there.core.consumers
    publisher.send(b"s/do", 3)
    publisher.send(b"s/do", 2)
    served.begin(there.now)
    served.runnable()
    first = served.next_delivery()
    assert first is not None
    member = first.lease.member
    served.blocked(first)
    asker.want(cancelled=[Position(0, 1)])
    there.now += BLOCKED_SECONDS
    served.begin(there.now)
    again = served.next_delivery()
    assert again is not None
    assert read_lease(again.parts[1]) == (first.lease.number, 0, 3, 1, 0b101)
    assert (member.taken, member.taken_bytes) == (2, first.size)
    served.blocked(again)
    asker.want(cancelled=[Position(0, 0), Position(0, 2)])
    there.now += BLOCKED_SECONDS
    served.begin(there.now)
    other = served.next_delivery()
    assert other is not None
    assert other.lease.offset == 1
    assert (member.taken, member.taken_bytes) == (2, other.size), "its credit is not used up"


def test_a_request_acknowledged_without_an_answer_is_refused() -> None:
    _, publisher, asker, instance = service()
    publisher.send(b"s/do")
    instance.look()
    number = instance.leases[0][0]
    assert instance.done(whole=[number]).refused == [number]
    assert instance.done(parts=[(number, 0, 1)]).refused == [number]
    assert asker.ends() == []


def test_a_group_and_a_service_are_not_the_same() -> None:
    there, _, _, _ = service()
    consumer = Party(there, "consumer")
    join = Join(id=1, queue=QUEUE, group="s", member=b"c" * 16, attempt=1, settings=GroupSettings())
    consumer.say(JOIN, documents.encode(join))
    assert consumer.refusal() == "group_differs"
    group = Join(
        id=1, queue=QUEUE, group="g", member=b"c" * 16, attempt=1, settings=GroupSettings()
    )
    consumer.say(JOIN, documents.encode(group))
    consumer.take(JOIN)
    attend = Attend(id=1, queue=QUEUE, service="g")
    consumer.say(ATTEND, documents.encode(attend))
    assert consumer.refusal() == "group_differs"


@pytest.mark.parametrize(
    ("letter", "document", "code"),
    [
        (ATTEND, b"\x00", "malformed"),
        (ATTEND, documents.encode(Attend(id=1, queue=b"z" * 16, service="s")), "foreign_queue"),
        (ATTEND, documents.encode(Attend(id=1, queue=QUEUE, service="s", publisher=b"x")),
         "invalid_request"),
        (WANT, b"\xc1", "malformed"),
        (WANT, requesting.encode(Want("s", cancelled=[Position(0, 0)] * (WANT_MAX + 1))),
         "malformed"),
        (REQUESTS, documents.encode(RequestsQuery(id=1, queue=QUEUE, service="none")), "no_group"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused(letter: bytes, document: bytes, code: str) -> None:
    there, _, _, _ = service()
    other = Party(there, "other")
    other.say(letter, document)
    assert other.refusal() == code


def test_requesters_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requesters, "REQUESTERS_MAX", 1)
    there, _, _, _ = service()
    other = Party(there, "other")
    other.want((0, 0))
    assert other.refusal() == "full"


def test_what_one_requester_waits_for_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requesters, "POSITIONS_MAX", 3)
    monkeypatch.setattr(requesters, "PUBLISHERS_MAX", 2)
    there, publisher, asker, _ = service()
    asker.attend(service="t", publisher=publisher_id("second"))
    asker.attend(service="t", publisher=publisher_id("second"))
    third = Attend(id=1, queue=QUEUE, service="s", publisher=publisher_id("third"))
    asker.say(ATTEND, documents.encode(third))
    assert asker.refusal() == "full"
    publisher.send(b"s/do", 2)
    publisher.send(b"t/do", 2)
    asker.want((0, 0), (0, 1))
    places = [Position(1, 0), Position(1, 1)]
    asker.say(WANT, requesting.encode(Want("t", places)))
    (waits,) = there.core.consumers.services._requesters._requesters.values()
    assert waits.wanted == {"s": {(0, 0), (0, 1)}, "t": {(1, 0)}}
    assert asker.refusal() == "full", "and it hears of what is not waited for"
    asker.want((0, 0))
    assert asker.ends() == [], "what is waited for already needs no room"


def test_an_instance_with_too_many_endpoints_is_not_understood() -> None:
    _, _, _, instance = service()
    most = ["e" * 255] * ENDPOINTS_MAX
    instance.say(FIGURES, requesting.encode(Figures(endpoints=most)))
    assert instance.told == []
    instance.say(FIGURES, requesting.encode(Figures(endpoints=[*most, "e"])))
    assert instance.refusal() == "malformed"


def test_a_connection_that_ends_leaves_nothing_behind() -> None:
    there, publisher, asker, instance = service()
    publisher.send(b"s/do")
    asker.want((0, 0))
    there.tell(Unreachable(asker.route))
    instance.look()
    instance.done(answers=[Answer(instance.leases[0][0], 0)])
    asker.look()
    assert asker.told == []
    back = Party(there, "back")
    back.want((0, 0))
    assert [each.state for each in back.ends()] == ["done"], "the response waits for somebody"


def test_nothing_is_sent_to_a_requester_that_waits_for_nothing() -> None:
    there, _, asker, _ = service()
    asker.look()
    asker.other = []
    pass_time(there, 10.0)
    asker.look()
    assert (asker.other, asker.told) == ([], [])


def test_many_ends_travel_in_several_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requesters, "FRAME_BYTES", 1_000)
    _, publisher, asker, instance = service()
    publisher.send(b"s/do", 9)
    instance.look()
    number = instance.leases[0][0]
    instance.done(answers=[Answer(number, index, value=b"v" * 300) for index in range(9)])
    asker.look()
    assert len(asker.told) == 5
    assert [each.index for each in asker.ends()] == list(range(9))


def test_figures_are_shown_and_a_report_counts() -> None:
    there, publisher, asker, instance = service()
    instance.say(FIGURES, requesting.encode(Figures(False, "no", 1, 4)))
    publisher.send(b"s/do", 2)
    instance.look()
    instance.done(answers=[Answer(instance.leases[0][0], 0, value=b"abc")])
    asker.ends()
    report = asker.report()
    assert (report.open, report.stored, report.counts) == (1, 1, {"done": 1})
    assert not report.more
    assert [each.state for each in report.requests] == ["done", "offered"]
    (group,) = there.core.consumers.groups
    assert group.state(who=True, most=1).who[0].figures == Figures(False, "no", 1, 4)


def test_a_report_of_many_long_texts_says_that_it_is_not_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(service_group, "LISTED_MAX", 3)
    _, publisher, asker, instance = service()
    publisher.send(b"s/do", 5)
    instance.look()
    (number, *_), text = instance.leases[0], "é" * TEXT_MAX
    instance.done(answers=[Answer(number, at, RequestState.FAILED, text=text) for at in range(3)])
    asker.ends()
    report = asker.report()
    assert [(each.index, each.state) for each in report.requests] == [
        (0, "failed"), (3, "offered"), (4, "offered"),
    ]  # fmt: skip
    assert report.more
    assert report.requests[0].text == f"{text[:499]}…{text[-500:]}"
    assert len(report.requests[0].text) == TEXT_LISTED
    assert asker.report(offset=0, index=0).requests[0].text == text


def test_a_service_that_is_deleted_cancels_and_tells() -> None:
    there, publisher, asker, instance = service()
    publisher.send(b"s/do")
    instance.look()
    asker.want((0, 0), (9, 0))
    asker.ends()
    there.ask(GROUP_ORDER, GroupOrder(id=4, queue=QUEUE, group="s", order="delete"))
    assert [each.state for each in asker.ends()] == ["cancelled"]
    assert there.core.consumers.groups == []


def test_a_service_cannot_be_moved_in_the_log() -> None:
    there, publisher, asker, instance = service()
    publisher.send(b"s/do")
    operator = Party(there, "operator")
    order = GroupOrder(id=4, queue=QUEUE, group="s", order="seek", to_end=True)
    operator.say(GROUP_ORDER, documents.encode(order))
    refused = documents.decode(operator.take(REFUSED), Refused)
    assert refused.code == "invalid_request"
    assert "delete the service to cancel all" in refused.text
    assert asker.ends() == []
    instance.look()
    assert len(instance.leases) == 1


def test_a_service_that_is_made_again_does_not_have_the_requests_of_the_deleted_one() -> None:
    there, publisher, asker, instance = service()
    publisher.send(b"s/do", 2)
    there.ask(GROUP_ORDER, GroupOrder(id=4, queue=QUEUE, group="s", order="delete"))
    assert [each.state for each in asker.ends()] == ["cancelled", "cancelled"]
    instance.look()
    assert documents.decode(instance.take(REFUSED), Refused).code == DELETED
    publisher.send(b"s/do")
    instance.join()
    assert [first for _, first, *_ in instance.leases] == [0]
    (group,) = there.core.consumers.groups
    assert (group.base, group.next) == (1, 2), "what came since is answered"


def test_where_services_were_deleted_is_remembered_of_so_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(services, "DELETED_MAX", 1)
    there, publisher, _, _ = service()
    publisher.send(b"s/do")
    for name in ("s", "t"):
        Party(there, "other").attend(service=name, publisher=b"")
        there.ask(GROUP_ORDER, GroupOrder(id=4, queue=QUEUE, group=name, order="delete"))
    snapshot = there.core.consumers.snapshot()
    assert [(each.name, each.base, each.deleted) for each in snapshot] == [("t", 1, True)]
    after = exchange().core.consumers
    after.recover(snapshot, [])
    assert after.snapshot() == snapshot


@pytest.mark.parametrize("word", ["flag", "unflag", "drain"])
def test_instances_are_told_what_an_operator_wants(word: str) -> None:
    there, _, asker, first = service()
    second = Party(there, "second")
    second.join()

    def order(meant: str) -> list[str]:
        asked = GroupOrder(id=4, queue=QUEUE, group="s", order=word, instance=meant)
        asker.say(GROUP_ORDER, documents.encode(asked))
        return documents.decode(asker.take(GROUP_ORDER), Ordered).told

    assert order("") == ["instance", "second"]
    for each in first, second:
        each.look()
        assert requesting.decode(each.take(INSTANCE_ORDER), InstanceOrder).order == word
    assert order("second") == order(b"second..........".hex()) == ["second"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(services, "MEMBERS_PER_ANSWER_MAX", 1)
        assert order("second") == ["second"], "it is found among however many"
    assert order("nobody") == []
    first.look()
    assert first.told == []


def test_what_has_become_of_requests_is_reported() -> None:
    there, publisher, asker, instance = service()
    assert load_of(there.core, 0.0).requests_accepted == 0
    publisher.send(b"s/do", 3)
    instance.look()
    ((number, _, _, _),) = instance.leases
    instance.done(
        answers=[Answer(number, 0, value=b"v"), Answer(number, 1, state=RequestState.FAILED)]
    )
    asker.want(fetched=[(0, 1, 1)])
    load = load_of(there.core, 0.0)
    assert (load.requests_accepted, load.requests_open, load.requests_done) == (3, 1, 1)
    assert (load.requests_failed, load.responses_stored, load.responses_fetched) == (1, 1, 1)
    assert load.responses_bytes > 0
    assert (load.requests_waiting.count, load.requests_running.count) == (3, 2)
    assert load.responses_unfetched.count == 1
    told = metrics_of(load)
    assert Durations.among("requests_running", told) == load.requests_running
    assert {type(each) for each in told.values()} == {float}, "each number has a name"
    asker.ends()
    report = asker.report()
    assert (report.accepted, report.waiting.count, report.running.count) == (3, 3, 2)
    assert report.unfetched.count == 1


def test_discarded_requests_are_reported_by_reason() -> None:
    there, publisher, _, instance = service()
    publisher.send(b"s/do", 3)
    instance.look()
    ((number, _, _, _),) = instance.leases
    instance.done(answers=[Answer(number, 0, state=RequestState.DISCARDED)])
    pass_time(there, 30.0)  # it has confirmed nothing
    load = load_of(there.core, 0.0)
    assert sum(load.requests_discarded_by.values()) == load.requests_discarded == 3
    assert load.requests_discarded_by["no such endpoint"] == 1
    assert load.requests_discarded_by.keys() <= set(DISCARD_REASONS)
    assert metrics_of(load)["requests_discarded_by.no such endpoint"] == 1.0


def test_of_two_instances_with_one_id_the_newer_one_counts() -> None:
    there, publisher, asker, _ = service()
    join = Join(
        id=1, queue=QUEUE, group="s", member=b"twin".ljust(16, b"."), name="twin", attempt=1,
        settings=SETTINGS,
    )  # fmt: skip
    first, second = Party(there, "first"), Party(there, "second")
    publisher.send(b"s/do")
    for each in (first, second):
        each.say(JOIN, documents.encode(join))
        each.told.clear()
        each.say(CREDIT, consuming.encode(Credit(10, 1 << 20, 1)))
    publisher.send(b"s/do", 5)
    for each in (first, second):
        each.look()
    held = [lease for each in (first, second) for lease in each.leases]
    assert not set(first.leases) & set(second.leases)
    (group,) = there.core.consumers.groups
    assert sum(member.name == "twin" for member in group.state(who=True, most=9).who) == 1
    for number, at, length, _ in held:
        for party in (first, second):
            answers = [Answer(number, at + index) for index in range(length)]
            party.told.clear()
            party.say(DONE, consuming.encode(Done(1, answers=answers)))
    ends = [(each.offset, each.index) for each in asker.ends()]
    assert len(ends) == len(set(ends)), "each request ends once"
    there.core.check()


def test_an_instance_is_told_how_many_were_lost_with_a_request() -> None:
    there, publisher, _, instance = service()
    publisher.send(b"s/do", 2)
    instance.look()
    instance.done(begun=[Begun(instance.leases[0][0], 0, 1)])
    there.tell(Unreachable(instance.route))
    other = Party(there, "other")
    other.join()
    other.look()
    attempts = {first: attempt for _, first, _, attempt in other.leases}
    assert attempts == {0: 2 | 1 << LOSSES_SHIFT, 1: 1}, "what had not begun was not tried"
