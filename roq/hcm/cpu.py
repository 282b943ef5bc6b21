"""Whether this host gets the processor that it needs, and how patient that makes its manager.

    throttled    most periods of its quota end before its processes are done
    late         the manager itself does not get its turns in time, again and again
    waiting      most of the time a process of this machine waits for a processor

Each of them makes the manager patient: a child that gets no processor looks like one that hangs.
The first two also mean that the host gets too little of it, which is told if it lasts.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final

from roq.timing import CHILD_START_STRETCH

THROTTLED_SHARE: Final = 0.5
PERIODS_MIN: Final = 3
"""Fewer say nothing."""
WAITING_SHARE: Final = 0.6
LATE_SECONDS: Final = 0.25
LATE_SHARE: Final = 0.3
LATE_TURNS: Final = 2
"""One late turn may be a pause of the whole machine."""
WINDOW_SECONDS: Final = 5.0
SAMPLES_MAX: Final = 64
HOLD_SECONDS: Final = 5.0
"""Children need a moment to make good for what they missed."""
TOLD_SECONDS: Final = 5.0
"""A shortage is told if it lasts for so long."""
STRETCH_SECONDS: Final = 60.0
"""A stretched budget is no longer than this on top."""
SILENCE_SECONDS: Final = 30.0
"""How much longer a child may be silent."""
JUDGE_SECONDS: Final = 10.0
"""Between two children that are given up while the host is short of processor, unless the first
one runs again."""


@dataclass(frozen=True, slots=True)
class CpuSample:
    """What the system says at one moment; None: it does not say.

    Attributes:
        late: seconds by which the manager's own turn came too late.
        waited_us: how long any process has waited for a processor since the machine runs.
        periods: of the quota in which something ran, so far.
        throttled: periods that ended before everything was done.
    """

    late: float = 0.0
    waited_us: int | None = None
    periods: int | None = None
    throttled: int | None = None


@dataclass(slots=True)
class _Shares:
    throttled: float = 0.0
    waiting: float = 0.0
    late: float = 0.0
    turns: int = 0

    @property
    def short(self) -> bool:
        return self.throttled >= THROTTLED_SHARE or (
            self.turns >= LATE_TURNS and self.late >= LATE_SHARE
        )


class HostCpu:
    """Takes samples in, and says how patient to be."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, CpuSample]] = deque(maxlen=SAMPLES_MAX)
        self._shares = _Shares()
        self._patient_until: float | None = None
        self._short_since: float | None = None
        self._short_until = 0.0
        self._judged: tuple[str, float] | None = None

    def take(self, sample: CpuSample, now: float) -> None:
        """One more sample; they come about twice a second."""
        samples = self._samples
        # One stays: between two turns of a manager that is hardly run there may be more time.
        while len(samples) > 1 and now - samples[0][0] > WINDOW_SECONDS:
            samples.popleft()
        if not samples:
            samples.append((now, sample))
            return
        self._shares = self._measured(sample, now)
        samples.append((now, sample))
        if self._shares.short:
            self._short_since = now if self._short_since is None else self._short_since
            self._short_until = now + HOLD_SECONDS
        elif now >= self._short_until:
            self._short_since = None
        if self._shares.short or self._shares.waiting >= WAITING_SHARE:
            self._patient_until = now + HOLD_SECONDS

    def patient(self, now: float) -> bool:
        """Whether children may just not get their turn."""
        return self._patient_until is not None and now < self._patient_until

    def short(self, now: float) -> bool:
        """Whether this host gets too little processor, and not only for a moment."""
        since = self._short_since
        return since is not None and now < self._short_until and now - since >= TOLD_SECONDS

    def stretched(self, seconds: float, now: float) -> float:
        """How long a budget of so many seconds is now."""
        if not self.patient(now):
            return seconds
        return min(CHILD_START_STRETCH * seconds, seconds + STRETCH_SECONDS)

    def silence(self, now: float) -> float:
        """How much longer than usual a child may be silent now."""
        return SILENCE_SECONDS if self.patient(now) else 0.0

    def may_judge(self, now: float) -> bool:
        """Whether a child may be given up now: one at a time while there is a shortage."""
        if self._judged is None or not self.patient(now):
            return True
        return now - self._judged[1] >= JUDGE_SECONDS

    def judged(self, child: str, now: float) -> None:
        """This child has been given up."""
        self._judged = (child, now)

    def back(self, child: str) -> None:
        """This child runs."""
        if self._judged is not None and self._judged[0] == child:
            self._judged = None

    def text(self) -> str:
        """What is measured, in a sentence."""
        shares = self._shares
        found = []
        if shares.throttled > 0:
            found.append(f"its quota ends early in {shares.throttled:.0%} of the periods")
        if shares.waiting > 0:
            found.append(f"something waits for a processor {shares.waiting:.0%} of the time")
        if shares.late > 0:
            found.append(f"its manager is late {shares.late:.0%} of the time")
        return "; ".join(found) or "nothing waits for a processor"

    def _measured(self, sample: CpuSample, now: float) -> _Shares:
        window = [*self._samples, (now, sample)]
        begun, first = window[0]
        seconds = max(now - begun, 1e-9)
        shares = _Shares(
            throttled=self._throttled(sample),
            turns=sum(each.late >= LATE_SECONDS for _, each in window),
            late=min(1.0, sum(each.late for _, each in window if each.late >= LATE_SECONDS)
                     / max(seconds, WINDOW_SECONDS)),
        )  # fmt: skip
        if sample.waited_us is not None and first.waited_us is not None and seconds >= 1.0:
            waited = (sample.waited_us - first.waited_us) / 1e6
            shares.waiting = max(0.0, min(1.0, waited / seconds))
        return shares

    def _throttled(self, sample: CpuSample) -> float:
        """Of the newest periods that are enough to say anything."""
        if sample.periods is None or sample.throttled is None:
            return 0.0
        for _, each in reversed(self._samples):
            if each.periods is None or each.throttled is None:
                return 0.0
            periods = sample.periods - each.periods
            if periods >= PERIODS_MIN:
                return max(0.0, min(1.0, (sample.throttled - each.throttled) / periods))
        return 0.0
