"""What a cluster decides itself: defaults, names, what an answer means, and its end."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from paper_managers import PaperManagers

import roq
from roq.client import cluster as module
from roq.client.admin.views import ScalingRules
from roq.errors import (
    Closed,
    ConfigError,
    InvalidName,
    InvalidRequest,
    NotEmpty,
    QueueExists,
    QueueNotFound,
    RequestError,
    Unavailable,
)
from roq.protocol.documents import RawDocument


class Answering(PaperManagers):
    """Answers what is asked by its number, or with the next of several answers, at once."""

    def __init__(self, *_: object) -> None:
        super().__init__()
        self.answers: dict[int, Any] = {}
        self.seconds: list[float] = []
        self.paused = 0
        self.refused: Exception | None = None

    def info(self, seconds: float) -> Future[Any]:
        self.seconds.append(seconds)
        return done(self.refused or SimpleNamespace(broadcast=""))

    def ask(self, request: RawDocument, seconds: float) -> Future[Any]:
        self.requests.append(request)
        self.seconds.append(seconds)
        answer = self.answers.get(number(request), {})
        return done(answer.pop(0) if isinstance(answer, list) else answer)

    def pause(self, _seconds: float) -> Future[Any]:
        self.paused += 1
        return done(None)


def done(answer: Any) -> Future[Any]:
    future: Future[Any] = Future()
    if isinstance(answer, Exception):
        future.set_exception(answer)
    else:
        future.set_result(answer)
    return future


def number(request: RawDocument) -> int:
    return int(request["CMD"])


class Made:
    """In the place of a publisher, a subscriber or a consumer: notes what it is made with."""

    made: list[Made]
    timeout = 30.0
    trouble: BaseException | None = None

    def __init__(self, _engine: object, _managers: object, *given: Any, **named: Any) -> None:
        self.given, self.named = given, named
        self.closed_in: list[float | None] = []
        self.made.append(self)

    def close(self, seconds: float | None = None) -> None:
        self.closed_in.append(seconds)
        if self.trouble is not None:
            raise self.trouble


@pytest.fixture
def managers(monkeypatch: pytest.MonkeyPatch) -> Answering:
    paper = Answering()
    monkeypatch.setattr(module, "Management", lambda *_: paper)
    return paper


@pytest.fixture
def cluster(managers: Answering) -> Iterator[roq.Cluster]:
    made = roq.connect("h:1", timeout=7.0)
    yield made
    made.close()


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Made]:
    found: list[Made] = []
    monkeypatch.setattr(Made, "made", found, raising=False)
    for name in ("Publisher", "Subscriber", "Consumer"):
        monkeypatch.setattr(module, name, type(name, (Made,), {}))
    return found


# --- connecting and the end -----------------------------------------------------------------------


def test_who_does_not_answer_is_named_with_the_addresses_and_nothing_is_left_running(
    managers: Answering,
) -> None:
    managers.refused = Unavailable("nobody answers")
    with pytest.raises(Unavailable, match=r"nobody answers.*h:1"):
        roq.connect("h:1")
    with pytest.raises(InvalidRequest):
        roq.connect("h:x")
    with pytest.raises(InvalidRequest):
        roq.connect("h:1", timeout=float("nan"))


def test_the_timeout_of_the_connection_is_that_of_its_questions(
    cluster: roq.Cluster, managers: Answering
) -> None:
    managers.answers[2101] = {"Queues": []}
    cluster.queues()
    cluster.stop_queue("q", timeout=3.0)
    assert managers.seconds == [7.0, 7.0, 3.0]
    assert cluster.addresses == ["a", "b", "c"]


def test_closing_closes_all_that_was_made_and_is_idempotent(
    managers: Answering, made: list[Made]
) -> None:
    with roq.connect("h:1") as cluster:
        cluster.publisher("q")
        cluster.subscriber("q")
        assert "a, b, c: open" in repr(cluster)
    cluster.close()
    assert [len(each.closed_in) for each in made] == [1, 1]
    (seconds,) = made[0].closed_in
    assert seconds == pytest.approx(30.0, abs=5.0)
    assert made[1].closed_in == [None]
    assert repr(cluster) == "<roq.Cluster a, b, c: closed>"


def test_time_for_all_flushes_together_and_what_one_could_not_deliver_is_raised_in_the_end(
    managers: Answering, made: list[Made]
) -> None:
    cluster = roq.connect("h:1")
    cluster.publisher("a")
    cluster.publisher("b")
    made[0].trouble = ConfigError("three messages")
    with pytest.raises(InvalidRequest):
        cluster.close(float("nan"))
    assert [each.closed_in for each in made] == [[], []], "refused before anything is closed"
    with pytest.raises(ConfigError, match="three messages"):
        cluster.close(0.0)
    assert [each.closed_in for each in made] == [[0.0], [0.0]]


def test_no_thread_is_left_by_a_close_that_is_interrupted(
    managers: Answering, made: list[Made]
) -> None:
    cluster = roq.connect("h:1")
    cluster.publisher("a")
    made[0].trouble = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        cluster.close()
    thread = cluster._engine._thread
    thread.join(20)
    assert not thread.is_alive()


def test_an_error_in_the_block_is_the_one_to_see(managers: Answering, made: list[Made]) -> None:
    def block() -> None:
        with roq.connect("h:1") as cluster:
            cluster.publisher("q")
            made[0].trouble = ConfigError("three messages")
            raise KeyError

    with pytest.raises(KeyError):
        block()
    (seconds,) = made[0].closed_in
    assert seconds is not None
    assert seconds <= module.CLOSE_SECONDS_MAX


def test_a_forked_child_closes_nothing_and_makes_nothing(
    cluster: roq.Cluster, made: list[Made], monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.publisher("q")
    pid = os.fork()
    if not pid:
        code = 2
        try:
            with pytest.raises(Closed):
                cluster.publisher("q")
            cluster.close()
            code = len(made[0].closed_in)
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


# --- queues ---------------------------------------------------------------------------------------


def test_an_existing_queue_is_an_error_unless_that_is_fine_and_it_is_as_durable(
    cluster: roq.Cluster, managers: Answering
) -> None:
    managers.answers[2010] = QueueExists("there is one")
    managers.answers[2104] = description("flush")
    with pytest.raises(QueueExists, match="queue 'q' exists already"):
        cluster.create_queue("q")
    cluster.create_queue("q", exists_ok=True)
    cluster.create_queue("q", exists_ok=True, durability="flush")
    with pytest.raises(QueueExists, match="exists already with durability flush"):
        cluster.create_queue("q", exists_ok=True, durability="none")


def test_whether_there_is_a_queue_is_yes_no_or_an_error(
    cluster: roq.Cluster, managers: Answering
) -> None:
    managers.answers[2011] = [{}, QueueNotFound("no"), RequestError(module.NO), Unavailable("away"),
                              RequestError("broken")]  # fmt: skip
    assert [cluster.queue_exists("q") for _ in range(3)] == [True, False, False]
    with pytest.raises(Unavailable):
        cluster.queue_exists("q")
    with pytest.raises(RequestError, match="broken"):
        cluster.queue_exists("q")


def test_a_name_that_cannot_be_is_refused_before_anybody_is_asked(
    cluster: roq.Cluster, managers: Answering
) -> None:
    asked = [
        cluster.stop_queue, cluster.start_queue, cluster.remove_queue, cluster.queue_exists,
        cluster.describe, cluster.exchanges, cluster.get_rules, cluster.create_queue,
        cluster.subscriber, lambda name: cluster.consumer(name, "g"),
        lambda name: cluster.consumer("q", name), cluster.add_exchange,
        lambda name: cluster.set_rules(name, ScalingRules(name="r")),
        lambda name: cluster.forget_exchange(name, "x1"),
        lambda name: cluster.remove_exchange(name, "x1"),
    ]  # fmt: skip
    for each in asked:
        with pytest.raises(InvalidName):
            each("a/b")
    assert managers.requests == []


def test_each_verb_is_a_command_of_its_own(cluster: roq.Cluster, managers: Answering) -> None:
    managers.answers |= {2102: {"Hosts": []}, 2103: {"Exchanges": []}}
    managers.answers[2001] = {"WARNING": "a log is left"}
    cluster.stop_queue("q")
    cluster.start_queue("q")
    assert cluster.remove_queue("q") == "a log is left"
    assert list(cluster.hosts()) == []
    assert list(cluster.exchanges("q")) == []
    assert cluster.forget_exchange("q", "x2") == ""
    assert [number(each) for each in managers.requests] == [2002, 2005, 2001, 2102, 2103, 2100]
    assert (managers.requests[-1]["Exchange"], managers.requests[-1]["Forget"]) == ("x2", True)


def test_an_exchange_is_asked_for_until_it_is_empty_and_each_reason_is_told(
    cluster: roq.Cluster, managers: Answering
) -> None:
    told: list[str] = []
    managers.answers[2100] = [NotEmpty("one publisher"), Unavailable("a new leader"), {}]
    assert cluster.remove_exchange("q", "x2", on_wait=told.append) == ""
    assert told == ["one publisher"] * 2
    assert managers.paused == 2


def test_an_exchange_that_is_not_empty_in_time_is_an_error_with_the_reason(
    cluster: roq.Cluster, managers: Answering
) -> None:
    managers.answers[2100] = NotEmpty("one publisher")
    with pytest.raises(NotEmpty, match="one publisher; it goes on being emptied"):
        cluster.remove_exchange("q", "x2", timeout=0.5)
    managers.answers[2100] = Unavailable("nobody")
    with pytest.raises(Unavailable):
        cluster.remove_exchange("q", "x2")
    assert managers.paused == 0


# --- what it makes --------------------------------------------------------------------------------


def description(durability: str) -> RawDocument:
    return {
        "Name": "q", "Durability": durability, "QueueId": "ab" * 16, "Life": 1, "State": "running",
        "Running": True, "Exchanges": [], "Monitor": "", "Host": "h", "Statistics": "",
        "Created": 0.0, "Limits": {}, "Rules": {},
    }  # fmt: skip


def test_what_is_made_waits_as_long_as_the_connection_unless_it_is_told_otherwise(
    cluster: roq.Cluster, made: list[Made]
) -> None:
    cluster.publisher("q")
    cluster.publisher("q", connect_timeout=2.0)
    assert [each.named["connect_timeout"] for each in made] == [7.0, 2.0]
    cluster.subscriber("q")
    cluster.subscriber("q", timeout=2.0)
    cluster.consumer("q", "g", timeout=3.0)
    assert [each.named["timeout"] for each in made[2:]] == [7.0, 2.0, 3.0]


def test_a_publisher_is_a_new_one_each_time_or_the_one_that_it_is_said_to_be(
    cluster: roq.Cluster, made: list[Made], managers: Answering
) -> None:
    cluster.publisher("q")
    cluster.publisher("q")
    cluster.publisher("q", name="till", publisher_id=b"i" * 16)
    first, second, third = (each.named["publisher_id"] for each in made)
    assert len({first, second, third}) == 3
    assert third == b"i" * 16
    assert managers.requests == [], "nothing has to be known of the queue for it"


def test_a_name_says_who_a_publisher_is_only_where_everything_is_kept(
    cluster: roq.Cluster, made: list[Made], managers: Answering, monkeypatch: pytest.MonkeyPatch
) -> None:
    resumed: list[tuple[object, ...]] = []

    def resume(*given: Any) -> SimpleNamespace:
        resumed.append(given[:3])
        return SimpleNamespace(id=b"r" * 16)

    monkeypatch.setattr(module, "resume", resume)
    for durability in ("none", "async", "flush"):
        managers.answers[2104] = description(durability)
        cluster.publisher("q", name="till")
    assert [each.named["resumed"] is not None for each in made] == [False, False, True]
    assert made[2].named["publisher_id"] == b"r" * 16
    assert resumed == [(bytes.fromhex("ab" * 16), "q", "till")]


def test_dead_letters_go_to_a_queue_of_their_own(
    cluster: roq.Cluster, made: list[Made], managers: Answering
) -> None:
    with pytest.raises(InvalidRequest, match="cannot go to itself"):
        cluster.consumer("q", "g", dead_letters="q")
    assert made == []


@pytest.mark.parametrize(
    ("durability", "there", "created"),
    [("flush", True, True), ("none", True, False), ("none", False, True)],
)
def test_the_queue_of_dead_letters_is_made_as_durable_as_the_other_one_when_it_is_needed(
    durability: str, there: bool, created: bool, cluster: roq.Cluster, made: list[Made],
    managers: Answering, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    opens: list[Callable[[], Any]] = []

    def letters(*given: Any) -> SimpleNamespace:
        opens.append(given[2])
        return SimpleNamespace(bury=None, close=None)

    monkeypatch.setattr(module, "DeadLetters", letters)
    cluster.consumer("n" * 126, "g")
    assert managers.requests == []
    managers.answers |= {2104: description(durability), 2011: {} if there else QueueNotFound("no")}
    opens[0]()
    makes = [each for each in managers.requests if number(each) == 2010]
    assert [each["Durability"] for each in makes] == [durability] * created
    assert made[-1].given == (("n" * 126 + ".dead")[-128:],)
