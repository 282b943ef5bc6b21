"""A service over several exchanges is one view."""

from __future__ import annotations

from roq.client.consume.groups import GroupSummary
from roq.client.request.context import parse_id
from roq.client.request.views import summed
from roq.protocol.requesting import (
    Durations,
    Requests,
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
