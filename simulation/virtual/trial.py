"""One trial: a cluster works, things go wrong, things are put right, and it is all looked at.

a cluster comes up -> troubles for some seconds -> all is mended -> it must heal, in time
-> newcomers must find their place -> everything that was accepted must arrive
"""

from __future__ import annotations

import traceback
from collections.abc import Collection
from dataclasses import dataclass, replace
from random import Random
from typing import Final

import msgspec

from roq.errors import Unavailable
from roq.model import ASYNC, VOLATILE
from roq.simulation.virtual import promises, troubles
from roq.simulation.virtual.bounds import heal_seconds
from roq.simulation.virtual.cluster import Cluster, Shape
from roq.simulation.virtual.load import Profile
from roq.simulation.virtual.lookout import Lookout
from roq.simulation.virtual.promises import Happened
from roq.simulation.virtual.troubles import Trouble, Troubles

JOIN_SECONDS: Final = 20.0
NEWCOMER_SECONDS: Final = 20.0
SETTLE_SECONDS: Final = 60.0
QUIET_SECONDS: Final = 2.5
GOES_ON_SECONDS: Final = 1.5
MORE_SHARE: Final = 0.5
ORPHAN_SECONDS: Final = 3.5
RESTLESS: Final = 0.7
TIGHT_SHARE: Final = 0.3
PATIENT: Final = 0.6
NARROW_SHARE: Final = 0.2
"""The part of the seeds with short queues between exchanges and clients."""
CROWDED: Final = (("throughput_bytes", 60_000), ("exchanges_max", 3))
"""Limits with which publishers are moved, and exchanges come and go."""
TIGHT: Final = (("ring_bytes", 1 << 16),)
"""Limits with which an exchange keeps what these send for less than a second:"""
LARGE: Final = Profile(rate=12.0, messages=(1, 4), size=(1_000, 5_000), topics=("a", "b"))
SPARSE: Final = Profile(rate=0.4, messages=(1, 2), size=(0, 20), topics=("a",))
"""What is lost of these does not show by what comes next."""
PROFILE: Final = Profile(rate=12.0, messages=(1, 4), size=(0, 60), topics=("a", "b"))


class Result(msgspec.Struct):
    """What came of one trial.

    Attributes:
        broken: one sentence for each promise that was broken.
        troubles: what happened, by kind.
        checked: promises that were looked at, and how often.
        heal_seconds: from the end of the troubles until all was well, virtual.
        heal_bound: what was promised for that.
        counted_lost: messages that subscribers have reported as lost, and may.
        unpromised: messages that did not arrive, that were not promised: their
            publisher died with them in its hands.
        seconds: of the whole trial, virtual.
        checksum: the same for the same history: when anything happened, and who got what.
    """

    seed: int
    broken: list[str] = []
    troubles: dict[str, int] = {}
    checked: dict[str, int] = {}
    sent: int = 0
    received: int = 0
    counted_lost: int = 0
    unpromised: int = 0
    heal_seconds: float = 0.0
    heal_bound: float = 0.0
    seconds: float = 0.0
    checksum: str = ""


