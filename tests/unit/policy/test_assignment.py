import pytest

from roq.policy.assignment import Candidate, assign, counted, expected_load, is_cold

LIMIT = 75_000_000.0


def candidates(*rows: tuple[int, int, float]) -> list[Candidate]:
    """(number, publishers, percent of the limit) → candidates of epoch 10 + number."""
    return [
        Candidate(number=number, epoch=10 + number, publishers=publishers, throughput=LIMIT * part)
        for number, publishers, part in rows
    ]


REFERENCE = [
    # id, exchanges (number, publishers, fraction of the limit), failed, chosen
    ("nothing serves", [], [], None),
    ("the only one", [(1, 50, 2.0)], [], 1),
    ("all idle: the lowest number", [(1, 0, 0.0), (2, 0, 0.0)], [], 1),
    ("order of the snapshot does not matter", [(2, 0, 0.0), (1, 0, 0.0)], [], 1),
    ("cold: fewest publishers", [(1, 2, 0.0), (2, 1, 0.09), (3, 3, 0.0)], [], 2),
    ("cold at exactly a tenth", [(1, 2, 0.0), (2, 1, 0.10)], [], 2),
    ("cold and equal: lower throughput", [(1, 1, 0.05), (2, 1, 0.01)], [], 2),
    ("warm above a tenth: lowest throughput", [(1, 9, 0.02), (2, 1, 0.11)], [], 1),
    ("warm and equal: fewer publishers", [(1, 3, 0.5), (2, 2, 0.5)], [], 2),
    ("over the limit: still the lowest", [(1, 1, 1.4), (2, 1, 1.2)], [], 2),
    ("failed ones are avoided, cold", [(1, 0, 0.0), (2, 5, 0.0)], [(1, 11)], 2),
    ("failed ones are avoided, warm", [(1, 1, 0.2), (2, 5, 0.9)], [(1, 11)], 2),
    ("a newer epoch has not failed", [(1, 0, 0.0), (2, 5, 0.0)], [(1, 10)], 1),
    ("all failed", [(1, 0, 0.0), (2, 0, 0.0)], [(1, 11), (2, 12)], None),
    ("a failed busy one still means warm", [(1, 1, 0.9), (2, 0, 0.02), (3, 1, 0.01)], [(1, 11)], 3),
]


@pytest.mark.parametrize(
    ("rows", "failed", "chosen"), [row[1:] for row in REFERENCE], ids=[row[0] for row in REFERENCE]
)
def test_chooses_as_the_reference_table_says(rows, failed, chosen) -> None:
    choice = assign(candidates(*rows), LIMIT, failed)
    assert (choice.number if choice else None) == chosen


def test_newcomers_are_counted_at_once_so_a_crowd_spreads_evenly_when_cold() -> None:
    state = {each.number: each for each in candidates((1, 0, 0.0), (2, 0, 0.0), (3, 0, 0.0))}
    for _ in range(9):
        choice = assign(list(state.values()), LIMIT)
        assert choice is not None
        state[choice.number] = counted(choice, expected_load(list(state.values())))
    assert [each.publishers for each in state.values()] == [3, 3, 3]


def test_newcomers_are_counted_at_once_so_a_crowd_spreads_when_warm() -> None:
    state = {each.number: each for each in candidates((1, 4, 0.8), (2, 4, 0.4), (3, 4, 0.4))}
    for _ in range(6):
        snapshot = list(state.values())
        choice = assign(snapshot, LIMIT)
        assert choice is not None
        state[choice.number] = counted(choice, expected_load(snapshot))
    assert state[1].publishers == 4
    assert abs(state[2].publishers - state[3].publishers) <= 1


def test_the_published_experiment_ends_with_four_publishers_on_each_of_four_exchanges() -> None:
    state = {each.number: each for each in candidates(*((n, 0, 0.0) for n in range(1, 5)))}
    for _ in range(16):
        choice = assign(list(state.values()), LIMIT)
        assert choice is not None
        state[choice.number] = counted(choice, 3_400 * 5_000)
    assert [each.publishers for each in state.values()] == [4, 4, 4, 4]


def test_expected_load_is_the_mean_per_publisher_and_zero_without_any() -> None:
    assert expected_load(candidates((1, 0, 0.0))) == 0.0
    assert expected_load(candidates((1, 1, 0.3), (2, 2, 0.3))) == pytest.approx(LIMIT * 0.2)


def test_no_exchange_is_cold() -> None:
    assert is_cold([], LIMIT)
