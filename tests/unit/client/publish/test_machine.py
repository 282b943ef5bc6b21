"""Which batch a message joins, when a batch is sealed, and what is left when a call is cut off."""

from __future__ import annotations

import math
import sys
from types import FrameType
from typing import Any

import pytest
from publisher_script import LIMITS, X1, NoWaiter

from roq.client.publish.batching import Attributed, OneWay, with_attributes
from roq.client.publish.events import AskAttach, Assignment, Received
from roq.client.publish.machine import OLD_SECONDS, PublisherMachine
from roq.client.publish.pending_batch import PendingBatch
from roq.client.publish.receipt import Outcome, Receipt
from roq.client.publish.retries import Tries
from roq.errors import InvalidName, MessageTooLarge
from roq.machine import Tick
from roq.model import Limits, PublisherId
from roq.protocol import batch as wire
from roq.protocol import channel, documents
from roq.protocol.attributes import Attributes, BatchAttributes
from roq.protocol.columns import KEY_GROUPS, key_group, read_column

LINGER = 0.01
SMALL = Limits(window_batches=4, batch_messages=20, batch_bytes=1_000, message_bytes=2_000)


class Shell:
    """Does for a machine what the shell does, and remembers what left."""

    def __init__(self, limits: Limits = SMALL) -> None:
        self.now = 100.0
        self.left: list[PendingBatch] = []
        self.machine = PublisherMachine(
            PublisherId(b"p" * 16), "orders", limits, linger_seconds=LINGER, delivery_seconds=20.0,
            new_receipt=lambda: Receipt(NoWaiter()), wall_us=lambda: 1, now=self.now,
        )  # fmt: skip
        self.machine.handle(Assignment(b"q" * 16, X1, 1, limits), self.now)
        ready = channel.Ready(
            exchange=X1.number, exchange_epoch=X1.epoch, generation=X1.generation, expected=1,
            message_bytes=1, batch_bytes=1, batch_messages=1,
            window_bytes=1 << 20, window_batches=limits.window_batches,
        )  # fmt: skip
        self.hears(channel.READY, documents.encode(ready))

    def hears(self, kind: bytes, body: bytes) -> None:
        link = self.machine.links.all[-1]
        self.machine.handle(Received(link.number, [kind, body]), self.now)

    def publish(self, payload: bytes, topic: str = "t") -> Receipt | None:
        receipt = self.machine.publish(payload, topic, self.now)
        if self.machine.unsent:
            self.send()
        return receipt

    def send(self) -> None:
        self.machine.unsent = False
        for link in self.machine.links.all:
            self.left += link.transmit(self.now)

    def acknowledge(self) -> None:
        """The exchange has everything that has left."""
        link = self.machine.links.all[-1]
        self.hears(channel.ACK, channel.NUMBER.pack(link.window.low + link.window.under_way - 1))

    def payloads(self) -> list[list[bytes]]:
        return [
            wire.read_payloads(sealed.data, wire.read_header(sealed.data)) for sealed in self.left
        ]


def test_a_message_on_idle_links_leaves_alone_and_at_once() -> None:
    shell = Shell()
    shell.publish(b"a")
    assert shell.payloads() == [[b"a"]]
    assert shell.machine.due == math.inf


def test_behind_a_busy_link_messages_wait_for_each_other_until_one_has_lingered() -> None:
    shell = Shell()
    shell.publish(b"a")
    shell.publish(b"b")
    shell.publish(b"c")
    assert shell.payloads() == [[b"a"]]
    assert shell.machine.due == shell.now + LINGER
    assert shell.machine.seal_due(shell.now) == shell.now + LINGER
    shell.now += LINGER
    assert shell.machine.seal_due(shell.now) is None
    shell.send()
    assert shell.payloads() == [[b"a"], [b"b", b"c"]]


def test_what_waits_is_sealed_as_soon_as_the_link_is_idle() -> None:
    shell = Shell()
    shell.publish(b"a")
    shell.publish(b"b")
    shell.acknowledge()
    shell.machine.seal_due(shell.now)
    shell.send()
    assert shell.payloads() == [[b"a"], [b"b"]]


