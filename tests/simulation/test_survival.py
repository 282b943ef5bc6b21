"""Whole clusters in which everything fails, on a virtual clock; and proof that faults are found.

`make sim-long` does the same with ten thousand seeds.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from random import Random

import msgspec
import pytest

from roq.client.publish.replay import ReplayBuffers
from roq.coordination.registry import StoreRegistry
from roq.coordination.registry_contract import Fence, Leadership, SessionState
from roq.exchange.backpressure import Backpressure
from roq.gcm.change.saga_steps import without_exchange
from roq.gcm.persistence.definitions import Definitions
from roq.gcm.repair.schedule import RepairSchedule
from roq.gcm.state.records import ExchangeRecord
from roq.hcm import events
from roq.hcm.machine import HostMachine
from roq.log.groups import ConsumerGroup
from roq.log.leases import Member, Piece
from roq.model import ASYNC, FLUSH, VOLATILE
from roq.monitor.emptying import Orphans
from roq.protocol import documents
from roq.protocol.public import CreateQueue, RemoveQueue
from roq.simulation.experiments.survival import Wish, try_seeds
from roq.simulation.virtual import bounds, promises, troubles
from roq.simulation.virtual.cluster import QUEUE, Cluster, Shape
from roq.simulation.virtual.kinds import KINDS
from roq.simulation.virtual.load import Profile
from roq.simulation.virtual.managers import ManagerShell
from roq.simulation.virtual.trial import LARGE, TIGHT, Case, Result, Trial
from roq.simulation.virtual.troubles import Trouble

ROOT = Path(__file__).parents[2]
SEEDS = 150
DURABLE_SEEDS = 18
AHEAD_SEEDS = 12
PARTS = 3


@pytest.mark.parametrize("part", range(PARTS))
def test_whatever_fails_all_promises_are_kept(part: int) -> None:
    happened: Counter[str] = Counter()
    received = 0
    for result in try_seeds(range(part * SEEDS // PARTS, (part + 1) * SEEDS // PARTS)):
        assert not result.broken, told(result)
        happened.update(result.troubles)
        received += result.received
    assert set(happened) == set(KINDS) - troubles.DURABLE_KINDS - troubles.MEMBER_KINDS
    assert received > 20_000


@pytest.mark.parametrize("part", range(PARTS))
def test_a_durable_queue_loses_nothing_whatever_fails(part: int) -> None:
    looked = Counter[str]()
    seeds = range(part * DURABLE_SEEDS // PARTS, (part + 1) * DURABLE_SEEDS // PARTS)
    for result in try_seeds(seeds, Wish(durability=FLUSH)):
        assert not result.broken, told(result)
        looked.update(result.troubles)
        looked.update(result.checked)
    assert looked["power"]
    assert looked["disk"]
    assert looked["what was acknowledged is on a disk"]


def test_a_queue_ahead_of_its_disk_loses_only_what_its_publishers_took_with_them() -> None:
    looked = Counter[str]()
    for result in try_seeds(range(AHEAD_SEEDS), Wish(durability=ASYNC)):
        assert not result.broken, told(result, ASYNC)
        looked.update(result.troubles)
        looked.update(result.checked)
    assert looked["power"] > 2
    assert looked["what was acknowledged is on a disk"] > 2


@pytest.mark.parametrize(("durability", "seeds"), [(VOLATILE, 6), (FLUSH, 7)])
def test_a_group_does_everything_whatever_fails(durability: str, seeds: int) -> None:
    looked = Counter[str]()
    for result in try_seeds(range(seeds), Wish(durability=durability, shared=True)):
        assert not result.broken, told(result, durability, shared=True)
        looked.update(result.troubles)
        looked.update(result.checked)
    assert all(looked[kind] > 2 for kind in troubles.MEMBER_KINDS)
    assert looked["what is confirmed does not come again"] > 2_000
    assert looked["only the newest lease of a message counts"] > 2_000


@pytest.mark.parametrize(("seed", "durability"), [(113, VOLATILE), (144, FLUSH), (171, FLUSH)])
def test_seeds_in_which_a_group_once_stood_still(seed: int, durability: str) -> None:
    (result,) = try_seeds([seed], Wish(durability=durability, shared=True))
    assert not result.broken, told(result, durability, shared=True)


@pytest.mark.parametrize("seed", [9007, 9009])
def test_seeds_in_which_a_publisher_had_moved_before_all_hosts_died(seed: int) -> None:
    (result,) = try_seeds([seed], Wish(shared=True))
    assert not result.broken, told(result, shared=True)


def test_a_seed_in_which_a_striped_publisher_had_no_exchange_for_long() -> None:
    (result,) = try_seeds([9163], Wish(durability=FLUSH, shared=True))
    assert not result.broken, told(result, FLUSH, shared=True)


@pytest.mark.parametrize("hangs_up", [True, False])
@pytest.mark.parametrize("seed", [1_402_461, 1_425_041])
def test_seeds_in_which_a_start_that_was_given_up_came_to_its_host_late(
    seed: int, hangs_up: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The exchange had publishers, and was stopped before all had read it. It does not start now,
    as the manager hangs up; and if it did, it would be emptied first."""
    if not hangs_up:
        monkeypatch.setattr(ManagerShell, "_hang_up", lambda _shell, _endpoint: None)
    wish = Wish(durability=FLUSH, shared=True, asked=True)
    (result,) = try_seeds([seed], wish)
    assert not result.broken, f"{result.broken[0]}: {wish.replay_command(seed)}"


