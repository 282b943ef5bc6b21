"""What a publisher's link does with each thing that can happen to it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec import structs

from roq.client.publish.link import FLAPS_MAX, READY_SECONDS, READY_SECONDS_MOST, STEADY_SECONDS
from roq.client.publish.machine import (
    AskAttach,
    Assignment,
    ConnectionLost,
    Drop,
    Effect,
    Leave,
    Open,
    PublisherMachine,
    PublisherPhase,
    Received,
    Relocate,
    Say,
    Serving,
    TellRelocated,
    Transmit,
)
from roq.client.publish.receipt import Outcome, Receipt
from roq.client.publish.relocation import DRAIN_SECONDS
from roq.machine import Tick
from roq.model import ExchangeInfo, Limits, PublisherId
from roq.protocol import batch as wire
from roq.protocol import channel, documents
from roq.protocol.extensions import read_floor
from roq.runtime.backoff import MOST_SECONDS, Jitter
from roq.timing import ACK_SECONDS, RESET_SECONDS

LIMITS = Limits(window_batches=4)
X1 = ExchangeInfo(number=1, epoch=5, generation=5, host="h", data="tcp://h:1", live="")
X2 = ExchangeInfo(number=2, epoch=8, generation=6, host="h", data="tcp://h:2", live="")


class NoWaiter:
    def wait_for(self, condition: Callable[[], bool], timeout: float | None) -> bool:
        raise AssertionError("nothing here waits")


class Script:
    """Drives a link and remembers what it did."""

    def __init__(self, jitter: Jitter | None = None) -> None:
        self.machine = PublisherMachine(
            PublisherId(b"p" * 16), b"q" * 16, LIMITS, delivery_seconds=20.0, jitter=jitter
        )
        self.now = 100.0
        self.receipts: list[Receipt] = []

    @property
    def link(self) -> int:
        return self.machine.links[-1].number

    def lost(self, reason: str) -> list[Effect]:
        return self.feed(ConnectionLost(self.link, reason))

    def feed(self, event: object) -> list[Effect]:
        effects = self.machine.handle(event, self.now)  # type: ignore[arg-type]
        self.machine.check()
        return effects

    def says(self, kind: bytes, document: object) -> list[Effect]:
        frames = [kind, documents.encode(document)]  # type: ignore[arg-type]
        return self.feed(Received(self.link, frames))

    def assign(self, exchange: ExchangeInfo = X1, epoch: int = 1) -> list[Effect]:
        return self.feed(Assignment(exchange, epoch, LIMITS))

    def accept(self, expected: int = 1, exchange: ExchangeInfo = X1) -> list[Effect]:
        return self.says(
            channel.READY,
            channel.Ready(
                exchange=exchange.number, exchange_epoch=exchange.epoch,
                generation=exchange.generation, expected=expected,
                message_bytes=1, batch_bytes=1, batch_messages=1,
                window_bytes=1 << 20, window_batches=4,
            ),
        )  # fmt: skip

    def ack(self, number: int) -> list[Effect]:
        return self.feed(Received(self.link, [channel.ACK, channel.NUMBER.pack(number)]))

    def publish(self, topic: str = "t", payload: bytes = b"x") -> list[int]:
        receipt = Receipt(NoWaiter())
        self.receipts.append(receipt)
        stream = self.machine.topics.stream(topic)
        self.machine.chooser.seal(stream, [payload], receipt, self.now, 1)
        sent = [s.link_number for link in self.machine.links for s in link.transmit(self.now)]
        self.machine.check()
        return sent


@pytest.fixture
def ready() -> Script:
    script = Script()
    script.assign()
    script.accept()
    return script


def opened(effects: list[Effect]) -> channel.Hello:
    effect = next(e for e in effects if isinstance(e, Open))
    assert effect.hello[0] == channel.HELLO
    return documents.decode(effect.hello[1], channel.Hello)


def sent(effects: list[Effect]) -> list[int]:
    return [s.link_number for e in effects if isinstance(e, Transmit) for s in e.batches]


def test_an_assignment_opens_a_connection_with_a_hello() -> None:
    script = Script()
    hello = opened(script.assign())
    assert (hello.epoch, hello.attempt, hello.queue) == (1, 1, b"q" * 16)
    assert hello.streams == []
    assert script.machine.phase is PublisherPhase.OPENING


def test_nothing_is_sent_before_ready_and_everything_after() -> None:
    script = Script()
    script.assign()
    assert script.publish() == []
    assert sent(script.accept()) == [1]
    assert script.publish() == [2]


def test_a_broken_connection_is_opened_again_and_replays_what_the_exchange_has_not(
    ready: Script,
) -> None:
    for _ in range(3):
        ready.publish()
    ready.ack(1)
    hello = opened(ready.lost("cut"))
    assert (hello.epoch, hello.attempt) == (1, 2)
    assert sent(ready.accept(expected=3)) == [3]
    assert [receipt.done() for receipt in ready.receipts] == [True, True, False]


def test_a_hello_tells_where_each_stream_stands_and_how_long_it_was_idle(ready: Script) -> None:
    ready.publish("a")
    ready.publish("b")
    ready.ack(1)
    ready.now += 2.0
    hello = opened(ready.lost("cut"))
    assert [(s.topic, s.first, s.idle_us) for s in hello.streams] == [
        (b"a", 1, 2_000_000), (b"b", 0, 0),
    ]  # fmt: skip


def test_an_exchange_that_cannot_be_reached_is_reported_as_failed() -> None:
    script = Script()
    script.assign()
    effects = script.lost("refused")
    assert effects == [Drop(2), AskAttach(((1, 5),))]
    assert script.machine.phase is PublisherPhase.DETACHED
    assert "refused" in script.machine.reason


def test_the_second_failure_in_a_row_waits_before_it_asks_again() -> None:
    script = Script()
    script.assign()
    script.lost("refused")
    script.assign(X2, 2)
    assert script.lost("refused") == [Drop(3)]
    deadline = script.machine.next_deadline()
    assert deadline is not None
    script.now = deadline
    assert script.feed(Tick()) == [AskAttach(((2, 8),))]


def test_no_answer_to_a_hello_is_a_failure() -> None:
    script = Script()
    script.assign()
    script.now += READY_SECONDS
    assert AskAttach(((1, 5),)) in script.feed(Tick())


def test_no_acknowledgement_for_long_opens_a_new_connection(ready: Script) -> None:
    ready.publish()
    ready.now += ACK_SECONDS + 0.1
    assert opened(ready.feed(Tick())).attempt == 2


def test_a_large_batch_has_the_time_that_a_slow_network_takes(ready: Script) -> None:
    ready.publish(payload=bytes(4 * channel.SLOWEST_BYTES_PER_SECOND))
    ready.now += ACK_SECONDS + 3.9
    assert ready.feed(Tick()) == []
    ready.now += 0.2
    assert opened(ready.feed(Tick())).attempt == 2


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


def test_an_idle_link_is_left_alone(ready: Script) -> None:
    assert ready.machine.next_deadline() is None
    ready.now += 1000
    assert ready.feed(Tick()) == []


def test_another_exchange_behind_the_address_is_not_used() -> None:
    script = Script()
    script.assign()
    assert AskAttach(((1, 5),)) in script.accept(exchange=X2)


def test_a_link_number_that_was_never_sent_cannot_be_expected() -> None:
    script = Script()
    script.assign()
    script.publish()
    effects = script.accept(expected=2)
    assert any(isinstance(effect, AskAttach) for effect in effects)
    assert not script.receipts[0].done()


def test_a_forgotten_link_starts_from_one(ready: Script) -> None:
    ready.publish()
    ready.publish()
    ready.ack(1)
    ready.lost("cut")
    assert sent(ready.accept(expected=1)) == [1]
    assert ready.machine.tally.forgotten == 1
    ready.ack(1)
    assert all(receipt.done() for receipt in ready.receipts)


def test_a_reset_replays_once_however_often_it_is_said(ready: Script) -> None:
    for _ in range(3):
        ready.publish()
    again = channel.Reset(expected=2)
    assert sent(ready.says(channel.RESET, again)) == [2, 3]
    assert ready.says(channel.RESET, again) == []
    ready.now += RESET_SECONDS
    assert sent(ready.says(channel.RESET, again)) == [2, 3]
    assert ready.machine.tally.resets == 3


@pytest.mark.parametrize("expected", [0, 9])
def test_a_reset_to_nowhere_says_hello_again(ready: Script, expected: int) -> None:
    ready.publish()
    effects = ready.says(channel.RESET, channel.Reset(expected=expected))
    assert opened(effects).attempt == 2


def test_a_refused_batch_becomes_a_void_and_the_rest_follows(ready: Script) -> None:
    ready.publish()
    ready.publish()
    refused = channel.Refused(code="too_large", text="65 MiB", link_number=1)
    effects = ready.says(channel.REFUSED, refused)
    assert sent(effects) == [1, 2]
    transmit = effects[0]
    assert isinstance(transmit, Transmit)
    assert wire.read_header(transmit.batches[0].data).kind == wire.Kind.VOID
    status = ready.receipts[0].status
    assert status is not None
    assert status.outcome is Outcome.FAILED
    assert "65 MiB" in status.reason


@pytest.mark.parametrize("code", ["stale_epoch", "moved", "full", "foreign_queue", "version"])
def test_a_refused_link_asks_for_another_exchange(ready: Script, code: str) -> None:
    effects = ready.says(channel.REFUSED, channel.Refused(code=code, text="no"))
    assert AskAttach(((1, 5),)) in effects
    assert code in ready.machine.reason


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
    assert ready.machine.tally.replayed_batches == 1


def test_an_assignment_that_was_overtaken_is_ignored(ready: Script) -> None:
    assert ready.assign(X2, 1) == []
    assert ready.machine.exchanges == (X1,)


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
    assert ready.machine.exchanges == (X1,)


def test_a_link_follows_its_log_to_another_process_and_keeps_its_numbers(ready: Script) -> None:
    ready.publish()
    link = link_at(ready, X1)
    there = structs.replace(X1, epoch=9, data="tcp://elsewhere:1")
    (opened,) = ready.feed(Serving((there,)))
    assert isinstance(opened, Open)
    assert (opened.link, opened.endpoint) == (link, "tcp://elsewhere:1")
    assert sent(ready.accept(exchange=there)) == [1]
    assert (ready.machine.at, ready.machine.epoch) == ([(1, 9)], 1)
    assert ready.feed(Serving((there,))) == []
    assert ready.feed(Serving((X1,))) == []  # of an earlier process: old news


def test_a_log_of_another_generation_at_the_same_number_is_another_log(ready: Script) -> None:
    ready.publish()
    effects = ready.feed(Serving((structs.replace(X1, epoch=9, generation=9),)))
    assert effects == []  # the link works; it is watched, as its exchange is not counted any more
    ready.now += 5.0
    assert AskAttach(((1, 5),)) in ready.feed(Tick())


def test_another_log_that_answers_at_the_address_is_not_taken_for_this_one(ready: Script) -> None:
    ready.publish()
    ready.lost("cut")
    effects = ready.accept(exchange=structs.replace(X1, generation=9))
    assert (sent(effects), ready.machine.at) == ([], [])


def test_what_is_not_acknowledged_in_time_is_given_up(ready: Script) -> None:
    ready.publish()
    ready.now += 20.0
    ready.feed(Tick())
    status = ready.receipts[0].status
    assert status is not None
    assert status.outcome is Outcome.UNKNOWN
    assert "20 s" in status.reason


def test_an_exchange_that_says_why_it_does_not_acknowledge_is_left_alone(ready: Script) -> None:
    ready.publish()
    held = channel.Held(reader=b"\xab" * 16, seconds=1.0, most=10.0)
    for _ in range(30):
        ready.now += 0.5
        ready.says(channel.HELD, held)
        assert ready.feed(Tick()) == []
    assert "slow subscriber (abababab) of exchange x1" in ready.machine.links[0].held
    ready.now += 5.0
    ready.feed(Tick())
    status = ready.receipts[0].status
    assert status is not None
    assert "held back by a slow subscriber" in status.reason


def test_an_acknowledgement_ends_what_was_said_of_its_delay(ready: Script) -> None:
    ready.publish()
    ready.says(channel.HELD, channel.Held(reader=b"r", seconds=1.0, most=10.0))
    ready.ack(1)
    assert ready.machine.links[0].held == ""


def test_an_acknowledgement_of_what_was_never_sent_ends_the_link(ready: Script) -> None:
    ready.publish()
    assert AskAttach(((1, 5),)) in ready.ack(7)
    assert not ready.receipts[0].done()


@pytest.mark.parametrize(
    "frames",
    [
        [], [b""], [channel.ACK], [channel.ACK, b"short"], [channel.READY, b"garbage"],
        [channel.RESET, b""], [channel.REFUSED, b"\x05\x00\x00\x00\x00"], [b"a", b"b", b"c"],
        [b"\xff?", b""],
    ],
)  # fmt: skip
def test_garbage_is_counted_and_changes_nothing(ready: Script, frames: list[bytes]) -> None:
    ready.publish()
    assert ready.feed(Received(ready.link, frames)) == []
    assert ready.machine.tally.malformed == 1
    assert ready.machine.ready


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
    assert ready.machine.next_deadline() is None


# --- relocation -----------------------------------------------------------------------------------

X3 = ExchangeInfo(number=3, epoch=7, generation=7, host="h", data="tcp://h:3", live="")


def relocate(script: Script, epoch: int, *exchanges: ExchangeInfo) -> list[Effect]:
    return script.feed(Relocate(epoch, exchanges))


def told(effects: list[Effect]) -> TellRelocated:
    (one,) = (effect for effect in effects if isinstance(effect, TellRelocated))
    return one


def link_at(script: Script, exchange: ExchangeInfo) -> int:
    return next(link.number for link in script.machine.links if link.exchange == exchange)


def from_link(script: Script, link: int, kind: bytes, body: bytes) -> list[Effect]:
    return script.feed(Received(link, [kind, body]))


def acked(script: Script, exchange: ExchangeInfo, number: int) -> list[Effect]:
    link = link_at(script, exchange)
    return from_link(script, link, channel.ACK, channel.NUMBER.pack(number))


def accepted(script: Script, exchange: ExchangeInfo) -> list[Effect]:
    ready = channel.Ready(
        exchange=exchange.number, exchange_epoch=exchange.epoch, generation=exchange.generation,
        expected=1, message_bytes=1, batch_bytes=1, batch_messages=1,
        window_bytes=1 << 20, window_batches=4,
    )  # fmt: skip
    link = link_at(script, exchange)
    return from_link(script, link, channel.READY, documents.encode(ready))


def places(effects: list[Effect]) -> list[tuple[int, int]]:
    """Link and first sequence of what is sent."""
    return [
        (effect.link, sealed.first_sequence)
        for effect in effects
        if isinstance(effect, Transmit)
        for sealed in effect.batches
    ]


def test_a_move_opens_its_target_first_and_goes_on_at_the_old_exchange(ready: Script) -> None:
    hello = opened(relocate(ready, 2, X2))
    assert hello.epoch == 2
    ready.publish()
    assert ready.machine.exchanges == (X1,)
    assert len(ready.machine.links[0].window) == 1
    assert not ready.machine.pausing


def test_a_move_switches_when_the_old_exchange_has_acknowledged_everything(ready: Script) -> None:
    ready.publish()
    relocate(ready, 2, X2)
    assert accepted(ready, X2) == []
    assert ready.machine.pausing
    assert ready.publish() == [], "it waits for the old exchange"
    ready.now += 0.01
    effects = acked(ready, X1, 1)
    drop = next(effect for effect in effects if isinstance(effect, Drop))
    assert documents.decode(drop.bye[1], channel.Bye).epoch == 2
    assert places(effects) == [(link_at(ready, X2), 1)]
    answer = told(effects)
    assert (answer.epoch, answer.accepted, answer.pause_us) == (2, True, 10_000)
    assert (ready.machine.exchanges, ready.machine.epoch, ready.machine.at) == ((X2,), 2, [(2, 8)])
    assert ready.machine.tally.replayed_batches == 0


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
    assert (ready.machine.exchanges, ready.machine.epoch) == ((X1,), 1)
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
    assert ready.machine.exchanges == (X2,)


def test_of_two_relocations_the_higher_epoch_wins(ready: Script) -> None:
    relocate(ready, 2, X2)
    relocate(ready, 3, X3)
    assert {link.exchange for link in ready.machine.links} == {X1, X3}
    assert told(accepted(ready, X3)).epoch == 3
    assert ready.machine.exchanges == (X3,)


def test_a_relocation_that_comes_while_another_drains_follows_it(ready: Script) -> None:
    ready.publish()
    relocate(ready, 2, X2)
    accepted(ready, X2)
    assert relocate(ready, 3, X3) == []
    effects = acked(ready, X1, 1)
    assert told(effects).epoch == 2
    assert opened(effects).epoch == 3
    assert told(accepted(ready, X3)).epoch == 3
    assert ready.machine.exchanges == (X3,)


def test_a_relocation_to_where_it_is_already_is_accepted_at_once(ready: Script) -> None:
    effects = relocate(ready, 2, X1)
    assert effects == [TellRelocated(2, accepted=True)]
    assert ready.machine.epoch == 2
    assert ready.publish() == [1]


def test_a_relocation_to_nowhere_fails(ready: Script) -> None:
    assert not told(relocate(ready, 2)).accepted
    assert ready.machine.ready


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
    assert len(ready.machine.links) == 1


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


def test_an_exchange_that_was_emptied_and_is_gone_has_nothing_replayed(ready: Script) -> None:
    ready.publish()
    ready.ack(1)
    relocate(ready, 2, X2)
    accepted(ready, X2)
    ready.now += 5.0
    one, emptied = (X2,), frozenset({X1.log})
    assert ready.feed(Serving(one, emptied)) == []
    assert ready.feed(Serving(one)) == []


def test_publishers_that_lose_their_exchange_at_the_same_time_ask_at_different_ones() -> None:
    waits = set()
    for jitter in (0.1, 0.5, 0.9):
        script = Script(lambda jitter=jitter: jitter)
        script.assign()
        assert AskAttach(((1, 5),)) in script.lost("refused")
        script.assign(X2, 2)
        assert AskAttach(((2, 8),)) not in script.lost("refused")
        wake = script.machine.next_deadline()
        assert wake is not None
        waits.add(wake - script.now)
    assert len(waits) == 3


def test_asking_for_an_exchange_is_tried_for_ever_with_bounded_waits() -> None:
    script = Script(lambda: 0.999)
    for epoch in range(1, 30):
        script.assign(epoch=epoch)
        if AskAttach(((1, 5),)) in script.lost("refused"):
            continue
        wake = script.machine.next_deadline()
        assert wake is not None
        assert wake - script.now <= MOST_SECONDS
        script.now = wake
        assert AskAttach(((1, 5),)) in script.feed(Tick())


def test_an_exchange_that_answers_late_gets_more_time_the_next_time() -> None:
    script = Script(lambda: 0.0)
    seconds = []
    for epoch in range(1, 6):
        begun = script.now
        script.assign(epoch=epoch)
        while not any(isinstance(each, AskAttach) for each in script.feed(Tick())):
            script.now += 0.25
        seconds.append(script.now - begun)
    assert seconds[0] == READY_SECONDS
    assert seconds == sorted(seconds)
    assert seconds[-1] == READY_SECONDS_MOST
    script.assign(epoch=9)
    script.accept()
    begun = script.now
    opened(script.lost("cut"))
    opened(script.assign(epoch=10))
    while not any(isinstance(each, AskAttach) for each in script.feed(Tick())):
        script.now += 0.25
    assert script.now - begun == READY_SECONDS


def test_a_connection_that_breaks_as_soon_as_it_works_is_not_made_again_for_ever(
    ready: Script,
) -> None:
    for _ in range(FLAPS_MAX):
        opened(ready.lost("closed"))
        ready.accept()
    assert AskAttach(((1, 5),)) in ready.lost("closed")


def test_a_connection_that_has_worked_for_a_while_is_made_again_at_once(ready: Script) -> None:
    for _ in range(3 * FLAPS_MAX):
        ready.now += STEADY_SECONDS
        opened(ready.lost("cut"))
        ready.accept()


# --- striping -------------------------------------------------------------------------------------


def floors(script: Script) -> dict[tuple[int, int], int | None]:
    return {
        (link.number, sealed.first_sequence): read_floor(
            sealed.data[wire.HEADER_BYTES :][: wire.read_header(sealed.data).ext_bytes]
        )
        for link in script.machine.links
        for sealed in link.window
    }


@pytest.fixture
def striped(ready: Script) -> Script:
    ready.publish()
    relocate(ready, 2, X1, X2)
    assert told(accepted(ready, X2)).accepted
    return ready


def test_a_stripe_deals_batches_in_turn_and_tells_how_far_the_stream_is(striped: Script) -> None:
    one, two = link_at(striped, X1), link_at(striped, X2)
    for _ in range(3):
        striped.publish()
    assert floors(striped) == {(one, 0): None, (one, 1): 0, (two, 2): 0, (one, 3): 0}
    acked(striped, X1, 2)
    striped.publish()
    assert floors(striped)[two, 4] == 2
    assert striped.machine.exchanges == (X1, X2)


def test_each_lane_has_its_own_link_numbers_and_epoch(striped: Script) -> None:
    striped.publish()
    striped.publish()
    headers = [
        wire.read_header(sealed.data) for link in striped.machine.links for sealed in link.window
    ]
    assert [(h.epoch, h.link_number) for h in headers] == [(1, 1), (1, 2), (2, 1)]


def test_there_is_room_as_long_as_one_lane_has_room(striped: Script) -> None:
    published = 0
    while striped.machine.chooser.has_room:
        striped.publish()
        published += 1
    assert published == 7, "a window of four each, and one was there before"
    acked(striped, X2, 1)
    assert striped.machine.chooser.has_room


def test_a_receipt_names_the_exchange_that_accepted(striped: Script) -> None:
    striped.publish()
    striped.publish()
    acked(striped, X2, 1)
    status = striped.receipts[2].status
    assert status is not None
    assert status.exchange == "x2"


def test_a_lane_that_leaves_a_stripe_is_drained_while_the_others_go_on(striped: Script) -> None:
    striped.publish()
    striped.publish()
    assert relocate(striped, 3, X1) == []
    striped.publish()
    assert floors(striped)[link_at(striped, X1), 3] == 0
    effects = acked(striped, X2, 1)
    assert told(effects).accepted
    assert striped.machine.exchanges == (X1,)
    acked(striped, X1, 3)
    striped.publish()
    assert set(floors(striped).values()) == {None}


def test_a_lane_whose_exchange_is_lost_gives_its_batches_to_the_others(striped: Script) -> None:
    for _ in range(3):
        striped.publish()
    two = link_at(striped, X2)
    striped.feed(ConnectionLost(two, "killed"))
    effects = striped.feed(ConnectionLost(two, "refused"))
    assert places(effects) == [(link_at(striped, X1), 2)]
    assert not any(isinstance(effect, AskAttach) for effect in effects)
    assert striped.machine.at == [(1, 5)]
    acked(striped, X1, 4)
    assert all(receipt.done() for receipt in striped.receipts)


def test_lanes_that_fail_together_leave_the_last_one_to_wait_for_the_monitor(
    striped: Script,
) -> None:
    striped.publish()
    for exchange in (X1, X2):
        striped.feed(ConnectionLost(link_at(striped, exchange), "cut"))
    striped.now += READY_SECONDS
    effects = striped.feed(Tick())
    assert any(isinstance(effect, AskAttach) for effect in effects)
    striped.assign(X3, 9)
    assert [first for _, first in places(accepted(striped, X3))] == [0, 1]


def test_a_striped_publisher_leaves_all_its_exchanges(striped: Script) -> None:
    effects = striped.feed(Leave("closed"))
    assert [isinstance(effect, Drop) and effect.bye != () for effect in effects] == [True, True]
    assert striped.machine.owed_batches == 0


def test_batches_without_a_floor_do_not_overtake_each_other_when_their_lane_is_lost(
    ready: Script,
) -> None:
    for _ in range(3):
        ready.publish()
    relocate(ready, 2, X1, X2, X3)
    accepted(ready, X2)
    accepted(ready, X3)
    one = link_at(ready, X1)
    ready.feed(ConnectionLost(one, "killed"))
    sent_again = places(ready.feed(ConnectionLost(one, "refused")))
    assert [first for _, first in sent_again] == [0, 1, 2]
    assert len({link for link, _ in sent_again}) == 1


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
