"""What becomes of a job: its statuses, how a run may end, and what follows from that. Pure.

Every end of a run goes through `after`, whoever saw it: the instance that ran the job, another one
that found the owner dead, or an operator. The database does what is decided here, under the token
that the run was claimed with, so a decision that comes too late changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from roq.machine import Transitions
from roq.runtime.backoff import longest_wait

HIGH: Final = 10
DEFAULT: Final = 100
LOW: Final = 1000
PRIORITIES: Final[Mapping[str, int]] = {"high": HIGH, "default": DEFAULT, "low": LOW}
"""The lower number goes first."""

RETRIES: Final = 2
"""So often is a job tried again after an exception, or a time limit."""
LOSSES_MAX: Final = 10
"""So often is a job started again because its owner died: what kills each process is the job."""
RETRY_SECONDS: Final = 1.0
RETRY_SECONDS_MAX: Final = 60.0
TIME_LIMIT_SECONDS: Final = 600.0
SHORT_SECONDS: Final = 0.01
"""Jobs that take less are short: several may wait for one thread."""


class JobStatus(StrEnum):
    """Where a job is in its life."""

    CREATED = "CREATED"
    """It waits: for its turn, a time, other jobs or others of its key."""
    RUNNING = "RUNNING"
    """One instance runs it, under the token of the row."""
    COMPLETE = "COMPLETE"
    INTERRUPTED = "INTERRUPTED"
    """It was stopped, or its owner died, and it is not restartable. Kept."""
    FAILED = "FAILED"
    """It raised too often, or cannot be run at all. Kept until somebody acts."""
    TIMED_OUT = "TIMED_OUT"
    """It took longer than its type allows, too often. Kept."""


class HeldFor(StrEnum):
    """Why a job that waits may not be claimed yet."""

    NO = ""
    LATER = "later"
    """Until the time `due`."""
    PARENTS = "parents"
    """Until the jobs that it waits for are COMPLETE."""
    KEY = "key"
    """Until no other job of its type and key waits in front of it or runs."""


class RunEnd(StrEnum):
    """How a run has ended."""

    DONE = "done"
    RAISED = "raised"
    REFUSED = "refused"
    """It was not begun: its params cannot be read."""
    STOPPED = "stopped"
    """Its instance was told to end."""
    UNSTARTED = "unstarted"
    """It was claimed, and never had a thread: its instance ends, or had none for too long."""
    INTERRUPTED = "interrupted"
    """An operator wanted that."""
    LIMIT = "limit"
    """It took longer than its type allows."""
    LOST = "lost"
    """Its owner is dead."""


class StaleReason(StrEnum):
    """Why a message of a queue has claimed nothing."""

    RUNNING = "running"
    """Its job runs: this message, or another one about it, has come twice."""
    ENDED = "ended"
    OUTDATED = "outdated"
    """Its job waits to run again, and has another message."""
    HELD = "held"
    """Its job waits for a time, for others, or for its turn."""
    GONE = "gone"
    """Its job was deleted."""
    CHANGED = "changed"
    """Its job may be claimed by now: what kept it has ended meanwhile. It gets another message."""


LIFE: Final = Transitions[JobStatus](
    begin={JobStatus.CREATED: "submitted, or a schedule fired"},
    follow={
        JobStatus.CREATED: {
            JobStatus.RUNNING: "an instance claims it by its token",
        },
        JobStatus.RUNNING: {
            JobStatus.COMPLETE: "its handler returned",
            JobStatus.CREATED: "it is restartable, and raised, was stopped, lost or too slow",
            JobStatus.INTERRUPTED: "an operator interrupts it; stopped or lost, not restartable",
            JobStatus.FAILED: "it raised or was lost too often; not restartable; unreadable params",
            JobStatus.TIMED_OUT: "it was too slow, too often or not restartable",
        },
        JobStatus.INTERRUPTED: {JobStatus.CREATED: "an operator restarts it"},
        JobStatus.FAILED: {JobStatus.CREATED: "an operator restarts it"},
        JobStatus.TIMED_OUT: {JobStatus.CREATED: "an operator restarts it"},
    },
    end={
        JobStatus.CREATED: "an operator deletes it",
        JobStatus.COMPLETE: "it is older than results are kept, or an operator deletes it",
        JobStatus.INTERRUPTED: "an operator deletes it",
        JobStatus.FAILED: "an operator deletes it",
        JobStatus.TIMED_OUT: "an operator deletes it",
    },
)
"""A job's life; each step that leaves RUNNING, or leads back to CREATED, makes a new token."""

ENDED: Final = frozenset(JobStatus) - {JobStatus.CREATED, JobStatus.RUNNING}


@dataclass(frozen=True, slots=True)
class Attempts:
    """How often a job has failed, by kind."""

    failures: int = 0
    timeouts: int = 0
    losses: int = 0


@dataclass(frozen=True, slots=True)
class AfterRun:
    """What becomes of a job whose run has ended.

    Attributes:
        status: the next one.
        attempts: with this run.
        delay: seconds until it may be claimed again, of one that is CREATED.
    """

    status: JobStatus
    attempts: Attempts
    delay: float = 0.0


def after(
    end: RunEnd,
    attempts: Attempts,
    *,
    restartable: bool,
    jitter: Callable[[], float],
    retries: int = RETRIES,
) -> AfterRun:
    """What becomes of a job.

    Args:
        end: how its run has ended.
        attempts: before this run.
        restartable: whether it may be run again by itself.
        jitter: spreads the waits, see `roq.runtime.backoff`.
        retries: how often it is tried again.
    """
    verdict = _after(end, attempts, restartable, jitter, retries)
    LIFE.step(JobStatus.RUNNING, verdict.status)
    return verdict