def test_disks_leave_nothing_to_chance_but_what_the_seed_says() -> None:
    first, second = (next(iter(try_seeds([7], Wish(durability=FLUSH)))) for _ in range(2))
    assert first == second
    assert first.checksum != next(iter(try_seeds([7]))).checksum


def told(result: Result, durability: str = VOLATILE, *, shared: bool = False) -> str:
    again = Wish(durability=durability, shared=shared).replay_command(result.seed)
    return f"{result.broken[0]}\nreplay it: {again} --trace"


@pytest.mark.parametrize("seed", [2835, 4154, 4208, 8040, 8551, 9771])
def test_seeds_that_once_went_wrong_keep_all_promises(seed: int) -> None:
    (result,) = try_seeds([seed])
    assert not result.broken, told(result)


def test_the_same_seed_is_the_same_history_in_any_process() -> None:
    seeds = (3, 4)
    here = [result.checksum for result in try_seeds(seeds)]
    for seed, checksum in zip(seeds, here, strict=True):
        command = [
            sys.executable,
            "-m",
            "roq.simulation.experiments.survival",
            "--seed",
            str(seed),
            "--json",
        ]
        environ = {**os.environ, "PYTHONHASHSEED": str(seed)}
        done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, check=False)
        assert done.returncode == 0, done.stderr.decode()
        assert json.loads(done.stdout)["checksum"] == checksum


def test_without_troubles_nothing_is_started_twice_and_nothing_lost() -> None:
    for result in try_seeds(range(5), Wish(without=KINDS)):
        assert not result.broken, result.broken
        assert result.troubles == {}
        assert result.sent == result.received > 100
        assert result.counted_lost == 0
        assert result.heal_seconds == 0


def test_leaving_a_kind_out_changes_nothing_about_the_others() -> None:
    for seed in range(20):
        whole = troubles.draw(seed, 10.0)
        for kind in {trouble.kind for trouble in whole}:
            rest = troubles.draw(seed, 10.0, without=[kind])
            assert rest == [trouble for trouble in whole if trouble.kind != kind]
            these = troubles.draw(seed, 10.0, only=[kind])
            assert these == [trouble for trouble in whole if trouble.kind == kind]


def slow_subscribers(seed: int) -> Trial:
    """Subscribers that take nothing now and then, of exchanges that keep next to nothing."""
    case, random = Case.draw(seed), Random(f"slow {seed}")
    plan = [
        Trouble(random.uniform(0, 6), "sluggish", random.uniform(0.5, 5), random.getrandbits(32))
        for _ in range(3)
    ]
    shape = replace(case.shape, limits=TIGHT)
    return Trial(replace(case, shape=shape, profile=LARGE, seconds=6.0, plan=plan))


def test_who_reads_slowly_loses_nothing_while_publishers_wait() -> None:
    held = 0.0
    for seed in range(20):
        trial = slow_subscribers(seed)
        result = trial.run()
        assert not result.broken, result.broken
        assert result.checked["publishers wait for who reads"] == 1
        assert result.counted_lost == 0
        held += sum(
            each.exchange.core.backpressure.held_seconds for each in trial.cluster.exchanges
        )
    assert held > 5.0, "otherwise nothing was tried"


