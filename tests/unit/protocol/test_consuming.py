"""What consumers and exchanges say to each other, and what cannot be said."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from roq.errors import RemoteProtocolError
from roq.model import LogId
from roq.protocol import consuming, documents
from roq.protocol.consuming import (
    ANSWERS_MAX,
    BEGUN_MAX,
    DELAY_SECONDS_MAX,
    HELD_BYTES,
    JOIN_BYTES,
    LEASE,
    ORDER_QUESTIONS_MAX,
    RUNS_MAX,
    SETTLED,
    Credit,
    Done,
    DoneConfirmed,
    GroupOrder,
    GroupSettings,
    Join,
    LeaveGroup,
    OrderAnswer,
    OrderQuestion,
    Returned,
    Run,
    lease_bytes,
    pack_lease,
    pack_runs,
    parts_of,
    read_lease,
    read_runs,
)
from roq.protocol.control import MonitorRequest, OrderAsk, OrderTold
from roq.protocol.requesting import MORE_MAX, Answer, Begun

JOIN = {
    "id": 1, "queue": b"q", "group": "g", "member": b"m", "attempt": 1, "settings": {}, "name": "n",
}  # fmt: skip


@pytest.mark.parametrize(
    "message",
    [Credit(1, 2, 3), LeaveGroup(b"m"), DoneConfirmed(7, [1, 2]),
     Done(3, [1], [(2, 0, 5)], [Returned(3, 1, 2, 0.5, False, "no")], Credit(1, 2, 3))],
    ids=lambda message: type(message).__name__,
)  # fmt: skip
def test_short_messages_come_back_as_they_went(message: Any) -> None:
    assert consuming.decode(consuming.encode(message), type(message)) == message


@pytest.mark.parametrize(
    "data",
    [b"", b"\xc1", b"\x93\x01", msgspec.msgpack.encode([-1, 0, 0]),
     msgspec.msgpack.encode([1 << 63, 0, 0]), msgspec.msgpack.encode({"messages": 1}),
     b"\x91" * 100_000],
)  # fmt: skip
def test_what_is_none_is_refused_by_name(data: bytes) -> None:
    with pytest.raises(RemoteProtocolError, match="Credit"):
        consuming.decode(data, Credit)


@pytest.mark.parametrize(
    "returned",
    [[1, 0, 0, 0.0, True, ""], [1, 1 << 20, 1, 0.0, True, ""], [1, 0, 1, -1.0, True, ""],
     [1, 0, 1, DELAY_SECONDS_MAX + 1, True, ""], [1, 0, 1, float("nan"), True, ""],
     [1, 0, 1, 0.0, True, "x" * 201]],
    ids=["nothing", "beyond a batch", "before now", "too late", "no number", "too long a reason"],
)  # fmt: skip
def test_what_is_given_back_has_ranges(returned: list[Any]) -> None:
    with pytest.raises(RemoteProtocolError):
        consuming.decode(msgspec.msgpack.encode([1, [], [], [returned]]), Done)


def test_what_an_instance_says_at_once_of_its_requests_has_bounds() -> None:
    alike = Answer(1, 0, more=[b""] * MORE_MAX)
    most = Done(1, answers=[alike, *[Answer(1, 0)] * (ANSWERS_MAX - 1)], begun=[Begun(1, 0, 1)])
    assert consuming.decode(consuming.encode(most), Done) == most
    for beyond in (
        Done(1, answers=[Answer(1, 0)] * (ANSWERS_MAX + 1)),
        Done(1, answers=[Answer(1, 0, more=[b""] * (MORE_MAX + 1))]),
        Done(1, begun=[Begun(1, 0, 1)] * (BEGUN_MAX + 1)),
    ):
        with pytest.raises(RemoteProtocolError, match="Done"):
            consuming.decode(consuming.encode(beyond), Done)


@pytest.mark.parametrize(
    "settings",
    [{"mode": "some"}, {"lease_seconds": 0.5}, {"lease_seconds": 1e9}, {"attempts": -1},
     {"attempts": 10_001}, {"retry_seconds": -0.1}, {"retry_seconds_max": float("inf")}],
    ids=str,
)  # fmt: skip
def test_settings_of_a_group_have_ranges(settings: dict[str, Any]) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(settings, GroupSettings)


@pytest.mark.parametrize("group", ["", "a b", "x" * 129, "ä", "a\n"])
def test_a_group_has_a_name(group: str) -> None:
    assert msgspec.convert(JOIN, Join).group == "g"
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(JOIN | {"group": group}, Join)


def test_there_are_four_orders() -> None:
    for word in ("pause", "resume", "seek", "delete"):
        order = GroupOrder(id=1, queue=b"q", group="g", order=word)
        assert documents.decode(documents.encode(order), GroupOrder) == order
    wrong = GroupOrder(id=1, queue=b"q", group="g", order="explode")
    with pytest.raises(RemoteProtocolError):
        documents.decode(documents.encode(wrong), GroupOrder)


@pytest.mark.parametrize(("length", "bits"), [(3, 0b111), (3, 0b101), (1, 1), (9, 0b100000001)])
def test_a_lease_says_which_messages_it_stands_for(length: int, bits: int) -> None:
    packed = pack_lease(1 << 60, 2, length, 4, bits)
    assert read_lease(packed) == (1 << 60, 2, length, 4, bits)
    assert lease_bytes(b"x" + packed + b"rest", 1) == len(packed)
    whole = bits == (1 << length) - 1
    assert len(packed) == LEASE.size + (0 if whole else (length + 7) // 8)


@pytest.mark.parametrize(
    "data",
    [b"", LEASE.pack(1, 0, 0, 1, 0), LEASE.pack(1, 0, (1 << 20) + 1, 1, 0),
     LEASE.pack(1, 0, 3, 1, 1) + b"\x00", LEASE.pack(1, 0, 3, 1, 1) + b"\x0f"],
)  # fmt: skip
def test_a_lease_that_stands_for_nothing_is_none(data: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        read_lease(data)


QUESTION = OrderQuestion("billing", b"p" * 16, 7, LogId(2, 5))


def test_questions_and_answers_come_as_they_were_sent() -> None:
    ask = OrderAsk(queue_id=b"q" * 16, asker=(1, 9), questions=[QUESTION])
    told = OrderTold(queue_id=b"q" * 16, asker=(1, 9), answers=[OrderAnswer(QUESTION, SETTLED)])
    for message in (ask, told):
        assert documents.decode(documents.encode(message), MonitorRequest) == message  # type: ignore[comparison-overlap]


def test_too_many_at_once_are_refused() -> None:
    questions = [QUESTION] * (ORDER_QUESTIONS_MAX + 1)
    many = OrderAsk(queue_id=b"q" * 16, asker=(1, 9), questions=questions)
    with pytest.raises(RemoteProtocolError):
        documents.decode(documents.encode(many), MonitorRequest)


def test_a_publisher_has_no_longer_id() -> None:
    long = msgspec.structs.replace(
        OrderAsk(queue_id=b"q", asker=(1, 9), questions=[]),
        questions=[QUESTION._replace(publisher=b"p" * 17)],
    )
    with pytest.raises(RemoteProtocolError):
        documents.decode(documents.encode(long), MonitorRequest)


def test_what_is_done_goes_in_messages_that_any_exchange_hears() -> None:
    leases = list(range(1 << 50, (1 << 50) + 120_000))
    runs = [(lease, 1 << 19, 1 << 19) for lease in leases[:60_000]]
    parts = parts_of(Done(7, leases, runs, [Returned(1, 0, 1, reason="ü" * 200)] * 9), 1 << 26)
    again = [consuming.decode(consuming.encode(each), Done) for each in parts]
    assert [lease for each in again for lease in each.whole] == leases
    assert [run for each in again for run in each.parts] == runs
    assert sum(len(each.returned) for each in again) == 9
    assert len(parts) > 1
    with pytest.raises(RemoteProtocolError):
        consuming.decode(consuming.encode(Done(7, leases)), Done)


def test_what_a_member_holds_takes_as_much_room_as_is_reckoned_with() -> None:
    held = [Run((1 << 62) - each, (1 << 20) - 1, 1 << 20) for each in range(RUNS_MAX)]
    packed = pack_runs(held)
    assert len(packed) <= HELD_BYTES * RUNS_MAX + JOIN_BYTES
    assert read_runs(packed) == held
    assert (pack_runs([]), read_runs(b"")) == (b"", [])
    with pytest.raises(RemoteProtocolError):
        read_runs(pack_runs([*held, held[0]]))