@dataclass(frozen=True, slots=True)
class Case:
    """What is tried.

    Attributes:
        profile: of what they publish.
        sparse: so many publishers more, who publish a few times in all.
        patient: waits until those who died must have been forgotten.
        seconds: troubles begin within this time.
        plan: the troubles.
        members: of a consumer group; 0: there is none.
        requesters, services: that make requests, and the instances that run them.
    """

    seed: int
    shape: Shape
    exchanges: int
    publishers: int
    profile: Profile
    sparse: int
    patient: bool
    subscribers: int
    seconds: float
    plan: list[Trouble]
    members: int = 0
    requesters: int = 0
    services: int = 0

    @classmethod
    def draw(
        cls,
        seed: int,
        only: Collection[str] = (),
        without: Collection[str] = (),
        durability: str = VOLATILE,
        *,
        shared: bool = False,
        asked: bool = False,
    ) -> Case:
        """By chance, from a seed; see `troubles.draw`."""
        random = Random(f"case of {seed}")
        seconds = random.choice([3.0, 6.0, 10.0])
        shape = Shape(
            managers=random.choice([1, 2, 2, 3]),
            hosts=random.choice([1, 2, 3, 3]),
            session_seconds=random.choice([1.5, 3.0, 6.0]),
            delay_seconds=random.choice([(0.0002, 0.002), (0.0002, 0.002), (0.001, 0.03)]),
            clock_rates=random.choice([0.0, 0.01]),
            limits=random.choice([(), (("window_batches", 4),), CROWDED]),
        )
        exchanges = random.randint(1, 3)
        sparse, patient, profile = 0, False, PROFILE
        more = Random(f"rest of {seed}")
        # With chance of its own, so that the histories of other seeds stay as they were.
        if more.random() < MORE_SHARE:
            shape = replace(
                shape,
                orphan_seconds=more.choice([60.0, ORPHAN_SECONDS]),
                restless=more.random() < RESTLESS,
            )
            sparse = more.randint(0, 1)
            if more.random() < TIGHT_SHARE:
                shape, profile = replace(shape, limits=TIGHT), LARGE
            patient = more.random() < PATIENT
        narrow = Random(f"narrow ways of {seed}")
        if narrow.random() < NARROW_SHARE:
            ahead, queue = narrow.choice([4_000, 16_000]), narrow.choice([8, 40, 200])
            shape = replace(shape, ahead_bytes=ahead, queue_max=queue)
        disks = Random(f"disks of {seed}")
        shape = replace(
            shape,
            durability=durability,
            disk_seconds=disks.choice([shape.disk_seconds, shape.disk_seconds, (0.001, 0.1)]),
        )
        group = Random(f"group of {seed}")
        shape = replace(shape, mode=group.choice(["shared", "shared", "exclusive"]))
        asks = Random(f"requests of {seed}")
        if asked:
            shape = replace(shape, topics=PROFILE.topics)
        frail = shared or asked
        if frail and durability == ASYNC:
            # What was done, or had ended, may be taken back as well, so there is little to judge.
            without = {*without, *troubles.POWERLESS}
        return cls(
            seed=seed,
            shape=shape,
            exchanges=exchanges,
            publishers=random.randint(1, 3),
            profile=profile,
            sparse=sparse,
            patient=patient,
            subscribers=random.randint(1, 2),
            seconds=seconds,
            plan=troubles.draw(seed, seconds, only, without, durable=shape.durable, shared=frail),
            members=group.randint(2, 4) if shared else 0,
            requesters=asks.randint(1, 2) if asked else 0,
            services=asks.randint(1, 3) if asked else 0,
        )


