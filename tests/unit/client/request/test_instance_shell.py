"""When an instance tells what it has answered."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import pytest

from roq.client.consume.message import Settlement
from roq.client.consume.seat import Membership
from roq.client.request.instance_shell import GATHER_SECONDS, SOONEST_SECONDS, InstanceShell
from roq.client.request.request_holding import RUNS, WAITING, HandlerResult, RequestHolding
from roq.model import ExchangeInfo, LogId, PublisherId
from roq.protocol import consuming, documents, requesting
from roq.protocol.attributes import Attributes, pack_attributes
from roq.protocol.batch import pack
from roq.protocol.consuming import (
    DONE,
    JOIN,
    LEASED,
    LEAVE,
    Credit,
    Done,
    DoneConfirmed,
    GroupSettings,
    Join,
    Joined,
    pack_lease,
    read_runs,
)
from roq.protocol.control import Topology
from roq.protocol.entry import EntryKind, pack_entry
from roq.protocol.orphaned_answers import ORPHANED, AnswersOffered, AnswersTaken, sent_again
from roq.protocol.requesting import (
    ENVELOPE,
    ENVELOPE_VERSION,
    ONCE,
    REVOKED,
    Begun,
    Position,
    RequestState,
    Revoked,
    ServiceSettings,
)
from roq.runtime.interfaces import Timer

QUEUE = b"q" * 16
FINE = [HandlerResult(RequestState.DONE)]


class Script:
    """An instance whose I/O thread is the test, and an exchange on paper; it is its connection."""

    forked = False
    trouble = ""
    translate = staticmethod(str)

    def __init__(self, at_once: int = 0, retry: float = 1.0) -> None:
        self.reactor = self.exchanges = self
        self.soon: list[Callable[[], None]] = []
        self.timers: list[tuple[float, Timer]] = []
        self.sent: list[list[bytes]] = []
        self.ran: list[tuple[RequestHolding, int]] = []
        self.withdrawn: list[RequestHolding] = []
        self.used = self.moves = self.busy = 0
        member = Membership(
            id=b"m" * 16, name="m", group="s",
            settings=GroupSettings(retry_seconds=retry, service=ServiceSettings()), latest=False,
            start_us=0, prefetch=100, prefetch_bytes=1 << 20,
        )  # fmt: skip
        self.shell = InstanceShell(
            cast("Any", self), member, self, lambda: None, lambda order: None,
            on_joined=lambda: None, on_refused=lambda error: None, at_once=at_once,
        )  # fmt: skip
        self.orphaned = (0, 0)
        self.number = 0
        self.move()
        self.timers.clear()
        self.sent.clear()

    def move(self) -> None:
        """The exchange is gone, and the queue has another one."""
        number = self.number = self.number + 1
        info = ExchangeInfo(number=number, epoch=1, generation=1, host="h", data="d", live="l")
        self.shell.topology(Topology(queue_id=QUEUE, epoch=1, version=number, exchanges=[info]))
        self.up()
        join = documents.decode(self.sent.pop()[1], Join)
        joined = Joined(id=join.id, generation=1, epoch=1, settings=join.settings, created_us=1)
        self.come([JOIN, documents.encode(joined)])

    def note_orphaned(self, taken: int, dropped: int) -> None:
        self.orphaned = taken, dropped

    def open(self, _address: str, *, on_up: Any, on_down: Any, on_answers: Any, **_: Any) -> Script:
        self.up, self.down, self.take = on_up, on_down, on_answers
        return self

    def now(self) -> float:
        return 0.0

    def call_soon(self, function: Callable[[], None]) -> None:
        self.soon.append(function)

    call_here = call_soon

    def call_later(self, seconds: float, function: Callable[[], None]) -> Timer:
        self.timers.append((seconds, Timer(seconds, function)))
        return self.timers[-1][1]

    def check_process(self) -> None: ...

    def ask(self, frames: list[bytes]) -> None:
        self.sent.append(frames)

    def close(self, farewells: list[list[bytes]]) -> None:
        self.sent += farewells

    def enqueue(self, holding: RequestHolding, indexes: range) -> None:
        self.ran += [(holding, index) for index in indexes]
        holding.stages[indexes.start : indexes.stop] = bytes((WAITING,)) * len(indexes)

    def withdraw(self, holding: RequestHolding) -> None:
        self.withdrawn.append(holding)

    def come(self, *messages: list[bytes]) -> None:
        self.take(list(messages))

    def lease(self, number: int, count: int, flags: int = 0) -> None:
        self.come(self.leased(number, count, flags))

    def leased(
        self,
        number: int,
        count: int,
        *flags: int,
        bits: int = 0,
        before: Sequence[int | None] = (),
    ) -> list[bytes]:
        """With the flags of each, or of all; `before`: of each that was sent once more, at which
        offset of the exchange before."""
        heads = [ENVELOPE.pack(ENVELOPE_VERSION, each, 0) for each in flags or (0,)]
        told = {
            index: Attributes(
                None, (), sent_again({}, LogId(self.number - 1, 1), Position(offset, 0)), 0
            )
            for index, offset in enumerate(before)
            if offset is not None
        }
        batch = pack(
            heads if len(heads) == count else heads * count, publisher=PublisherId(b"p" * 16),
            epoch=0, link_number=1, first_sequence=0, created_us=0,
            attributes=pack_attributes(told) if told else None,
        )  # fmt: skip
        frame = pack_entry(EntryKind.ENTRY, self.number, QUEUE, 1, number, 0, 0)
        lease = pack_lease(number, 0, count, 1, bits or (1 << count) - 1)
        return [LEASED, lease, b"s/do", frame, batch]

    def answer(self) -> None:
        self.shell.answer(*self.ran.pop(0), FINE)

    def look(self) -> list[int]:
        """The I/O thread looks; how many answers each message has that it sends."""
        while self.soon:
            self.soon.pop(0)()
        told = [consuming.decode(each[1], Done) for each in self.sent if each[0] == DONE]
        self.sent.clear()
        return [sum(1 + len(answer.more) for answer in each.answers) for each in told]

    def begun(self) -> list[Begun]:
        """What it has said to be begun since."""
        told = [consuming.decode(each[1], Done) for each in self.sent if each[0] == DONE]
        self.sent.clear()
        return [begun for each in told for begun in each.begun]

    def confirm(self, serial: int) -> None:
        self.come(self.confirmed(serial))

    def confirmed(self, serial: int) -> list[bytes]:
        return [DONE, consuming.encode(DoneConfirmed(serial, []))]

    @property
    def waits(self) -> list[float]:
        return [seconds for seconds, timer in self.timers if timer.call is not None]


def test_the_answer_to_a_request_that_came_alone_is_told_at_once_and_nothing_is_looked_for() -> (
    None
):
    script = Script()
    for number in range(3):
        script.lease(number + 1, 1)
        script.answer()
        assert script.look() == [1]
        assert script.waits == []


def test_of_a_batch_only_what_is_held_says_whether_it_must_not_begin_again() -> None:
    script = Script()
    script.come(script.leased(1, 3, 0, ONCE, 0, bits=0b101))
    assert [index for _, index in script.ran] == [0, 2]
    assert script.begun() == []


def test_answers_to_what_came_together_are_told_together_when_the_last_one_has_ended() -> None:
    script = Script()
    script.lease(1, 3)
    script.answer()
    script.answer()
    assert script.look() == []
    assert script.waits == [GATHER_SECONDS], "but do not wait longer than that"
    script.answer()
    assert script.look() == [3]
    assert script.waits == []


def test_who_takes_long_keeps_nobody_waiting() -> None:
    script = Script()
    script.lease(1, 2)
    script.answer()
    ((_, timer),) = script.timers
    assert timer.call is not None
    timer.call()
    assert script.look() == [1]
    script.lease(2, 1)
    script.ran.reverse()
    while script.timers:  # looks again while there is something
        _, timer = script.timers.pop(0)
        if timer.call is not None:
            timer.call()
    script.answer()
    assert script.look() == [1], "though another one runs"


def test_what_ends_while_it_is_closed_keeps_no_thread_busy() -> None:
    """It is told nowhere any more: its exchange has given it to others."""
    script = Script()
    script.lease(1, 1)
    script.shell.close()
    script.answer()
    for _ in range(3):
        calls, script.soon = script.soon, []
        for call in calls:
            call()
    assert script.soon == []


def test_it_says_what_runs_and_gives_back_what_still_waits() -> None:
    script = Script()
    script.lease(7, 3)
    (holding, _), *_ = script.ran
    script.answer()
    script.look()
    holding.stages[:2] = bytes((RUNS, RUNS))
    script.shell._tick()
    assert script.begun() == [Begun(7, 1, 1)], "what has ended, or waits, is not"
    assert script.withdrawn == [], "it may have come just now"
    script.shell._tick()
    assert (script.begun(), script.withdrawn) == ([], [holding])


def test_what_ends_between_two_looks_is_never_said_to_be_begun() -> None:
    script = Script()
    for number in range(3):
        script.lease(number + 1, 1)
        script.answer()
        script.look()
        script.shell._tick()
        assert script.begun() == []
    assert script.withdrawn == []


def test_what_must_not_be_begun_again_is_said_to_be_begun_when_there_is_a_thread_for_it() -> None:
    script = Script(at_once=2)
    script.lease(1, 1, ONCE)
    script.lease(2, 3, ONCE)
    assert script.begun() == [Begun(1, 0, 1, True), Begun(2, 0, 1, True)]
    script.confirm(1)
    script.confirm(2)
    script.used = script.busy = 2
    script.shell._tick()
    assert script.begun() == []
    script.used = 1
    script.answer()
    while script.soon:
        script.soon.pop(0)()
    assert script.begun() == [Begun(2, 1, 1, True)]
    script.confirm(4)
    assert [(holding.number, index) for holding, index in script.ran] == [(2, 0), (2, 1)]
    script.used = 2
    script.shell._tick()
    done = [consuming.decode(each[1], Done) for each in script.sent if each[0] == DONE]
    script.sent.clear()
    assert done == []
    script.look()
    script.answer()
    script.used = 0
    script.shell.close()
    assert script.begun() == [], "whoever leaves begins nothing"


def test_what_comes_with_a_confirmation_has_not_the_thread_of_what_is_confirmed() -> None:
    script = Script(at_once=2)
    script.lease(1, 2, ONCE)
    assert script.begun() == [Begun(1, 0, 2, True)]
    script.come(script.confirmed(1), script.leased(2, 1, ONCE))
    assert script.begun() == []
    assert [index for _, index in script.ran] == [0, 1]


def test_what_was_not_said_to_be_begun_is_given_back_when_it_has_waited() -> None:
    script = Script(at_once=2)
    script.used = script.busy = 2
    script.lease(7, 3, ONCE)
    script.shell._tick()
    assert script.begun() == []
    script.shell._tick()
    while script.soon:
        script.soon.pop(0)()
    done = [consuming.decode(each[1], Done) for each in script.sent if each[0] == DONE]
    back = [each for told in done for each in told.returned]
    assert [(each.lease, each.first, each.length, each.counted) for each in back] == [
        (7, 0, 3, False)
    ]
    assert [each.credit.messages for each in done if each.credit] == [3], "and nothing more comes"


def test_what_waits_for_its_exchange_is_not_taken_for_want_of_threads() -> None:
    script = Script(at_once=2)
    script.used = script.busy = 2
    script.lease(7, 3, ONCE)
    script.shell._tick()
    script.down()
    script.used = script.busy = 1
    script.shell._tick()
    assert script.soon == [], "it is not given back"
    script.up()
    join = documents.decode(script.sent.pop()[1], Join)
    joined = Joined(
        id=join.id, generation=1, epoch=1, settings=join.settings, created_us=1,
        again=[(8, each.offset, each.first, each.length) for each in read_runs(join.holds)],
    )  # fmt: skip
    script.come([JOIN, documents.encode(joined)])
    credit = consuming.decode(script.sent[-1][1], Credit)
    assert credit.messages == 97, "and it goes on taking"
    script.shell._tick()
    assert script.begun() == [Begun(8, 0, 1, True)]


def test_who_closes_gives_back_what_no_handler_has_begun_with() -> None:
    """Said to be begun or not: else what must not be begun again would be unknown."""
    script = Script(at_once=2)
    script.lease(7, 3, ONCE)
    script.confirm(1)
    script.used = 2
    script.lease(8, 1, ONCE)
    script.sent.clear()
    script.shell.close()
    assert script.withdrawn == [script.ran[0][0]]
    done = [consuming.decode(each[1], Done) for each in script.sent if each[0] == DONE]
    back = [(each.lease, each.first, each.length) for told in done for each in told.returned]
    assert back == [(7, 2, 1), (8, 0, 1)]
    assert script.sent[-1][0] == LEAVE


@pytest.mark.parametrize(
    ("retry", "attempt", "losses", "wait"),
    [(10.0, 1, 0, 10.0), (10.0, 3, 0, 40.0), (10.0, 3, 1, 20.0), (0.0, 1, 0, SOONEST_SECONDS)],
)
def test_after_an_error_a_request_waits_as_its_instance_says_whoever_has_made_the_service(
    retry: float, attempt: int, losses: int, wait: float
) -> None:
    script = Script(retry=retry)
    script.lease(7, 1)
    holding, _ = script.ran.pop()
    holding.attempt, holding.losses = attempt, losses
    script.shell.give_back(holding, 0, Settlement(reason="no"))
    while script.soon:
        script.soon.pop(0)()
    (done,) = [consuming.decode(each[1], Done) for each in script.sent if each[0] == DONE]
    (back,) = done.returned
    assert (back.counted, back.reason) == (True, "no")
    assert wait <= back.delay <= 1.25 * wait


def test_who_drains_gives_back_what_waits_at_once() -> None:
    script = Script()
    script.lease(7, 2)
    script.shell.drain()
    assert script.withdrawn == [script.ran[0][0]]


class Stranded:
    """A request at offset 1 runs as its exchange is gone; the queue has another one."""

    def __init__(self, count: int = 1) -> None:
        self.script = script = Script()
        script.lease(1, count)
        self.running, script.ran = script.ran, []
        self.holding = self.running[0][0]
        self.holding.stages[:] = bytes((RUNS,)) * count
        script.move()
        script.sent.clear()

    def ends(self, result: HandlerResult = FINE[0]) -> None:
        self.script.shell.answer(*self.running.pop(0), [result])

    def look(self) -> None:
        while self.script.soon:
            self.script.soon.pop(0)()

    def offered(self) -> list[AnswersOffered]:
        self.look()
        sent, self.script.sent[:] = list(self.script.sent), []
        return [requesting.decode(each[1], AnswersOffered) for each in sent if each[0] == ORPHANED]

    def come_again(self, number: int = 7) -> None:
        self.script.come(self.script.leased(number, 1, before=[1]))


def test_what_ends_when_its_exchange_is_gone_is_offered_before_there_is_room_for_more() -> None:
    stranded = Stranded()
    assert not stranded.holding.is_lost(0, 1)
    stranded.ends()
    stranded.look()
    assert [each[0] for each in stranded.script.sent] == [ORPHANED]
    assert stranded.script.shell.unsettled == 1, "who closes waits a little for that"
    ((told,),) = [each.answers for each in stranded.offered()]
    stranded.script.come([ORPHANED, requesting.encode(AnswersTaken([told.token], [], 4, 1.0))])
    stranded.script.shell._tick()
    assert stranded.script.orphaned == (1, 0)
    assert stranded.script.shell.unsettled == 0


def test_what_was_answered_and_not_confirmed_is_offered_when_its_exchange_is_gone() -> None:
    script = Script()
    script.lease(1, 1)
    (holding, _) = script.ran[0]
    holding.stages[0] = RUNS
    script.answer()
    assert script.look() == [1]
    script.move()
    script.sent.clear()
    script.shell._tick()
    assert ORPHANED in {each[0] for each in script.sent}


def test_what_ended_as_its_exchange_was_left_is_offered_as_well(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The answer is there, and not marked, when the I/O thread leaves the exchange."""
    script = Script()
    script.lease(1, 1)
    (holding, index) = script.ran[0]
    holding.stages[0] = RUNS
    settle = script.shell.settle

    def moved_first(*given: Any) -> None:
        script.move()
        settle(*given)

    monkeypatch.setattr(script.shell, "settle", moved_first)
    script.shell.answer(holding, index, FINE)
    script.sent.clear()
    while script.soon:
        script.soon.pop(0)()
    assert [each[0] for each in script.sent] == [ORPHANED]