def test_a_full_batch_leaves_and_one_that_finds_no_room_takes_no_more() -> None:
    shell = Shell()
    receipts = [shell.publish(b"%d" % number) for number in range(1 + 20 * 4)]
    assert [len(batch) for batch in shell.payloads()] == [1, 20, 20, 20]
    assert None not in receipts
    assert not shell.machine.has_room
    assert shell.publish(b"more") is None
    shell.acknowledge()
    assert shell.publish(b"more") is not None
    assert [len(batch) for batch in shell.payloads()] == [1, 20, 20, 20, 20]


def test_a_large_message_leaves_what_was_before_it_first() -> None:
    shell = Shell()
    shell.publish(b"first")
    shell.publish(b"small")
    shell.publish(b"L" * 1_500)
    assert shell.payloads() == [[b"first"], [b"small"], [b"L" * 1_500]]


def test_without_a_link_batches_fill_up_and_the_old_are_sealed() -> None:
    shell = Shell()
    shell.machine.links.all[-1].connection_lost("cut", shell.now)
    shell.publish(b"a")
    shell.now += LINGER
    assert shell.machine.seal_due(shell.now) == shell.now - LINGER + OLD_SECONDS
    shell.now += OLD_SECONDS
    shell.machine.seal_due(shell.now)
    assert (shell.machine.links.owed_messages, shell.left) == (1, [])


def test_many_payloads_are_cut_into_batches_as_they_are() -> None:
    shell = Shell()
    payloads: list[bytes | bytearray | memoryview] = [b"%d" % number for number in range(50)]
    position = 0
    while position < len(payloads):
        count, receipt = shell.machine.publish_chunk(payloads, position, "t", shell.now)
        assert receipt is not None
        position += count
        shell.send()
    assert [len(batch) for batch in shell.payloads()] == [20, 20]
    assert shell.machine.seal_open(shell.now) is False
    shell.send()
    assert [payload for batch in shell.payloads() for payload in batch] == payloads


def test_many_payloads_with_a_key_are_cut_into_batches_as_others_are() -> None:
    shell = Shell()
    every = with_attributes([b"%d" % number for number in range(50)], Attributes(key="k"))
    position = 0
    while position < len(every):
        count, receipt = shell.machine.publish_chunk(every, position, "t", shell.now)
        assert receipt is not None
        position += count
        shell.send()
    assert not shell.machine.seal_open(shell.now)
    shell.send()
    assert [len(batch) for batch in shell.payloads()] == [20, 20, 10]
    for sealed in shell.left:
        header = wire.read_header(sealed.data)
        payloads, packed = wire.read_body(sealed.data, header)
        area = sealed.data[wire.HEADER_BYTES : wire.HEADER_BYTES + header.ext_bytes]
        assert packed is not None
        given = BatchAttributes(packed, 0, header.count)
        assert {given.of(index).key for index in range(len(payloads))} == {"k"}
        assert read_column(area, KEY_GROUPS, header.count) == bytes((key_group("k"),))


def test_many_payloads_with_a_key_join_a_batch_that_is_open() -> None:
    shell = Shell()
    for payload in (b"at once", b"waits"):
        shell.publish(payload)
    every = with_attributes([b"a", b"b"], Attributes(key="k"))
    assert shell.machine.publish_chunk(every, 0, "t", shell.now)[0] == 2
    shell.machine.seal_open(shell.now)
    shell.send()
    assert shell.payloads() == [[b"at once"], [b"waits", b"a", b"b"]]
    sealed = shell.left[-1].data
    packed = wire.read_body(sealed, wire.read_header(sealed))[1]
    assert packed is not None
    assert [BatchAttributes(packed, 0, 3).of(index).key for index in range(3)] == [None, "k", "k"]
    other = with_attributes([b"c"], None, 500)
    shell.publish(b"waits, too")
    shell.machine.publish_chunk(other, 0, "t", shell.now)
    shell.machine.seal_open(shell.now)
    shell.send()
    assert shell.payloads()[2:] == [[b"waits, too"], [b"c"]], "a batch has one time to live"


