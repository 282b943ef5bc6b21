"""What a requester and an instance write down of requests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest

import roq
from roq.client.request.calls import HeldWork, Work
from roq.client.request.many import PendingMany
from roq.client.request.pending import Pending
from roq.client.request.request_holding import RequestHolding
from roq.model import LogId, PublisherId
from roq.protocol.requesting import Position, RequestEnd, RequestState
from roq.read.message import Batch
from roq.simulation.real import asker
from roq.simulation.real.asker import Asker
from roq.simulation.real.instance import AGAIN, Instance, Reply, Task, TaskFailedError
from roq.simulation.real.journal import Accepted, Asked, Begun, Left, Ran, Record, Told

LOG = LogId(1, 1)
ID = "q/x1-1-7-0"


class Paper:
    """A journal that is read at once."""

    def __init__(self) -> None:
        self.records: list[Record] = []

    def write(self, record: Record) -> None:
        self.records.append(record)

    def take(self) -> list[Record]:
        records, self.records = self.records, []
        return records


class Waits:
    """Calls back at once."""

    def check_process(self) -> None: ...

    def later(self, call: Callable[[], object]) -> None:
        call()

    def ring(self, rings: list[Callable[[], None]]) -> None:
        while rings:
            rings.pop(0)()

    def confirm(self, requested: object) -> None: ...

    def cancel(self, requested: object, *, late: bool = False) -> None: ...


class Scene:
    """A requester, whose requests end when they are told to."""

    def __init__(self, chance: float) -> None:
        self.paper = Paper()
        self.made: list[Pending[Reply]] = []
        self.away = False
        both = cast("roq.Requester", self)
        self.asker = Asker(self.paper, "r", both, both, self.response)
        self.asker._chance = cast("Any", self)
        self.random = lambda: chance
        self.randint = lambda low, _: low

    def request(self, *_: object, **__: object) -> Pending[Reply]:
        self.made.append(Pending(cast("Any", Waits()), "q", AGAIN))
        return self.made[-1]

    def request_many(self, _: object, tasks: list[Task], **__: object) -> PendingMany[Reply]:
        return PendingMany(cast("Any", Waits()), "q", AGAIN, len(tasks))

    def response(self, _: object, id_: str) -> Pending[Reply]:
        if self.away:
            raise roq.Unavailable("nobody is there")
        assert id_ == ID
        made = self.request()
        made.place(LOG, Position(7, 0))
        return made

    def ends(self, state: RequestState, value: Reply | None = None, text: str = "") -> None:
        data = b"" if value is None else AGAIN.encode_response(value)
        self.made[-1].settle(RequestEnd(7, 0, state, data, text))


def said(records: list[Record]) -> list[tuple[str, ...]]:
    found: list[tuple[str, ...]] = []
    for record in records:
        match record:
            case Asked():
                found.append(("asked", *record.tickets))
            case Accepted():
                found.append(("accepted", record.ticket, record.id))
            case Told():
                found.append(("told", record.ticket, record.state, record.run))
    return found


@pytest.fixture
def scene() -> Scene:
    return Scene(0.99)  # of no share


def test_it_says_what_it_asks_for_when_that_is_accepted_and_how_it_ends(scene: Scene) -> None:
    scene.asker.ask()
    assert said(scene.paper.take()) == [("asked", "r/1")]
    scene.made[0].place(LOG, Position(7, 0))
    scene.asker.look()
    scene.asker.look()
    assert said(scene.paper.take()) == [("accepted", "r/1", ID)]
    scene.ends(RequestState.DONE, Reply("r/1", "a"))
    assert said(scene.paper.take()) == [("told", "r/1", "done", "a")]
    scene.asker.look()
    assert scene.paper.take() == []


@pytest.mark.parametrize(
    ("state", "value", "text", "told"),
    [
        (RequestState.DONE, Reply("r/2", "a"), "", ("done", "of another one")),
        (RequestState.FAILED, None, "…\nTaskFailedError: i/7", ("failed", "i/7")),
        (RequestState.UNKNOWN, None, "", ("unknown", "")),
    ],
)
def test_what_it_is_told(
    scene: Scene, state: RequestState, value: Reply | None, text: str, told: tuple[str, str]
) -> None:
    scene.asker.ask()
    scene.ends(state, value, text)
    assert said(scene.paper.take())[-1] == ("told", "r/1", *told)


def test_what_is_not_known_is_asked_for_by_its_id(scene: Scene) -> None:
    scene.asker.ask()
    scene.made[0].place(LOG, Position(7, 0))
    scene.made[0].settle(None, roq.Unavailable("silent"))
    scene.away = True
    scene.asker.look()
    wanted = [("told", "r/1", "unavailable", ""), ("accepted", "r/1", ID)]
    assert said(scene.paper.take())[1:] == wanted
    scene.away = False
    scene.asker.look()
    scene.made[-1].settle(None, roq.ResponseLost("gone"))
    assert said(scene.paper.take()) == [("told", "r/1", "lost", "")]


def test_what_others_have_left_is_asked_for(scene: Scene) -> None:
    scene.asker.fetch_all([Left("s/4", ID)])
    scene.ends(RequestState.DONE, Reply("s/4", "a"))
    assert said(scene.paper.take()) == [("told", "s/4", "done", "a")]


def test_several_have_one_callback() -> None:
    scene = Scene(0.1)  # of several, and slow ones
    scene.uniform = lambda *_: 0.5  # type: ignore[attr-defined]
    scene.asker.ask()
    (asked,) = said(scene.paper.take())
    assert len(asked) == 1 + asker.MANY


class _Context:
    def __init__(self) -> None:
        batch = Batch([b"x"], "t", PublisherId(b"p" * 16), 40, 0, 9)
        self._held = HeldWork("q", Work(RequestHolding(LOG, 7, 5, 0, 1, batch), 0))
        self.id = ID


def test_each_run_has_a_name_and_says_when_it_begins_and_ends() -> None:
    paper, context = Paper(), cast("roq.RequestContext", _Context())
    instance = Instance(paper, "i")
    assert instance.run(Task("t"), context) == Reply("t", "i/1")
    begun, ran = paper.take()
    assert isinstance(begun, Begun)
    assert isinstance(ran, Ran)
    assert (begun.ticket, begun.id, begun.run, begun.lease) == ("t", ID, "i/1", 5)
    assert (ran.run, ran.lease) == ("i/1", 5)
    with pytest.raises(TaskFailedError, match="i/2"):
        instance.run(Task("t", fails=True), context)
    both = instance.run_all([Task("t"), Task("u", fails=True)], [context, context])
    assert both[0] == Reply("t", "i/3")
    assert str(both[1]) == "i/4"
