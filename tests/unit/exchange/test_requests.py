"""Readers wait in line, each in one of its own."""

from exchange_driver import QUEUE, exchange, publisher_id

from roq.exchange.events import Received, Unreachable
from roq.exchange.requests import (
    PER_READER_MAX,
    READERS_MAX,
    REQUEST_BYTES_MAX,
    Request,
    Requests,
)
from roq.protocol import channel, documents
from roq.protocol.channel import (
    BYE,
    HELLO,
    READERS_PER_CONNECTION_MAX,
    SEEK,
    Bye,
    Hello,
    Refused,
    SeekRequest,
    StreamState,
)
from roq.protocol.consuming import (
    HELD_BYTES,
    JOIN,
    JOIN_BYTES,
    MOVES_MAX,
    RUNS_MAX,
    GroupOrder,
    Moved,
)
from roq.protocol.version import WIRE_VERSION


def request(route: bytes, number: int = 0, reader: bytes = b"") -> Request:
    return Request(route, SEEK, b"%d" % number, reader)


def test_connections_are_served_in_turn_each_in_its_own_order() -> None:
    requests = Requests()
    for number in range(3):
        requests.add(request(b"eager", number))
    requests.add(request(b"modest"))
    taken = [requests.take() for _ in range(4)]
    assert [r.route for r in taken] == [b"eager", b"modest", b"eager", b"eager"]
    assert [r.document for r in taken if r.route == b"eager"] == [b"0", b"1", b"2"]
    assert not requests


def test_what_cannot_be_answered_yet_is_the_next_one_again() -> None:
    requests = Requests()
    for number in range(2):
        requests.add(request(b"one", number, b"a"))
    requests.add(request(b"one", 2, b"b"))
    requests.add(request(b"two", 3))
    for number in (0, 3, 2, 1):
        taken = requests.take()
        requests.put_back(taken)
        requests.check()
        assert requests.next == taken
        assert requests.take() == taken
        assert taken.document == b"%d" % number


def test_a_connection_and_all_together_have_a_bound() -> None:
    requests = Requests()
    taken = [requests.add(request(b"r", number)) for number in range(PER_READER_MAX + 1)]
    assert taken == [True] * PER_READER_MAX + [False]
    for number in range(READERS_MAX - 1):
        assert requests.add(request(b"other%d" % number))
    assert not requests.add(request(b"one too many"))
    requests.check()
    requests.drop(b"r")
    assert requests.add(request(b"one more"))


def test_readers_that_share_a_connection_are_served_in_turn_and_take_nobody_else_s() -> None:
    requests = Requests()
    for number in range(2):
        requests.add(request(b"shared", number, b"one!"))
    requests.add(request(b"shared", 0, b"two!"))
    for number in range(2):
        requests.add(request(b"alone", number))
    taken = [requests.take() for _ in range(5)]
    assert [r.route for r in taken] == [b"shared", b"alone", b"shared", b"alone", b"shared"]
    assert [r.reader for r in taken if r.route == b"shared"] == [b"one!", b"two!", b"one!"]
    assert not requests


def test_each_reader_of_a_connection_has_a_bound_and_so_have_all_of_them() -> None:
    requests = Requests()
    for number in range(PER_READER_MAX):
        assert requests.add(request(b"r", number, b"full"))
    assert not requests.add(request(b"r", 0, b"full"))
    for number in range(READERS_PER_CONNECTION_MAX - 1):
        assert requests.add(request(b"r", 0, number.to_bytes(4, "big")))
    requests.check()
    assert not requests.add(request(b"r", 0, b"more"))
    assert requests.add(request(b"other"))
    requests.drop(b"r")
    requests.check()
    assert requests.take().route == b"other"


def test_a_request_beyond_the_bound_is_answered_at_once() -> None:
    there = exchange()
    document = documents.encode(SeekRequest(id=1, queue=QUEUE, time_us=0))
    for _ in range(PER_READER_MAX + 1):
        there.tell(Received(b"r", (SEEK, document)))
    ((letter, body),) = there.answers(b"r")
    assert letter == channel.REFUSED
    assert documents.decode(body, Refused).code == "full"
    there.serve()
    assert len(there.answers(b"r")) == PER_READER_MAX


def test_what_is_longer_than_any_request_is_not_read() -> None:
    there = exchange()
    junk = documents.encode_raw({"x": bytes(REQUEST_BYTES_MAX)})
    there.tell(Received(b"r", (JOIN + b"tag1", junk)))
    assert not there.core.requests
    ((letter, told),) = there.answers(b"r")
    assert letter[2:] == b"tag1"
    assert documents.decode(told, Refused).code == "malformed"
    assert JOIN_BYTES + HELD_BYTES * RUNS_MAX < REQUEST_BYTES_MAX, "what may be held is read"
    moves = [Moved(1 << 36, 1 << 60, 1 << 60, 1 << 60, 1 << 60)] * MOVES_MAX
    order = GroupOrder(id=1, queue=QUEUE, group="g", order="move", moves=moves)
    assert len(documents.encode(order)) < REQUEST_BYTES_MAX, "and a group that is everywhere"


def test_requests_of_a_connection_that_is_gone_are_dropped() -> None:
    there = exchange()
    document = documents.encode(SeekRequest(id=1, queue=QUEUE, time_us=0))
    there.tell(Received(b"r", (SEEK, document)))
    there.tell(Unreachable(b"r"))
    assert not there.core.requests


def hello(name: str, streams: int = 0) -> tuple[bytes, bytes]:
    states = [StreamState(topic=b"t%d" % n, first=10, idle_us=0) for n in range(streams)]
    asked = Hello(
        version=WIRE_VERSION,
        queue=QUEUE,
        publisher=publisher_id(name),
        epoch=1,
        attempt=1,
        streams=states,
    )
    return (HELLO, documents.encode(asked))


def test_of_a_crowd_that_arrives_at_once_some_are_let_in_and_the_others_wait() -> None:
    there = exchange()
    routes = [b"%d" % number for number in range(50)]
    for route in routes:
        there.tell(Received(route, hello(route.decode())))
    there.settle()
    in_time = len(there.sent)
    assert 0 < in_time < 10
    there.core.begin(1.0, 2_000)
    there.tell(Received(b"late", hello("late")))
    assert there.answers(b"late")  # the next turn has time again
    there.serve()
    assert [there.answers(route)[0][0] for route in routes] == [channel.READY] * 50


def test_a_single_hello_does_not_wait_however_long_it_is() -> None:
    there = exchange()
    there.tell(Received(b"big", hello("big", streams=500)))
    assert there.answers(b"big")[0][0] == channel.READY


def test_a_newcomer_who_goes_while_he_waits_is_not_let_in() -> None:
    there = exchange()
    for number in range(10):
        there.tell(Received(b"%d" % number, hello(f"p{number}")))
    there.tell(Unreachable(b"8"))
    bye = documents.encode(Bye(publisher=publisher_id("p9"), epoch=2))
    there.tell(Received(b"9", (BYE, bye)))
    there.serve()
    assert len(there.core.present()) == 8


def test_when_too_many_wait_newcomers_are_let_in_all_the_same() -> None:
    there = exchange()
    document = documents.encode(SeekRequest(id=1, queue=QUEUE, time_us=0))
    for number in range(READERS_MAX):
        there.tell(Received(b"r%d" % number, (SEEK, document)))
    for number in range(20):
        there.tell(Received(b"%d" % number, hello(f"p{number}")))
    assert len(there.core.present()) == 20
