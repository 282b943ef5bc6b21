"""One bound for the old batches that wait for all slow subscribers of an exchange together."""

from __future__ import annotations

from collections import deque

from hypothesis import given
from hypothesis import strategies as st

from roq.exchange.backlogs import LOOK_PARTS, Backlogs
from roq.log.ring import ENTRY_OVERHEAD, Ring

SIZE = 1_000
"""Of a batch, in the log and on its way."""
RING = LOOK_PARTS * SIZE
MOST = 40_000


class Fan:
    """A ring whose batches are sent to connections; those that are stuck take nothing."""

    def __init__(self) -> None:
        self.ring: Ring[bytes] = Ring(b"q" * 16, 1, 1, capacity_bytes=RING, topics_max=4)
        self.backlogs = Backlogs(self.ring, MOST)
        self.taken: dict[str, int] = {}
        self.queues: dict[str, deque[int]] = {}
        """Where the log ended behind each batch that waits."""
        self.stuck: set[str] = set()
        self.deaf: set[str] = set()
        """To whom nothing is sent."""
        self.cut: list[str] = []

    def connect(self, *names: str) -> None:
        for name in names:
            self.taken[name] = 0
            self.queues[name] = deque()
            self.stuck.add(name)

    def end(self, name: str) -> None:
        del self.queues[name]

    def take(self, name: str, batches: int) -> None:
        for _ in range(min(batches, len(self.queues[name]))):
            self.queues[name].popleft()
            self.taken[name] += SIZE

    def fill(self, batches: int) -> None:
        for _ in range(batches):
            self.ring.append(b"t", b"", SIZE - ENTRY_OVERHEAD)
            for name, queue in self.queues.items():
                if name in self.deaf:
                    continue
                queue.append(self.ring.gone + self.ring.kept)
                if name not in self.stuck:
                    self.take(name, len(queue))
            if self.backlogs.due:
                self.look()

    def look(self) -> None:
        waiting = {
            name: (self.taken[name], SIZE * len(queue))
            for name, queue in self.queues.items()
            if queue
        }
        for name in self.backlogs.look(waiting):
            self.cut.append(name)
            self.end(name)
        self.backlogs.check()

    def held(self) -> int:
        """What really waits and has left the ring."""
        gone = self.ring.gone
        return sum(SIZE for queue in self.queues.values() for end in queue if end <= gone)


def test_a_look_is_due_when_a_part_of_the_ring_has_passed() -> None:
    ring: Ring[bytes] = Ring(b"q" * 16, 1, 1, capacity_bytes=2 * RING, topics_max=4)
    backlogs = Backlogs(ring, MOST)
    for _ in range(100):
        ring.append(b"t", b"", SIZE - ENTRY_OVERHEAD)
        assert not backlogs.due
        ring.append(b"t", b"", SIZE - ENTRY_OVERHEAD)
        assert backlogs.due
        backlogs.look({})


def test_what_is_still_in_the_ring_takes_no_memory_of_its_own() -> None:
    fan = Fan()
    fan.fill(100)
    fan.connect("a")
    fan.fill(64)
    assert fan.backlogs.occupied == 0
    fan.fill(10)
    assert fan.backlogs.occupied == 10 * SIZE


def test_who_takes_something_holds_so_much_less() -> None:
    fan = Fan()
    fan.connect("a")
    fan.fill(64 + 20)
    fan.take("a", 12)
    fan.look()
    assert fan.backlogs.occupied == 8 * SIZE
    fan.take("a", 60)
    fan.look()
    assert fan.backlogs.occupied == 0


def test_who_is_stuck_and_gets_little_of_what_passes_holds_no_more_than_that() -> None:
    fan = Fan()
    fan.connect("a")
    fan.fill(3)
    fan.deaf.add("a")
    fan.fill(1_000)  # of other topics
    assert (fan.backlogs.occupied, fan.cut) == (3 * SIZE, [])


def test_together_above_the_bound_the_one_that_holds_most_is_cut_off_and_the_others_stay() -> None:
    fan = Fan()
    for name in ("first", "second", "third"):
        fan.connect(name)
        fan.fill(10)
    fan.fill(52)
    assert (fan.cut, fan.backlogs.occupied) == ([], (18 + 8) * SIZE)
    fan.fill(6)
    assert (fan.cut, fan.backlogs.occupied) == (["first"], (14 + 4) * SIZE)
    assert fan.backlogs.cut_off == 1


def test_a_connection_that_begins_anew_holds_nothing_of_before() -> None:
    fan = Fan()
    fan.connect("a")
    fan.fill(84)
    assert fan.backlogs.occupied == 20 * SIZE
    fan.end("a")
    fan.look()
    assert fan.backlogs.occupied == 0
    fan.connect("a")
    fan.fill(64)
    assert fan.backlogs.occupied == 0


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("connect"), st.integers(0, 5)),
            st.tuples(st.just("end"), st.integers(0, 5)),
            st.tuples(st.just("fill"), st.integers(1, 90)),
            st.tuples(st.just("stuck"), st.integers(0, 63)),
            st.tuples(st.just("take"), st.integers(0, 63)),
        ),
        max_size=60,
    )
)
def test_whoever_reads_and_whenever_what_all_hold_is_known_to_a_batch_and_bounded(
    steps: list[tuple[str, int]],
) -> None:
    fan = Fan()
    made = 0
    names: dict[int, str] = {}
    for what, value in steps:
        match what:
            case "connect":
                made += 1
                if value in names and names[value] in fan.queues:
                    fan.end(names[value])
                names[value] = f"connection {made}"
                fan.connect(names[value])
            case "end":
                if names.get(value) in fan.queues:
                    fan.end(names.pop(value))
            case "stuck":
                fan.stuck = {name for number, name in names.items() if value >> number & 1}
            case "take":
                for number, name in names.items():
                    if name in fan.queues and value >> number & 1:
                        fan.take(name, 5 * number)
            case _:
                fan.fill(value)
                fan.look()
                assert fan.held() == fan.backlogs.occupied <= MOST
