"""How much an instance claims, from how long jobs of each type take."""

from __future__ import annotations

from roq.jobs.room import BOUNDS, JobPlaces, JobRoom, RunTimes, chosen
from roq.jobs.rows import Want
from roq.jobs.states import RunEnd

THREADS = 4


def known(*short: str) -> JobRoom:
    room = JobRoom(THREADS)
    for kind in short:
        for _ in range(100):
            room.ran(kind, 0.0001)
    return room


def test_what_is_not_known_to_be_short_is_not_claimed_ahead() -> None:
    places = JobRoom(THREADS).places([])
    assert places == (THREADS, 0)
    assert known("Tiny").ahead("Other", places) == 0
    assert known("Tiny").ahead("Tiny", places) > 100


def test_one_long_run_ends_it() -> None:
    room = known("Tiny")
    room.ran("Tiny", 1.0)
    assert room.ahead("Tiny", room.places([])) == 0


def test_a_short_job_that_takes_long_has_its_thread() -> None:
    room = known("Tiny")
    runs = [("Tiny", 0.0), ("Tiny", 0.001), ("Tiny", 5.0), ("Long", 0.0)]
    assert room.places(runs) == (THREADS - 2, 2)
    full = room.places([("Long", 0.0)] * (THREADS + 3))
    assert full.free == 0
    assert room.ahead("Tiny", full) == 0, "nothing waits behind long runs"


def test_long_ones_each_have_a_thread_and_short_ones_wait_for_one() -> None:
    wants = {"Tiny": Want("Tiny", 9, 1, ahead=3), "Long": Want("Long", 9, 1)}
    jobs = [(n, 1, "Tiny" if n % 2 else "Long") for n in range(20)]
    taken = chosen(jobs, wants, {"Tiny": 9, "Long": 9}, JobPlaces(free=2, short=1))
    assert [job for job, _, kind in taken if kind == "Long"] == [0, 2]
    assert sum(kind == "Tiny" for _, _, kind in taken) <= 4
    assert taken == sorted(taken)


def test_short_ones_do_not_keep_a_long_one_out() -> None:
    wants = {"Tiny": Want("Tiny", 9, 1, ahead=5), "Long": Want("Long", 1, 1)}
    assert chosen([(1, 1, "Long")], wants, {"Tiny": 9, "Long": 1}, JobPlaces(1, 6)) == [
        (1, 1, "Long")
    ]


def test_no_more_of_a_type_than_it_may_have_and_none_of_others() -> None:
    wants = {"A": Want("A", 2, 1)}
    jobs = [(1, 1, "B"), (2, 1, "A"), (3, 1, "A"), (4, 1, "A")]
    assert chosen(jobs, wants, {"A": 2}, JobPlaces(4)) == jobs[1:3]
    assert chosen(jobs, wants, {"A": 0}, JobPlaces(4)) == []


def test_runs_are_counted_by_end_and_time() -> None:
    times = RunTimes()
    for seconds in (0.0, BOUNDS[0], 0.02, 10_000.0):
        times.ended("A", RunEnd.DONE, seconds)
    times.ended("A", RunEnd.UNSTARTED, None)
    assert times.ends == {("A", RunEnd.DONE): 4, ("A", RunEnd.UNSTARTED): 1}
    assert times.buckets["A"] == [2, 0, 1, 0, 0, 0, 0, 0, 0, 1]
    assert times.seconds["A"] == BOUNDS[0] + 0.02 + 10_000.0


def test_who_looks_while_a_run_is_counted_finds_its_seconds() -> None:
    class Watched(dict[str, list[int]]):
        def setdefault(self, kind: str, default: list[int] | None = None) -> list[int]:  # type: ignore[override]
            seen.append(times.seconds[kind])
            return super().setdefault(kind, default or [])

    seen: list[float] = []
    times = RunTimes()
    times.buckets = Watched()
    times.ended("A", RunEnd.DONE, 0.5)
    assert seen == [0.5]
