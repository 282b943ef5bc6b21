"""What exchanges say of groups is one answer, and says what is missing in it."""

from __future__ import annotations

from typing import Any

import pytest
from paper_exchanges import QUEUE, Answer, PaperEngine, queue, refuses

from roq.client.consume import groups
from roq.errors import GroupNotFound, InvalidRequest, QueueStopped, Unavailable
from roq.protocol import documents
from roq.protocol.consuming import (
    GROUP_ORDER,
    GROUPS,
    OLDEST_TOPICS_MAX,
    GroupOrder,
    Groups,
    GroupSettings,
    GroupsRequest,
    GroupState,
    MemberState,
    OldestMessage,
    Ordered,
)
from roq.protocol.public_answers import QueueDescription


def state(name: str = "g", **given: Any) -> GroupState:
    fields = {
        "settings": GroupSettings(), "created_us": 5_000_000, "base": 0, "end": 0, "out": 0,
        "waiting": 0,
    }  # fmt: skip
    return GroupState(name=name, **{**fields, **given})


def member(letter: bytes, **given: Any) -> MemberState:
    fields = {
        "name": letter.decode(),
        "held": 1,
        "credit": 2,
        "acknowledged": 3,
        "silent_seconds": 0.5,
    }
    return MemberState(member=letter * 16, **{**fields, **given})


def tells(*states: GroupState) -> Answer:
    def answer(frames: list[bytes]) -> list[bytes]:
        letter, document = frames
        assert letter == GROUPS
        request = documents.decode(document, GroupsRequest)
        assert request.queue == QUEUE
        found = Groups(id=request.id, generation=1, groups=list(states))
        return [GROUPS, documents.encode(found)]

    return answer


def obeys(frames: list[bytes]) -> list[bytes]:
    letter, document = frames
    assert letter == GROUP_ORDER
    order = documents.decode(document, GroupOrder)
    assert (order.group, order.order, order.time_us, order.to_end) == ("g", "seek", 7, False)
    return [GROUP_ORDER, documents.encode(Ordered(id=order.id, generation=1, base=3))]


def listed(engine: PaperEngine, there: QueueDescription, group: str = "") -> groups.GroupListing:
    return groups.list_groups(engine.real, there, group, 0.1, now=100.0)


def test_a_group_is_summed_up_over_its_exchanges() -> None:
    engine = PaperEngine(
        x1=tells(
            state(base=2, end=10, out=3, waiting=1, acknowledged=5, failed=1, lapsed=2, expired=1,
                  oldest_us=60_000_000, stalled="it has no member here"),
            state("other"),
        ),
        x2=tells(state(base=4, end=5, out=1, acknowledged=7, oldest_us=90_000_000, created_us=4,
                       paused=True, members=2)),
    )  # fmt: skip
    found = listed(engine, queue("x1", "x2"))
    assert (found.missing, found.partial) == ({}, "")
    first, other = found
    assert (first.name, first.behind, first.out, first.waiting) == ("g", 9, 4, 1)
    assert (first.acknowledged, first.failed, first.lapsed, first.expired) == (12, 1, 2, 1)
    assert (first.oldest_seconds, first.created, first.members) == (40.0, 4e-6, 2)
    assert first.paused
    assert first.stalled == ["exchange x1: it has no member here"]
    assert [(p.exchange, p.base, p.end) for p in first.parts] == [("x1", 2, 10), ("x2", 4, 5)]
    assert (other.name, other.oldest_seconds, other.stalled, other.who) == ("other", None, [], [])
    assert engine.log == ["closed", "closed"]


def test_the_members_of_a_group_are_told_once_each() -> None:
    engine = PaperEngine(
        x1=tells(state(members=1, who=[member(b"a", silent_seconds=9.0)])),
        x2=tells(state(members=2, who=[member(b"b"), member(b"a")])),
    )
    (found,) = listed(engine, queue("x1", "x2"), "g")
    assert [each.name for each in found.who] == ["a", "b"]
    assert found.members == 2
    first = found.who[0]
    assert (first.exchanges, first.held, first.credit) == (["x1", "x2"], 2, 4)
    assert (first.acknowledged, first.silent_seconds) == (6, 0.5)


def test_a_reason_that_is_the_same_at_several_exchanges_is_said_once() -> None:
    why = ["it has no member here", "it is paused", "it has no member here", ""]
    engine = PaperEngine(
        **{f"x{n}": tells(state(stalled=text)) for n, text in enumerate(why, start=1)}
    )
    (found,) = listed(engine, queue("x1", "x2", "x3", "x4"), "g")
    assert found.stalled == [
        "exchanges x1, x3: it has no member here", "exchange x2: it is paused",
    ]  # fmt: skip