def test_a_request_that_runs_here_already_is_not_run_again_and_gets_that_answer() -> None:
    stranded = Stranded()
    stranded.come_again()
    assert stranded.script.ran == []
    stranded.script.shell._tick()
    assert stranded.script.begun() == [Begun(7, 0, 1)], "it is said to run"
    stranded.ends(HandlerResult(RequestState.DONE, b"v"))
    stranded.look()
    (done,) = [each for each in stranded.script.sent if each[0] == DONE]
    (told,) = consuming.decode(done[1], Done).answers
    assert (told.lease, told.value) == (7, b"v")
    assert stranded.offered() == []
    assert stranded.script.orphaned == (1, 0)


def test_what_has_run_for_too_long_does_not_run_again_where_it_was_sent_once_more() -> None:
    stranded = Stranded()
    stranded.ends(HandlerResult(RequestState.LATE, text="too late", ran_late=True))
    stranded.look()
    stranded.come_again()
    assert stranded.script.ran == []
    stranded.look()
    (done,) = [each for each in stranded.script.sent if each[0] == DONE]
    (told,) = consuming.decode(done[1], Done).answers
    assert (told.lease, told.state, told.text) == (7, "late", "too late")


def test_a_request_that_was_answered_here_is_answered_when_it_comes_and_others_run() -> None:
    stranded = Stranded()
    stranded.ends(HandlerResult(RequestState.DONE, b"v"))
    stranded.offered()
    stranded.script.come(stranded.script.leased(7, 3, before=[None, 1, None]))
    assert [index for _, index in stranded.script.ran] == [0, 2]
    stranded.look()
    (done,) = [each for each in stranded.script.sent if each[0] == DONE]
    (told,) = consuming.decode(done[1], Done).answers
    assert (told.lease, told.index, told.value) == (7, 1, b"v")


