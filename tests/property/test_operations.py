"""Operations in any interleaving: everybody is answered once, and nobody holds a place for ever."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roq.errors import NotLeader, RegistryAway
from roq.gcm.change import admission
from roq.gcm.change.operations import Operations
from roq.gcm.change.saga_steps import Admit, Call, Calls, Saga, Save
from roq.gcm.events import AskHost, Commit, Effect, HangUp, Reply
from roq.protocol.control import Done
from roq.protocol.public_answers import done

QUEUES, HOSTS = "abcdef", ("h1", "h2")
MOST = 5_000.0

requests = st.tuples(
    st.just("request"), st.sampled_from(QUEUES), st.sampled_from(HOSTS), st.integers(0, 1)
)
others = st.one_of(
    st.tuples(st.just("own"), st.sampled_from(QUEUES)),
    st.tuples(st.sampled_from(["answer", "fail"]), st.integers(0, 5)),
    st.tuples(st.just("gone"), st.sampled_from(HOSTS), st.booleans()),
    st.tuples(st.just("wait"), st.floats(0.1, 12.0)),
    st.tuples(st.just("abort")),
)


@pytest.fixture(autouse=True)
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "AT_ONCE", 1)
    monkeypatch.setattr(admission, "WAITING_MAX", 2)


class Bench:
    """Operations, and what they wait for."""

    def __init__(self) -> None:
        self.operations = Operations()
        self.now = 0.0
        self.asked: set[int] = set()
        self.answers: Counter[int] = Counter()
        self.open: list[Commit | AskHost] = []
        self.starting: Counter[str] = Counter()

    def take(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Reply):
                assert isinstance(effect.peer, int)
                self.answers[effect.peer] += 1
            elif not isinstance(effect, HangUp):
                assert isinstance(effect, Commit | AskHost)
                self.open.append(effect)
        self.operations.check()
        assert all(count <= admission.AT_ONCE for count in self.starting.values())

    def request(self, queue: str, host: str, steps: int) -> None:
        peer = len(self.asked)
        self.asked.add(peer)

        def saga() -> Saga:
            yield Admit(host)
            self.starting[host] += 1
            try:
                yield Save(())
                for _ in range(steps):
                    yield Calls((Call(host, f"tcp://{host}:1", Done()),))
            finally:
                self.starting[host] -= 1
            return done()

        self.take(self.operations.submit(queue, peer, saga, self.now, party=f"party {peer % 3}"))

    def lost(self, queue: str) -> None:
        def saga() -> Saga:
            yield Save(())
            return None

        if queue in self.operations.queues:
            self.take(self.operations.submit_own(queue, saga, self.now)[1])

    def answer(self, which: int, *, fails: bool) -> None:
        if not self.open:
            return
        effect = self.open.pop(which % len(self.open))
        if not fails:
            self.take(self.operations.completed(effect.token, _result(effect), self.now))
        elif isinstance(effect, AskHost):
            self.take(self.operations.completed(effect.token, "no answer", self.now))
        else:
            error = RegistryAway("registry away")
            self.take(self.operations.commit_failed(effect.token, error, self.now))

    def wait(self, seconds: float) -> None:
        end = self.now + seconds
        while (due := self.operations.next_deadline()) is not None and due <= end:
            self.now = max(self.now, due)
            self.take(self.operations.expire(self.now))
        self.now = end

    def perform(self, kind: str, *more: object) -> None:
        match kind, more:
            case "request", (str(queue), str(host), int(steps)):
                self.request(queue, host, steps)
            case "own", (str(queue),):
                self.lost(queue)
            case (("answer" | "fail"), (int(which),)):
                self.answer(which, fails=kind == "fail")
            case "gone", (str(host), bool(alone)):
                manager = f"tcp://{host}:1" if alone else ""
                self.take(self.operations.gone(host, manager, self.now))
            case "wait", (float(seconds),):
                self.wait(seconds)
            case _:
                self.take(self.operations.abort(NotLeader("somebody else leads")))


def _result(effect: Commit | AskHost) -> Done | None:
    return Done() if isinstance(effect, AskHost) else None


@settings(max_examples=200, deadline=None)
@given(acts=st.lists(requests | requests | others, min_size=20, max_size=60), answers=st.booleans())
def test_everybody_is_answered_once_and_no_place_is_lost(
    acts: list[tuple[str, ...]], *, answers: bool
) -> None:
    bench = Bench()
    for kind, *more in acts:
        bench.perform(kind, *more)
    while answers and bench.open:
        bench.answer(0, fails=False)
    bench.wait(MOST)
    assert bench.operations.queues == frozenset()
    assert bench.answers == Counter(bench.asked)
    assert all(count == 0 for count in bench.starting.values())
    bench.open.clear()
    for queue in QUEUES[: admission.AT_ONCE]:
        bench.request(queue, "h1", 0)
    assert len(bench.open) == admission.AT_ONCE