def test_who_hears_unevenly_leaves_exchanges_alone_and_full_sockets_refuse() -> None:
    left_alone = refused = 0
    for seed in range(3):
        case = Case.draw(seed)
        plan = [Trouble(1.5 * each, "uneven", 1.4, 100 * seed + each) for each in range(4)]
        shape = replace(case.shape, limits=(), restless=True, ahead_bytes=4_000, queue_max=8)
        busy = Profile(rate=40.0, messages=(1, 2), size=(300, 900))
        case = replace(case, shape=shape, exchanges=3, publishers=2, seconds=6.0, profile=busy)
        trial = Trial(replace(case, plan=plan))
        result = trial.run()
        assert not result.broken, result.broken
        assert result.counted_lost == 0
        actors = [each.subscriber for each in trial.cluster.subscribers]
        left_alone += sum(each.held_back for each in actors if each is not None)
        refused += sum(each.exchange.refused for each in trial.cluster.exchanges)
    assert min(left_alone, refused) > 5, "otherwise nothing was tried"


# --- the simulation can fail ----------------------------------------------------------------------


def broken_promises(kind: str, seeds: Iterable[int] = range(20), **shape: object) -> list[str]:
    """What the first of these seeds that breaks a promise breaks, when this goes wrong four times.

    Args:
        shape: of the cluster, where it is not to be left to chance.
    """
    for seed in seeds:
        case = replace(Case.draw(seed), publishers=4, exchanges=1, seconds=3.0)
        plan = [Trouble(0.7 * each, kind, 0.3, 100 * seed + each) for each in range(4)]
        changed = replace(case.shape, **shape)  # type: ignore[arg-type]
        broken = Trial(replace(case, shape=changed, plan=plan)).run().broken
        if broken:
            return broken
    return []


def test_messages_that_come_twice_are_found() -> None:
    broken = broken_promises("kill-exchange", check_duplicates=False)
    assert any("doubled" in text for text in broken), broken


def group_broken(seeds: int = 20) -> list[str]:
    """What the first of these seeds that breaks a promise to a group breaks."""
    found = (each.broken for each in try_seeds(range(seeds), Wish(durability=FLUSH, shared=True)))
    return next(filter(None, found), [])


def test_a_lease_of_somebody_else_that_counts_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def keeps(self: ConsumerGroup[bytes], member: Member, **_: object) -> None:
        for lease in member.leases.values():  # it goes to others, and the member has it as well
            self._free.add(Piece(lease.offset, lease.first, lease.length, 0, ""))

    monkeypatch.setattr(ConsumerGroup, "_return_all", keeps)
    broken = group_broken()
    assert any("ended by an exception" in text and "groups.py" in text for text in broken), broken


def test_what_is_confirmed_and_not_written_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ConsumerGroup, "apply", lambda _group, _delta: None)
    broken = group_broken()
    assert any("again, which" in text and "has done" in text for text in broken), broken


def test_a_group_that_drops_what_is_given_back_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def drops(
        self: ConsumerGroup[bytes], member: Member, number: int, first: int, count: int,
        _delay: float, **_: object,
    ) -> bool:  # fmt: skip
        return self.acknowledge(member, number, first, count)

    monkeypatch.setattr(ConsumerGroup, "give_back", drops)
    broken = group_broken()
    assert any("the group has not done it" in text for text in broken), broken


def test_a_replay_that_is_forgotten_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ReplayBuffers, "take_doubtful", lambda _replay, _present: [])
    broken = broken_promises("kill-exchange", delay_seconds=(0.01, 0.05))
    assert any("though nobody was cut off" in text for text in broken), broken


def test_publishers_that_wait_for_nobody_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Backpressure, "look", lambda _holding: None)
    broken = [text for seed in range(10) for text in slow_subscribers(seed).run().broken]
    assert any("though nobody was cut off" in text for text in broken), broken


def test_children_that_are_not_adopted_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    handle = HostMachine.handle

    def forgetful(self: HostMachine, event: events.Event, now: float) -> list[events.Effect]:
        return [] if isinstance(event, events.Adopted) else handle(self, event, now)

    monkeypatch.setattr(HostMachine, "handle", forgetful)
    broken = broken_promises("kill-hcm")
    assert any("though nothing happened to it" in text for text in broken), broken


def test_a_host_whose_children_are_not_set_up_elsewhere_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(RepairSchedule, "look", lambda _recovery, _now: [])
    broken = broken_promises("kill-host", hosts=2)
    assert any(text.startswith("stuck") for text in broken), broken


