"""What a publisher's link does with each thing that can happen to it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from roq.client.lane import ACK_SECONDS, READY_SECONDS, RESET_SECONDS
from roq.client.link import (
    AskAttach,
    Assignment,
    ConnectionLost,
    Drop,
    Effect,
    Leave,
    LinkMachine,
    LinkPhase,
    Open,
    Received,
    Serving,
    Transmit,
)
from roq.client.receipt import Outcome, Receipt
from roq.machine import Tick
from roq.model import ExchangeInfo, Limits, PublisherId
from roq.protocol import batch as wire
from roq.protocol import channel, documents

LIMITS = Limits(window_batches=4)
X1 = ExchangeInfo(number=1, epoch=5, host="h", data="tcp://h:1", live="")
X2 = ExchangeInfo(number=2, epoch=6, host="h", data="tcp://h:2", live="")


class NoWaiter:
    def wait_for(self, condition: Callable[[], bool], timeout: float | None) -> bool:
        raise AssertionError("nothing here waits")


class Script:
    """Drives a link and remembers what it did."""

    def __init__(self) -> None:
        self.link = LinkMachine(PublisherId(b"p" * 16), b"q" * 16, LIMITS, delivery_seconds=20.0)
        self.now = 100.0
        self.receipts: list[Receipt] = []

    @property
    def lane(self) -> int:
        return self.link.lanes[-1].number

    def lost(self, reason: str) -> list[Effect]:
        return self.feed(ConnectionLost(self.lane, reason))

    def feed(self, event: object) -> list[Effect]:
        effects = self.link.handle(event, self.now)  # type: ignore[arg-type]
        self.link.check()
        return effects

    def says(self, kind: bytes, document: object) -> list[Effect]:
        frames = [kind, documents.encode(document)]  # type: ignore[arg-type]
        return self.feed(Received(self.lane, frames))

    def assign(self, exchange: ExchangeInfo = X1, epoch: int = 1) -> list[Effect]:
        return self.feed(Assignment(exchange, epoch, LIMITS))

    def accept(self, expected: int = 1, exchange: ExchangeInfo = X1) -> list[Effect]:
        return self.says(
            channel.READY,
            channel.Ready(
                exchange=exchange.number, exchange_epoch=exchange.epoch, expected=expected,
                message_bytes=1, batch_bytes=1, batch_messages=1,
                window_bytes=1 << 20, window_batches=4,
            ),
        )  # fmt: skip

    def ack(self, number: int) -> list[Effect]:
        return self.feed(Received(self.lane, [channel.ACK, channel.NUMBER.pack(number)]))

    def publish(self, topic: str = "t", payload: bytes = b"x") -> list[int]:
        receipt = Receipt(NoWaiter())
        self.receipts.append(receipt)
        stream = self.link.topics.stream(topic)
        self.link.dealer.seal(stream, [payload], receipt, self.now, 1)
        sent = [s.link_number for lane in self.link.lanes for s in lane.transmit(self.now)]
        self.link.check()
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
    assert script.link.phase is LinkPhase.OPENING


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
    assert script.link.phase is LinkPhase.DETACHED
    assert "refused" in script.link.reason


def test_the_second_failure_in_a_row_waits_before_it_asks_again() -> None:
    script = Script()
    script.assign()
    script.lost("refused")
    script.assign(X2, 2)
    assert script.lost("refused") == [Drop(3)]
    deadline = script.link.next_deadline()
    assert deadline is not None
    script.now = deadline
    assert script.feed(Tick()) == [AskAttach(((2, 6),))]


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
    assert ready.link.next_deadline() is None
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
    assert ready.link.tally.forgotten == 1
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
    assert ready.link.tally.resets == 3


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
    assert code in ready.link.reason


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
    assert ready.link.tally.replayed_batches == 1


def test_an_assignment_that_was_overtaken_is_ignored(ready: Script) -> None:
    assert ready.assign(X2, 1) == []
    assert ready.link.exchanges == (X1,)


def test_an_exchange_that_left_the_topology_is_given_up_unless_it_works(ready: Script) -> None:
    assert ready.feed(Serving(frozenset({(2, 6)}))) == []
    assert AskAttach(((1, 5),)) in ready.lost("cut")


def test_what_is_not_acknowledged_in_time_is_given_up(ready: Script) -> None:
    ready.publish()
    ready.now += 20.0
    ready.feed(Tick())
    status = ready.receipts[0].status
    assert status is not None
    assert status.outcome is Outcome.UNKNOWN
    assert "20 s" in status.reason


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
    assert ready.feed(Received(ready.lane, frames)) == []
    assert ready.link.tally.malformed == 1
    assert ready.link.ready


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
    assert ready.link.next_deadline() is None
