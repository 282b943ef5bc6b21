"""No number is given twice, whatever becomes of what the count begins from."""

import pytest
from paper_store import PaperStore

from roq.coordination.counter import Counter
from roq.coordination.registry_contract import (
    BASE,
    CLUSTER,
    EPOCH,
    EPOCH_MAX,
    Committed,
    Delete,
    Reason,
)
from roq.coordination.store_contract import MultiResult, Refused
from roq.errors import LocalProtocolError, RegistryAway


class Drawing:
    """A counter that knows its base, and what came of drawing from it."""

    def __init__(self, store: PaperStore) -> None:
        self.problems: list[str] = []
        self.given: list[int | RegistryAway] = []
        self.followed: list[RegistryAway | None] = []
        self.counter = Counter(store, self.problems.append)
        self.counter.follow(self.followed.append)

    def draw(self, above: int = 0) -> int | RegistryAway:
        self.counter.draw(above, self.given.append)
        return self.given[-1]


def test_numbers_rise_by_one_over_all_who_draw() -> None:
    store = PaperStore()
    one, other = Drawing(store), Drawing(store)
    assert [one.draw(), other.draw(), one.draw()] == [1, 2, 3]


def test_a_number_is_above_the_one_that_is_known_to_have_been_given() -> None:
    store = PaperStore()
    one, other = Drawing(store), Drawing(store)
    one.draw()
    assert one.draw(above=700) == 701
    assert one.draw(above=701) == 702
    assert other.draw() == 703


def test_who_counts_from_an_old_base_learns_of_the_new_one_before_it_draws() -> None:
    store = PaperStore()
    one, other = Drawing(store), Drawing(store)
    one.draw(above=50)
    store.watches.clear()  # the other one was not told
    assert other.draw() == 52


LOST = Refused(1, Reason.VERSION)


@pytest.mark.parametrize(
    "answers", [[LOST], [Committed((0, 0, 1)), LOST]], ids=["raised", "set back"]
)
def test_a_base_that_is_changed_all_the_time_ends_the_draw(answers: list[MultiResult]) -> None:
    store = PaperStore()
    drawing = Drawing(store)
    store.answers = answers * 100
    assert "changed all the time" in str(drawing.draw(above=700))
    assert len(store.transactions) < 20


@pytest.mark.parametrize("index", [0, 1, 2])
def test_what_keeps_a_number_from_being_drawn_is_named(index: int) -> None:
    store = PaperStore()
    drawing = Drawing(store)
    store.answers = [Refused(index, Reason.DENIED)]
    path = (CLUSTER, BASE, EPOCH)[index]
    assert str(drawing.draw()) == f"{path} is not_permitted in the registry"


@pytest.mark.parametrize("base", [b"one", b"-1", b"9" * 50, str(EPOCH_MAX + 1).encode()])
def test_a_base_that_is_no_number_is_a_problem_with_a_remedy_until_it_is_set_right(
    base: bytes,
) -> None:
    store = PaperStore()
    drawing = Drawing(store)
    store.write(BASE, base)
    assert drawing.counter.damaged
    assert f"{BASE} in the registry holds" in drawing.counter.problem
    assert "set it to 0" in drawing.counter.problem
    assert str(drawing.draw()) == drawing.counter.problem
    store.write(BASE, b" 7\n")
    assert (drawing.counter.problem, drawing.counter.damaged) == ("", False)
    assert drawing.problems[1:] == [""]
    assert drawing.draw() == 8


def test_the_same_problem_is_told_once() -> None:
    store = PaperStore()
    drawing = Drawing(store)
    for _ in range(3):
        store.write(BASE, b"one")
    assert len(drawing.problems) == 1


def test_a_base_that_is_missing_is_a_problem_and_none_that_an_operator_has_written() -> None:
    store = PaperStore()
    store.nodes.transact(0, [Delete(BASE)])
    drawing = Drawing(store)
    assert str(drawing.followed[0]) == drawing.counter.problem
    assert f"{BASE} is missing" in drawing.counter.problem
    assert not drawing.counter.damaged
    store.write(BASE, b"")
    assert drawing.draw() == 1


def test_a_base_above_which_no_epoch_is_left_is_a_problem_until_there_is_another() -> None:
    store = PaperStore()
    store.write(BASE, str(EPOCH_MAX - 1).encode())
    drawing = Drawing(store)
    assert drawing.draw() == EPOCH_MAX
    assert isinstance(drawing.draw(), RegistryAway)
    assert "no epoch is left" in drawing.counter.problem
    assert drawing.counter.damaged
    store.write(BASE, b"0")
    assert drawing.draw() == 3


def test_an_epoch_that_none_can_follow_is_a_mistake_of_the_caller() -> None:
    counter = Drawing(PaperStore()).counter
    for above in (-1, EPOCH_MAX):
        with pytest.raises(LocalProtocolError, match=str(above)):
            counter.draw(above, lambda _: None)
        with pytest.raises(LocalProtocolError, match=str(above)):
            counter.raise_above(above, 0, lambda _: None)


def test_who_draws_before_there_is_a_cluster_waits_for_its_name() -> None:
    store = PaperStore(cluster="")
    drawing = Drawing(store)
    drawing.counter.draw(0, drawing.given.append)
    drawing.counter.draw(9, drawing.given.append)
    assert drawing.given == []
    store.write(CLUSTER, b"c1")
    assert drawing.given == [1, 10]


def test_who_waits_hears_that_the_connection_is_gone_and_is_not_answered_again() -> None:
    store = PaperStore(cluster="")
    drawing = Drawing(store)
    drawing.counter.draw(0, drawing.given.append)
    gone = RegistryAway("cut")
    drawing.counter.away(gone)
    assert drawing.given == [gone]
    store.write(CLUSTER, b"c1")
    assert drawing.given == [gone]


def test_who_cannot_learn_whether_there_is_a_name_does_not_wait_for_it() -> None:
    store = PaperStore(cluster="")
    drawing = Drawing(store)
    store.away = RegistryAway("cut")
    assert drawing.draw() is store.away


def test_not_more_than_a_thousand_wait_for_a_name() -> None:
    drawing = Drawing(PaperStore(cluster=""))
    for _ in range(1_000):
        drawing.counter.draw(0, drawing.given.append)
    assert drawing.given == []
    assert "has named this cluster yet" in str(drawing.draw())


def test_a_connection_that_breaks_while_a_number_is_drawn_is_the_answer() -> None:
    store = PaperStore()
    drawing = Drawing(store)
    gone = RegistryAway("cut")
    store.answers = [gone]
    assert drawing.draw() is gone
    store.away = gone
    drawing.counter.refresh(drawing.followed.append)
    assert drawing.followed[-1] is gone