def test_a_process_that_ends_by_an_exception_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(self: HostMachine) -> None:
        raise RuntimeError("an invariant")

    monkeypatch.setattr(HostMachine, "check", fails)
    broken = broken_promises("clock")
    assert any("ended by an exception" in text and "an invariant" in text for text in broken)


class TwoLeaders:
    """A cluster in which a manager that was deposed does not notice."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        changed, follow = Definitions._session_changed, Definitions._follow

        def deaf(self: Definitions, state: SessionState) -> None:
            if state is SessionState.CONNECTED:
                changed(self, state)

        def proud(self: Definitions, data: bytes | None) -> None:
            if self._leadership is None:
                follow(self, data)

        monkeypatch.setattr(Definitions, "_session_changed", deaf)
        monkeypatch.setattr(Definitions, "_follow", proud)
        self.cluster = Cluster(1, Shape(managers=2))
        self.cluster.start(exchanges=1)
        (self.former,) = self.cluster.leaders
        ensemble = self.cluster.ensemble
        store = next(s for s in ensemble.stores if s.process is self.former.process)
        ensemble.expire(store)
        assert self.cluster.until(lambda: len(self.cluster.leaders) == 2, 10.0)
        (self.present,) = (each for each in self.cluster.leaders if each is not self.former)
        # The host reports to one manager only: to the present one as soon as it has to.
        (host,) = (each.machine for each in self.cluster.hosts)
        self.cluster.wires.cut([host], [self.former.process.machine], both=True)
        hosts = self.present.machine.hosts
        assert self.cluster.until(lambda: hosts.live(host) is not None, 10.0)
        self.cluster.wires.mend()

    def act(self) -> list[str]:
        """One creates a queue, the other removes the one that is there; what is broken by that."""
        for manager, wish in (
            (self.present, CreateQueue(QName="new")),
            (self.former, RemoveQueue(QName=QUEUE)),
        ):
            manager.ask(documents.encode(wish), lambda _answer: None)
            self.cluster.world.run(3.0)
        return self.cluster.watch.broken

    @property
    def running(self) -> set[str]:
        """The monitors and exchanges that run."""
        return {name for host in self.cluster.hosts for name in host.running}


def without_fences(monkeypatch: pytest.MonkeyPatch) -> None:
    commit = StoreRegistry.commit

    def unfenced(self: StoreRegistry, operations: object, _fence: Fence, done: object) -> None:
        commit(self, operations, None, done)  # type: ignore[arg-type]

    monkeypatch.setattr(StoreRegistry, "commit", unfenced)


def test_a_deposed_leader_that_does_not_know_it_can_do_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    two = TwoLeaders(monkeypatch)
    assert two.act() == []
    assert two.running == {"new.monitor", "new.x1", "q.monitor", "q.x1"}


def test_a_lower_fence_that_is_let_through_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    without_fences(monkeypatch)
    broken = TwoLeaders(monkeypatch).act()
    assert any("writes definitions, but this one leads" in text for text in broken), broken


def test_a_lower_epoch_that_is_obeyed_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    without_fences(monkeypatch)
    monkeypatch.setattr(HostMachine, "_check_leader", lambda _machine, _epoch, _cluster: None)
    broken = TwoLeaders(monkeypatch).act()
    assert any("obeys epoch" in text for text in broken), broken


def test_an_epoch_that_goes_back_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    elected = Definitions._lead

    def same(self: Definitions, leadership: Leadership) -> None:
        elected(self, replace(leadership, epoch=1))

    monkeypatch.setattr(Definitions, "_lead", same)
    broken = broken_promises("kill-gcm")
    assert any("leads with epoch 1, after one with 1" in text for text in broken), broken


@pytest.mark.parametrize("seed", [630, 2289, 2471, 2931, 7862, 8534])
def test_what_went_wrong_once_goes_well_now(seed: int) -> None:
    """630: removals of an exchange wait for a monitor that is lost, and its healing for them.
    2289, 7862: a host manager is killed for good before it has told of an exchange that runs.
    2471: an exchange that keeps next to nothing may lose any number of messages, and tell.
    8534: a subscriber has told why it stands still until a moment ago, and will again.
    2931: a new monitor hears that nobody leads, and does not take that for all it can hear.
    """
    (result,) = try_seeds([seed])
    assert not result.broken, told(result)


# --- what is excused, and for how long ------------------------------------------------------------


def lost_with_exchanges(monkeypatch: pytest.MonkeyPatch) -> None:
    """Publishers replay nothing that was acknowledged."""
    monkeypatch.setattr(ReplayBuffers, "take_doubtful", lambda _replay, _present: [])


def test_a_reported_loss_is_excused_only_if_an_exchange_died_or_was_long_out_of_reach() -> None:
    cluster = Cluster(1, Shape())
    cases = (
        ({"kill-exchange": 1}, 0.0, True, False),
        ({"drop": 1}, promises.REPLAYED_SECONDS + 1, False, False),
        ({"drop": 1}, promises.REPLAYED_SECONDS + 1, True, True),
        ({"drop": 1}, promises.REPLAYED_SECONDS - 1, True, False),
        ({"partition": 1}, promises.PATIENCE_SECONDS + 1, False, True),
        ({"partition": 1}, promises.PATIENCE_SECONDS - 1, False, False),
    )
    for kinds, cut_off, died, excused in cases:
        cluster.watch.spawned = Counter({"q.x1 of abc": 1 + died, "q.monitor of abc": 2})
        happened = promises.Happened(kinds, cut_off)
        assert promises.may_lose(cluster, happened) is excused, (kinds, cut_off, died)
    cluster.watch.outage = promises.PATIENCE_SECONDS + 1
    assert promises.may_lose(cluster, promises.Happened({"kill-exchange": 1}, 0.0))


def test_more_than_could_be_in_one_exchange_is_not_excused(monkeypatch: pytest.MonkeyPatch) -> None:
    lost_with_exchanges(monkeypatch)
    monkeypatch.setattr(promises, "LOST_MOST", 0)
    monkeypatch.setattr(promises, "may_lose", lambda _cluster, _happened: True)
    broken = broken_promises("kill-exchange", delay_seconds=(0.01, 0.05))
    assert any("lost, and not only 0" in text for text in broken), broken


def test_every_kind_of_trouble_has_its_bound() -> None:
    assert bounds.heal_seconds([], 6.0) == bounds.LOOK_SECONDS
    for kind in KINDS:
        assert bounds.heal_seconds([kind], 6.0) < 25.0
    assert bounds.heal_seconds(KINDS, 6.0) < 120.0


def test_what_takes_longer_to_heal_than_promised_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The leader looks for what is lost every forty seconds instead of twice in a second."""
    monkeypatch.setattr("roq.gcm.machine.LOOK_SECONDS", 40.0)
    broken = broken_promises("kill-host", hosts=2)
    assert any(text.startswith("stuck") for text in broken), broken


