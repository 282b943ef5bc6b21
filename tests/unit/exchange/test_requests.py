"""Readers wait in line, each in one of its own."""

from exchange_driver import QUEUE, exchange

from roq.exchange.events import Received, Unreachable
from roq.exchange.requests import PER_ROUTE_MAX, ROUTES_MAX, Request, Requests
from roq.protocol import channel, documents
from roq.protocol.channel import SEEK, Refused, SeekRequest


def request(route: bytes, number: int = 0) -> Request:
    return Request(route, SEEK, b"%d" % number)


def test_connections_are_served_in_turn_each_in_its_own_order() -> None:
    requests = Requests()
    for number in range(3):
        requests.add(request(b"eager", number))
    requests.add(request(b"modest"))
    taken = [requests.take() for _ in range(4)]
    assert [r.route for r in taken] == [b"eager", b"modest", b"eager", b"eager"]
    assert [r.document for r in taken if r.route == b"eager"] == [b"0", b"1", b"2"]
    assert not requests


def test_a_connection_and_all_together_have_a_bound() -> None:
    requests = Requests()
    taken = [requests.add(request(b"r", number)) for number in range(PER_ROUTE_MAX + 1)]
    assert taken == [True] * PER_ROUTE_MAX + [False]
    for number in range(ROUTES_MAX - 1):
        assert requests.add(request(b"other%d" % number))
    assert not requests.add(request(b"one too many"))
    requests.check()
    requests.drop(b"r")
    assert requests.add(request(b"one more"))


def test_a_request_beyond_the_bound_is_answered_at_once() -> None:
    there = exchange()
    document = documents.encode(SeekRequest(id=1, queue=QUEUE, time_us=0))
    for _ in range(PER_ROUTE_MAX + 1):
        there.tell(Received(b"r", (SEEK, document)))
    ((letter, body),) = there.answers(b"r")
    assert letter == channel.REFUSED
    assert documents.decode(body, Refused).code == "full"
    there.serve()
    assert len(there.answers(b"r")) == PER_ROUTE_MAX


def test_requests_of_a_connection_that_is_gone_are_dropped() -> None:
    there = exchange()
    document = documents.encode(SeekRequest(id=1, queue=QUEUE, time_us=0))
    there.tell(Received(b"r", (SEEK, document)))
    there.tell(Unreachable(b"r"))
    assert not there.core.requests
