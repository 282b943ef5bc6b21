"""A service over several exchanges is one view."""

from __future__ import annotations

from typing import Any, cast

import pytest
from described import described

from roq.client.consume.groups import GroupSummary
from roq.client.io.engine import Engine
from roq.client.io.exchange_questions import Answers
from roq.client.request import views
from roq.client.request.context import parse_id
from roq.client.request.views import RequestDescription, describe_request, summed
from roq.errors import GroupNotFound, Unavailable
from roq.protocol import documents
from roq.protocol.channel import REFUSED, Refused
from roq.protocol.public_answers import QueueDescription
from roq.protocol.requesting import (
    ENDS,
    REQUESTS,
    Durations,
    Requests,
    RequestsQuery,
    RequestState,
    RequestView,
    ServiceSettings,
)


def answer(*requests: RequestView, **given: object) -> Requests:
    fields: dict[str, object] = {"id": 1, "generation": 7, "settings": ServiceSettings()}
    return Requests(requests=list(requests), **{**fields, **given})  # type: ignore[arg-type]


def group(**given: object) -> GroupSummary:
    fields: dict[str, object] = {
        "name": "billing", "mode": "shared", "topics": ["billing/"], "lease_seconds": 10.0,
        "attempts": 0, "created": 0.0, "members": 0, "behind": 0, "out": 0, "waiting": 0,
        "oldest_seconds": None, "paused": False, "acknowledged": 0, "failed": 0, "lapsed": 0,
        "expired": 0, "stalled": [], "parts": [],
    }  # fmt: skip
    return GroupSummary(**{**fields, **given})  # type: ignore[arg-type]


def test_what_exchanges_say_of_a_service_is_added_up() -> None:
    running = RequestView(offset=3, index=1, state=RequestState.RUNNING, age_seconds=2.0)
    failed = RequestView(offset=0, index=0, state=RequestState.FAILED, text="no", age_seconds=5.0)
    view = summed(
        "work", group(oldest_seconds=10.0, stalled=["exchange x1: it is paused"]),
        {
            "x1": answer(
                running, open=1, counts={"done": 4}, accepted=3, retried=1,
                waiting=Durations([1, 2], 3.0),
            ),
            "x2": answer(
                failed, stored=1, stored_bytes=2, counts={"done": 1, "failed": 1}, accepted=4,
                waiting=Durations([1, 0, 5], 4.0),
            ),
        },
        {"x1": 1, "x2": 2}, {"x3": "it is away"},
    )  # fmt: skip
    assert (view.open, view.stored, view.stored_bytes) == (1, 1, 2)
    assert view.counts == {"done": 5, "failed": 1}
    assert view.oldest_seconds == 10.0
    assert (view.accepted, view.retried) == (7, 1)
    assert (view.waiting, view.running) == (Durations([2, 2, 5], 7.0), Durations())
    assert [(each.state, each.text) for each in view.requests] == [
        ("failed", "no"),
        ("running", ""),
    ]
    where = parse_id(view.requests[1].id)
    assert (where.queue, where.log.number, where.log.generation) == ("work", 1, 7)
    assert tuple(where.position) == (3, 1)
    assert (view.stalled, view.missing) == (["exchange x1: it is paused"], {"x3": "it is away"})


def test_a_view_says_that_an_exchange_has_more() -> None:
    numbers = {"x1": 1, "x2": 2}
    some = summed("work", group(), {"x1": answer(), "x2": answer(more=True)}, numbers, {})
    assert some.more
    assert not summed("work", group(), {"x1": answer()}, numbers, {}).more


def test_a_service_without_open_requests_has_no_oldest_one() -> None:
    view = summed("work", group(), {"x1": answer()}, {"x1": 1}, {})
    assert view.oldest_seconds is None


# --- one request ----------------------------------------------------------------------------------

ID = "work/x2-7-42-3"


class Exchanges:
    """What the exchange of a request answers, and who is asked what."""

    def __init__(self) -> None:
        self.answer: Requests | str | None = None
        self.asked: list[tuple[str, RequestsQuery]] = []

    def ask_all(
        self,
        _: Engine,
        queue: QueueDescription,
        letter: bytes,
        query: RequestsQuery,
        seconds: float,
    ) -> Answers:
        assert (letter, seconds) == (REQUESTS, 3.0)
        self.asked += [(each.name, query) for each in queue.exchanges]
        if self.answer is None:
            return Answers({}, {"x2": "it is away"})
        if isinstance(self.answer, str):
            told = [REFUSED, documents.encode(Refused(code=self.answer, text="no"))]
        else:
            told = [REQUESTS, documents.encode(self.answer)]
        return Answers({"x2": told}, {})


@pytest.fixture
def there(monkeypatch: pytest.MonkeyPatch) -> Exchanges:
    made = Exchanges()
    monkeypatch.setattr(views, "ask_all", made.ask_all)
    return made


def describe(request: str = ID) -> RequestDescription:
    return describe_request(
        cast("Engine", None), described(), "billing", parse_id(request), 3.0, 1_000.0
    )


def seen(state: RequestState, **given: Any) -> Requests:
    return answer(RequestView(offset=42, index=3, state=state, **given))


def test_a_request_is_described_by_its_exchange_alone(there: Exchanges) -> None:
    there.answer = seen(
        RequestState.FAILED, text="no", instance="one", attempts=2, age_seconds=30.0, bytes=5
    )
    found = describe()
    ((name, query),) = there.asked
    assert (name, query.service, query.offset, query.index) == ("x2", "billing", 42, 3)
    assert query.queue == b"q" * 16
    assert (found.id, found.state, found.outcome) == (ID, "failed", "kept")
    assert (found.text, found.instance, found.attempts, found.bytes) == ("no", "one", 2, 5)
    assert found.since == 970.0


@pytest.mark.parametrize("state", RequestState)
def test_what_has_not_ended_is_kept_or_is_gone_is_told_apart(
    there: Exchanges, state: RequestState
) -> None:
    there.answer = seen(state)
    gone = {"retrieved", "expired", "forgotten", "never"}
    wanted = "kept" if state in ENDS else "gone" if state in gone else "open"
    found = describe()
    assert (found.state, found.outcome, found.since) == (state, wanted, None)


def test_a_request_is_lost_with_its_exchange(there: Exchanges) -> None:
    found = describe("work/x3-7-42-3")
    assert (found.id, found.state, found.outcome) == ("work/x3-7-42-3", "lost", "gone")
    assert there.asked == [], "there is nobody to ask"
    there.answer = seen(RequestState.RUNNING)
    assert describe("work/x2-6-42-3").state == "lost", "another one has its number now"
    assert describe().state == "running"


@pytest.mark.parametrize(
    ("told", "error"), [(None, Unavailable), ("full", Unavailable), ("no_group", GroupNotFound)]
)
def test_who_does_not_know_a_request_says_why(
    there: Exchanges, told: str | None, error: type[Exception]
) -> None:
    there.answer = told
    with pytest.raises(error):
        describe()
