"""Random histories of a queue that moves, grows and shrinks: whatever waits comes to an end."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st
from monitor_queue import Queue

from roq.model import PublisherId
from roq.monitor.events import Ask, Effect, Event, Push, Send
from roq.policy.balanced import Balanced
from roq.policy.snapshot import Decision, Grow, Memory, Move, QueueView, Shrink, Stripe
from roq.protocol.control import Assigned, Emptied, Empty, Failure, Relocate, ScaleOut, Topology

NAMES = [f"p{number}" for number in range(6)]
NUMBERS = st.integers(1, 6)
EXCHANGES_MAX = 4

WHIMS = st.lists(
    st.one_of(
        st.builds(Move, st.sampled_from(NAMES).map(lambda name: PublisherId(name.encode())),
                  NUMBERS, NUMBERS, st.just("whim")),
        st.builds(Stripe, st.sampled_from(NAMES).map(lambda name: PublisherId(name.encode())),
                  st.lists(NUMBERS, min_size=1, max_size=3, unique=True).map(tuple),
                  st.just("whim")),
        st.builds(Grow, st.just("whim")),
        st.builds(Shrink, NUMBERS, st.just("whim")),
    ),
    max_size=3,
)  # fmt: skip

HISTORY = st.lists(
    st.one_of(
        st.tuples(st.just("run"), st.sampled_from([0.25, 1.0, 3.0])),
        st.tuples(st.just("publish"), st.sampled_from(NAMES), st.sampled_from([0, 50, 400, 2_000])),
        st.tuples(st.just("mood"), st.sampled_from(NAMES),
                  st.sampled_from(["obeys", "ignores", "fails"])),
        st.tuples(st.just("leave"), st.sampled_from(NAMES)),
        st.tuples(st.just("attach"), st.sampled_from(NAMES)),
        st.tuples(st.just("answer"), st.sampled_from(NAMES), st.integers(-2, 2),
                  st.sampled_from(["accepted", "failed", "?"])),
        st.tuples(st.just("subscribe"), st.sampled_from(["s", "t"]),
                  st.sampled_from(["reads", "lags"])),
        st.tuples(st.just("manager"), st.sampled_from(["obeys", "refuses", "away", "forgets"])),
        st.tuples(st.just("kill"), NUMBERS),
        st.tuples(st.just("restart"), NUMBERS),
        st.tuples(st.just("hang"), NUMBERS, st.booleans()),
        st.tuples(st.just("empty"), NUMBERS),
        st.tuples(st.just("whim"), WHIMS),
        st.tuples(st.just("take over"), st.lists(st.floats(0.0, 4.0), max_size=6)),
    ),
    max_size=25,
)  # fmt: skip


class Whimsical:
    """RoQ's own policy, with decisions of somebody else thrown in."""

    def __init__(self) -> None:
        self.whims: list[Decision] = []

    def decide(self, view: QueueView, memory: Memory) -> tuple[list[Decision], Memory]:
        if self.whims:
            whims, self.whims = self.whims, []
            return whims, memory
        return Balanced().decide(view, memory)


