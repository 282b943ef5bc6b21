from queue_views import at, queue

from roq.policy.loads import Loads
from roq.policy.marks import Marks
from roq.policy.resignation import RESIGN_HITS, count_round, is_resigned
from roq.policy.snapshot import Memory


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
