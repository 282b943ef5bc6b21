from collections.abc import Iterator
from itertools import pairwise

import pytest
from answering import SECONDS_MAX, Answering, redirects_to

from roq.exchange import monitor_finder
from roq.exchange.monitor_finder import MonitorFinder
from roq.model import Limits
from roq.protocol.control import FAILED, Control, Failure, Located, LocateRequest
from roq.runtime.backoff import Backoff

QUEUE_ID = b"q" * 16
MONITOR = "tcp://127.0.0.1:5500"


def located(monitor: str = MONITOR, queue_id: bytes = QUEUE_ID) -> Located:
    return Located(
        QName="orders", queue_id=queue_id, monitor=monitor, statistics="", limits=Limits()
    )


class World(Answering):
    found: list[str]
    finder: MonitorFinder

    def managed(self, *managers: str) -> None:
        self.found = []
        self.gone = 0
        self.finder = MonitorFinder(
            self.reactor, self.context, managers, "orders", QUEUE_ID,
            found=self.found.append, gone=self._gone, jitter=lambda: 0.999,
        )  # fmt: skip

    def _gone(self) -> None:
        self.gone += 1

    def look(self, until: object = None) -> None:
        """Look again and again, as an exchange does, until the monitor is found."""

        def look() -> object:
            done = until() if callable(until) else self.found
            if not done:
                self.finder.look()  # which would ask again what is found
            return done

        self.run(look)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.setattr(monitor_finder, "ANSWER_SECONDS", SECONDS_MAX)  # that is late
    monkeypatch.setattr(monitor_finder, "PAUSE_SECONDS", 0.02)
    with World() as world:
        yield world
        world.finder.close()


def test_a_manager_tells_where_the_monitor_is(world: World) -> None:
    world.managed(world.server(lambda _: located()))
    world.look()
    assert world.found == [MONITOR]
    [(_, question)] = world.asked
    assert question == LocateRequest(id=question.id, QName="orders")


def test_a_manager_that_does_not_lead_names_the_one_that_does(world: World) -> None:
    leader = world.server(lambda _: located())
    world.managed(world.server(lambda _: redirects_to(leader)))
    world.look()
    assert world.found == [MONITOR]


@pytest.mark.parametrize(
    "answer",
    [
        None,
        redirects_to(""),
        redirects_to("file:///etc/passwd"),
        Failure(RESULT=FAILED, COMMENT="queue is stopped", CODE="queue_stopped"),
        located("tcp://127.0.0.1:5501", queue_id=b"another queue id"),
    ],
)
def test_when_one_does_not_help_the_next_one_is_asked(
    world: World, monkeypatch: pytest.MonkeyPatch, answer: Control | None
) -> None:
    if answer is None:
        monkeypatch.setattr(monitor_finder, "ANSWER_SECONDS", 0.5)
    world.managed(world.server(lambda _: answer), world.server(lambda _: located()))
    world.look()
    assert world.found == [MONITOR]


def test_managers_that_name_each_other_are_left_after_some_steps(world: World) -> None:
    addresses: list[str] = []
    addresses.append(world.server(lambda _: redirects_to(addresses[1])))
    addresses.append(world.server(lambda _: redirects_to(addresses[0])))
    world.managed(addresses[0])
    world.look(until=lambda: len(world.asked) > 4)
    assert len(world.asked) <= 8


def test_one_question_at_a_time_and_less_and_less_often(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.managed(world.server(lambda _: located()))
    pauses, times, wait = list[float](), list[float](), Backoff.wait

    def noted(backoff: Backoff) -> float:
        seconds = wait(backoff)
        if backoff is world.finder._backoff:
            pauses.append(seconds)
            times.append(world.reactor.now())  # the pause begins a moment later
        return seconds

    monkeypatch.setattr(Backoff, "wait", noted)
    world.look()
    for _ in range(6):
        for _ in range(100):
            world.finder.look()
        assert len(world.asked) <= len(times)
        before = len(world.found)
        world.look(until=lambda before=before: len(world.found) > before)
    assert all(late > 1.3 * early for early, late in pairwise(pauses))
    assert all(
        late - early >= pause for pause, (early, late) in zip(pauses, pairwise(times), strict=False)
    )
    world.finder.reset()
    assert pauses[-1] == 0.0, "the next search begins at once"


def test_without_managers_nobody_is_asked(world: World) -> None:
    world.managed()
    world.finder.look()
    world.run(lambda: not world.reactor._calls)
    assert world.asked == []


def test_an_address_that_is_none_is_not_followed(world: World) -> None:
    answers: list[Control] = [located(""), located("ipc:///tmp/x"), located()]
    world.managed(world.server(lambda _: answers.pop(0)))
    world.look()
    assert world.found == [MONITOR]


@pytest.mark.parametrize(
    ("answer", "gone"),
    [
        (Failure(RESULT=FAILED, COMMENT="no such queue", CODE="queue_not_found"), True),
        (located(queue_id=b"another life"), True),
        (Failure(RESULT=FAILED, COMMENT="it is stopped", CODE="queue_stopped"), False),
        (redirects_to(""), False),
    ],
)
def test_that_there_is_no_such_queue_is_told(world: World, answer: Control, *, gone: bool) -> None:
    world.managed(world.server(lambda _: answer))
    world.look(lambda: len(world.asked) >= 3)
    assert bool(world.gone) is gone
