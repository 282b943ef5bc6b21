"""Services on a log that commits later than it accepts, and what a crash leaves of them."""

from __future__ import annotations

import pytest
from exchange_driver import EPOCH, NUMBER, QUEUE, Exchange, Publisher, exchange
from segmented_log import SegmentedLog
from service_party import SETTINGS, Party, pass_time

from roq.exchange import commit, requesters
from roq.exchange.kpi_report import load_of
from roq.exchange.machine import ExchangeCore
from roq.model import Limits
from roq.protocol import consuming, documents
from roq.protocol.channel import REFUSED, Refused
from roq.protocol.consuming import (
    CREDIT,
    DONE,
    GROUP_ORDER,
    JOIN,
    Credit,
    Done,
    DoneConfirmed,
    GroupOrder,
    Join,
)
from roq.protocol.requesting import (
    ATTEND,
    OUTCOMES,
    Answer,
    Attend,
    Begun,
    Position,
    RequestState,
)


def test_an_end_is_told_when_it_is_on_the_disk_and_is_there_after_a_crash() -> None:
    log: SegmentedLog[bytes] = SegmentedLog(
        QUEUE, NUMBER, EPOCH, capacity_bytes=1 << 20, topics_max=10, commits=False
    )
    changes: list[bytes] = []
    there = exchange(late=log)

    def write(core: ExchangeCore[bytes]) -> None:
        written = core.consumers.take_changes()
        log.commit()
        changes.extend([written] if written else [])
        core.consumers.kept()

    publisher = Publisher(there)
    publisher.hello()
    there.append(publisher.route, b"s/do", publisher.batch(b"s/do", 3))
    write(there.core)
    asker, instance = Party(there, "asker"), Party(there, "instance")
    join = Join(
        id=1, queue=QUEUE, group="s", member=b"i" * 16, name="i", attempt=1, settings=SETTINGS
    )
    instance.say(JOIN, documents.encode(join))
    write(there.core)
    instance.look()
    instance.take(JOIN)
    instance.say(CREDIT, consuming.encode(Credit(100, 1 << 20, 1)))
    number = instance.leases[0][0]
    instance.say(DONE, consuming.encode(Done(1, begun=[Begun(number, 1, 1, True)])))
    assert instance.told == [], "it is not begun before that is kept"
    write(there.core)
    instance.look()
    assert consuming.decode(instance.take(DONE), DoneConfirmed).refused == []
    asker.want((0, 0))
    instance.say(DONE, consuming.encode(Done(2, answers=[Answer(number, 0, value=b"v")])))
    assert asker.ends() == [], "it has not ended before that is kept"
    write(there.core)
    assert [each.value for each in asker.ends()] == [b"v"]
    instance.say(DONE, consuming.encode(Done(3, answers=[Answer(number, 2)])))  # and it is killed
    log.crash()
    core: ExchangeCore[bytes] = ExchangeCore(QUEUE, NUMBER, EPOCH + 1, Limits(), late=log)
    core.begin(0.0, 2_000)
    core.recover(0.0, None, 0, changes)
    assert load_of(core, 0.0, 0.0).responses_stored == 1, "its monitor is told, too"
    after = Exchange(core, Limits())
    other = Party(after, "other")
    other.want((0, 0), (0, 1), (0, 2))
    write(core)
    assert [(each.index, each.value) for each in other.ends()] == [(0, b"v")]
    for _ in range(16):
        pass_time(after, 0.5)
        write(core)
    assert [(each.index, each.state) for each in other.ends()] == [(1, "unknown")]
    assert RequestState.DISCARDED not in {each.state for each in other.ends()}


def test_an_end_that_nobody_was_owed_is_told_to_who_asks_when_it_is_on_the_disk() -> None:
    log: SegmentedLog[bytes] = SegmentedLog(
        QUEUE, NUMBER, EPOCH, capacity_bytes=1 << 20, topics_max=10, commits=False
    )
    there = exchange(late=log)
    served = there.core.consumers
    publisher = Publisher(there)
    publisher.hello()
    asker, other = Party(there, "asker"), Party(there, "other")
    asker.say(ATTEND, documents.encode(Attend(id=1, queue=QUEUE, service="s")))
    there.append(publisher.route, b"s/do", publisher.batch(b"s/do", 1))
    assert served.take_changes()
    log.commit()
    served.kept()
    other.want(cancelled=[Position(0, 0)])
    assert served.take_changes()
    other.want((0, 0))
    assert other.ends() == [], "it is being written, and may never be there"
    served.kept()
    assert [each.state for each in other.ends()] == ["cancelled"]


