"""Who gets the next request: what two instances have said, and what that is worth."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from heapq import heappop, heappush
from random import Random

import pytest

from roq.log.leases import Member
from roq.log.least_loaded import LeastLoadedOfTwo, why_nobody
from roq.protocol.requesting import Figures

THREADS = 8
PREFETCH = 2 * THREADS


def member(number: int, held: int = 0, granted: int = 1_000_000) -> Member:
    made = Member(bytes([number]) * 16, f"m{number}", 0.0)
    made.granted, made.granted_bytes, made.window, made.held = granted, 1 << 40, 1, held
    return made


def figures(response_ms: float, threads: int = THREADS) -> Figures:
    return Figures(response_ms=response_ms, threads=threads)


@pytest.mark.parametrize(
    ("held", "said", "chosen"),
    [
        ((3, 2), None, 1),
        ((2, 3), None, 0),
        ((3, 2), (figures(0.0), figures(5.0)), 1),
        ((3, 2), (figures(1.0), figures(10.0)), 0),
        ((3, 2), (figures(10.0), figures(10.0)), 1),
        ((3, 2), (figures(10.0, 80), figures(10.0, 8)), 0),
        ((0, 2), (figures(10.0, 0), figures(0.0, 0)), 0),
    ],
    ids=["held", "other", "one is new", "quicker", "as quick", "more threads", "no threads"],
)
def test_the_less_loaded_of_two(
    held: tuple[int, int], said: tuple[Figures, Figures] | None, chosen: int
) -> None:
    members = [member(0, held[0]), member(1, held[1])]
    told = {each.id: figure for each, figure in zip(members, said or (), strict=False)}
    for seed in range(4):
        found = LeastLoadedOfTwo(seed).choose(members, told, 1, 0)
        assert found is members[chosen]


def test_who_takes_nothing_gets_nothing() -> None:
    full, other = member(0, granted=0), member(1, held=9)
    assert LeastLoadedOfTwo().choose([full, other], {}, 1, 0) is other
    assert LeastLoadedOfTwo().choose([full, member(2, granted=0)], {}, 1, 0) is None


def test_an_instance_that_fails_at_once_gets_twice_its_part_at_most() -> None:
    count, rounds = 10, 20_000
    members = [member(number, held=5 * (number > 0)) for number in range(count)]
    said = {each.id: figures(100.0) for each in members} | {members[0].id: figures(0.1)}
    choice, got = LeastLoadedOfTwo(), Counter[str]()
    for _ in range(rounds):
        found = choice.choose(members, said, 1, 0)
        assert found is not None
        got[found.name] += 1
    assert got["m0"] / rounds == pytest.approx(2 / count, rel=0.1)
    assert min(got[each.name] for each in members[1:]) > 0.5 * rounds / count


def p99(choose: Callable[[list[Member]], Member], load: float) -> float:
    """Until a response comes, in times of a quick instance, where one of eight is five times
    slower: each holds what it cannot run yet, up to what it takes."""
    random, members = Random(1), [member(number) for number in range(8)]
    slow = [5.0 if each is members[0] else 1.0 for each in members]
    rate = load * THREADS * sum(1 / each for each in slow)
    now, came, made = 0.0, random.expovariate(rate), 0
    running: list[tuple[float, int, int, float]] = []
    busy, queued = [0] * 8, [deque[float]() for _ in range(8)]
    waiting, took = deque[float](), list[float]()
    while made < 6_000 or running:
        if made < 6_000 and (not running or came <= running[0][0]):
            now, made = came, made + 1
            came += random.expovariate(rate)
            waiting.append(now)
        else:
            now, _, at, since = heappop(running)
            took.append(now - since)
            busy[at] -= 1
            members[at].held -= 1
        for each in members:
            each.granted = each.taken + PREFETCH - each.held
        while waiting and any(each.granted > each.taken for each in members):
            chosen = choose(members)
            chosen.held, chosen.taken = chosen.held + 1, chosen.taken + 1
            queued[members.index(chosen)].append(waiting.popleft())
        for at, queue in enumerate(queued):
            while queue and busy[at] < THREADS:
                busy[at] += 1
                end = now + random.expovariate(1 / slow[at])
                heappush(running, (end, made, at, queue.popleft()))
    return sorted(took)[int(0.99 * len(took))]


@pytest.mark.parametrize("load", [0.5, 0.8])
def test_a_slow_instance_costs_less_than_when_all_take_turns(load: float) -> None:
    """Credit alone lets it have as much as it holds, and what it holds waits there."""
    turns = deque(range(8))

    def in_turn(members: list[Member]) -> Member:
        while True:
            turns.rotate(-1)
            if members[turns[0]].share(1):
                return members[turns[0]]

    choice = LeastLoadedOfTwo()
    said = {bytes([number]) * 16: figures(50.0 if number == 0 else 10.0) for number in range(8)}

    def of_two(members: list[Member]) -> Member:
        return choice.choose(members, said, 1, 0) or in_turn(members)

    assert p99(of_two, load) < 0.6 * p99(in_turn, load)


def test_it_is_told_which_instances_take_nothing_and_why() -> None:
    members = [Member(bytes([number]) * 16, f"m{number}", 0.0) for number in range(5)]
    said = {each.id: Figures(available=False, rule="too hot") for each in members}
    kind, why = why_nobody("s", members[:2], said)
    assert kind == "all unavailable"
    assert why == "all 2 instances are unavailable: m0: too hot; m1: too hot"
    assert why_nobody("s", members, said)[1].endswith("m1: too hot; m2: too hot; …")
    del said[members[4].id]
    assert why_nobody("s", members, said) == ("all busy", "all 1 available instances are busy")
    assert why_nobody("s", [], said)[0] == "none registered"
