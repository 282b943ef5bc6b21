"""The simulation notices when a rule of the protocol is broken: a check that cannot fail is none.

Each rule is broken by one change of a machine; a few seeds must tell, by the promise that the rule
stands for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import msgspec
import pytest

from roq.client.publish.link_chooser import LinkChooser
from roq.client.publish.replay import ReplayBuffers
from roq.client.subscribe.backpressure import MergeBackpressure
from roq.client.subscribe.resequencer import Resequencer
from roq.coordination.election import Election
from roq.errors import RegistryAway
from roq.exchange import machine, snapshot
from roq.exchange.commit import CommitGate, SyncGate
from roq.exchange.intake import Intake
from roq.exchange.links import Link
from roq.gcm.change.exchange import ExchangeSagas
from roq.gcm.change.saga_steps import Saga
from roq.gcm.repair.schedule import RepairSchedule
from roq.hcm.children import Child, ChildEpochs
from roq.hcm.events import Effect
from roq.hcm.liveness import Liveness
from roq.hcm.supervisor import Supervisor
from roq.log import recovery
from roq.log.disk_groups import Group
from roq.log.segments import SegmentLog
from roq.model import ASYNC, FLUSH, child_epoch
from roq.monitor.sessions import Sessions
from roq.protocol.batch import read_header
from roq.protocol.entry import NONE
from roq.protocol.public import CreateExchange
from roq.read.offset_chain import OffsetChain
from roq.runtime.manager import ManagedChild
from roq.simulation.virtual import disks, trial
from roq.simulation.virtual.load import Profile
from roq.simulation.virtual.lossy_files import LossyFiles
from roq.simulation.virtual.troubles import Trouble

Patch = pytest.MonkeyPatch
Break = Callable[[Patch], None]


# --- exchange and publisher -----------------------------------------------------------------------


def batches_are_appended_twice(patch: Patch) -> None:
    look = Intake._closer_look

    def naive(
        self: Intake[bytes],
        route: bytes,
        machine: Link | None,
        topic: bytes,
        data: bytes,
        size: int,
    ) -> bytes | None:
        header = read_header(data)
        if machine is not None and header.link_number < machine.expected:
            return self._take(machine, topic, data, size, header.next_sequence, header.count)
        return look(self, route, machine, topic, data, size)

    patch.setattr(Intake, "_closer_look", naive)


def a_hole_is_passed_over(patch: Patch) -> None:
    def naive(_self: Intake[bytes], machine: Link, number: int) -> None:
        machine.expected = number

    patch.setattr(Intake, "_gap", naive)


def what_is_left_is_not_replayed(patch: Patch) -> None:
    patch.setattr(ReplayBuffers, "doubt_missing", lambda _replay, _serving, _now: False)


def what_an_exchange_took_with_it_is_not_replayed(patch: Patch) -> None:
    patch.setattr(ReplayBuffers, "take_doubtful", lambda _replay, _present: [])


def the_window_has_no_end(patch: Patch) -> None:
    patch.setattr(LinkChooser, "has_room", property(lambda _chooser: True))


# --- subscriber -----------------------------------------------------------------------------------


def what_comes_again_is_delivered_again(patch: Patch) -> None:
    begin = Resequencer.__init__

    def naive(self: Resequencer, *args: object, **options: object) -> None:
        begin(self, *args, **{**options, "check_duplicates": False})  # type: ignore[arg-type]

    patch.setattr(Resequencer, "__init__", naive)


def what_the_fan_out_drops_is_not_fetched(patch: Patch) -> None:
    arrived = OffsetChain.arrived

    def naive(
        self: OffsetChain, topic: bytes, offset: int, _previous: int, batch: bytes | None
    ) -> None:
        arrived(self, topic, offset, NONE, batch)

    patch.setattr(OffsetChain, "arrived", naive)


def what_is_lost_is_not_told(patch: Patch) -> None:
    def silent(self: Resequencer, _stream: object, _first: int, messages: int, _why: str) -> None:
        self.counts.lost += messages

    patch.setattr(Resequencer, "_lose", silent)


def who_is_ahead_does_not_wait(patch: Patch) -> None:
    patch.setattr(MergeBackpressure, "look", lambda *_given, **_more: frozenset())


# --- logs on disks --------------------------------------------------------------------------------


def what_is_not_synced_is_acknowledged(patch: Patch) -> None:
    def release(_gate: CommitGate[bytes], links: list[Link]) -> list[Link]:
        for link in links:
            link.committed = link.expected - 1
        return links

    patch.setattr(CommitGate, "release", release)


def what_is_not_synced_is_committed(patch: Patch) -> None:
    gather = SegmentLog.gather

    def early(self: SegmentLog[bytes], *given: Callable[[], bytes]) -> Group[bytes] | None:
        group = gather(self, *given)
        if group is not None:
            self.commit(group.end)
        return group

    patch.setattr(SegmentLog, "gather", early)


def a_snapshot_has_no_streams(patch: Patch) -> None:
    encode = snapshot.encode_snapshot

    def forgetful(states: Sequence[snapshot.PublisherState], *others: Any) -> bytes:
        return encode([msgspec.structs.replace(each, streams=[]) for each in states], *others)

    patch.setattr(machine, "encode_snapshot", forgetful)


def a_folder_is_not_synced(patch: Patch) -> None:
    patch.setattr(LossyFiles, "sync_folder", lambda _files: None)


def a_sync_that_failed_is_tried_again(patch: Patch) -> None:
    def go_on(self: disks.DiskLog, calls: list[disks.Call], then: Callable[[], None]) -> None:
        for call in calls:
            try:
                call(self._files)
            except OSError:
                call(self._files)
        then()

    patch.setattr(disks.DiskLog, "_go_on", go_on)


def what_is_written_counts_as_synced(patch: Patch) -> None:
    patch.setattr(SyncGate, "release", lambda self: dict(released(self)))

    def released(self: SyncGate[bytes]) -> dict[Link, int]:
        numbers: dict[Link, int] = {}
        while self._marks:
            for link, (_, number) in self._marks.popleft().numbers.items():
                numbers[link] = number
        self._entries = 0
        return numbers


def a_start_goes_on_with_the_next_offset(patch: Patch) -> None:
    patch.setattr(recovery, "LEAP", 0)


# --- children and their host ----------------------------------------------------------------------


def a_process_has_the_epoch_of_the_one_before(patch: Patch) -> None:
    patch.setattr(ChildEpochs, "next", lambda self: child_epoch(self._upper, 1))


def children_end_though_somebody_wants_them(patch: Patch) -> None:
    patch.setattr(ManagedChild, "confirmed", lambda _child: None)


def what_hangs_is_left_alone(patch: Patch) -> None:
    patch.setattr(Liveness, "verdict", lambda *_given: "")


def what_died_is_given_up(patch: Patch) -> None:
    def naive(self: Supervisor, child: Child, how: str, _delay: float, now: float) -> list[Effect]:
        return self._give_up(child, how, now)

    patch.setattr(Supervisor, "_again", naive)


# --- monitor and managers -------------------------------------------------------------------------


def the_dead_are_remembered(patch: Patch) -> None:
    patch.setattr(Sessions, "expire", lambda _sessions, _now: [])


def whoever_stands_leads(patch: Patch) -> None:
    candidates = Election._candidates

    def proud(self: Election, names: tuple[str, ...] | RegistryAway | None) -> None:
        if isinstance(names, tuple):
            names = tuple(name for name in names if name.startswith(self._prefix))
        candidates(self, names)

    patch.setattr(Election, "_candidates", proud)


def what_is_half_done_stays_so(patch: Patch) -> None:
    patch.setattr(RepairSchedule, "_half_done", lambda _recovery, _queue: "")


def each_request_makes_another_exchange(patch: Patch) -> None:
    create = ExchangeSagas.create

    def forgetful(self: ExchangeSagas, request: CreateExchange) -> Saga:
        self._steps.queues.demand_running(request.QName).transactions.clear()
        return create(self, request)

    patch.setattr(ExchangeSagas, "create", forgetful)


# --- noticed --------------------------------------------------------------------------------------


BUSY: Final = Profile(rate=60.0, messages=(1, 2), size=(600, 1_500), topics=("a", "b"))
"""What waits for its turn is soon more than a subscriber bears that has little room."""
DURABLE: Final[dict[str, object]] = {"durability": FLUSH, "disk_seconds": (0.01, 0.2)}
AHEAD: Final[dict[str, object]] = {"durability": ASYNC, "disk_seconds": (0.001, 0.01)}
RARE: Final = Profile(rate=0.8, messages=(1, 2), size=(0, 20), topics=("a", "b", "c", "d"))
SEEDS: Final = range(30)
"""So many are tried at most; most rules are missed in the first few."""


@dataclass(frozen=True)
class Case:
    """Where a rule counts.

    Attributes:
        told: what is told when it is broken.
        kinds: what goes wrong, again and again.
        seconds: for how long each time.
        options: of the case and of the cluster's shape, where they are not left to chance.
    """

    told: str
    kinds: tuple[str, ...]
    seconds: float = 0.3
    options: dict[str, object] = field(default_factory=dict)
    shape: dict[str, object] = field(default_factory=dict)

    def of(self, seed: int) -> trial.Case:
        """The case with this seed."""
        case = trial.Case.draw(seed)
        plan = [
            Trouble(2.7 + 0.7 * each, kind, self.seconds, 100 * seed + each)
            for each, kind in enumerate(self.kinds * 4)
        ]
        shape = replace(case.shape, **self.shape)  # type: ignore[arg-type]
        return replace(case, shape=shape, plan=plan, **{"seconds": 8.0, **self.options})  # type: ignore[arg-type]


CASES: Final[dict[Break, Case]] = {
    batches_are_appended_twice: Case("appends batch", ("lose",)),
    a_hole_is_passed_over: Case("appends batch", ("lose",)),
    what_is_left_is_not_replayed: Case(
        "lost, though nobody was cut off", ("mute",), shape={"restless": True}
    ),
    what_an_exchange_took_with_it_is_not_replayed: Case(
        "lost, though nobody was cut off", ("mute",)
    ),
    the_window_has_no_end: Case(
        "batches under way and waiting", ("stall",), 1.5, shape={"limits": (("window_batches", 4),)}
    ),
    what_comes_again_is_delivered_again: Case("doubled", ("mute",)),
    what_the_fan_out_drops_is_not_fetched: Case("lost, though nobody was cut off", ("drop",)),
    what_is_lost_is_not_told: Case(
        "lost without a word",
        ("isolate", "pause"),
        3.0,
        options={"profile": trial.LARGE},
        shape={"limits": trial.TIGHT},
    ),
    who_is_ahead_does_not_wait: Case(
        "bytes, and not only",
        ("uneven",),
        0.65,
        options={"profile": BUSY, "exchanges": 3, "publishers": 3},
        shape={"restless": True, "limits": (), "ahead_bytes": 16_000, "queue_max": 40},
    ),
    a_process_has_the_epoch_of_the_one_before: Case("begins with epoch", ("kill-exchange",)),
    children_end_though_somebody_wants_them: Case(
        "though nothing happened to it", ("kill-hcm",), 6.0, shape={"orphan_seconds": 3.5}
    ),
    what_hangs_is_left_alone: Case("hangs and is not ended", ("pause",), 6.0),
    what_died_is_given_up: Case("is not started again", ("kill-exchange",)),
    the_dead_are_remembered: Case(
        "publishers, and there are", ("kill-publisher",), options={"patient": True}
    ),
    whoever_stands_leads: Case("stuck", ("expiry",), shape={"managers": 2}),
    what_is_half_done_stays_so: Case(
        "is creating", ("grow", "kill-gcm"), shape={"managers": 2, "start_seconds": (1.0, 2.0)}
    ),
    what_is_not_synced_is_acknowledged: Case("in no log", ("power",), shape=DURABLE),
    what_is_not_synced_is_committed: Case("in no log", ("power",), shape=DURABLE),
    a_snapshot_has_no_streams: Case(
        "does not know how far", ("kill-exchange",), options={"profile": RARE}, shape=DURABLE
    ),
    a_folder_is_not_synced: Case("in no log", ("power",), shape=DURABLE),
    a_sync_that_failed_is_tried_again: Case("in no log", ("disk", "power"), shape=DURABLE),
    what_is_written_counts_as_synced: Case("in no log", ("power",), shape=AHEAD),
    a_start_goes_on_with_the_next_offset: Case(
        "lost, though nobody was cut off", ("power",), shape=AHEAD
    ),
    each_request_makes_another_exchange: Case("has made", ("insist",)),
}


@pytest.mark.parametrize("break_rule", CASES, ids=lambda rule: rule.__name__)
def test_a_rule_that_is_broken_is_noticed(break_rule: Break, monkeypatch: Patch) -> None:
    case = CASES[break_rule]
    with monkeypatch.context() as patch:
        break_rule(patch)
        seed = next((seed for seed in SEEDS if case.told in told(case, seed)), None)
    assert seed is not None, f"{len(SEEDS)} seeds notice nothing"
    assert not told(case, seed), "the rule stands, and something is told all the same"


def told(case: Case, seed: int) -> str:
    """What is told of this seed."""
    return "; ".join(trial.Trial(case.of(seed)).run().broken)