def _after(  # noqa: PLR0911 - a line for each way to end
    end: RunEnd, had: Attempts, restartable: bool, jitter: Callable[[], float], retries: int
) -> AfterRun:
    match end:
        case RunEnd.DONE:
            return AfterRun(JobStatus.COMPLETE, had)
        case RunEnd.UNSTARTED:
            # Nothing of it was run, so it does not matter whether it may be run twice.
            return AfterRun(JobStatus.CREATED, had)
        case RunEnd.INTERRUPTED:
            return AfterRun(JobStatus.INTERRUPTED, had)
        case RunEnd.STOPPED:
            return AfterRun(JobStatus.CREATED if restartable else JobStatus.INTERRUPTED, had)
        case RunEnd.REFUSED:
            return AfterRun(JobStatus.FAILED, _counted(had, failures=1))
        case RunEnd.RAISED:
            now = _counted(had, failures=1)
            again = restartable and now.failures <= retries
            return _again(now, now.failures, jitter) if again else AfterRun(JobStatus.FAILED, now)
        case RunEnd.LIMIT:
            now = _counted(had, timeouts=1)
            again = restartable and now.timeouts <= retries
            return (
                _again(now, now.timeouts, jitter) if again else AfterRun(JobStatus.TIMED_OUT, now)
            )
        case RunEnd.LOST:
            now = _counted(had, losses=1)
            if not restartable:
                return AfterRun(JobStatus.INTERRUPTED, now)
            many = now.losses > LOSSES_MAX
            return AfterRun(JobStatus.FAILED if many else JobStatus.CREATED, now)


def why_stale(token: int, row: tuple[JobStatus, int, HeldFor] | None) -> StaleReason:
    """Why a message about a job with this token has claimed nothing.

    Args:
        token: that the message brought.
        row: status, token and `held` of the job; None: there is none.
    """
    if row is None:
        return StaleReason.GONE
    status, current, held = row
    if status in ENDED:
        return StaleReason.ENDED
    if status is JobStatus.RUNNING:
        return StaleReason.RUNNING
    if token != current:
        return StaleReason.OUTDATED
    return StaleReason.HELD if held else StaleReason.CHANGED


def _counted(had: Attempts, failures: int = 0, timeouts: int = 0, losses: int = 0) -> Attempts:
    return Attempts(had.failures + failures, had.timeouts + timeouts, had.losses + losses)


def _again(attempts: Attempts, failed: int, jitter: Callable[[], float]) -> AfterRun:
    """Between half of the longest wait and all of it: never at once, and not all together."""
    longest = longest_wait(failed, RETRY_SECONDS, RETRY_SECONDS_MAX)
    return AfterRun(JobStatus.CREATED, attempts, longest * (0.5 + jitter() / 2))


@dataclass(frozen=True, slots=True)
class Waiting:
    """What is known of a job that waits, to say why.

    Attributes:
        type: name of its type.
        held: as in its row.
        seconds_to_due: until it is due; of one that is held for `later`.
        parents: jobs that it waits for.
        failed_parents: those of them that have ended otherwise than COMPLETE.
        key: its key.
        instances: living instances that run its type.
        all_on, type_on: whether jobs, and this type, are switched on.
        limit: threads of the type in the whole cluster; None: as many as there are.
        rate: jobs of the type that may begin in a second, if no more may begin now.
        slots: of the limit that instances hold, mostly for jobs that run.
        ahead: whether another one of the type is before it.
    """

    type: str
    held: HeldFor
    seconds_to_due: float
    parents: int
    failed_parents: tuple[int, ...]
    key: str | None
    instances: int
    all_on: bool
    type_on: bool
    limit: int | None
    slots: int
    ahead: bool
    rate: float | None = None


def why_waiting(job: Waiting) -> str:
    """Why a job that is CREATED does not run, in a sentence that says what to do if anything is."""
    match job.held:
        case HeldFor.PARENTS if job.failed_parents:
            named = ", ".join(map(str, job.failed_parents[:5]))
            return f"it waits for jobs that did not complete ({named}): restart them, or delete it"
        case HeldFor.PARENTS:
            return f"it waits for {job.parents} other jobs"
        case HeldFor.LATER:
            return f"it is due in {max(0.0, job.seconds_to_due):.0f} s"
        case HeldFor.KEY:
            return f"another job of key {job.key!r} goes first"
        case HeldFor.NO:
            return _why_not_claimed(job)


def _why_not_claimed(job: Waiting) -> str:  # noqa: PLR0911 - a line for each reason
    if not job.all_on:
        return "all jobs are switched off: `roq jobs on`"
    if not job.type_on:
        return f"type {job.type} is switched off: `roq jobs on {job.type}`"
    if not job.instances:
        return f"no living instance runs type {job.type}: start one with `roq jobs work`"
    if job.limit is not None and job.slots >= job.limit:
        return f"instances hold all {job.slots} slots of type {job.type}, its limit in the cluster"
    if job.rate is not None:
        return f"as many jobs of type {job.type} have begun as its rate allows: {job.rate:g}/s"
    if job.ahead:
        return "others of its type go first, by priority and age"
    return "it is the next one of its type as soon as a thread is free"


def claim_ahead(threads: int, mean_seconds: float) -> int:
    """How many jobs an instance claims beyond its free threads: 10 ms of work, at most 500.

    Short jobs would wait for a commit each; long ones must stay where another instance, or one of
    higher priority, can go first.

    Args:
        threads: that run jobs.
        mean_seconds: how long jobs take, lately.
    """
    if mean_seconds >= SHORT_SECONDS:
        return 0
    return min(500, int(threads * SHORT_SECONDS / max(mean_seconds, 1e-6)))
