"""What one link of a publisher does with each thing that can happen to it."""

from __future__ import annotations

import pytest
from msgspec import structs
from publisher_script import LIMITS, X1, X2, Script, link_at, opened, sent

from roq.client.publish.events import AskAttach, Assignment, Received, Serving
from roq.client.publish.link import (
    FLAPS_MAX,
    READY_SECONDS,
    READY_SECONDS_MOST,
    STEADY_SECONDS,
    Open,
    Transmit,
)
from roq.client.publish.receipt import Outcome
from roq.machine import Tick
from roq.protocol import batch as wire
from roq.protocol import channel
from roq.timing import ACK_SECONDS, RESET_SECONDS


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


def test_an_idle_link_is_left_alone(ready: Script) -> None:
    assert ready.links.next_deadline() is None
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


def test_a_reset_replays_once_however_often_it_is_said(ready: Script) -> None:
    for _ in range(3):
        ready.publish()
    again = channel.Reset(expected=2)
    assert sent(ready.says(channel.RESET, again)) == [2, 3]
    assert ready.says(channel.RESET, again) == []
    ready.now += RESET_SECONDS
    assert sent(ready.says(channel.RESET, again)) == [2, 3]
    assert ready.links.tally.resets == 3


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
    assert status.outcome is Outcome.REFUSED
    assert "65 MiB" in status.reason


def test_a_link_follows_its_log_to_another_process_and_keeps_its_numbers(ready: Script) -> None:
    ready.publish()
    link = link_at(ready, X1)
    there = structs.replace(X1, epoch=9, data="tcp://elsewhere:1")
    (opened,) = ready.feed(Serving((there,)))
    assert isinstance(opened, Open)
    assert (opened.link, opened.endpoint) == (link, "tcp://elsewhere:1")
    assert sent(ready.accept(exchange=there)) == [1]
    assert (ready.links.at, ready.links.epoch) == ([(1, 9)], 1)
    assert ready.feed(Serving((there,))) == []
    assert ready.feed(Serving((X1,))) == []  # of an earlier process: old news


def test_another_log_that_answers_at_the_address_is_not_taken_for_this_one(ready: Script) -> None:
    ready.publish()
    ready.lost("cut")
    effects = ready.accept(exchange=structs.replace(X1, generation=9))
    assert (sent(effects), ready.links.at) == ([], [])


def test_an_exchange_that_says_why_it_does_not_acknowledge_is_left_alone(ready: Script) -> None:
    ready.publish()
    held = channel.Held(reader=b"\xab" * 16, seconds=1.0, most=10.0)
    for _ in range(30):
        ready.now += 0.5
        ready.says(channel.HELD, held)
        assert ready.feed(Tick()) == []
    assert "slow subscriber (abababab) of exchange x1" in ready.links.all[0].held
    ready.now += 5.0
    ready.feed(Tick())
    status = ready.receipts[0].status
    assert status is not None
    assert "held back by a slow subscriber" in status.reason


def test_an_exchange_whose_disk_does_not_follow_says_so(ready: Script) -> None:
    ready.publish()
    ready.says(channel.HELD, channel.Held(reader=b"", seconds=2.5, most=0.0, disk=True))
    assert ready.links.all[0].held == "held back by the disk of exchange x1, for 2.5 s"


def test_an_acknowledgement_ends_what_was_said_of_its_delay(ready: Script) -> None:
    ready.publish()
    ready.says(channel.HELD, channel.Held(reader=b"r", seconds=1.0, most=10.0))
    ready.ack(1)
    assert ready.links.all[0].held == ""


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
    assert ready.links.tally.malformed == 1
    assert ready.links.ready


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


def test_an_acknowledgement_without_the_place_is_one_all_the_same(ready: Script) -> None:
    ready.publish()
    ready.ack(1)
    status = ready.receipts[0].status
    assert status is not None
    assert (status.ok, status.offset, status.stored, status.flushed) == (True, None, True, False)


def test_what_is_not_synced_is_sent_again_when_the_exchange_has_lost_it() -> None:
    script = Script()
    script.assign()
    script.accept(durable=True, ahead=True)
    for _ in range(4):
        script.publish()
    script.ack(3)
    status = script.receipts[0].status
    assert status is not None
    assert (status.ok, status.stored, status.flushed) == (True, True, False)
    script.feed(Received(script.link, [channel.SYNCED, channel.NUMBER.pack(1)]))
    script.now += 15.0  # longer than what a volatile exchange has acknowledged is kept
    script.feed(Tick())
    script.lost("power cut")
    later = structs.replace(X1, epoch=9, data="tcp://h:9")
    script.feed(Assignment(b"q" * 16, later, 2, LIMITS))
    assert sent(script.accept(2, later, durable=True, ahead=True)) == [2, 3, 4]
    script.ack(4)
    assert all(receipt.status and receipt.status.ok for receipt in script.receipts)
    assert script.links.tally.acked_batches == 4, "each counts once"


def test_what_the_disk_does_not_confirm_in_time_is_told_to_be_there(ready: Script) -> None:
    ready.publish()
    ready.publish()
    ready.says(channel.HELD, channel.Held(reader=b"", seconds=1, most=0, disk=True, accepted=1))
    ready.now += 21.0
    ready.feed(Tick())
    statuses = [receipt.status for receipt in ready.receipts]
    assert [status and status.outcome for status in statuses] == [
        Outcome.FLUSH_TIMEOUT, Outcome.UNKNOWN,
    ]  # fmt: skip
    assert statuses[0] is not None
    assert (statuses[0].exchange, statuses[0].stored, statuses[0].flushed) == ("x1", True, False)
    assert "disk of exchange x1" in statuses[0].reason
    assert ready.links.tally.unknown_messages == 2


@pytest.mark.parametrize("offsets", [False, True])
def test_an_answer_to_a_second_hello_tells_of_what_has_left_and_of_nothing_else(
    offsets: bool,
) -> None:
    script = Script(offsets=offsets)
    script.assign()
    script.accept()
    for _ in range(7):  # the window lets out four at once
        script.publish()
    script.accept(4, X2, places=[(1, 70, 3)])
    assert not any(receipt.done() for receipt in script.receipts)
    script.accept(3, places=[(1, 7, 2)])
    assert [each.status and each.status.offset for each in script.receipts[:3]] == [7, 8, None]
    script.accept(99, places=[(3, 9, 90)])
    assert [each.done() for each in script.receipts] == [True] * 6 + [False]