def test_an_exchange_that_the_record_lacks_and_its_monitor_uses_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = Cluster(1, Shape(hosts=2))
    cluster.start(exchanges=2)
    assert cluster.until(lambda: not promises.healed(cluster), 10.0)
    monkeypatch.setattr(Orphans, "told", lambda _unwanted, _numbers, _now: [])
    (leader,) = cluster.leaders
    queue = leader.machine.queues.demand(QUEUE)
    host = next(host for host in cluster.hosts if host.machine == queue.place(2))
    assert host.manager is not None
    host.manager.process.end("killed")
    queue.record = without_exchange(queue.record, 2)
    cluster.world.run(30.0)
    assert "q.x2 runs on" in promises.healed(cluster)
    monkeypatch.undo()
    assert cluster.until(lambda: len(cluster.exchanges) == 1, bounds.DISMISS_SECONDS)
    assert [each.info.number for each in cluster.exchanges] == [1]
    assert cluster.until(lambda: not promises.healed(cluster), 10.0)


def test_a_queue_that_grows_beyond_what_it_may_have_is_found() -> None:
    cluster = Cluster(1, Shape(limits=(("exchanges_max", 2),)))
    cluster.start(exchanges=2)
    (leader,) = cluster.leaders
    record = leader.machine.queues.demand(QUEUE).record
    for origin, broken in (
        ("manual", False),
        ("away", False),
        ("scaling", False),
        ("scaling", True),
    ):
        more = ExchangeRecord(number=record.next_number, host="10.0.0.1", origin=origin)
        if origin == "away":  # given by hand; the next one stands in for it
            more = msgspec.structs.replace(more, origin="manual", state="away")
        record = msgspec.structs.replace(
            record, next_number=record.next_number + 1, exchanges=(*record.exchanges, more)
        )
        cluster.watch.defined(record)
        assert bool(cluster.watch.broken) is broken
    assert "grows to 5 exchanges, of 4" in cluster.watch.broken[0]