def test_many_payloads_that_are_large_with_their_key_alone() -> None:
    shell = Shell()
    every = with_attributes([b"x" * 900, b"y" * 900], Attributes(key="k" * 200))
    for position in range(2):
        assert shell.machine.publish_chunk(every, position, "t", shell.now)[0] == 1
        shell.send()
    shell.machine.seal_open(shell.now)
    shell.send()
    assert [len(batch) for batch in shell.payloads()] == [1, 1]
    with pytest.raises(MessageTooLarge):
        shell.machine.publish_chunk(
            with_attributes([b"x" * 1_900], Attributes(key="k" * 200)), 0, "t", shell.now
        )


def test_attributes_count_for_the_size() -> None:
    shell = Shell()
    data = Attributed.of(b"x" * 1_990, Attributes(key="k" * 20))
    with pytest.raises(MessageTooLarge, match="queue orders"):
        shell.publish(data)


def test_what_cannot_be_published_changes_nothing() -> None:
    shell = Shell()
    with pytest.raises(MessageTooLarge):
        shell.publish(b"x" * 2_001)
    with pytest.raises(InvalidName):
        shell.publish(b"x", "a" * 300)
    assert not shell.machine.changing
    shell.publish(b"a")
    assert shell.payloads() == [[b"a"]]


def test_a_topic_that_is_refused_seals_nothing_to_make_room_for_it() -> None:
    shell = Shell()
    for number in range(1 + SMALL.window_batches):
        shell.publish(b"x", f"topic {number}")
    open_ = len(shell.machine.packer)
    assert open_ == SMALL.window_batches
    with pytest.raises(InvalidName):
        shell.publish(b"x", "a" * 300)
    with pytest.raises(InvalidName):
        shell.machine.publish_chunk([b"x"], 0, "a" * 300, shell.now)
    assert (len(shell.machine.packer), shell.machine.unsent) == (open_, False)


def test_the_end_tells_the_fate_of_what_is_open_and_of_what_has_left() -> None:
    shell = Shell()
    left, open_ = shell.publish(b"a"), shell.publish(b"b")
    shell.publish(b"c")
    shell.machine.leave("closed", shell.now)
    assert left is not None
    assert open_ is not None
    assert (left.status and left.status.outcome, left.count) == (Outcome.UNKNOWN, 1)
    assert (open_.status and open_.status.outcome, open_.count) == (Outcome.FAILED, 2)
    stats = shell.machine.stats(window_waits=0, callback_errors=0)
    assert (stats.messages, stats.unknown_messages, stats.failed_messages) == (3, 1, 2)


class Raised(BaseException):
    """What a signal handler raises."""


def cut_off_at(line: int, call: Any) -> bool:
    """Call, and raise before the given line of the client's code; whether it had so many."""
    count = 0

    def trace(frame: FrameType, event: str, _argument: object) -> Any:
        nonlocal count
        if "/roq/" not in frame.f_code.co_filename:
            return None
        if event == "line":
            count += 1
            if count == line:
                raise Raised
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    except Raised:
        return True
    finally:
        sys.settrace(before)
    return False


