"""The course of the demo: cluster, queue, workers, verdict; everything in one loop.

STARTING -> CONNECTING -> RUNNING -> CHECKING -> DONE
    \\____________\\__________\\_________\\-> FAILED
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import roq
from roq.demo.corpus import Share
from roq.demo.lane import Lane
from roq.demo.latency import Histogram
from roq.demo.report import Comparison, Report, compare
from roq.demo.worker import Job
from roq.errors import RoQError, Unavailable
from roq.local.launcher import Launcher, StartFailed
from roq.local.part import Part
from roq.local.plan import Addresses
from roq.local.settings import ZOOKEEPER, LocalSettings
from roq.runtime.reactor import Reactor

QUEUE: Final = "standard-library"
STALL_SECONDS: Final = 20.0
"""So long nothing may move at all."""
CHECK_SECONDS: Final = 0.05


class Phase(StrEnum):
    """Where the demo is."""

    STARTING = "starting the cluster"
    CONNECTING = "connecting publishers and subscribers"
    CALM = "line by line, for the latency without load"
    RUNNING = "everything else, at full speed"
    CHECKING = "comparing what came out with what went in"
    DONE = "done"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class DemoOutcome:
    """What was measured; rates are of the full speed alone.

    Attributes:
        verdict: of everything.
        messages, bytes: published at full speed.
        subscribers: each received as many.
        seconds: from the first message published at full speed to the last one received.
        calm, full: creation to receipt, line by line and at full speed.
        lost, duplicates: as the subscribers counted.
    """

    verdict: Comparison
    messages: int
    bytes: int
    subscribers: int
    seconds: float
    calm: Histogram
    full: Histogram
    lost: int
    duplicates: int


class Demo:
    """One run.

    Args:
        reactor: its loop; stopped when the run is over and nothing of it is left.
        shares: what each publisher sends.
        subscribers: how many.
        hosts: how many; each gets an exchange.
        calm: lines that each publisher sends one by one first.
    """

    def __init__(
        self,
        reactor: Reactor,
        shares: Sequence[Share],
        *,
        subscribers: int = 2,
        hosts: int = 2,
        calm: int = 0,
    ) -> None:
        self.phase = Phase.STARTING
        self.addresses: Addresses | None = None
        self.exchanges: list[str] = []
        self.lanes: list[Lane] = []
        self.started = reactor.now()
        self.outcome: DemoOutcome | None = None
        self.failure: RoQError | None = None
        self._reactor = reactor
        self._shares = list(shares)
        self._subscribers = subscribers
        self._calm = calm
        self._before_full = (0, 0)
        self._moved = (0, reactor.now())
        self._launcher = Launcher(
            reactor,
            LocalSettings(hosts=hosts, registry=ZOOKEEPER, restart=False),
            on_ready=self._cluster_ready,
            on_failed=self._start_failed,
            on_part_ended=self._part_ended,
        )

    @property
    def total(self) -> int:
        """Messages to be published."""
        return sum(share.lines for share in self._shares)

    def now(self) -> float:
        """The clock of `started`, seconds."""
        return self._reactor.now()

    def start(self) -> None:
        """Begin.

        Raises:
            ConfigError: the cluster cannot be started like this.
        """
        self._launcher.start()

    def stop(self, failure: RoQError | None = None) -> None:
        """End the run early; the loop stops once nothing of it is left."""
        if self.phase in {Phase.DONE, Phase.FAILED}:
            return
        self.failure = failure
        self._over(Phase.FAILED)

    # --- the steps --------------------------------------------------------------------------------

    def _cluster_ready(self, addresses: Addresses) -> None:
        self.addresses = addresses
        self.phase = Phase.CONNECTING
        try:
            self._make_queue(addresses)
            self._start_workers(addresses)
        except RoQError as error:
            self.stop(error)

    def _make_queue(self, addresses: Addresses) -> None:
        first, *others = addresses.hosts
        with roq.connect(addresses.client) as cluster:
            # One exchange for each host, however much goes through them.
            cluster.create_queue(QUEUE, host=first, durability="none", limits={"exchanges_max": 1})
            for host in others:
                cluster.add_exchange(QUEUE, host)
            self.exchanges = [f"{row.name} on {row.host}" for row in cluster.exchanges(QUEUE)]

    def _start_workers(self, addresses: Addresses) -> None:
        jobs = [
            *(("publisher", share.lines, share) for share in self._shares),
            *(("subscriber", self.total, None) for _ in range(self._subscribers)),
        ]
        counts: dict[str, int] = {}
        assert self._launcher.folder is not None  # noqa: S101 - it has been started
        folder = self._launcher.folder.make("demo")
        for kind, total, share in jobs:
            counts[kind] = counts.get(kind, 0) + 1
            lane = Lane(
                self._reactor,
                f"{kind} {counts[kind]}",
                Job(address=addresses.client, queue=QUEUE, share=share, calm=self._calm),
                total=total,
                folder=folder,
                on_report=self._reported,
                on_end=self._lane_ended,
            )
            self.lanes.append(lane)

    def _reported(self, _lane: Lane, _report: Report) -> None:
        if self.phase is Phase.CONNECTING and all(lane.ready for lane in self.lanes):
            self.phase = Phase.CALM
            self._moved = (0, self._reactor.now())
            for lane in self._of(publishing=True):
                lane.go()
            self._watch()
        if self.phase is Phase.CHECKING and all(lane.finished for lane in self.lanes):
            self._conclude()

    def _watch(self) -> None:
        """Look whether a stretch is over, or nothing moves any more."""
        if self.phase not in {Phase.CALM, Phase.RUNNING}:
            return
        now = self._reactor.now()
        moved = sum(lane.messages for lane in self.lanes)
        if moved != self._moved[0]:
            self._moved = (moved, now)
        stalled = now - self._moved[1] > STALL_SECONDS
        if self.phase is Phase.CALM:
            self._watch_calm()
        else:
            self._watch_full(stalled)
        if stalled:
            self.stop(Unavailable(f"nothing has moved for {STALL_SECONDS:g} s{self._logs()}"))
        self._reactor.call_later(CHECK_SECONDS, self._watch)

    def _watch_calm(self) -> None:
        publishers = self._of(publishing=True)
        sent = sum(min(self._calm, share.lines) for share in self._shares)
        arrived = all(lane.messages >= sent for lane in self._of(publishing=False))
        if not (all(lane.calm for lane in publishers) and arrived):
            return
        self.phase = Phase.RUNNING
        # The byte counts of subscribers are exact here: nothing is under way.
        self._before_full = (sent, self._of(publishing=False)[0].bytes)
        for lane in [*self._of(publishing=False), *publishers]:
            lane.go()

    def _watch_full(self, stalled: bool) -> None:
        published = all(lane.finished for lane in self._of(publishing=True))
        arrived = all(lane.messages >= self.total for lane in self._of(publishing=False))
        if published and (arrived or stalled):
            self.phase = Phase.CHECKING
            for lane in self._of(publishing=False):
                lane.end()

    def _conclude(self) -> None:
        sent = [f for lane in self._of(publishing=True) if (f := lane.finished)]
        got = [f for lane in self._of(publishing=False) if (f := lane.finished)]
        calm, full = Histogram(), Histogram()
        for report in got:
            calm.merge(Histogram(report.calm_latency))
            full.merge(Histogram(report.latency))
        first = min((report.first for report in sent if report.first), default=0.0)
        last = max((report.last for report in got), default=0.0)
        streams = [stream for report in sent for stream in report.streams]
        self.outcome = DemoOutcome(
            verdict=compare(sent, got),
            messages=sum(stream.messages for stream in streams) - self._before_full[0],
            bytes=sum(stream.bytes for stream in streams) - self._before_full[1],
            subscribers=len(got),
            seconds=max(last - first, 1e-9),
            calm=calm,
            full=full,
            lost=sum(report.lost for report in got),
            duplicates=sum(report.duplicates for report in got),
        )
        self._over(Phase.DONE)

    # --- ends -------------------------------------------------------------------------------------

    def _lane_ended(self, lane: Lane) -> None:
        if lane.finished is None and self.phase is not Phase.FAILED:
            self.stop(Unavailable(f"{lane.name} has ended{self._logs(lane)}"))

    def _start_failed(self, error: StartFailed) -> None:
        self.failure = error
        self.phase = Phase.FAILED
        self._finish()

    def _part_ended(self, part: Part) -> None:
        self.stop(Unavailable(f"{part.name} {part.end_text()}: {part.last_words()}"))

    def _over(self, phase: Phase) -> None:
        self.phase = phase
        for lane in self.lanes:
            lane.close()
        self._launcher.stop(self._finish)

    def _finish(self) -> None:
        self._reactor.stop()

    def _of(self, *, publishing: bool) -> list[Lane]:
        return [lane for lane in self.lanes if lane.publishes is publishing]

    def _logs(self, lane: Lane | None = None) -> str:
        lanes = [lane] if lane is not None else self.lanes
        texts = [each.log_path.read_text(errors="replace").strip() for each in lanes]
        return "".join(f"\n{text[-2_000:]}" for text in texts if text)
