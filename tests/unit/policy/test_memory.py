from roq.policy.memory import MARKS_MAX, Marks
from roq.policy.snapshot import Memory


def test_hits_count_rounds_in_a_row() -> None:
    memory = Memory()
    counts = []
    for held in (True, True, False, True):
        marks = Marks(memory, 0.0)
        counts.append(marks.hit("busy", held))
        memory = marks.memory()
    assert counts == [1, 2, 0, 1]


def test_what_lasts_is_measured_from_its_first_round() -> None:
    memory = Memory()
    seconds = []
    for now, held in ((10.0, True), (12.5, True), (13.0, False), (14.0, True)):
        marks = Marks(memory, now)
        seconds.append(marks.lasting("low", held))
        memory = marks.memory()
    assert seconds == [0.0, 2.5, 0.0, 0.0]


def test_what_never_happened_was_infinitely_long_ago() -> None:
    marks = Marks(Memory(), 5.0)
    assert marks.since("changed") == float("inf")
    marks.start("changed")
    assert marks.since("changed") == 0.0


def test_the_memory_of_the_round_before_is_not_changed() -> None:
    memory = Memory({"a": 1.0})
    marks = Marks(memory, 0.0)
    marks.drop("a")
    marks.put("b", 2.0)
    assert memory.marks == {"a": 1.0}
    assert marks.memory().marks == {"b": 2.0}


def test_only_the_marks_that_are_named_are_kept() -> None:
    marks = Marks(Memory({"x 1": 1.0, "x 2": 1.0, "y": 1.0}), 0.0)
    marks.keep("x ", ["x 2"])
    assert list(marks.memory().marks) == ["x 2", "y"]
    assert "x 1" not in marks


def test_the_oldest_marks_make_room() -> None:
    marks = Marks(Memory(), 0.0)
    for number in range(MARKS_MAX + 10):
        marks.put(f"m{number}", 0.0)
    kept = marks.memory().marks
    assert len(kept) == MARKS_MAX
    assert "m9" not in kept
    assert f"m{MARKS_MAX + 9}" in kept
