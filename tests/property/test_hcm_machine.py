"""Random lives of a host: whatever children, managers and time do, the promises hold."""

from __future__ import annotations

from collections import Counter, defaultdict

from hcm_host import HOST_EPOCH, Host, peer_of
from hypothesis import given, settings
from hypothesis import strategies as st

from roq.hcm.children import QUARANTINE_SECONDS
from roq.hcm.events import (
    Effect,
    Exited,
    Kill,
    Registered,
    Release,
    Reply,
    Requested,
    Spawn,
    Spawned,
)
from roq.model import Limits
from roq.protocol.control import (
    Answer,
    ChildAck,
    ChildReport,
    Control,
    Inventory,
    StartExchange,
    StartMonitor,
    StopQueue,
)
from roq.protocol.spec import MonitorSpec

QUEUES = st.sampled_from(["a", "b", "c"])
IDS = st.sampled_from([b"1" * 16, b"2" * 16])
BASES = st.sampled_from([0, 0, 0, 4, 9])
LIFE = st.lists(
    st.one_of(
        st.tuples(st.just("monitor"), QUEUES, IDS, st.integers(1, 3), BASES),
        st.tuples(st.just("exchange"), QUEUES, IDS, st.integers(1, 3), BASES, st.integers(0, 3)),
        st.tuples(st.just("stop"), QUEUES, st.sampled_from([b"", b"1" * 16]), st.integers(-1, 2)),
        st.tuples(st.just("crash"), st.integers(0, 9)),
        st.tuples(st.just("fail"), st.integers(0, 9)),
        st.tuples(st.just("report"), st.integers(0, 9)),
        st.tuples(st.just("obey"), st.integers(0, 9)),
        st.tuples(st.just("hang"), st.integers(0, 9), st.sampled_from(["T", "S", "R", ""])),
        st.tuples(st.just("killed"), st.booleans()),
        st.tuples(st.just("inventory")),
        st.tuples(st.just("wait"), st.floats(0.0, 30.0)),
    ),
    max_size=60,
)


