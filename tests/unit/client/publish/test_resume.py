"""A named publisher asks every exchange how far it is; those here answer as the test says."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest
import zmq

from roq.client.io import waiters
from roq.client.publish.resume import (
    AGAIN_SECONDS,
    ExchangeAddress,
    Places,
    publisher_of,
    resume,
)
from roq.errors import Unavailable
from roq.protocol import documents
from roq.protocol.channel import CLAIM, REFUSED, Claim, Claimed, Refused
from roq.protocol.framing import join_answer
from roq.runtime import sockets

QUEUE_ID = b"q" * 16
Answering = Callable[[Claim], list[bytes]]


class Exchanges:
    """Answers claims, each at an address of its own."""

    def __init__(self) -> None:
        self.context = sockets.new_context()
        self.claims: list[Claim] = []
        self._threads: list[threading.Thread] = []
        self._ended = threading.Event()

    def add(self, name: str, answer: Answering) -> ExchangeAddress:
        socket = self.context.socket(zmq.ROUTER)
        port = socket.bind_to_random_port("tcp://127.0.0.1")

        def serve() -> None:
            while not self._ended.is_set():
                if socket.poll(20):
                    route, letter, body = socket.recv_multipart()
                    assert letter == CLAIM
                    claim = documents.decode(body, Claim)
                    self.claims.append(claim)
                    socket.send_multipart([route, join_answer(answer(claim))])
            socket.close(0)

        self._threads.append(threading.Thread(target=serve))
        self._threads[-1].start()
        return ExchangeAddress(name, f"tcp://127.0.0.1:{port}")

    def close(self) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join(30)
        self.context.destroy(linger=0)


@pytest.fixture
def exchanges() -> Iterator[Exchanges]:
    those = Exchanges()
    yield those
    those.close()


def claimed(streams: list[tuple[bytes, int]], known: int = 0, committed: int = 1) -> Answering:
    left = [committed]

    def answer(claim: Claim) -> list[bytes]:
        left[0] -= 1
        told = Claimed(
            incarnation=max(claim.incarnation, known), streams=streams, committed=left[0] <= 0
        )
        return [CLAIM, documents.encode(told)]

    return answer


def be(places: list[ExchangeAddress], seconds: float = 30.0) -> dict[str, int]:
    return dict(
        resume(QUEUE_ID, "orders", "billing-1", lambda: Places(0, list(places)), seconds).streams
    )


def test_each_stream_goes_on_behind_the_highest_sequence_of_all_exchanges(
    exchanges: Exchanges,
) -> None:
    one = exchanges.add("x1", claimed([(b"a", 3), (b"b", 9)]))
    two = exchanges.add("x2", claimed([(b"a", 7), ("ü".encode(), 1)]))
    assert be([one, two]) == {"a": 7, "b": 9, "ü": 1}
    assert {claim.publisher for claim in exchanges.claims} == {publisher_of(QUEUE_ID, "billing-1")}


def test_what_is_not_committed_is_asked_for_again(exchanges: Exchanges) -> None:
    assert be([exchanges.add("x1", claimed([(b"a", 3)], committed=3))]) == {"a": 3}
    assert len(exchanges.claims) == 3


def test_whoever_is_opened_later_wins_whatever_its_clock_says(exchanges: Exchanges) -> None:
    ahead = 1 << 60
    place = exchanges.add("x1", claimed([], known=ahead))
    other = exchanges.add("x2", claimed([]))
    found = resume(QUEUE_ID, "orders", "billing-1", lambda: Places(0, [place, other]), 30.0)
    assert found.incarnation == ahead + 1
    assert exchanges.claims[-1].incarnation == ahead + 1


@pytest.mark.parametrize("places", [[], [ExchangeAddress("x7", "")]])
def test_an_exchange_that_does_not_run_is_named(places: list[ExchangeAddress]) -> None:
    with pytest.raises(Unavailable, match="billing-1") as caught:
        be(places, 0.0)
    assert ("x7" in str(caught.value)) is bool(places)


def test_an_exchange_that_refuses_says_why(exchanges: Exchanges) -> None:
    refused = documents.encode(Refused(code="full", text="10 publishers are here already"))
    place = exchanges.add("x1", lambda _: [REFUSED, refused])
    with pytest.raises(Unavailable, match="10 publishers"):
        be([place])


def test_the_same_name_is_another_publisher_in_another_queue() -> None:
    ids = {publisher_of(QUEUE_ID, "a"), publisher_of(QUEUE_ID, "b"), publisher_of(b"r" * 16, "a")}
    assert len(ids) == 3


def test_whoever_has_answered_is_not_asked_again_and_the_others_are_after_a_pause(
    exchanges: Exchanges, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = exchanges.add("x1", claimed([(b"a", 3)]))
    two = exchanges.add("x2", claimed([(b"a", 7)]))
    pauses: list[float] = []
    monkeypatch.setattr(waiters, "sleep", lambda _, seconds: pauses.append(seconds))

    def places() -> Places:
        """The second one comes back while it is waited for."""
        return Places(0, [one, two if len(pauses) == 3 else ExchangeAddress("x2", "")])

    found = resume(QUEUE_ID, "orders", "billing-1", places, 30.0)
    assert found.streams == {"a": 7}
    assert pauses == [AGAIN_SECONDS] * 3
    assert len(exchanges.claims) == 2


def test_all_exchanges_are_asked_at_once(exchanges: Exchanges) -> None:
    answers = claimed([(b"a", 3)])
    others_asked = threading.Event()

    def slow(claim: Claim) -> list[bytes]:
        assert others_asked.wait(30)
        return answers(claim)

    def fast(claim: Claim) -> list[bytes]:
        others_asked.set()
        return answers(claim)

    assert be([exchanges.add("x1", slow), exchanges.add("x2", fast)]) == {"a": 3}
    assert len(exchanges.claims) == 2, "none of them twice"


def test_after_an_exchange_has_gone_a_name_is_another_publisher_that_goes_on(
    exchanges: Exchanges,
) -> None:
    def answer(claim: Claim) -> list[bytes]:
        told = Claimed(
            incarnation=claim.incarnation, committed=True,
            streams=[(b"a", 3)], earlier=[(b"a", 2), (b"b", 9)],
        )  # fmt: skip
        return [CLAIM, documents.encode(told)]

    lives = iter([1, 9, 9])
    gone, place = ExchangeAddress("x2", ""), exchanges.add("x1", answer)

    def places() -> Places:
        life = next(lives)
        return Places(life, [place, gone] if life == 1 else [place])

    found = resume(QUEUE_ID, "orders", "billing-1", places, 30.0)
    ids = [publisher_of(QUEUE_ID, "billing-1", life) for life in range(10)]
    assert len(set(ids)) == 10
    assert (found.id, found.streams, found.taken_over) == (ids[9], {"a": 3}, {"b": 9})
    assert [each.publisher for each in exchanges.claims] == [ids[1], ids[9]]
    assert [each.earlier for each in exchanges.claims] == [ids[:1], ids[2:9]]


def test_the_error_says_how_one_that_is_lost_is_given_up() -> None:
    with pytest.raises(Unavailable, match="roq exchange forget orders x7"):
        be([ExchangeAddress("x7", "")], 0.0)


def test_an_exchange_that_is_begun_while_the_others_answer_is_asked_before_it_is_there(
    exchanges: Exchanges,
) -> None:
    """The earlier publisher of this name may have been moved to it."""
    two = exchanges.add("x2", claimed([(b"a", 105)]))
    there: list[ExchangeAddress] = []

    def answer(claim: Claim) -> list[bytes]:
        there.append(two)
        return claimed([(b"a", 5)])(claim)

    there.append(exchanges.add("x1", answer))
    assert be(there) == {"a": 105}
    assert len(exchanges.claims) == 2, "none of them twice"


def test_a_life_that_begins_while_the_exchanges_answer_is_claimed_too(exchanges: Exchanges) -> None:
    lives = [1]

    def answer(claim: Claim) -> list[bytes]:
        lives.append(2)
        return claimed([(b"a", 5)])(claim)

    place = exchanges.add("x1", answer)
    found = resume(QUEUE_ID, "orders", "billing-1", lambda: Places(lives[-1], [place]), 30.0)
    assert found.id == publisher_of(QUEUE_ID, "billing-1", 2)


def test_one_that_is_begun_meanwhile_and_does_not_answer_in_time_is_named(
    exchanges: Exchanges,
) -> None:
    there: list[ExchangeAddress] = []

    def answer(claim: Claim) -> list[bytes]:
        there.append(ExchangeAddress("x2", ""))
        return claimed([])(claim)

    there.append(exchanges.add("x1", answer))
    with pytest.raises(Unavailable, match=r"billing-1.*: x2 did not answer"):
        be(there, 0.5)
