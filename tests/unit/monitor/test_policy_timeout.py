import threading
import time

import pytest

from roq.errors import ConfigError, Unavailable
from roq.model import ElasticRules
from roq.monitor import policy_timeout
from roq.monitor.policy_timeout import Alarm, PolicyTimeout
from roq.policy.catalogue import POLICIES
from roq.policy.snapshot import Memory, QueueView
from roq.runtime import plugins

VIEW = QueueView(
    now=1.0, limit=1.0, rules=ElasticRules(), exchanges=(), hosts=(), latency_ms=0.0, scaling=False
)


class Scripted:
    """A policy that loops as long as it is told to."""

    def __init__(self) -> None:
        self.asked = 0
        self.loops = True
        self.shrugs = 0

    def decide(self, view, memory):
        self.asked += 1
        while self.loops:
            try:
                time.monotonic()
            except BaseException:
                if not self.shrugs:
                    raise
                self.shrugs -= 1
        return [], memory


@pytest.fixture
def policy(monkeypatch: pytest.MonkeyPatch) -> Scripted:
    policy = Scripted()
    monkeypatch.setattr(policy_timeout, "DECIDE_SECONDS", 0.05)
    monkeypatch.setattr(policy_timeout, "AGAIN_SECONDS", 0.02)
    monkeypatch.setattr(plugins, "policy", lambda _name: policy)
    return policy


def test_a_policy_that_never_comes_back_is_interrupted_and_rests(policy: Scripted) -> None:
    now = [100.0]
    watched = PolicyTimeout(lambda: now[0]).policy_named("loops")
    with pytest.raises(Unavailable, match="interrupted"):
        watched.decide(VIEW, Memory())
    with pytest.raises(Unavailable, match="not asked"):
        watched.decide(VIEW, Memory())
    assert policy.asked == 1
    now[0] += policy_timeout.REST_SECONDS
    policy.loops = False
    memory = Memory({"x": 1.0})
    assert watched.decide(VIEW, memory) == ([], memory)


def test_one_that_shrugs_interruptions_off_is_interrupted_again(policy: Scripted) -> None:
    policy.shrugs = 2
    with pytest.raises(Unavailable):
        PolicyTimeout(time.monotonic).policy_named("loops").decide(VIEW, Memory())


def test_a_policy_that_cannot_be_loaded_in_time_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(_name: str) -> None:
        while True:
            time.monotonic()

    monkeypatch.setattr(plugins, "policy", load)
    monkeypatch.setattr(policy_timeout, "LOAD_SECONDS", 0.05)
    with pytest.raises(ConfigError, match="'loops' cannot be loaded"):
        PolicyTimeout(time.monotonic).policy_named("loops")


def test_roqs_own_policies_are_not_watched() -> None:
    assert PolicyTimeout(time.monotonic).policy_named("balanced") is POLICIES["balanced"]


def test_an_alarm_does_not_ring_after_the_work() -> None:
    alarm = Alarm()
    assert alarm.limit(0.02, lambda: 7) == 7
    assert not threading.Event().wait(0.05)


def test_an_alarm_of_another_thread_lets_everything_happen() -> None:
    found: list[int] = []
    thread = threading.Thread(target=lambda: found.append(Alarm().limit(0.01, lambda: 7)))
    thread.start()
    thread.join()
    assert found == [7]