class Watched(Host):
    """A host whose promises are checked at every step."""

    def __init__(self, share: int = 1) -> None:
        super().__init__(share=share, exchange_max=3,
                         exchange_ports=(6000, 7000), monitor_ports=(5500, 5800),
                         statistics_ports=(5800, 6000))  # fmt: skip
        self.asked: Counter[tuple[bytes, int]] = Counter()
        self.answered: Counter[tuple[bytes, int]] = Counter()
        self.epochs: defaultdict[str, list[int]] = defaultdict(list)
        self.left: dict[int, float] = {}
        self.told: set[str] = set()
        self._ids = 0
        self._lives = 0

    def request(self, message: Control) -> None:
        self._ids += 1
        peer = peer_of(f"peer {self._ids}")
        self.asked[peer[0], message.id] += 1
        self.handle(Requested(peer, message))  # type: ignore[arg-type]

    def _perform(self, effect: Effect) -> list:  # type: ignore[type-arg]
        if isinstance(effect, Reply) and not isinstance(effect.message, ChildAck):
            self.answered[effect.peer[0], effect.message.id] += 1
        if isinstance(effect, Spawn):
            self.epochs[effect.spec.child].append(effect.spec.epoch)
        if isinstance(effect, Kill | Release) and effect.child in self.processes:
            whole = isinstance(effect, Kill) and self.obedient
            for child in self.beside(effect.child) if whole else [effect.child]:
                self._leaves(child)
        events = super()._perform(effect)
        for event in events:
            match event:
                case Spawned(child):
                    for port in self.processes[child].ports:
                        assert self.now - self.left.get(port, -1e9) >= QUARANTINE_SECONDS
        return events

    def crash(self, child: str, status: str = "exit code 70", last_line: str = "") -> list[Effect]:
        for each in self.beside(child):
            self._leaves(each)
        return super().crash(child, status, last_line)

    def end(self, child: str, reason: str = "") -> list[Answer]:
        self._leaves(child)
        return super().end(child, reason)

    def _leaves(self, child: str) -> None:
        # Ports that the child never told of were never known to anybody.
        if child in self.told:
            self.left.update(dict.fromkeys(self.processes[child].ports, self.now))
            self.told.discard(child)

    def step(self, action: tuple) -> None:  # type: ignore[type-arg]
        match action:
            case ("monitor", queue, queue_id, epoch, base):
                self.request(StartMonitor(id=1, queue=queue, queue_id=queue_id, base=base,
                                          leader_epoch=epoch, limits=Limits()))  # fmt: skip
            case ("exchange", queue, queue_id, epoch, base, number):
                self.request(StartExchange(id=2, queue=queue, queue_id=queue_id, monitor="",
                                           number=number, leader_epoch=epoch, base=base,
                                           limits=Limits()))  # fmt: skip
            case ("stop", queue, queue_id, number):
                self.request(StopQueue(id=3, queue=queue, queue_id=queue_id, number=number,
                                       leader_epoch=3))  # fmt: skip
            case ("inventory",):
                self.request(Inventory(id=4))
            case ("wait", seconds):
                self.advance(seconds)
            case ("killed", registered):
                self.killed(registered)
            case ("hang", index, state) if self.processes:
                child = sorted(self.processes)[index % len(self.processes)]
                for each in self.beside(child):
                    self.processes[each].state = state
            case (what, int(index)) if self.processes:
                child = sorted(self.processes)[index % len(self.processes)]
                self._happens(what, child)

    def killed(self, registered: bool) -> None:
        """The host manager is killed and started again."""
        before = {child: process.spec.epoch for child, process in self.processes.items()}
        # Whoever waited for an answer has lost his connection.
        self.asked = Counter(self.answered)
        # What rested for no child that lives is forgotten; that is the price of it.
        kept = {port for each in self.processes.values() for port in each.spec.avoid_ports}
        self.left = {port: left for port, left in self.left.items() if port in kept}
        self._lives += 1
        self.next_life(HOST_EPOCH + 10 * self._lives, registered=registered)
        assert {child: process.spec.epoch for child, process in self.processes.items()} == before
        known = {child.name: child.epoch for child in self.machine._supervisor.children}
        assert known == before

    def _happens(self, what: str, child: str) -> None:
        process = self.processes[child]
        if what == "crash" or (
            what == "obey" and process.asked_to_end and len(self.beside(child)) == 1
        ):
            self.crash(child)
        elif what == "fail" or (what == "obey" and process.asked_to_end):
            if isinstance(process.spec, MonitorSpec):
                self.end(child, "ValueError: 7" if what == "fail" else "")
        elif what == "report" and process.state in {"", "R"}:
            peer = peer_of(child)
            self.told.add(child)
            self.handle(Requested(peer, ChildReport(id=9, child=process.info())))


@given(LIFE, st.sampled_from([1, 3]))
@settings(max_examples=250, deadline=None)
def test_every_request_is_answered_once_and_no_child_lives_twice(life, share) -> None:
    host = Watched(share)
    for action in life:
        host.step(action)
    # Nothing stays open: all waits are bounded.
    host.advance(60)
    assert host.answered == host.asked
    for epochs in host.epochs.values():
        assert epochs == sorted(set(epochs))
    assert sum(each.role == "exchange" for each in host.machine._supervisor.children) <= 3 + 3
    host.stop()
    host.advance(60)
    assert host.finished


@given(LIFE, st.sampled_from([1, 3]))
@settings(max_examples=80, deadline=None)
def test_whatever_happens_the_leader_learns_the_present_state_within_a_second(life, share) -> None:
    host = Watched(share)
    for action in life:
        host.step(action)
    host.handle(Registered(10_000))
    host.advance(1.0)
    told = {child.child: (child.epoch, child.state) for child in host.last_report.values()}
    children = host.machine._supervisor.children
    assert told == {child.name: (child.epoch, str(child.state)) for child in children}


def test_an_exit_is_taken_once() -> None:
    host = Watched()
    host.running("a.x1")
    epoch = host.processes["a.x1"].spec.epoch
    host.crash("a.x1")
    spawned = len(host.spawned)
    host.handle(Exited("a.x1", epoch, "exit code 70", ""))
    assert len(host.spawned) == spawned