class Watched(Queue):
    """A queue whose promises are checked at every step."""

    def __init__(self, policy: Whimsical) -> None:
        self.epochs: dict[str, list[int]] = {}
        self.seen: set[int] = set()
        self.emptied: Counter[int] = Counter()
        self.asked_to_empty = 0
        self.leaving: set[int] = set()
        self.hung: set[int] = set()
        super().__init__(2, policy=policy, exchanges_max=EXCHANGES_MAX, cooldown_seconds=1)

    def handle(self, event: Event) -> list[Effect]:
        machine = getattr(self, "machine", None)
        self.leaving = set(machine._exchanges.leaving) if machine is not None else set()
        return super().handle(event)

    def look(self, effects: list[Effect]) -> None:
        for effect in effects:
            self._look(effect, self.leaving)

    def _look(self, effect: Effect, leaving: set[int]) -> None:
        match effect:
            case Push(peers, Relocate() as message):
                name = message.publisher.decode()
                assert peers == ((message.publisher, False),)
                if message.epoch not in self.seen:
                    self.seen.add(message.epoch)
                    self.epochs.setdefault(name, []).append(message.epoch)
                    entered = {each.number for each in message.exchanges}
                    publisher = self.publishers.get(name)
                    entered -= set(publisher.numbers) if publisher is not None else set()
                    assert not entered & leaving
            case Send((name, _), Assigned() as message):
                self.epochs.setdefault(name.decode(), []).append(message.epoch)
            case Send(_, Emptied() | Failure() as message) if message.id >= 1_000:
                self.emptied[message.id] += 1
            case Send(_, Topology() as message) | Push(_, Topology() as message):
                assert self._serving() <= {each.number for each in message.exchanges}
            case Ask(_, ScaleOut()):
                assert len(self.machine._exchanges) <= EXCHANGES_MAX

    def _serving(self) -> set[int]:
        """The exchanges that nobody may be told are gone."""
        return {number for number, each in self.exchanges.items() if number not in self.hung}

    def step(self, action: tuple) -> None:  # type: ignore[type-arg]  # noqa: C901, PLR0912 - one per word
        match action:
            case ("run", seconds):
                self.run(seconds)
            case ("publish", name, rate) if name in self.publishers:
                self.publishers[name].rate = rate
            case ("publish", name, rate):
                self.add_publisher(name, rate)
            case ("mood", name, mood) if name in self.publishers:
                self.publishers[name].mood = mood
            case ("leave", name) if name in self.publishers:
                del self.publishers[name]
                self.leave(name)
            case ("attach", name) if name in self.publishers:
                self.attach(name, failed=self.publishers[name].at)
            case ("answer", name, off, outcome) if name in self.publishers:
                publisher = self.publishers[name]
                if publisher.told and (off or outcome == "?"):
                    self.relocated(publisher, publisher.told[-1].epoch + off, outcome)
            case ("subscribe", name, mood):
                self.add_subscriber(name, mood)
            case ("manager", mood):
                self.manager = mood
            case ("kill", number) if number in self.exchanges and len(self.exchanges) > 1:
                self.kill(number)
            case ("restart", number) if number in self.exchanges:
                self.exchanges[number].epoch += 1
                self.exchanges[number].end = 0
            case ("hang", number, hangs) if number in self.exchanges:
                self.exchanges[number].reports = not hangs
                self.hung.add(number)
            case ("empty", number):
                self.asked_to_empty += 1
                request = 1_000 + self.asked_to_empty
                self.receive("gcm", Empty(id=request, queue_id=b"q" * 16, number=number))
            case ("take over", delays):
                # What it was asked for and has not answered is asked again by whoever wants it.
                self.emptied.update(self.unanswered())
                whims = self.policy_of().whims
                self.take_over(*delays)
                self.run(0.25)
                self.policy_of().whims = whims
            case ("whim", whims):
                self.policy_of().whims = list(whims)

    def unanswered(self) -> set[int]:
        return set(range(1_001, 1_001 + self.asked_to_empty)) - set(self.emptied)

    def policy_of(self) -> Whimsical:
        policy = self.machine._elasticity.rules.policy
        assert isinstance(policy, Whimsical)
        return policy


@settings(max_examples=60, deadline=None)
@given(history=HISTORY)
def test_whatever_waits_comes_to_an_end_and_epochs_only_rise(history) -> None:
    queue = Watched(Whimsical())
    queue.periods(2)
    for action in history:
        queue.step(action)
    queue.settle()
    elasticity = queue.machine._elasticity
    assert len(elasticity.moves) == 0
    assert not elasticity.scaling.under_way
    assert sorted(queue.emptied) == list(range(1_001, 1_001 + queue.asked_to_empty))
    assert set(queue.emptied.values()) <= {1}
    for epochs in queue.epochs.values():
        assert epochs == sorted(set(epochs))
    for publisher in queue.publishers.values():
        session = queue.machine._sessions.find(publisher.id)
        assert session is not None
        assert set(session.exchanges) == set(publisher.at)
    serving = {each.number for each in queue.machine._exchanges}
    assert serving == set(queue.exchanges)
    assert queue.machine._exchanges.accepting()
