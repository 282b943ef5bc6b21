"""A real exchange, sockets and instances: an answer of an outdated attempt counts for nothing; and
the same is noticed to go wrong if nobody looks at the number of a lease."""

from __future__ import annotations

import threading
from typing import Final

import pytest
from outdated import an_outdated_attempt_answers
from watched import Scene

import roq

pytestmark = pytest.mark.integration

WHO: Final = roq.endpoint("late.who", request=int, response=str, idempotent=True)
DELAY_SECONDS: Final = 1.2
"""Each way: the first instance gets the request, and answers, when it was taken from it already."""
SETTINGS: Final = {"confirm_within": 0.5, "send_attempts": 60}


def answered_by(scene: Scene) -> str:
    """Whose answer the requester has got, of an instance that has answered late, under a lease that
    was taken back, and of the one that has the request then and answers after that."""
    slow = scene.by_way(scene.info(1).data)
    first_ran, second_has_it, second_may = (threading.Event() for _ in range(3))

    def first(number: int, _: roq.RequestContext) -> str:
        if number:
            first_ran.set()
        return "the first"

    def second(number: int, _: roq.RequestContext) -> str:
        second_has_it.set()
        assert second_may.wait(30)
        return "the second"

    def detour(address: str) -> str:
        return slow.address if address == scene.info(1).data else address

    with (
        roq.connect(scene.control.address, translate=detour) as one,
        roq.connect(scene.control.address) as other,
        other.requester("orders", settings=SETTINGS) as requester,
    ):
        service = one.service("late", "orders")
        service.handler(WHO)(first)
        service.start()
        assert requester.request(WHO, 0).result(20) == "the first"
        slow.set_delay(DELAY_SECONDS)
        wanted = requester.request(WHO, 1)
        requester.flush()
        later = other.service("late", "orders")
        later.handler(WHO)(second)
        later.start()
        assert second_has_it.wait(20), "it was taken from the first one, which has not confirmed it"
        assert first_ran.wait(20)
        threading.Event().wait(2 * DELAY_SECONDS)  # its answer has come, and is over
        second_may.set()
        answer = wanted.result(20)
        slow.set_delay(0.0)
        later.drain()
        service.drain()
        return answer


def test_an_answer_under_a_lease_that_was_taken_back_counts_for_nothing(scene: Scene) -> None:
    assert answered_by(scene) == "the second"


def test_and_that_is_noticed_if_nobody_looks_at_the_lease(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    an_outdated_attempt_answers(monkeypatch)
    assert answered_by(scene) == "the first", "what must not be, and the test above finds"
