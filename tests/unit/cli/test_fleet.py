"""Some processes on a virtual clock: started again, given up, and ended together."""

from __future__ import annotations

import signal

from roq.cli.fleet import AGAIN_SECONDS, GIVE_UP, SOON_SECONDS, Fleet

LAST = 64


class PaperProcess:
    """Runs until the test says otherwise."""

    def __init__(self) -> None:
        self.status: int | None = None
        self.told: list[int] = []

    def poll(self) -> int | None:
        return self.status

    def send_signal(self, number: int) -> None:
        self.told.append(number)


class Scene:
    """A fleet, and all processes that it has started."""

    def __init__(self, count: int) -> None:
        self.started: list[PaperProcess] = []
        self.fleet = Fleet(self.start, count, LAST)
        self.fleet.look(0.0)

    def start(self) -> PaperProcess:
        self.started.append(PaperProcess())
        return self.started[-1]


def test_one_that_ends_is_started_again_after_a_moment() -> None:
    scene = Scene(2)
    assert (len(scene.started), scene.fleet.running) == (2, 2)
    scene.started[0].status = -9
    assert scene.fleet.look(100.0) == [-9]
    assert (len(scene.started), scene.fleet.running) == (2, 1)
    assert scene.fleet.look(100.0 + AGAIN_SECONDS) == []
    assert (len(scene.started), scene.fleet.running) == (3, 2)


def test_those_that_soon_end_wait_longer_each_time_and_are_given_up() -> None:
    scene, now, gaps = Scene(1), 0.0, list[float]()
    while not scene.fleet.over:
        scene.started[-1].status = 2
        scene.fleet.look(now)
        before, count = now, len(scene.started)
        while len(scene.started) == count and not scene.fleet.over:
            now += 0.5
            scene.fleet.look(now)
        gaps.append(now - before)
    assert len(scene.started) == GIVE_UP
    assert gaps[:-1] == sorted(gaps[:-1])
    assert gaps[0] < gaps[-2]


def test_while_others_run_none_is_given_up() -> None:
    scene, now = Scene(2), 0.0
    steady = scene.started[0]
    for _ in range(2 * GIVE_UP):
        for each in scene.started:
            each.status = None if each is steady else 2
        scene.fleet.look(now)
        now += 60.0
        scene.fleet.look(now)
    assert not scene.fleet.over


def test_one_that_has_run_for_long_is_no_reason_to_give_up() -> None:
    scene, now = Scene(2), 0.0
    steady = scene.started[0]
    for _ in range(GIVE_UP):
        scene.started[-1].status = 2
        scene.fleet.look(now)
        now += 60.0
        scene.fleet.look(now)
    steady.status, scene.started[-1].status = -9, 2
    assert scene.fleet.look(now) == [-9, 2]
    assert (scene.fleet.running, scene.fleet.over) == (0, False)
    scene.fleet.look(now + 60.0)
    assert scene.fleet.running == 2


def test_one_that_has_run_for_long_is_started_again_soon() -> None:
    scene, now = Scene(1), 0.0
    for _ in range(2 * GIVE_UP):
        now += 2 * SOON_SECONDS
        scene.started[-1].status = 0
        scene.fleet.look(now)
        now += AGAIN_SECONDS
        scene.fleet.look(now)
        assert scene.fleet.running == 1


def test_one_that_has_ended_for_good_is_not_started_again() -> None:
    scene = Scene(2)
    scene.started[0].status = LAST
    assert scene.fleet.look(20.0) == []
    scene.fleet.look(200.0)
    assert (len(scene.started), scene.fleet.running, scene.fleet.over) == (2, 1, False)
    scene.started[1].status = LAST
    scene.fleet.look(300.0)
    assert (scene.fleet.over, scene.fleet.left) == (True, True)


def test_all_are_told_to_end_and_none_is_started() -> None:
    scene = Scene(2)
    scene.fleet.end()
    assert [each.told for each in scene.started] == [[signal.SIGTERM]] * 2
    for each in scene.started:
        assert not scene.fleet.over
        each.status = 0
        scene.fleet.look(200.0)
    assert scene.fleet.over
    scene.fleet.look(300.0)
    assert len(scene.started) == 2
