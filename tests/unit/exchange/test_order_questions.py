"""What an exchange asks about publishers that have moved, and what it answers."""

from __future__ import annotations

from exchange_driver import EPOCH, NUMBER, QUEUE, Exchange, Publisher, exchange
from exchange_members import SETTINGS, Consumer
from msgspec.structs import replace
from segmented_log import SegmentedLog

from roq.exchange.machine import ExchangeCore
from roq.model import Limits, LogId
from roq.protocol import batch
from roq.protocol.channel import StreamState
from roq.protocol.consuming import NO_GROUP, SETTLED, WAITS, OrderAnswer, OrderQuestion
from roq.protocol.control import OrderAsk, OrderTold

OWN, OTHER = LogId(NUMBER, EPOCH), LogId(2, 6)
EXCLUSIVE = replace(SETTINGS, mode="exclusive")


def moved(there: Exchange) -> Publisher:
    """One that was at another exchange before, and has sent here."""
    publisher = Publisher(there, epoch=3, logs=[OTHER, OWN], sequences={b"t": 4})
    publisher.hello([StreamState(b"t", 4, 1)])
    publisher.send()
    return publisher


def member(there: Exchange) -> Consumer:
    made = Consumer(there)
    made.enter(settings=EXCLUSIVE)
    return made


def question(publisher: Publisher, epoch: int = 3, log: LogId = OTHER) -> OrderQuestion:
    return OrderQuestion("g", publisher.id, epoch, log)


def tell(there: Exchange, asked: OrderQuestion, outcome: str, **given: object) -> None:
    message = OrderTold(
        queue_id=QUEUE, asker=(NUMBER, EPOCH), answers=[OrderAnswer(asked, outcome)]
    )
    there.tell(replace(message, **given))


def answer(there: Exchange, asked: OrderQuestion, queue: bytes = QUEUE) -> list[str]:
    there.told = []
    there.tell(OrderAsk(queue_id=queue, asker=(2, 6), questions=[asked]))
    outcomes = []
    for message in there.told:
        assert isinstance(message, OrderTold)
        assert message.asker == (2, 6)
        outcomes += [outcome for _, outcome in message.answers]
    return outcomes


def test_it_asks_where_a_publisher_was_and_hands_out_when_that_is_done() -> None:
    there = exchange()
    publisher = moved(there)
    consumer = member(there)
    assert consumer.credit() == []
    there.settle()
    asked = OrderAsk(queue_id=QUEUE, asker=(NUMBER, EPOCH), questions=[question(publisher)])
    assert there.told == [asked]
    assert there.core.due is not None, "it will ask again"
    for wrong in ({"queue_id": bytes(16)}, {"asker": (NUMBER, EPOCH + 1)}):
        tell(there, question(publisher), SETTLED, **wrong)
    tell(there, question(publisher), WAITS)
    consumer.look()
    assert consumer.leases == []
    tell(there, question(publisher), SETTLED)
    consumer.look()
    assert [lease[1:3] for lease in consumer.leases] == [(0, 1)]
    there.settle()
    assert there.core.due is None


def test_a_shared_group_asks_nothing() -> None:
    there = exchange()
    moved(there)
    consumer = Consumer(there)
    consumer.enter()
    assert len(consumer.credit()) == 1
    there.settle()
    assert there.told == []


def test_it_says_whether_a_group_has_done_what_a_publisher_has_left_here() -> None:
    there = exchange()
    publisher = Publisher(there)
    publisher.hello()
    publisher.send()
    left = question(publisher, epoch=2, log=OWN)
    assert answer(there, left) == [NO_GROUP]
    consumer = member(there)
    assert answer(there, left) == [WAITS]
    consumer.credit()
    assert answer(there, left) == [WAITS]
    consumer.done(1)
    assert answer(there, left) == [SETTLED]
    assert answer(there, question(publisher, epoch=2)) == [], "that is not its log"
    assert answer(there, left, queue=bytes(16)) == []


def test_who_has_come_here_first_under_a_later_epoch_has_left_nothing() -> None:
    there = exchange()
    publisher = moved(there)
    member(there)
    assert answer(there, question(publisher, epoch=2, log=OWN)) == [SETTLED]
    assert answer(there, question(publisher, epoch=4, log=OWN)) == [WAITS]


def test_what_comes_after_the_question_is_not_waited_for() -> None:
    there = exchange()
    publisher = Publisher(there)
    publisher.hello()
    consumer = member(there)
    consumer.credit()
    left = question(publisher, epoch=2, log=OWN)
    assert answer(there, left) == [SETTLED]
    publisher.send()
    assert answer(there, left) == [SETTLED]


def test_another_process_knows_from_the_log_who_has_come_from_where() -> None:
    log: SegmentedLog[bytes] = SegmentedLog(
        QUEUE, NUMBER, EPOCH, capacity_bytes=1 << 20, topics_max=10, commits=False
    )
    there = exchange(late=log)
    publisher = moved(there)
    log.commit()
    fence = there.log()[0][2]
    assert (fence.kind, fence.ext_bytes) == (batch.Kind.FENCE, 14)
    for snapshot, since in ((None, 0), (there.core.snapshot(), log.end)):
        core: ExchangeCore[bytes] = ExchangeCore(QUEUE, NUMBER, EPOCH + 1, Limits(), late=log)
        core.begin(0.0, 2_000)
        core.recover(0.0, snapshot, since)
        assert core.stays.before(publisher.id, 3) == (OTHER,)
        assert core.stays.before(publisher.id, 2) == ()
