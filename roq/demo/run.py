"""The course of the demo: cluster, queue, workers, verdict; everything in one loop.

STARTING -> CONNECTING -> RUNNING -> CHECKING -> DONE
    \\____________\\__________\\_________\\-> FAILED
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

import roq
from roq.demo.corpus import Share
from roq.demo.lane import Lane
from roq.demo.latency import Histogram
from roq.demo.report import Finished, Report
from roq.demo.verdict import Verdict, compare
from roq.demo.worker import Job
from roq.errors import RoQError, Unavailable
from roq.local.launcher import Addresses, Launcher, StartFailed
from roq.local.part import Part
from roq.local.settings import Settings
from roq.runtime.reactor import Reactor

QUEUE: Final = "standard-library"
STALL_SECONDS: Final = 20.0
"""So long nothing may move at all."""
CHECK_SECONDS: Final = 0.05


class Phase(StrEnum):
    """Where the demo is."""

    STARTING = "starting the cluster"
    CONNECTING = "connecting publishers and subscribers"
    RUNNING = "publishing and receiving"
    CHECKING = "comparing what came out with what went in"
    DONE = "done"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was measured."""

    verdict: Verdict
    published: int
    published_bytes: int
    received: int
    received_bytes: int
    seconds: float
    """From the first message published to the last one received."""
    latency: Histogram
    lost: int
    duplicates: int


class Demo:
    """One run.

    Args:
        reactor: its loop; stopped when the run is over and nothing of it is left.
        shares: what each publisher sends.
        subscribers: how many.
        hosts: how many; each gets an exchange.
    """

    def __init__(
        self,
        reactor: Reactor,
        shares: Sequence[Share],
        *,
        subscribers: int = 2,
        hosts: int = 2,
    ) -> None:
        self.phase = Phase.STARTING
        self.addresses: Addresses | None = None
        self.exchanges: list[str] = []
        self.lanes: list[Lane] = []
        self.started = reactor.now()
        self.running_since: float | None = None
        self.outcome: Outcome | None = None
        self.failure: RoQError | None = None
        self._reactor = reactor
        self._shares = list(shares)
        self._subscribers = subscribers
        self._folder = tempfile.TemporaryDirectory(prefix="roq-demo-")
        self._moved = (0, reactor.now())
        self._launcher = Launcher(
            reactor,
            Settings(hosts=hosts),
            on_ready=self._cluster_ready,
            on_failed=self._start_failed,
            on_part_ended=self._part_ended,
        )

    @property
    def total(self) -> int:
        """Messages to be published."""
        return sum(share.lines for share in self._shares)

    def now(self) -> float:
        """The clock of `started` and `running_since`, seconds."""
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
            cluster.create_queue(QUEUE, host=first)
            for host in others:
                cluster.add_exchange(QUEUE, host)
            self.exchanges = [f"{row.name} on {row.host}" for row in cluster.exchanges(QUEUE)]

    def _start_workers(self, addresses: Addresses) -> None:
        jobs = [
            *(("publisher", share.lines, share) for share in self._shares),
            *(("subscriber", self.total, None) for _ in range(self._subscribers)),
        ]
        counts: dict[str, int] = {}
        for kind, total, share in jobs:
            counts[kind] = counts.get(kind, 0) + 1
            lane = Lane(
                self._reactor,
                f"{kind} {counts[kind]}",
                Job(address=addresses.client, queue=QUEUE, share=share),
                total=total,
                folder=Path(self._folder.name),
                on_report=self._reported,
                on_end=self._lane_ended,
            )
            self.lanes.append(lane)

    def _reported(self, _lane: Lane, _report: Report) -> None:
        if self.phase is Phase.CONNECTING and all(lane.ready for lane in self.lanes):
            self.phase = Phase.RUNNING
            self.running_since = self._reactor.now()
            self._moved = (0, self._reactor.now())
            for lane in self._of(publishing=True):
                lane.go()
            self._watch()
        if self.phase is Phase.CHECKING and all(lane.finished for lane in self.lanes):
            self._conclude()

    def _watch(self) -> None:
        """Look whether all has arrived, or nothing moves any more."""
        if self.phase is not Phase.RUNNING:
            return
        now = self._reactor.now()
        moved = sum(lane.messages for lane in self.lanes)
        if moved != self._moved[0]:
            self._moved = (moved, now)
        published = all(lane.finished for lane in self._of(publishing=True))
        arrived = all(lane.messages >= self.total for lane in self._of(publishing=False))
        stalled = now - self._moved[1] > STALL_SECONDS
        if (published and arrived) or (published and stalled):
            self.phase = Phase.CHECKING
            for lane in self._of(publishing=False):
                lane.end()
            return
        if stalled:
            self.stop(Unavailable(f"nothing has moved for {STALL_SECONDS:g} s{self._logs()}"))
            return
        self._reactor.call_later(CHECK_SECONDS, self._watch)

    def _conclude(self) -> None:
        sent = [f for lane in self._of(publishing=True) if (f := lane.finished)]
        got = [f for lane in self._of(publishing=False) if (f := lane.finished)]
        self.outcome = _outcome(sent, got)
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
        self._folder.cleanup()
        self._reactor.stop()

    def _of(self, *, publishing: bool) -> list[Lane]:
        return [lane for lane in self.lanes if lane.publishes is publishing]

    def _logs(self, lane: Lane | None = None) -> str:
        lanes = [lane] if lane is not None else self.lanes
        texts = [each.log_path.read_text(errors="replace").strip() for each in lanes]
        return "".join(f"\n{text[-2_000:]}" for text in texts if text)


def _outcome(sent: Sequence[Finished], got: Sequence[Finished]) -> Outcome:
    latency = Histogram()
    for report in got:
        latency.merge(Histogram(report.latency))
    first = min((report.first for report in sent if report.first), default=0.0)
    last = max((report.last for report in got), default=0.0)
    return Outcome(
        verdict=compare(sent, got),
        published=_messages(sent),
        published_bytes=_bytes(sent),
        received=_messages(got),
        received_bytes=_bytes(got),
        seconds=max(last - first, 1e-9),
        latency=latency,
        lost=sum(report.lost for report in got),
        duplicates=sum(report.duplicates for report in got),
    )


def _messages(reports: Sequence[Finished]) -> int:
    return sum(stream.messages for report in reports for stream in report.streams)


def _bytes(reports: Sequence[Finished]) -> int:
    return sum(stream.bytes for report in reports for stream in report.streams)