def test_the_oldest_message_of_each_topic_and_priority_is_that_of_all_exchanges() -> None:
    def open_(topic: bytes, priority: int, seconds: int, *, others: bool = False) -> OldestMessage:
        time_us = seconds * 1_000_000
        return OldestMessage(topic=topic, priority=priority, appended_us=time_us, others=others)

    many = [open_(b"m%02d" % index, 0, 80) for index in range(OLDEST_TOPICS_MAX)]
    engine = PaperEngine(
        x1=tells(state(oldest=[open_(b"eu", 0, 60), open_(b"eu", 5, 70)], unseen_us=95_000_000)),
        x2=tells(state(oldest=[open_(b"eu", 0, 50), open_(b"", 0, 90, others=True), *many])),
    )
    (found,) = listed(engine, queue("x1", "x2"), "g")
    assert [
        (each.topic, each.priority, each.seconds, each.exchange) for each in found.oldest[:2]
    ] == [("eu", 0, 50.0, "x2"), ("eu", 5, 30.0, "x1")]
    last = found.oldest[-1]
    assert (last.topic, last.seconds, len(found.oldest)) == (None, 20.0, OLDEST_TOPICS_MAX + 2)
    assert found.unseen_seconds == 5.0
    (calm,) = listed(PaperEngine(x1=tells(state())), queue("x1"), "g")
    assert (calm.oldest, calm.unseen_seconds) == ([], None)


def test_who_has_not_answered_is_named_with_what_is_known() -> None:
    engine = PaperEngine(x1=tells(state()), x2=None, x3=refuses("full"))
    found = listed(engine, queue("x1", "x2", "x3", away="x4"))
    assert [each.name for each in found] == ["g"]
    assert found.missing == {"x2": "refused by the system", "x3": "no (full)", "x4": "it is away"}
    assert found.partial.startswith("without exchange x2: refused by the system; exchange x3")


def test_an_exchange_without_the_group_has_answered() -> None:
    engine = PaperEngine(x1=tells(state()), x2=refuses("no_group"))
    found = listed(engine, queue("x1", "x2"), "g")
    assert (len(found), found.missing) == (1, {})


def test_a_group_that_is_nowhere_is_not_found_unless_somebody_is_missing() -> None:
    none = PaperEngine(x1=refuses("no_group"), x2=refuses("no_group"))
    with pytest.raises(GroupNotFound, match="queue orders has no group g"):
        listed(none, queue("x1", "x2"), "g")
    some = PaperEngine(x1=refuses("no_group"), x2=None)
    with pytest.raises(Unavailable, match="exchange x2: refused by the system"):
        listed(some, queue("x1", "x2"), "g")


def test_a_queue_without_groups_has_none() -> None:
    assert listed(PaperEngine(x1=tells()), queue("x1")) == []


def test_a_stopped_queue_tells_so() -> None:
    with pytest.raises(QueueStopped, match="start it"):
        listed(PaperEngine(), queue(running=False))


def test_what_cannot_be_read_is_no_answer() -> None:
    engine = PaperEngine(x1=tells(state()), x2=lambda _: [GROUPS, b"\x00"])
    assert "cannot be read" in listed(engine, queue("x1", "x2")).missing["x2"]


def ordered(engine: PaperEngine, there: QueueDescription) -> list[str]:
    return groups.order(engine.real, there, "g", "seek", 0.1, time_us=7)


def test_an_order_goes_to_every_exchange() -> None:
    engine = PaperEngine(x1=obeys, x2=obeys, x3=refuses("no_group"))
    assert ordered(engine, queue("x1", "x2", "x3")) == ["x1", "x2"]


def test_an_order_that_is_not_done_everywhere_says_where_it_is() -> None:
    with pytest.raises(Unavailable, match=r"it is done at x1, but not at exchange x2.*Repeat it"):
        ordered(PaperEngine(x1=obeys, x2=None), queue("x1", "x2"))
    with pytest.raises(Unavailable, match="nothing is done, but not at exchange x2"):
        ordered(PaperEngine(x2=None), queue("x2"))


def test_an_order_that_is_for_no_service_is_not_to_be_repeated() -> None:
    with pytest.raises(InvalidRequest, match=r"^no$"):
        ordered(PaperEngine(x1=refuses("invalid_request")), queue("x1"))


def test_an_order_for_no_group_is_refused() -> None:
    with pytest.raises(GroupNotFound):
        ordered(PaperEngine(x1=refuses("no_group")), queue("x1"))
