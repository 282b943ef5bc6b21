"""What handlers are called with, and what they have returned."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any, cast

import pytest

import roq
from roq.client.request.calls import (
    BatchRun,
    Registered,
    Work,
    answers_of,
    first_over,
    result_of,
    results_of,
    values_of,
)
from roq.client.request.context import RequestContext, is_lost
from roq.client.request.endpoint import endpoint
from roq.client.request.request_holding import RequestHolding
from roq.model import LogId, PublisherId
from roq.protocol.requesting import ENVELOPE, ENVELOPE_VERSION, SILENT, RequestState
from roq.read.message import Batch

TEXT = endpoint("s.text", request=str, response=str)
NOW = 100.0


def registered(most: int = 3) -> Registered:
    return Registered(TEXT, cast("Any", None), coroutine=False, most=most)


def run_of(count: int, *, flags: int = 0, left: float = math.inf) -> BatchRun:
    payloads = [ENVELOPE.pack(ENVELOPE_VERSION, flags, 0)] * count
    batch = Batch(payloads, "s/text", PublisherId(bytes(16)), 0, 0, 1, None)
    holding = RequestHolding(LogId(1, 1), 0, 7, 0, 1, batch)
    context = RequestContext(cast("Any", None), "s.text", 1, NOW + left, lambda: NOW)
    return BatchRun(Work(holding, 0, count), ["x"] * count, [context] * count)


def test_a_call_takes_no_more_than_it_may_and_leaves_the_rest() -> None:
    calls, holding = registered(), cast("Any", "held")
    calls.due.extend([Work(holding, 0, 2), Work(holding, 5, 5), Work(holding, 20)])
    taken = [[each[1:] for each in calls.take()] for _ in range(4)]
    assert taken == [[(0, 2), (5, 1)], [(6, 3)], [(9, 1), (20, 1)], []]
    assert [each.at for each in Work(holding, 5, 2).each()] == [5, 6]


def test_responses_of_a_whole_run_are_encoded_together() -> None:
    told = results_of(registered(), run_of(2), ["a", "b"], NOW)
    assert told is not None
    assert [TEXT.decode_response(each.value) for each in told] == ["a", "b"]
    told = results_of(registered(), run_of(2, flags=SILENT), ["a", "b"], NOW)
    assert told is not None
    assert [(each.silent, each.value) for each in told] == [(True, b"")] * 2


@pytest.mark.parametrize("answers", [["a", ValueError("no")], ["a", 7]])
def test_a_run_of_which_not_all_is_well_is_looked_at_one_by_one(answers: list[Any]) -> None:
    assert results_of(registered(), run_of(2), answers, NOW) is None


def test_what_comes_too_late_does_not_count() -> None:
    run = run_of(1, left=-1.0)
    assert results_of(registered(), run, ["a"], NOW) is None
    late = result_of(registered(), "a", run.contexts[0], NOW)
    assert (late.state, late.ran_late) == (RequestState.LATE, True)


def test_a_handler_is_called_with_all_runs_and_the_time_of_the_first() -> None:
    runs = [run_of(2), run_of(1, left=5.0)]
    values, contexts = values_of(runs)
    assert (values, len(contexts)) == (["x"] * 3, 3)
    first = runs[1].contexts[0]
    assert first_over(runs).deadline == first.deadline
    assert first_over(runs).remaining == first.remaining == 5.0


def test_what_a_batch_requests_is_wanted_as_long_as_one_of_it_is() -> None:
    held = [SimpleNamespace(lost=False, id=f"work/x1-1-0-{n}", headers={}) for n in range(3)]
    made = [RequestContext(each, "s.text", 2, NOW + 1.0, lambda: NOW) for each in held]
    runs = [run_of(2)._replace(contexts=made[:2]), run_of(1)._replace(contexts=made[2:])]
    meanwhile = first_over(runs)
    assert (meanwhile.id, meanwhile.attempt, meanwhile.headers) == (held[0].id, 2, {})
    for each in held:
        assert not is_lost(meanwhile)
        each.lost = True
    assert is_lost(meanwhile)


@pytest.mark.parametrize("answers", ["ab", None, ["a"]])
def test_a_handler_gives_an_answer_to_each(answers: Any) -> None:
    with pytest.raises(roq.InvalidRequest):
        answers_of(answers, 2)
