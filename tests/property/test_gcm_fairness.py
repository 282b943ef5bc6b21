"""However many requests some make, everybody else gets a place, and is served in its turn."""

from collections import Counter, deque

from hypothesis import given
from hypothesis import strategies as st

from roq.gcm.change.fairness import FairLine

MOST = 16
ACTS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.sampled_from("aaaabbc")),
        st.tuples(st.just("take"), st.just("")),
        st.tuples(st.just("remove"), st.sampled_from("abc")),
    ),
    max_size=80,
)


class Watched:
    """A line, and what is expected of it."""

    def __init__(self) -> None:
        self.line: FairLine[int] = FairLine(MOST)
        self.waiting: dict[str, deque[int]] = {}
        self.passed: Counter[str] = Counter()
        """Party → how many others were served since it has waited."""
        self.number = 0

    def perform(self, act: str, party: str) -> None:
        match act:
            case "put":
                self.put(party)
            case "take" if len(self.line):
                self.take()
            case "remove" if self.waiting.get(party):
                assert self.line.remove(party, self.waiting[party].pop())
                self.tidy(party)
        self.line.check()
        assert sorted(self.line) == sorted(item for each in self.waiting.values() for item in each)

    def put(self, party: str) -> bool:
        self.number += 1
        held, left = len(self.waiting.get(party, ())), MOST - len(self.line)
        accepted = self.line.put(party, self.number)
        assert accepted == (held < left)
        if accepted:
            self.waiting.setdefault(party, deque()).append(self.number)
        return accepted

    def take(self) -> str:
        item = self.line.take()
        party = next(name for name, items in self.waiting.items() if items[0] == item)
        for other in self.waiting:
            self.passed[other] += other != party
        assert self.passed[party] <= len(set("abcde")) - 1, "one of each goes before"
        self.passed[party] = 0
        self.waiting[party].popleft()
        self.tidy(party)
        return party

    def tidy(self, party: str) -> None:
        if not self.waiting[party]:
            del self.waiting[party], self.passed[party]


@given(ACTS)
def test_nobody_holds_more_than_is_left_and_one_of_each_is_served_in_turn(
    acts: list[tuple[str, str]],
) -> None:
    watched = Watched()
    for act, party in acts:
        watched.perform(act, party)


@given(ACTS)
def test_there_is_a_place_for_whoever_comes_and_its_turn_comes_soon(
    acts: list[tuple[str, str]],
) -> None:
    watched = Watched()
    for act, party in acts:
        watched.perform(act, party)
    # Three who flood it leave a place for a fourth, and for a fifth.
    assert watched.put("d")
    assert watched.put("e")
    served = [watched.take() for _ in range(min(len(watched.line), 5))]
    assert {"d", "e"} <= set(served)
