"""A job that was submitted, for the program that wants to know what becomes of it."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import Final, Generic, Protocol, TypeVar

from roq.errors import JobFailed, JobNotFound, Unavailable
from roq.jobs.rows import Body
from roq.jobs.states import ENDED, JobStatus
from roq.model import wait_seconds

R = TypeVar("R")
FIRST_LOOK_SECONDS: Final = 0.01
LAST_LOOK_SECONDS: Final = 0.5
"""Between two looks at the database; the pause grows from the first to the last."""


class Looker(Protocol):
    """What a handle asks of the jobs that it belongs to."""

    def status_of(self, job: int) -> tuple[JobStatus, str | None] | None:
        """Status and error of a job; None: there is none."""
        ...

    def result_of(self, job: int) -> Body | None:
        """The result of a job that is COMPLETE."""
        ...

    def wait_for_change(self, seconds: float) -> None:
        """Return after so many seconds, or when this process has ended runs."""
        ...


class JobHandle(Generic[R]):
    """A job that was submitted.

    Attributes:
        id: of the job; `roq jobs show` takes it.
        new: whether it was made by this call; False: `unique` found another one.
    """

    __slots__ = ("_decode", "_jobs", "id", "new")

    def __init__(
        self,
        jobs: Looker,
        id: int,
        decode: Callable[[Body | None], R],
        *,
        new: bool = True,
    ) -> None:
        self._jobs = jobs
        self._decode = decode
        self.id = id
        self.new = new

    def status(self) -> JobStatus:
        """Where it is in its life.

        Raises:
            JobNotFound: it was deleted.
            Unavailable: the database cannot be reached.
        """
        return self._look()[0]

    def wait(self, timeout: float | None = None) -> JobStatus:
        """Wait until it has ended; gives how.

        Args:
            timeout: seconds; None: without an end.

        Raises:
            Unavailable: it has not ended in time.
            JobNotFound: it was deleted.
        """
        deadline = None if timeout is None else monotonic() + wait_seconds(timeout)
        pause = FIRST_LOOK_SECONDS
        while True:
            status, _ = self._look()
            if status in ENDED:
                return status
            left = None if deadline is None else deadline - monotonic()
            if left is not None and left <= 0:
                raise Unavailable(f"job {self.id} is {status} after {timeout:g} s: `roq jobs show`")
            self._jobs.wait_for_change(pause if left is None else min(pause, left))
            pause = min(LAST_LOOK_SECONDS, pause * 1.5)

    def result(self, timeout: float | None = None) -> R:
        """Wait until it has ended; gives what its handler has returned.

        Raises:
            JobFailed: it has ended otherwise than COMPLETE; says how, and why.
            Unavailable, JobNotFound: as `wait`.
        """
        status = self.wait(timeout)
        if status is not JobStatus.COMPLETE:
            error = self._look()[1]
            raise JobFailed(f"job {self.id} is {status}: {error or 'no reason is known'}", status)
        return self._decode(self._jobs.result_of(self.id))

    def _look(self) -> tuple[JobStatus, str | None]:
        found = self._jobs.status_of(self.id)
        if found is None:
            raise JobNotFound(f"there is no job {self.id}; it was deleted, or not committed")
        return found

    def __repr__(self) -> str:
        return f"<roq.JobHandle {self.id}>"
