"""The pages of jobs, and what an operator does with them; there is none without a database of jobs.

What is shown comes from `roq.jobs.operate`, by looks that all browsers share.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from roq.console.guard import whole
from roq.console.looks import Look, Looks
from roq.errors import InvalidRequest
from roq.jobs.jobs import Jobs
from roq.jobs.operate import JobOperations, Selection
from roq.jobs.states import PRIORITIES, JobStatus
from roq.jobs.views import Action as JobAction
from roq.jobs.views import JobCount, JobFilter

LOOK_SECONDS: Final = 2.0
SLOW_SECONDS: Final = 10.0
"""Of what is summed up over many rows."""
SHOWN: Final = 100
FILTERS: Final = ("type", "status", "priority", "tag", "key", "fingerprint", "instance", "id")
MAY: Final[Mapping[JobAction, str]] = {
    JobAction.RESTART: "They wait for a run again, as if they had never failed. "
    "Those that have neither failed, timed out nor been interrupted are left alone.",
    JobAction.REQUEUE: "They are dispatched anew. That is always safe: what was dispatched twice "
    "runs once.",
    JobAction.DELETE: "They are gone with params, results and errors. What runs, or what "
    "others wait for, is left alone.",
    JobAction.INTERRUPT: "They are asked to stop, and stay INTERRUPTED until somebody "
    "restarts them.",
}
"""What it does to jobs."""
NAMES: Final = {number: name for name, number in PRIORITIES.items()}
T = TypeVar("T")


class JobDesk:
    """The jobs, as all pages see them. From any thread.

    Args:
        url: of the database, as `roq.Jobs` takes it.
        looks: shared by all browsers.

    Raises:
        ConfigError: no such database is supported, or its driver is not installed.
    """

    def __init__(self, url: str, looks: Looks) -> None:
        self._jobs = Jobs(url)
        self._looks = looks

    def operate(self) -> JobOperations:
        """What operators see and do.

        Raises:
            Unavailable: the database cannot be reached.
        """
        return self._jobs.operate

    def look(
        self, key: object, ask: Callable[[JobOperations], T], period: float = LOOK_SECONDS
    ) -> Look[T]:
        """An answer of the database, shared."""
        return self._looks.look(("jobs", key), lambda: ask(self.operate()), period)

    def close(self) -> None:
        """Leave the database."""
        self._jobs.close()


def wanted(given: Mapping[str, str]) -> JobFilter:
    """The jobs that the fields of a filter mean.

    Raises:
        InvalidRequest: a field that cannot be.
    """
    status = given.get("status", "")
    if status and status not in JobStatus.__members__:
        raise InvalidRequest(f"there is no status {status!r}; there are {', '.join(JobStatus)}")
    identity, named = given.get("id", ""), given.get("priority", "")
    priority = PRIORITIES.get(named.lower()) or (whole(given, "priority") if named else None)
    return JobFilter(
        ids=(whole(given, "id"),) if identity else (),
        types=(given["type"],) if given.get("type") else (),
        statuses=(JobStatus(status),) if status else (),
        priority=priority,
        tag=given.get("tag") or None,
        key=given.get("key") or None,
        fingerprint=given.get("fingerprint") or None,
        instance=whole(given, "instance") if given.get("instance") else None,
    )


def filters(given: Mapping[str, str]) -> dict[str, str]:
    """Those fields of a filter that say something."""
    return {name: given[name] for name in FILTERS if given.get(name)}


def table(counts: list[JobCount]) -> list[dict[str, Any]]:
    """Types × priorities as rows, with a number for each status."""
    found: dict[tuple[str, int], dict[str, Any]] = {}
    for cell in counts:
        row = found.setdefault(
            (cell.type, cell.priority),
            {
                "type": cell.type, "priority": cell.priority, "known": cell.known, "numbers": {},
                "items": 0, "failures": 0, "oldest": None,
            },
        )  # fmt: skip
        row["numbers"][cell.status.value] = cell.number
        row["failures"] += cell.failures
        if cell.status in {JobStatus.CREATED, JobStatus.RUNNING}:
            row["items"] += cell.items
        row["oldest"] = cell.oldest if cell.oldest is not None else row["oldest"]
    return [found[key] for key in sorted(found)]


def chosen(desk: JobDesk, action: str, given: Mapping[str, str]) -> Selection:
    """The jobs that something is to be done to, counted now."""
    return desk.operate().select(JobAction(action), wanted(given))


def agreed(action: str, given: Mapping[str, str]) -> Selection:
    """The jobs of a form: no more, and no later ones, than its page has counted."""
    return Selection(
        action=JobAction(action),
        filter=wanted(given),
        number=whole(given, "number"),
        last=whole(given, "last"),
    )
