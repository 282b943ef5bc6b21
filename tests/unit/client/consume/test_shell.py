"""Between the user's thread and the machine of a consumer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest

from roq.client.consume.holding import Holding
from roq.client.consume.message import DONE as ACK
from roq.client.consume.message import Settlement
from roq.client.consume.seat import Membership
from roq.client.consume.shell import HURRY_PARTS, ConsumerShell
from roq.client.io.engine import Engine
from roq.errors import Closed, GroupNotFound, InvalidRequest, LeaseLost, RoQError
from roq.model import ExchangeInfo, PublisherId
from roq.protocol import consuming, documents
from roq.protocol.batch import pack
from roq.protocol.channel import REFUSED, Refused
from roq.protocol.consuming import (
    CREDIT,
    DELETED,
    DONE,
    EXTEND,
    JOIN,
    LEASED,
    LEAVE,
    Done,
    DoneConfirmed,
    Extend,
    Extended,
    GroupSettings,
    Join,
    Joined,
    pack_lease,
    read_runs,
)
from roq.protocol.control import Topology
from roq.protocol.entry import EntryKind, pack_entry

QUEUE = b"q" * 16


class Timer:
    def cancel(self) -> None: ...


class Connection:
    def __init__(self, on_up: Callable[[], None], on_down: Callable[[], None], take: Any) -> None:
        self.up, self.down, self.take = on_up, on_down, take
        self.sent: list[tuple[bytes, bytes]] = []
        self.closed: list[Any] | None = None
        self.trouble = "no route"

    def ask(self, frames: list[bytes]) -> None:
        self.sent.append((frames[0], frames[1]))

    def close(self, farewells: list[Any]) -> None:
        self.closed = farewells


class PaperEngine:
    """One thread: what is wanted soon is done when the test says so."""

    forked = False

    def __init__(self) -> None:
        self.connections: dict[str, Connection] = {}
        self.soon: list[Callable[[], None]] = []
        self.later: list[Callable[[], None]] = []
        self.reactor = self.exchanges = self

    def now(self) -> float:
        return 0.0

    def call_soon(self, function: Callable[[], None]) -> None:
        self.soon.append(function)

    def call_later(self, _seconds: float, function: Callable[[], None]) -> Timer:
        self.later.append(function)
        return Timer()

    def run(self) -> None:
        soon, self.soon = self.soon, []
        for function in soon:
            function()

    def open(
        self, address: str, *, on_up: Any, on_down: Any, on_answers: Any, **_: Any
    ) -> Connection:
        made = self.connections[address] = Connection(on_up, on_down, on_answers)
        return made

    def check_process(self) -> None:
        """It was not forked."""

    def translate(self, address: str) -> str:
        return address


class Script:
    def __init__(self, **settings: Any) -> None:
        self.engine = PaperEngine()
        self.joined = 0
        self.refused: list[RoQError] = []
        member = Membership(
            id=b"m" * 16, name="m", group="g", settings=GroupSettings(attempts=3, **settings),
            latest=False,
            start_us=0, prefetch=10, prefetch_bytes=1_000,
        )  # fmt: skip
        self.shell = ConsumerShell(
            cast("Engine", self.engine), member, on_joined=self._count,
            on_refused=self.refused.append,
        )  # fmt: skip

    def _count(self) -> None:
        self.joined += 1

    def topology(
        self, *numbers: int, at: str = "", logs: tuple[int, ...] = (), generation: int = 1
    ) -> None:
        exchanges = [
            ExchangeInfo(
                number=number,
                epoch=1,
                generation=generation,
                host="h",
                data=f"d{number}{at}",
                live="l",
            )
            for number in numbers
        ]
        self.shell.topology(
            Topology(queue_id=QUEUE, epoch=1, version=1, exchanges=exchanges, logs=list(logs))
        )

    def enter(self, name: str = "d1") -> Connection:
        """The exchange takes the member in."""
        connection = self.engine.connections[name]
        connection.up()
        letter, document = connection.sent.pop()
        assert letter == JOIN
        join = documents.decode(document, Join)
        joined = Joined(
            id=join.id, generation=1, epoch=1, settings=GroupSettings(attempts=5), created_us=1
        )
        connection.take([[JOIN, documents.encode(joined)]])
        assert connection.sent.pop()[0] == CREDIT
        return connection

    def lease(self, connection: Connection) -> Holding:
        """One more, that is not left with the shell."""
        self.arrive(connection)
        return self.shell.arrived.popleft()

    def arrive(self, connection: Connection, number: int = 4, offset: int = 0) -> None:
        batch = pack(
            [b"a", b"b"], publisher=PublisherId(b"p" * 16), epoch=0, link_number=1,
            first_sequence=0, created_us=0,
        )  # fmt: skip
        frame = pack_entry(EntryKind.ENTRY, 1, QUEUE, 1, offset, 0, 0)
        connection.take([[LEASED, pack_lease(number, 0, 2, 1, 0b11), b"t", frame, batch]])


def inside() -> tuple[Script, Connection]:
    script = Script()
    script.topology(1)
    return script, script.enter()


def test_it_is_joined_when_every_exchange_has_taken_it() -> None:
    script = Script()
    script.topology(1, 2)
    script.enter("d1")
    assert script.joined == 0
    assert script.shell.places() == [("x2", "no route")]
    script.enter("d2")
    assert (script.joined, script.shell.places()) == (1, [])
    assert script.shell.attempts == 5, "as the group says"


def test_what_the_user_settles_is_told_in_one_message() -> None:
    script, connection = inside()
    held = script.lease(connection)
    script.shell.settle(held, 0, 1, ACK)
    script.shell.settle(held, 1, 1, Settlement(delay=1.0, reason="no"))
    assert connection.sent == []
    assert len(script.engine.soon) == 1, "woken once"
    script.engine.run()
    ((letter, document),) = connection.sent
    assert letter == DONE
    done = consuming.decode(document, Done)
    assert done.parts == [(4, 0, 1)]
    assert [(each.first, each.reason) for each in done.returned] == [(1, "no")]
    assert script.shell.unsettled == 2
    connection.take([[DONE, consuming.encode(DoneConfirmed(done.serial))]])
    assert script.shell.unsettled == 0


def test_what_is_lost_or_closed_cannot_be_settled() -> None:
    script, connection = inside()
    held = script.lease(connection)
    script.shell.settle(held, 0, 2, ACK)
    script.engine.run()
    connection.take([[DONE, consuming.encode(DoneConfirmed(1, [4]))]])
    with pytest.raises(LeaseLost, match="topic 't'"):
        script.shell.settle(held, 0, 2, ACK)
    held = script.lease(connection)
    script.shell.end(Closed("over"))
    script.shell.end(Closed("later"))
    with pytest.raises(Closed, match="over"):
        script.shell.settle(held, 0, 2, ACK)


def test_a_loop_over_messages_settles_as_well_and_what_is_lost_stays_lost() -> None:
    script, connection = inside()
    held = script.lease(connection)
    script.shell.done(held, 0)
    script.engine.run()
    ((_, document),) = connection.sent
    assert consuming.decode(document, Done).parts == [(4, 0, 1)]
    script.shell.done(held, 0)
    assert script.shell.unsettled == 1, "once is enough"
    held.lose([1])
    script.shell.done(held, 1)
    assert held.is_lost(1, 1), "its loss is counted where it was heard"
    assert script.shell.unsettled == 1
    script.shell.end(Closed("over"))
    with pytest.raises(Closed, match="over"):
        script.shell.done(script.lease(connection), 0)


def test_when_much_is_settled_it_is_told_before_the_next_look() -> None:
    script, connection = inside()
    script.shell._machine.prefetch.messages = HURRY_PARTS
    held = script.lease(connection)
    script.shell.done(held, 0)
    assert len(script.engine.soon) == 1, "the first look"
    script.shell.done(held, 1)
    assert len(script.engine.soon) == 2, "and one more at once"
    script.engine.run()
    assert [letter for letter, _ in connection.sent] == [DONE]


def test_what_is_left_of_a_batch_that_is_lost_in_part_is_settled_all_the_same() -> None:
    script, connection = inside()
    held = script.lease(connection)
    held.lose([0])
    with pytest.raises(LeaseLost, match="topic 't'"):
        script.shell.settle(held, 0, 2, ACK)
    assert not held.open, "else it would be held for ever, and nobody do it"
    script.engine.run()
    ((_, document),) = connection.sent
    assert consuming.decode(document, Done).parts == [(4, 1, 1)]
    assert script.shell.unsettled == 1


def test_who_is_quick_may_hold_as_many_as_it_was_told() -> None:
    script, _ = inside()
    machine = script.shell._machine
    machine.prefetch.look(0, 100.0)
    script.shell.quick(7_000)
    machine.prefetch.look(1_000_000, 101.0)
    assert machine.prefetch.messages == 7_000


def test_event_loops_are_called_when_something_has_come() -> None:
    script, connection = inside()
    rung: list[int] = []
    script.shell.on_ready = lambda: rung.append(1)
    script.lease(connection)
    assert rung == [1]


def test_an_exchange_that_goes_is_left_and_one_that_moves_is_followed() -> None:
    script, connection = inside()
    script.topology(1, at="-new")
    assert connection.closed == []
    moved = script.enter("d1-new")
    script.topology()
    assert moved.closed == []
    assert script.shell.places() == []


def test_what_is_held_of_an_exchange_that_is_away_with_its_log_is_said_when_it_is_back() -> None:
    script, connection = inside()
    held = script.lease(connection)
    script.topology(logs=(1,))
    assert connection.closed == []
    assert not held.lost
    script.topology(1, at="-back", logs=(1,))
    back = script.engine.connections["d1-back"]
    back.up()
    letter, document = back.sent.pop()
    assert letter == JOIN
    assert [run.offset for run in read_runs(documents.decode(document, Join).holds)] == [
        held.offset
    ]
    script.topology()
    assert held.lost, "its log is gone"


def test_what_is_held_of_a_log_in_whose_place_there_is_another_one_is_lost() -> None:
    script, connection = inside()
    held = script.lease(connection)
    script.topology(1, at="-new", logs=(1,), generation=2)
    assert held.lost
    assert len(script.shell.places()) == 1


def test_who_is_refused_is_told_what_kind_of_refusal_it_is() -> None:
    for code, kind in ((DELETED, GroupNotFound), ("group_differs", InvalidRequest)):
        script = Script()
        script.topology(1)
        connection = script.engine.connections["d1"]
        connection.up()
        connection.take([[REFUSED, documents.encode(Refused(code=code, text="no"))]])
        assert type(script.refused[0]) is kind


def test_garbage_from_an_exchange_is_passed_over() -> None:
    script, connection = inside()
    connection.take([[DONE, b"\xc1"], [JOIN, b"\x00"]])
    assert script.lease(connection).attempt == 1


def test_what_is_passed_over_for_good_is_named(caplog: pytest.LogCaptureFixture) -> None:
    _, connection = inside()
    frame = pack_entry(EntryKind.ENTRY, 1, QUEUE, 1, 7, 0, 0)
    lease = pack_lease(4, 0, 2, 6, 0b11)
    connection.take([[LEASED, lease, b"t", frame, b"no batch"]] * 2)
    (record,) = [each for each in caplog.records if "passed over" in each.message]
    assert "offset 7 of log 1:1 cannot be read" in record.message
    assert "after 5 attempts" in record.message
    assert connection.sent[-1][0] == DONE
    assert consuming.decode(connection.sent[-1][1], Done).whole == [4]


def test_the_last_word_is_what_was_settled_and_a_goodbye() -> None:
    script, connection = inside()
    held = script.lease(connection)
    script.shell.take_no_more()
    assert connection.sent.pop()[0] == CREDIT
    script.shell.settle(held, 0, 2, ACK)
    script.shell.close()
    script.shell.close()
    assert [letter for letter, _ in connection.sent] == [DONE]
    assert connection.closed is not None
    assert connection.closed[0][0] == LEAVE


def test_what_was_held_at_an_exchange_that_is_away_waits_until_that_has_spoken() -> None:
    script, connection = inside()
    held = script.lease(connection)
    script.shell.arrived.append(held)
    assert script.shell.ready
    connection.down()
    assert not script.shell.ready
    assert script.shell.take() is None, "it may be another one's by now"
    connection.up()
    join = documents.decode(connection.sent.pop()[1], Join)
    joined = Joined(
        id=join.id, generation=1, epoch=2, settings=GroupSettings(), created_us=1,
        again=[(9, held.offset, held.first, len(held.batch))],
    )  # fmt: skip
    connection.take([[JOIN, documents.encode(joined)]])
    assert script.shell.take() is held
    assert script.shell.take() is None


def test_what_is_lost_before_the_user_has_it_is_not_handed_to_him() -> None:
    script, connection = inside()
    held = script.lease(connection)
    script.shell.arrived.append(held)
    held.lose(range(held.first, held.first + len(held.batch)))
    assert not script.shell.ready
    assert script.shell.take() is None
    assert not script.shell.arrived


def test_in_order_nothing_goes_on_before_what_has_failed() -> None:
    script = Script(mode="exclusive")
    script.topology(1)
    connection = script.enter()
    script.arrive(connection, 4, 0)
    script.arrive(connection, 5, 1)
    first = script.shell.take()
    assert first is not None
    first.begun = 1
    script.shell.settle(first, 0, 1, Settlement(reason="no"))
    script.arrive(connection, 6, 2)
    assert [each.open for each in (first, *script.shell.arrived)] == [0, 0, 0]
    script.engine.run()
    (done,) = [consuming.decode(document, Done) for _, document in connection.sent]
    told = [(each.lease, each.first, each.length, each.counted) for each in done.returned]
    assert told[0] == (4, 0, 1, True)
    assert sorted(told[1:]) == [(4, 1, 1, False), (5, 0, 2, False), (6, 0, 2, False)]
    connection.take([[DONE, consuming.encode(DoneConfirmed(done.serial))]])
    assert script.shell.unsettled == 0
    script.arrive(connection, 7, 0)
    script.arrive(connection, 8, 1)
    assert [each.open for each in list(script.shell.arrived)[-2:]] == [2, 2]


def test_a_shared_group_goes_on_whatever_has_failed() -> None:
    script, connection = inside()
    script.arrive(connection, 4, 0)
    script.arrive(connection, 5, 1)
    first = script.shell.take()
    assert first is not None
    script.shell.settle(first, 0, 1, Settlement(reason="no"))
    assert [each.open for each in (first, *script.shell.arrived)] == [1, 2]


def test_what_has_no_tag_of_the_group_is_told_soon() -> None:
    script = Script(tags=("eu",))
    script.topology(1)
    connection = script.enter()
    script.arrive(connection)
    assert not script.shell.arrived
    assert script.shell.unsettled == 2
    script.engine.run()
    ((_, document),) = connection.sent
    assert consuming.decode(document, Done).whole == [4]
    connection.take([[DONE, consuming.encode(DoneConfirmed(1))]])
    assert script.shell.unsettled == 0


def extended(connection: Connection, seconds: float) -> None:
    letter, document = connection.sent.pop()
    assert letter == EXTEND
    asked = consuming.decode(document, Extend)
    connection.take([[EXTEND, consuming.encode(Extended(asked.request, seconds))]])


def test_who_asks_for_more_time_hears_until_when_or_that_it_is_lost() -> None:
    script, connection = inside()
    held = script.lease(connection)
    future = script.shell.extend(held, 0, 1, 60.0)
    script.engine.run()
    assert not future.done()
    extended(connection, 60.0)
    assert future.result(0) == 60.0
    future = script.shell.extend(held, 0, 1, 60.0)
    script.engine.run()
    extended(connection, 0.0)
    with pytest.raises(LeaseLost):
        future.result(0)
    late, gone = script.shell.extend(held, 0, 1, 60.0), script.shell.extend(held, 1, 1, 60.0)
    script.engine.run()
    assert late.cancel()
    script.shell.close()
    with pytest.raises(LeaseLost):
        gone.result(0)
    script.shell.end(Closed("it is closed"))
    with pytest.raises(Closed):
        script.shell.extend(held, 0, 1, 60.0)


def test_more_time_for_what_is_settled_or_lost_is_refused_at_once() -> None:
    script, connection = inside()
    held = script.lease(connection)
    script.shell.settle(held, 0, 1, ACK)
    with pytest.raises(InvalidRequest, match="acknowledged"):
        script.shell.extend(held, 0, 1, 60.0)
    held.lose(range(1, 2))
    with pytest.raises(LeaseLost):
        script.shell.extend(held, 1, 1, 60.0)