CALLS = {
    "a message on an idle link": (0, lambda shell: shell.machine.publish(b"new", "t", shell.now)),
    "a message that fills a batch": (20, lambda shell: shell.machine.publish(b"new", "t", 100.0)),
    "what has lingered": (5, lambda shell: shell.machine.seal_due(shell.now + 1.0)),
    "a flush": (5, lambda shell: shell.machine.seal_open(shell.now)),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_call_that_is_cut_off_anywhere_loses_and_doubles_nothing_in_silence(name: str) -> None:
    """Either the machine is whole and all arrives once, or it fails and tells of everything."""
    before, call = CALLS[name]
    line = whole = failed = 0
    while True:
        line += 1
        shell = Shell()
        receipts = [shell.publish(b"%d" % number) for number in range(before)]
        if not cut_off_at(line, lambda shell=shell: call(shell)):  # type: ignore[misc]
            break
        machine = shell.machine
        if machine.changing:
            failed += 1
            machine.leave("interrupted", shell.now, torn=True)
            assert all(receipt is not None and receipt.done() for receipt in receipts)
            stats = machine.stats(window_waits=0, callback_errors=0)
            given_up = stats.failed_messages + stats.unknown_messages
            assert before <= given_up + stats.acked_messages <= before + 1
            assert stats.messages == given_up + stats.acked_messages
            continue
        whole += 1
        shell.send()
        for _ in range(3):
            if machine.links.unsettled:
                shell.acknowledge()
            machine.seal_open(shell.now)
            shell.send()
        machine.links.check()
        arrived = [payload for batch in shell.payloads() for payload in batch]
        old = [b"%d" % number for number in range(before)]
        assert arrived in (old, [*old, b"new"])
    assert line > 20
    assert whole
    assert failed


def test_an_acknowledgement_that_is_cut_off_leaves_no_fate_open() -> None:
    """The shell marks it as a change: whatever the line, the end tells every fate."""
    line = 0
    while True:
        line += 1
        shell = Shell()
        receipts = [shell.publish(b"%d" % number) for number in range(1 + 20 * 2)]
        shell.machine.changing = True
        if not cut_off_at(line, shell.acknowledge):
            break
        shell.machine.leave("interrupted", shell.now, torn=True)
        assert all(receipt is not None and receipt.done() for receipt in receipts)
        stats = shell.machine.stats(window_waits=0, callback_errors=0)
        told = stats.acked_messages + stats.failed_messages + stats.unknown_messages
        assert told >= 41
    assert line > 40


def test_limits_come_with_the_assignment() -> None:
    shell = Shell()
    shell.machine.handle(Assignment(b"q" * 16, X1, 2, LIMITS), shell.now)
    assert shell.machine.packer.batch_bytes == LIMITS.batch_bytes


def test_an_end_that_is_cut_off_and_done_again_tells_every_fate_once() -> None:
    line = 0
    while True:
        line += 1
        shell = Shell()
        receipts = [shell.publish(b"%d" % number) for number in range(1 + 20 + 5)]
        cut = cut_off_at(line, lambda shell=shell: shell.machine.leave("end", shell.now))  # type: ignore[misc]
        shell.machine.leave("end", shell.now, torn=cut)
        assert all(receipt is not None and receipt.done() for receipt in receipts)
        stats = shell.machine.stats(window_waits=0, callback_errors=0)
        assert stats.failed_messages + stats.unknown_messages >= len(receipts)
        assert stats.messages == stats.failed_messages + stats.unknown_messages
        if not cut:
            assert stats.messages == len(receipts)
            break
    assert line > 40


def test_what_nobody_waits_for_is_not_waited_for_and_its_loss_is_nobodys_error() -> None:
    shell = Shell()
    receipt = shell.publish(OneWay(b"a"))
    assert receipt is not None
    assert receipt.one_way
    assert shell.machine.seal_open(shell.now), "under way, and flushed"
    waited = shell.publish(b"b")
    assert not shell.machine.seal_open(shell.now)
    shell.machine.leave("closed", shell.now)
    stats = shell.machine.stats(window_waits=0, callback_errors=0)
    assert (stats.one_way_lost, stats.failed_messages + stats.unknown_messages) == (1, 1)
    assert receipt.done()
    assert waited is not None


def test_in_a_batch_with_others_it_is_one_of_these() -> None:
    shell = Shell()
    shell.publish(b"busy")
    receipts = [shell.publish(payload) for payload in (OneWay(b"a"), OneWay(b"b"), b"c")]
    assert receipts[0] is receipts[2] is not None
    assert not receipts[0].one_way
    shell.now += LINGER
    shell.machine.seal_due(shell.now)
    shell.send()
    assert shell.payloads() == [[b"busy"], [b"a", b"b", b"c"]]
    assert {type(payload) for batch in shell.payloads() for payload in batch} == {bytes}


def test_one_way_messages_gather_beside_the_fast_way() -> None:
    shell = Shell()
    shell.publish(b"busy")
    receipt = shell.publish(OneWay(b"a"))
    assert shell.machine.packer.fast == {}
    assert shell.publish(OneWay(b"b")) is receipt is not None
    assert receipt.one_way


def test_a_message_that_waits_too_long_is_tried_elsewhere_in_its_time() -> None:
    shell = Shell()
    receipt = shell.publish(b"a")
    assert receipt is not None
    shell.machine.sends.watch(receipt, Tries(shell.now, 9.0, 2))
    assert shell.machine.next_deadline() == pytest.approx(shell.now + 1.0, abs=2.0)
    shell.now += 3.0
    effects = shell.machine.handle(Tick(), shell.now)
    assert AskAttach(((1, 5),)) in effects