@pytest.mark.parametrize("told", [False, True])
def test_what_was_answered_as_its_exchange_died_does_not_run_when_it_comes_again_at_once(
    *, told: bool
) -> None:
    """Before the instance has looked: the requester is quick."""
    script = Script()
    script.lease(1, 2)
    (holding, index), _ = script.ran
    holding.stages[:] = bytes((RUNS, RUNS))
    script.shell.answer(holding, index, [HandlerResult(RequestState.DONE, b"v")])
    if told:
        assert script.timers[0][1].call is not None
        script.timers[0][1].call()
        assert script.look() == [1], "and its exchange has not confirmed it"
    script.ran.clear()
    script.move()
    script.sent.clear()
    script.come(script.leased(7, 1, before=[1]))
    assert script.ran == []
    while script.soon:
        script.soon.pop(0)()
    (done,) = [each for each in script.sent if each[0] == DONE]
    (answer,) = consuming.decode(done[1], Done).answers
    assert (answer.lease, answer.value) == (7, b"v")


def test_what_is_to_be_run_again_runs_where_it_was_sent_once_more() -> None:
    stranded = Stranded()
    stranded.come_again()
    stranded.script.shell.give_back(*stranded.running.pop(0), Settlement(reason="Timeout"))
    stranded.look()
    ((holding, index),) = stranded.script.ran
    assert (holding.number, index) == (7, 0)
    stranded.script.answer()
    assert stranded.script.look() == [1]