class Trial:
    """Runs one case.

    Args:
        traced: remember what happens.
    """

    def __init__(self, case: Case, *, traced: bool = False) -> None:
        self.case = case
        self.cluster = Cluster(case.seed, case.shape)
        self._cut_off = 0.0
        if traced:
            self.cluster.world.trace = []

    def run(self) -> Result:
        """Run it to its end, and judge."""
        cluster, result = self.cluster, Result(self.case.seed)
        began = cluster.world.now
        try:
            self._run(result)
        except Unavailable as error:
            result.broken.append(f"stuck: {error}")
        except Exception:  # noqa: BLE001 - whatever it is, the seed must be told
            result.broken.append(f"the trial ended by an exception: {traceback.format_exc()}")
        ended = not result.broken
        what = Happened(result.troubles, self._cut_off)
        result.broken += promises.broken(cluster, what, ended=ended)
        verdict = cluster.history.check()
        result.sent, result.received = verdict.sent, verdict.received
        result.counted_lost = verdict.counted_lost
        result.unpromised = verdict.total("excused")
        result.checked = dict(cluster.watch.checked)
        result.seconds = cluster.world.now - began
        result.checksum = f"{cluster.world.checksum}-{cluster.history.checksum}"
        return result

    def _run(self, result: Result) -> None:
        cluster, case = self.cluster, self.case
        cluster.start(case.exchanges)
        for _ in range(case.subscribers):
            self._join()
        for _ in range(case.members):
            cluster.add_member()
        for _ in range(case.services):
            cluster.add_service()
        if not cluster.until(lambda: not promises.not_joined(cluster), JOIN_SECONDS):
            raise Unavailable(promises.not_joined(cluster))
        for profile in [case.profile] * case.publishers + [SPARSE] * case.sparse:
            cluster.add_publisher(profile)
        for _ in range(case.requesters):
            cluster.add_requester()
        cluster.world.run(0.5)
        cluster.watch.all_is_well()
        wrong = Troubles(cluster, case.plan)
        Lookout(cluster)
        cluster.world.run(case.seconds)
        wrong.end()
        result.troubles = dict(wrong.happened)
        self._cut_off = wrong.cut_off
        cluster.world.note("trial", "everything is mended")
        mended_at = cluster.world.now
        result.heal_bound = heal_seconds(result.troubles, case.shape.session_seconds)
        self._wait_until_healed(result.heal_bound)
        result.heal_seconds = cluster.world.now - mended_at
        cluster.watch.asking.healed_at = cluster.world.now
        self._newcomers()
        self._settle()
        if case.patient:
            cluster.world.run(promises.FORGOTTEN_SECONDS)

    def _join(self) -> None:
        subscriber = self.cluster.add_subscriber()
        if not self.cluster.until(lambda: subscriber.confirmed, JOIN_SECONDS):
            raise Unavailable(f"{subscriber.process.name} did not come in force: {subscriber.why}")

    def _wait_until_healed(self, seconds: float) -> None:
        cluster = self.cluster
        cluster.watch.checked["all heals when nothing goes wrong any more"] += 1
        end = cluster.world.now + seconds
        while promises.healed(cluster):
            if cluster.world.now >= end:
                raise Unavailable(f"{seconds:g} s later {promises.healed(cluster)}")
            cluster.world.run(0.25)

    def _newcomers(self) -> None:
        cluster = self.cluster
        cluster.watch.checked["newcomers find their place"] += 1
        subscriber = cluster.add_subscriber(from_first=True)
        publisher = cluster.add_publisher(PROFILE)
        if self.case.members:
            cluster.add_member()
        if self.case.services:
            cluster.add_service()
            cluster.add_requester()
        if not cluster.until(lambda: subscriber.confirmed, NEWCOMER_SECONDS):
            raise Unavailable(f"a new subscriber is not in force: {subscriber.why}")
        if not cluster.until(lambda: publisher.attached, NEWCOMER_SECONDS):
            raise Unavailable(f"a new publisher is not attached: {publisher.why}")
        cluster.world.run(GOES_ON_SECONDS)

    def _settle(self) -> None:
        """Everything that was accepted arrives; the last message of each stream shows it."""
        cluster = self.cluster
        cluster.watch.checked["everything that was accepted is acknowledged"] += 1
        living = [each for each in cluster.publishers if each.process.alive]
        for publisher in living:
            publisher.user.stop()
        for requester in cluster.requesters:
            requester.stop()
        if not cluster.until(lambda: all(each.settled for each in living), SETTLE_SECONDS):
            stuck = next(each for each in living if not each.settled)
            raise Unavailable(f"{stuck.process.name} is not done: {stuck.why}")
        cluster.world.run(QUIET_SECONDS)
        readers = [each for each in cluster.subscribers if each.process.alive]
        if not cluster.until(lambda: not any(each.waits for each in readers), SETTLE_SECONDS):
            stuck_reader = next(each for each in readers if each.waits)
            raise Unavailable(f"{stuck_reader.process.name} waits for what does not come")
        done = -1
        while not cluster.until(lambda: promises.not_done(cluster) is None, SETTLE_SECONDS):
            before, done = done, promises.work_done(cluster)
            if done <= before:
                why = promises.not_done(cluster)
                raise Unavailable(why() if why is not None else "nothing, as it seems")
        if self.case.requesters:
            self._ask_by_ids()

    def _ask_by_ids(self) -> None:
        """Somebody else asks how each request has ended."""
        cluster, finder = self.cluster, self.cluster.requesters[-1]
        asked = [
            (each, *pending.at)
            for each in cluster.watch.asking.asked.values()
            if (pending := each.pending) is not None and pending.at is not None
        ]
        found = [(each, log, finder.find(log, at)) for each, log, at in asked]
        if not cluster.until(lambda: all(each.done() for _, _, each in found), SETTLE_SECONDS):
            stuck = next(each for _, _, each in found if not each.done())
            raise Unavailable(f"nobody says how {stuck} has ended")
        cluster.world.run(QUIET_SECONDS)  # one that was stopping meanwhile has gone then
        serving = {each.info.log for each in cluster.exchanges}
        for each, log, pending in found:
            cluster.watch.asking.look_again(each, pending, there=log in serving)
