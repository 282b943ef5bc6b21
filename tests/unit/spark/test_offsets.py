"""How far a query reads next: every batch once, fairly, over logs that come and go."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roq.errors import ConfigError
from roq.spark.offsets import (
    AWAY_MAX,
    LogId,
    Offsets,
    Part,
    Span,
    Step,
    advance,
    check_ends,
    parts,
    read_offsets,
    within,
)

QUEUE = "ab" * 16
X1, X2, X3 = LogId(1, 65537), LogId(2, 65538), LogId(1, 65539)


def test_a_checkpoint_is_read_back_equal() -> None:
    offsets = Offsets(QUEUE, {X2: 7, X1: 3}, frozenset({X1}))
    document = json.loads(json.dumps(offsets.document()))
    assert read_offsets(document, QUEUE) == offsets


def test_a_highest_number_that_none_can_have_is_not_believed() -> None:
    document = {**Offsets(QUEUE, {X2: 7}).document(), "highest": 1 << 40}
    assert read_offsets(document, QUEUE).highest == X2.number


def test_the_text_of_a_checkpoint_does_not_depend_on_the_order_of_logs() -> None:
    one, other = Offsets(QUEUE, {X1: 1, X2: 2}), Offsets(QUEUE, {X2: 2, X1: 1})
    assert json.dumps(one.document()) == json.dumps(other.document())


def test_a_checkpoint_of_another_queue_is_refused() -> None:
    with pytest.raises(ConfigError, match="another queue"):
        read_offsets(Offsets("cd" * 16).document(), QUEUE)


@pytest.mark.parametrize(
    "document",
    [
        {}, {"format": 2, "logs": {}, "queue": QUEUE}, {"format": 1, "queue": QUEUE},
        {"format": 1, "logs": {"x1": 4}, "queue": QUEUE},
        {"format": 1, "logs": {"1:2": -4}, "queue": QUEUE},
        {"format": 1, "logs": {"1:2": "4"}, "queue": QUEUE},
        {"format": 1, "logs": {"1:2": 1 << 63}, "queue": QUEUE},
        {"format": 1, "logs": {f"{1 << 32}:2": 4}, "queue": QUEUE},
        {"format": 1, "logs": {f"1:{1 << 36}": 4}, "queue": QUEUE},
        {"format": 1, "logs": {"9" * 5_000 + ":2": 4}, "queue": QUEUE},
    ],
)  # fmt: skip
def test_what_is_no_checkpoint_is_refused(document: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match="checkpoint"):
        read_offsets(document, QUEUE)


def test_without_a_limit_everything_is_read() -> None:
    step = advance(Offsets(QUEUE, {X1: 5}), {X1: Span(0, 9), X2: Span(0, 4)}, 0)
    assert step.end.next == {X1: 9, X2: 4}
    assert step.gone == ()


def test_a_log_that_has_come_since_is_read_from_its_beginning() -> None:
    start = Offsets(QUEUE, {X1: 5})
    end = advance(start, {X1: Span(0, 5), X2: Span(0, 4)}, 0).end
    assert parts(start, end, 1) == [Part(X2, 0, 4)]


def test_what_has_left_a_log_is_still_in_the_plan_so_that_its_loss_is_noticed() -> None:
    start = Offsets(QUEUE, {X1: 5})
    end = advance(start, {X1: Span(8, 12)}, 0).end
    assert parts(start, end, 1) == [Part(X1, 5, 12)]


def test_a_log_that_is_no_more_is_told_and_forgotten() -> None:
    step = advance(Offsets(QUEUE, {X1: 5, X2: 7}), {X2: Span(0, 7), X3: Span(0, 1)}, 0)
    assert step.gone == ((X1, 5),)
    assert step.end.next == {X2: 7, X3: 1}


def test_a_log_that_comes_back_is_not_read_twice() -> None:
    away = advance(Offsets(QUEUE, {X1: 5, X2: 7}), {X2: Span(0, 9)}, 0)
    assert away.gone == ((X1, 5),)
    assert away.end.next == {X1: 5, X2: 9}
    assert parts(Offsets(QUEUE, {X1: 5, X2: 7}), away.end, 1) == [Part(X2, 7, 9)]
    assert advance(away.end, {X1: Span(0, 6), X2: Span(0, 9)}, 0).end.next == {X1: 6, X2: 9}


def test_a_log_that_is_away_is_told_once_however_often_the_driver_is_started() -> None:
    away = advance(Offsets(QUEUE, {X1: 5}), {X2: Span(0, 9)}, 0)
    assert away.gone == ((X1, 5),)
    again = read_offsets(json.loads(json.dumps(away.end.document())), QUEUE)
    assert advance(again, {X2: Span(0, 9)}, 0) == Step(again)
    back = advance(again, {X1: Span(0, 6), X2: Span(0, 9)}, 0).end
    assert advance(back, {X2: Span(0, 9)}, 0).gone == ((X1, 6),)


def test_of_logs_that_are_away_not_more_than_some_are_remembered() -> None:
    many = {LogId(number, number): 1 for number in range(1, AWAY_MAX + 3)}
    kept = advance(Offsets(QUEUE, many), {}, 0).end.next
    assert len(kept) == AWAY_MAX
    assert min(kept) == LogId(3, 3)


def test_a_query_that_ends_by_itself_reads_what_there_was() -> None:
    present = {X1: Span(2, 9), X2: Span(0, 4), X3: Span(0, 1)}
    assert within(present, None) == present
    assert within(present, {X1: 5, X2: 4}) == {X1: Span(2, 5), X2: Span(0, 4)}
    left = within(present, {X1: 5, X2: 4})
    step = advance(Offsets(QUEUE), left, 0)
    assert step.end.next == {X1: 5, X2: 4}
    assert advance(step.end, left, 3).end == step.end


def test_a_limit_is_divided_in_proportion_to_what_is_waiting() -> None:
    step = advance(Offsets(QUEUE), {X1: Span(0, 300), X2: Span(0, 100)}, 40)
    assert step.end.next == {X1: 30, X2: 10}


def test_nothing_new_moves_nothing() -> None:
    start = Offsets(QUEUE, {X1: 5})
    assert advance(start, {X1: Span(0, 5)}, 10).end == start


spans = st.dictionaries(
    st.builds(LogId, st.integers(1, 4), st.integers(1, 3)),
    st.tuples(st.integers(0, 50), st.integers(0, 50)).map(lambda pair: Span(min(pair), max(pair))),
    max_size=5,
)


@given(spans, st.dictionaries(st.builds(LogId, st.integers(1, 4), st.integers(1, 3)),
                              st.integers(0, 60), max_size=5), st.integers(1, 40))  # fmt: skip
def test_steps_go_forward_within_the_limit_until_all_is_read(
    present: dict[LogId, Span], begun: dict[LogId, int], most: int
) -> None:
    offsets = Offsets(QUEUE, begun)
    for _ in range(300):
        end = advance(offsets, present, most).end
        assert set(present) <= set(end.next) <= {*present, *begun}
        assert all(end.next[key] == begun[key] for key in set(end.next) - set(present))
        read = 0
        for key, span in present.items():
            before, after = offsets.next.get(key, 0), end.next[key]
            assert before <= after <= max(before, span.end)
            read += max(0, after - max(before, span.floor))
        assert read <= most
        if end == offsets:
            break
        offsets = end
    assert all(offsets.next[key] >= span.end for key, span in present.items() if span.end)


@given(spans, st.integers(1, 7))
def test_the_parts_of_tasks_cover_everything_once(present: dict[LogId, Span], most: int) -> None:
    start = Offsets(QUEUE, {key: span.floor for key, span in present.items()})
    end = Offsets(QUEUE, {key: span.end for key, span in present.items()})
    found = parts(start, end, most)
    assert all(first < until for _, first, until in found)
    for key, span in present.items():
        mine = [(first, until) for log, first, until in found if log == key]
        assert len(mine) <= most
        covered = [offset for first, until in mine for offset in range(first, until)]
        assert covered == list(range(*span))


def test_an_offset_beyond_the_end_of_its_log_is_named_with_that_end() -> None:
    present = {X1: Span(3, 9), X2: Span(0, 4)}
    check_ends({X1: 9, X2: 0, X3: 1_000}, present, "startingOffsets")
    with pytest.raises(
        ConfigError,
        match=r"^the checkpoint: offset 5 .* x2 \(generation 65538\), which is 4",
    ):
        check_ends({X1: 9, X2: 5}, present, "the checkpoint")