def test_what_was_too_late_when_its_service_came_is_so_after_a_crash_as_well() -> None:
    log: SegmentedLog[bytes] = SegmentedLog(
        QUEUE, NUMBER, EPOCH, capacity_bytes=1 << 20, topics_max=10, commits=False
    )
    there = exchange(late=log)
    publisher = Publisher(there)
    publisher.hello()
    there.append(publisher.route, b"s/do", publisher.batch(b"s/do", 1))
    log.commit()
    there.now += 120.0
    pass_time(there, 0.5)
    asker = Party(there, "asker")
    asker.say(ATTEND, documents.encode(Attend(id=1, queue=QUEUE, service="s")))
    changes = [there.core.consumers.take_changes()]
    log.commit()
    told = []
    for seconds in (130.0, 800.0):
        core: ExchangeCore[bytes] = ExchangeCore(QUEUE, NUMBER, EPOCH + 1, Limits(), late=log)
        core.begin(0.0, int(seconds * 1e6))
        core.recover(0.0, None, 0, changes)
        other = Party(Exchange(core, Limits()), "other")
        other.want((0, 0))
        assert core.consumers.take_changes()
        core.consumers.kept()
        told += [each.state for each in other.ends()]
    assert told == ["late", "forgotten"]


def test_what_a_service_has_before_it_is_not_late_as_a_clock_was_ahead_when_it_was_made() -> None:
    def log_with(messages: int, at: float) -> tuple[SegmentedLog[bytes], list[bytes]]:
        log: SegmentedLog[bytes] = SegmentedLog(
            QUEUE, NUMBER, EPOCH, capacity_bytes=1 << 20, topics_max=10, commits=False
        )
        there = exchange(late=log)
        there.now += at
        pass_time(there, 0.5)
        asker, publisher = Party(there, "asker"), Publisher(there)
        asker.say(ATTEND, documents.encode(Attend(id=1, queue=QUEUE, service="s")))
        publisher.hello()
        if messages:
            there.append(publisher.route, b"s/do", publisher.batch(b"s/do", messages))
        log.commit()
        return log, [there.core.consumers.take_changes()]

    log, _ = log_with(messages=1, at=10.0)
    _, made = log_with(messages=0, at=1_000.0)
    core: ExchangeCore[bytes] = ExchangeCore(QUEUE, NUMBER, EPOCH + 1, Limits(), late=log)
    core.begin(0.0, int(20e6))
    core.recover(0.0, None, 0, made)
    other = Party(Exchange(core, Limits()), "other")
    other.want((0, 0))
    core.consumers.take_changes()
    core.consumers.kept()
    assert other.ends() == [], "it is open, and has its own end"


def test_after_a_crash_a_service_that_is_made_again_begins_where_it_was_deleted() -> None:
    log: SegmentedLog[bytes] = SegmentedLog(
        QUEUE, NUMBER, EPOCH, capacity_bytes=1 << 20, topics_max=10, commits=False
    )
    there = exchange(late=log)
    publisher = Publisher(there)
    publisher.hello()
    asker = Party(there, "asker")
    asker.say(ATTEND, documents.encode(Attend(id=1, queue=QUEUE, service="s")))
    there.append(publisher.route, b"s/do", publisher.batch(b"s/do", 3))
    changes = [there.core.consumers.take_changes()]
    log.commit()
    order = GroupOrder(id=4, queue=QUEUE, group="s", order="delete")
    asker.say(GROUP_ORDER, documents.encode(order))
    changes.append(there.core.consumers.take_changes())
    core: ExchangeCore[bytes] = ExchangeCore(QUEUE, NUMBER, EPOCH + 1, Limits(), late=log)
    core.begin(0.0, 2_000)
    core.recover(0.0, None, 0, changes)
    after = Exchange(core, Limits())
    Party(after, "other").say(ATTEND, documents.encode(Attend(id=1, queue=QUEUE, service="s")))
    (group,) = core.consumers.groups
    assert group.base == log.committed == 1


def test_what_a_stuck_disk_owes_requesters_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit, "OWED_MAX", 3)
    monkeypatch.setattr(requesters, "TOLD_BYTES", 2_000)
    log: SegmentedLog[bytes] = SegmentedLog(
        QUEUE, NUMBER, EPOCH, capacity_bytes=1 << 20, topics_max=10, commits=False
    )
    there = exchange(late=log)
    served = there.core.consumers
    asker = Party(there, "asker")
    for _ in range(5):
        asker.say(ATTEND, documents.encode(Attend(id=1, queue=QUEUE, service="s")))
    for _ in range(500):
        asker.want(*((7, index) for index in range(9)))
    refused = [documents.decode(told, Refused) for letter, told in asker.told if letter == REFUSED]
    assert {(each.code, each.text) for each in refused[:2]} == {
        ("full", "too many answers wait for the disk here; try again")
    }
    assert {each.code for each in refused} == {"full"}
    assert len(refused) > 400
    asker.told.clear()
    order = GroupOrder(id=4, queue=QUEUE, group="s", order="pause")
    asker.say(GROUP_ORDER, documents.encode(order))
    assert asker.told == [], "an operator is not refused for what requesters are owed"
    assert served.take_changes()
    served.kept()
    asker.look()
    letters = [letter for letter, _ in asker.told]
    assert letters == [GROUP_ORDER, ATTEND, ATTEND, ATTEND, OUTCOMES]
    assert len(asker.told[-1][1]) < 2_000
    asker.told.clear()
    asker.want((7, 0))
    assert [each.state for each in asker.ends()] == ["never"], "and the disk is at hand again"