def test_when_the_second_exchange_is_gone_as_well_the_answer_goes_to_the_third() -> None:
    stranded = Stranded()
    stranded.come_again()
    stranded.script.move()
    stranded.script.sent.clear()
    stranded.ends(HandlerResult(RequestState.DONE, b"v"))
    ((told,),) = [each.answers for each in stranded.offered()]
    assert told.value == b"v"
    assert stranded.script.orphaned == (0, 0), "nobody has it yet"


def test_when_the_second_exchange_is_gone_as_well_what_is_to_be_run_again_runs_at_the_third() -> (
    None
):
    stranded = Stranded()
    stranded.come_again()
    stranded.script.move()
    script = stranded.script
    script.come(script.leased(9, 1, before=[7]))
    assert script.ran == [], "it waits for the one that waits"
    script.shell.give_back(*stranded.running.pop(0), Settlement(reason="Timeout"))
    stranded.look()
    ((holding, _),) = script.ran
    assert holding.number == 9


def test_what_was_cancelled_meanwhile_takes_the_answer_of_nobody() -> None:
    stranded = Stranded()
    stranded.come_again()
    told = requesting.encode(Revoked([(7, 0)]))
    stranded.script.come([REVOKED, told])
    stranded.ends()
    assert stranded.offered() == []
    assert stranded.script.look() == []


def test_who_is_closed_offers_nothing_more() -> None:
    stranded = Stranded()
    stranded.ends()
    stranded.script.shell.close()
    assert stranded.offered() == []


def test_that_answers_were_dropped_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    stranded = Stranded(2)
    stranded.ends()
    stranded.ends()
    ((one, other),) = [each.answers for each in stranded.offered()]
    outdated = AnswersTaken([], [one.token, other.token], 4, 1.0)
    stranded.script.come([ORPHANED, requesting.encode(outdated)])
    for _ in range(3):
        stranded.script.shell._tick()
    assert stranded.script.orphaned == (0, 2)
    (record,) = caplog.records
    assert record.getMessage().startswith("2 answers of service s were dropped")
