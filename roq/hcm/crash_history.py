"""How long to wait before a child that crashed is started again, and when to give up."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from roq.runtime.backoff import longest_wait


@dataclass(frozen=True, slots=True)
class CrashLimits:
    """When a child counts as failed.

    Attributes:
        most: so many crashes within the window, and it is not started again.
        window_seconds: older crashes are forgotten.
        first_seconds: delay after the second crash; it doubles with each further one.
        longest_seconds: the longest delay.
        settled_seconds: after it has run for so long a crash is like the first one again.
        served_seconds: one with a log on disk that has served for so long, and was killed then, is
            started again at once.
        killed_seconds: the longest delay of such a one.
    """

    most: int = 5
    window_seconds: float = 60.0
    first_seconds: float = 0.5
    longest_seconds: float = 10.0
    settled_seconds: float = 10.0
    served_seconds: float = 1.0
    killed_seconds: float = 1.0


class CrashHistory:
    """The crashes of one child that still count."""

    __slots__ = (
        "_early",
        "_killed",
        "_limits",
        "_refusals",
        "_refused_since",
        "_serves_since",
        "_started_at",
        "_times",
        "total",
    )

    def __init__(self, limits: CrashLimits) -> None:
        self._limits = limits
        self._started_at: float | None = None
        self._serves_since: float | None = None
        self._early = 0
        """Crashes in a row before it had settled."""
        self._killed = 0
        """Times in a row that it was killed before it had served."""
        self._refused_since: float | None = None
        self._refusals = 0
        self._times: deque[float] = deque(maxlen=limits.most)
        self.total = 0

    def crashed(self, now: float) -> float | None:
        """Take a crash in; gives the seconds to wait before the next start, None: give up."""
        self.total += 1
        while self._times and now - self._times[0] > self._limits.window_seconds:
            self._times.popleft()
        started, self._started_at, self._serves_since = self._started_at, None, None
        if not self._times or (
            started is not None and now - started >= self._limits.settled_seconds
        ):
            self._early = 0
        self._times.append(now)
        self._early += 1
        if len(self._times) >= self._limits.most:
            return None
        return 0.0 if self._early == 1 else self._delay(self._early - 1)

    @property
    def suspect(self) -> bool:
        """It has crashed more than once of late: it may draw others into its end."""
        return len(self._times) > 1

    def excused(self) -> None:
        """It has ended, and that says nothing about it."""
        self.total += 1
        self._started_at = self._serves_since = None

    @property
    def serving(self) -> bool:
        """Whether it has reported since it was started."""
        return self._serves_since is not None

    def killed(self, now: float) -> float:
        """It was ended, and nothing else can do its work: the seconds to wait, and never for long.

        It is not given up: who would ask for it again could only have it started here, too.
        """
        self.total += 1
        since, self._started_at, self._serves_since = self._serves_since, None, None
        served = since is not None and now - since >= self._limits.served_seconds
        self._killed = 0 if served else self._killed + 1
        limits = self._limits
        if self._killed < 2:
            return 0.0
        return longest_wait(self._killed - 1, limits.first_seconds, limits.killed_seconds)

    def refused(self, now: float) -> float | None:
        """The system could not start it, which is not its fault: seconds to wait, None: give up.

        It is tried again for as long as a crash counts.
        """
        if self._refused_since is None:
            self._refused_since, self._refusals = now, 0
        elif now - self._refused_since > self._limits.window_seconds:
            return None
        self._refusals += 1
        return self._delay(self._refusals)

    def started(self, now: float) -> None:
        """The system has started it."""
        self._started_at = now
        self._refused_since = None

    def serves(self, now: float) -> None:
        """It has reported for the first time since it was started."""
        self._serves_since = now

    def _delay(self, failures: int) -> float:
        return longest_wait(failures, self._limits.first_seconds, self._limits.longest_seconds)
