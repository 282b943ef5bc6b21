import pytest
from queue_model import LIMIT
from queue_views import at, queue

from roq.policy.loads import Loads
from roq.policy.memory import Marks
from roq.policy.relief import RESIGN_HITS, count_round, flickering, is_resigned, overloaded, relieve
from roq.policy.snapshot import ExchangeView, Memory, Move


def relieved(*exchanges: ExchangeView, source: int = 1, moves_max: int = 100, hasty: bool = False):
    """(publisher → target, loads after) of relieving one exchange."""
    loads = Loads(queue(*exchanges))
    relieve(loads, source, moves_max, hasty=hasty)
    moves = {
        int.from_bytes(each.publisher, "big"): each.target
        for each in loads.decisions()
        if isinstance(each, Move)
    }
    return moves, {number: round(load / LIMIT, 3) for number, load in loads.load.items()}


REFERENCE = [
    ("who leaves both most even goes first", [at(1, (1, 0.9), (2, 0.5), (3, 0.1)), at(2)], {2: 2}),
    ("until the exchange is at its limit", [at(1, *[(n, 0.2) for n in range(1, 9)]), at(2), at(3)],
     {1: 2, 2: 3, 3: 2}),
    ("only where it fits below 90 %", [at(1, (1, 0.6), (2, 0.4), (3, 0.3)), at(2, others=0.4)],
     {2: 2}),
    ("else they even out, if it gains 10 %", [at(1, (1, 0.7), (2, 0.7), (3, 0.6)),
     at(2, others=0.8)], {3: 2}),
    ("not if it gains less", [at(1, (1, 0.6), (2, 0.6)), at(2, others=0.55)], {}),
    ("nobody goes where it would be worse", [at(1, (1, 0.6), (2, 0.6)), at(2, others=0.7)], {}),
    ("nobody to move", [at(1, others=2.0), at(2)], {}),
    ("nowhere to go", [at(1, (1, 0.6), (2, 0.6)), at(2, accepting=False)], {}),
]  # fmt: skip


@pytest.mark.parametrize(
    ("exchanges", "expected"), [row[1:] for row in REFERENCE], ids=[row[0] for row in REFERENCE]
)
def test_relieves_as_the_reference_table_says(exchanges, expected) -> None:
    assert relieved(*exchanges)[0] == expected


def test_no_more_moves_than_allowed() -> None:
    moves, _ = relieved(at(1, *[(n, 0.1) for n in range(1, 30)]), at(2), moves_max=3)
    assert len(moves) == 3


def test_in_haste_nothing_is_evened_out() -> None:
    exchanges = (at(1, (1, 0.7), (2, 0.7), (3, 0.6)), at(2, others=0.8))
    assert relieved(*exchanges, hasty=True)[0] == {}


def test_the_worst_overload_comes_first() -> None:
    loads = Loads(queue(at(1, others=1.2), at(2, others=1.5), at(3, others=1.1)))
    assert list(overloaded(loads)) == [2, 1]
    assert list(overloaded(loads, [2])) == [1]


@pytest.mark.parametrize(
    ("throughput", "mean", "flickers"),
    [
        (1.09, 1.09, False),  # not overloaded
        (1.12, 1.07, True),
        (1.12, 1.00, False),  # a step, not noise
        (1.12, 1.11, False),  # it lasts already
        (1.25, 1.09, False),  # beyond doubt
    ],
)
def test_what_may_be_noise_is_no_overload(throughput: float, mean: float, flickers: bool) -> None:
    view = queue(at(1, throughput=throughput, mean=mean))
    memory = Memory()
    found = []
    for _ in range(4):
        marks = Marks(memory, 0.0)
        found.append(flickering(view, marks) == {1})
        memory = marks.memory()
    assert found == ([True, True, False, False] if flickers else [False] * 4)


def loads(*parts: float) -> Loads:
    return Loads(queue(*[at(n, throughput=part) for n, part in enumerate(parts, 1)]))


def resigned_at(*parts: float) -> Memory:
    marks = Marks(Memory(), 0.0)
    for _ in range(RESIGN_HITS):
        count_round(marks, loads(*parts), hopeless=True)
    return marks.memory()


def test_nobody_resigns_before_it_has_been_hopeless_for_some_rounds() -> None:
    marks = Marks(Memory(), 0.0)
    for _ in range(RESIGN_HITS - 1):
        count_round(marks, loads(1.4, 1.3), hopeless=True)
    count_round(marks, loads(1.4, 1.3), hopeless=False)
    count_round(marks, loads(1.4, 1.3), hopeless=True)
    assert not is_resigned(marks, loads(1.4, 1.3))


def test_noise_does_not_end_it() -> None:
    assert is_resigned(Marks(resigned_at(1.4, 0.0), 0.0), loads(1.5, 0.005))


def test_any_other_load_ends_it_for_good() -> None:
    marks = Marks(resigned_at(1.4, 1.3), 0.0)
    assert not is_resigned(marks, loads(1.4, 1.1))
    assert not is_resigned(marks, loads(1.4, 1.3))


def test_another_exchange_ends_it() -> None:
    assert not is_resigned(Marks(resigned_at(1.4, 1.3), 0.0), loads(1.4, 1.3, 0.0))
