"""What is acknowledged when a log commits later than it accepts."""

from __future__ import annotations

import pytest
from exchange_driver import NUMBER, QUEUE, Exchange, Publisher, exchange
from segmented_log import SegmentedLog

from roq.exchange import commit
from roq.exchange.commit import CommitGate
from roq.exchange.links import Link
from roq.machine import Tick
from roq.model import PublisherId
from roq.protocol import channel, documents
from roq.protocol.channel import HELD, Held, Ready


def late() -> SegmentedLog[bytes]:
    return SegmentedLog(QUEUE, NUMBER, 3, capacity_bytes=1 << 20, topics_max=10, commits=False)


def acks(there: Exchange, publisher: Publisher) -> list[int]:
    answers = there.answers(publisher.route)
    return [channel.read_number(body) for letter, body in answers if letter == channel.ACK]


def made(*names: str) -> tuple[SegmentedLog[bytes], Exchange, list[Publisher]]:
    log = late()
    there = exchange(log)
    publishers = [Publisher(there, name=name) for name in names]
    for publisher in publishers:
        publisher.hello()
    return log, there, publishers


def test_a_batch_is_acknowledged_when_it_is_committed_and_not_before() -> None:
    log, there, (one,) = made("one")
    one.send(b"t")
    assert acks(there, one) == []
    log.commit()
    assert acks(there, one) == [1]
    assert acks(there, one) == []


def test_each_turn_is_acknowledged_as_far_as_the_log_has_come() -> None:
    log, there, (one, two) = made("one", "two")
    one.send(b"t")
    there.settle()
    log.committed = log.end
    one.send(b"t")
    two.send(b"t")
    assert (acks(there, one), acks(there, two)) == ([1], [])
    log.commit()
    assert (acks(there, one), acks(there, two)) == ([2], [1])


def test_a_link_that_connects_again_is_told_what_is_committed_and_sends_the_rest_again() -> None:
    log, there, (one,) = made("one")
    one.send(b"t")
    log.commit()
    assert acks(there, one) == [1]
    one.send(b"t")
    ready = one.hello()
    assert isinstance(ready, Ready)
    assert ready.expected == 2
    log.commit()
    again = one.hello()
    assert isinstance(again, Ready)
    assert again.expected == 3


def test_what_was_told_to_be_kept_is_told_again_while_others_wait_for_the_disk() -> None:
    log, there, (one, two) = made("one", "two")
    one.send(b"t")
    there.settle()
    one.send(b"t")
    log.commit()
    told = one.hello()
    two.send(b"t")
    there.settle()
    again = one.hello()
    assert isinstance(told, Ready)
    assert isinstance(again, Ready)
    assert (told.expected, again.expected) == (3, 3)
    one.send(b"t")
    last = one.hello()
    assert isinstance(last, Ready)
    assert (last.expected, last.taken) == (3, 3), "what is not committed is told as well"


def test_marks_of_former_link_numbers_acknowledge_nothing() -> None:
    log, there, (one,) = made("one")
    one.send(b"t")
    one.send(b"t")
    assert acks(there, one) == []
    one.epoch += 1
    one.number = 0
    one.hello()
    log.commit()
    assert acks(there, one) == []


def test_a_repeated_batch_is_acknowledged_no_sooner_than_the_first_one() -> None:
    log, there, (one,) = made("one")
    data = one.batch(b"t", 1, 1)
    for _ in range(2):
        there.append(one.route, b"t", data)
        assert acks(there, one) == []
    log.commit()
    assert acks(there, one) == [1]


def test_marks_have_a_bound_and_what_joins_one_is_due_with_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(commit, "ENTRIES_MAX", 3)
    log = late()
    gate: CommitGate[bytes] = CommitGate(log)
    links = [Link(PublisherId(bytes([n] * 16)), {}, 0.0) for n in range(5)]
    for link in links:
        log.append(b"t", b"x", 1)
        link.expected = 2
        assert gate.release([link]) == []
        gate.check()
    log.committed = 2
    assert gate.release([]) == links[:2]
    log.committed = 4
    assert gate.release([]) == []
    log.committed = 5
    assert gate.release([]) == links[2:]
    assert [link.committed for link in links] == [1] * 5


def test_what_a_publisher_was_told_to_be_kept_is_not_taken_back_by_an_older_mark() -> None:
    log = late()
    gate: CommitGate[bytes] = CommitGate(log)
    link = Link(PublisherId(bytes(16)), {}, 0.0)
    log.append(b"t", b"x", 1)
    link.expected = 2
    assert gate.release([link]) == []
    log.append(b"t", b"x", 1)
    link.expected = 3
    log.committed = 2
    assert gate.reached(link) == 2
    log.append(b"t", b"x", 1)
    assert gate.release([]) == [link]
    assert (link.committed, gate.reached(link)) == (2, 2)


class AheadLog(SegmentedLog[bytes]):
    """Syncs when it is told."""

    synced = 0  # type: ignore[assignment]


def test_publishers_are_told_what_is_synced_once_and_cumulatively() -> None:
    log = AheadLog(QUEUE, NUMBER, 3, capacity_bytes=1 << 20, topics_max=10, commits=False)
    there = exchange(late=log, ahead=True)
    publisher = Publisher(there)
    ready = publisher.hello()
    assert isinstance(ready, Ready)
    assert (ready.durable, ready.ahead) == (True, True)
    link = there.core.links.get(publisher.id)
    assert link is not None
    for _ in range(2):
        publisher.send()
        there.settle()
        log.commit()
        there.settle()
    assert there.core.take_synced() == {}
    log.synced = 1
    assert there.core.take_synced() == {link: 1}
    log.synced = 2
    assert there.core.take_synced() == {link: 2}
    assert there.core.take_synced() == {}
    there.core.check()


def test_a_disk_that_is_stuck_is_told_with_what_the_exchange_has() -> None:
    log = late()
    there = exchange(late=log)
    publisher = Publisher(there)
    publisher.hello()
    for _ in range(3):
        publisher.send()
    helds = []
    for _ in range(6):
        there.now += 0.5
        there.tell(Tick())
        for letter, body in there.answers(publisher.route):
            assert letter == HELD
            helds.append(documents.decode(body, Held))
    assert helds
    assert all(held.disk and held.accepted == 3 for held in helds)
    log.commit()
    there.settle()
    there.answers(publisher.route)
    there.now += 0.5
    there.tell(Tick())
    assert there.answers(publisher.route) == []


def test_an_exchange_has_retired_when_all_that_it_accepted_is_committed() -> None:
    log = late()
    there = exchange(late=log)
    publisher = Publisher(there, name="one")
    publisher.hello()
    publisher.send()
    there.core.disk.retire(retired=True)
    assert not there.core.retired, "a group may get what is not committed yet"
    log.commit()
    assert there.core.retired
    there.core.disk.retire(retired=False)
    assert not there.core.retired
