"""The pages of jobs and their actions; loaded if the console has a database of jobs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from roq.console.actions import Action, Field, Intent, Stale
from roq.console.guard import whole
from roq.console.jobs import (
    FILTERS,
    MAY,
    NAMES,
    SHOWN,
    SLOW_SECONDS,
    JobDesk,
    agreed,
    chosen,
    filters,
    table,
    wanted,
)
from roq.console.pages import Asked, Page, View, is_missing
from roq.errors import InvalidRequest, RoQError
from roq.jobs.instances import MECHANISMS
from roq.jobs.limits import AS_DECLARED, MAY_BE_NONE, NONE, text_of
from roq.jobs.operate import Selection
from roq.jobs.states import PRIORITIES, JobStatus
from roq.jobs.trial import JOBS_MAX, SECONDS_MAX
from roq.jobs.trial import TYPE as TRIAL
from roq.jobs.views import COUNTED_MAX, TypeRow
from roq.jobs.views import Action as JobAction

SWITCH: Final = ("on", "off")
_FAILS: Final = "fails"
_BEFORE: Final = "before"
_ENDS: Final = ("completes", _FAILS)
_LIMITS: Final = {
    "threads": "Threads of one instance",
    "cluster_limit": "Threads in the whole cluster",
    "retries": "Retries",
    "time_limit": "Time limit, seconds",
    "rate": "Jobs that begin in a second, or 100/60",
    "priority": "Priority",
}
STATUSES: Final = tuple(status.value for status in JobStatus)


def _desk(asked: Asked) -> JobDesk:
    if asked.jobs is None:
        raise InvalidRequest("this console has no database of jobs")
    return asked.jobs


def _view(template: str, title: str, fill: Mapping[str, Any], *, live: bool = True) -> View:
    return View(template, title, {"names": NAMES, "statuses": STATUSES, **fill}, live=live)


def jobs(asked: Asked) -> View:
    """Types × priorities × statuses, the types and what holds for all."""
    desk = _desk(asked)
    counts = desk.look("counts", lambda operate: operate.counts())
    types = desk.look("types", lambda operate: operate.type_list())
    settings = desk.look("settings", lambda operate: operate.settings())
    instances = desk.look("instances", lambda operate: operate.instance_list())
    return _view(
        "jobs.html", "Jobs",
        {
            "counts": counts, "rows": table(counts.value or []), "types": types,
            "settings": settings, "instances": instances,
            "links": {
                each.name: asked.settings.links_of(type=each.name) for each in types.value or []
            },
        },
    )  # fmt: skip


def listed(asked: Asked) -> View:
    """The jobs that a filter means, the newest first."""
    desk, given = _desk(asked), filters(asked.query)
    which = wanted(given)
    below = whole(asked.query, "below") if asked.query.get("below") else None
    look = desk.look(
        ("list", tuple(given.items()), below),
        lambda operate: operate.page(which, below=below, most=SHOWN),
    )
    found = look.get()
    return _view(
        "job_list.html", "Jobs",
        {
            "heading": "Jobs", "look": look, "jobs": found.jobs, "given": given,
            "fields": FILTERS, "below": found.below, "actions": MAY,
        },
    )  # fmt: skip


def running(asked: Asked) -> View:
    """What runs, the longest first."""
    look = _desk(asked).look("running", lambda operate: operate.running(most=SHOWN))
    return _view(
        "job_list.html", "Running jobs",
        {
            "heading": "Running jobs", "look": look, "jobs": look.get(),
            "given": {"status": JobStatus.RUNNING.value}, "fields": (), "below": None,
            "actions": {JobAction.INTERRUPT: ""},
        },
    )  # fmt: skip


def job(asked: Asked) -> View:
    """One job: why it does not run, params, attempts, result."""
    number = whole(asked.parts, "job")
    look = _desk(asked).look(("job", number), lambda operate: operate.job(number))
    if look.error is not None and is_missing(look.error):
        raise look.error
    return _view("job.html", f"Job {number}", {"look": look, "page": look.get()})


def batches(asked: Asked) -> View:
    """Jobs that were submitted together, and how far they are."""
    look = _desk(asked).look("batches", lambda operate: operate.batches(), SLOW_SECONDS)
    return _view("batches.html", "Batches", {"look": look})


def failures(asked: Asked) -> View:
    """Runs that ended badly, those that ended alike together."""
    look = _desk(asked).look("failures", lambda operate: operate.failures(), SLOW_SECONDS)
    return _view("failures.html", "Failures", {"look": look, "counted_max": COUNTED_MAX})


def instances(asked: Asked) -> View:
    """The programs that run jobs."""
    desk = _desk(asked)
    look = desk.look("instances", lambda operate: operate.instance_list())
    done = desk.look("audit", lambda operate: operate.audit())
    return _view("instances.html", "Instances", {"look": look, "done": done})


def schedules(asked: Asked) -> View:
    """When jobs are submitted by themselves."""
    look = _desk(asked).look("schedules", lambda operate: operate.schedules.look())
    return _view("schedules.html", "Schedules", {"look": look})


JOB_PAGES: Final[dict[str, Page]] = {
    "/jobs": jobs,
    "/jobs/list": listed,
    "/jobs/running": running,
    "/jobs/batches": batches,
    "/jobs/failures": failures,
    "/jobs/instances": instances,
    "/jobs/schedules": schedules,
    "/jobs/{job}": job,
}
"""Path → page."""


# --- what is done to them -------------------------------------------------------------------------


def _of(intent: Intent) -> JobDesk:
    if intent.jobs is None:
        raise InvalidRequest("this console has no database of jobs")
    return intent.jobs


def _counted(action: JobAction, intent: Intent) -> Selection:
    """Counted once for a page: its words and its form are about the same jobs."""
    if "selection" not in intent.kept:
        intent.kept["selection"] = chosen(_of(intent), action, filters(intent.given))
    found = intent.kept["selection"]
    assert isinstance(found, Selection)  # noqa: S101 - put there above
    return found


def _effect(action: JobAction) -> Callable[[Intent], list[str]]:
    def effect(intent: Intent) -> list[str]:
        given = filters(intent.given)
        words = [f"{name} {text}" for name, text in given.items()]
        which = f"Only those with {', '.join(words)}." if words else "Of all jobs that there are."
        number = _counted(action, intent).number
        many = f"{number:,} job" + ("" if number == 1 else "s")
        return [
            f"{many} as of now; those that come meanwhile are left alone.", which, MAY[action],
        ]  # fmt: skip

    return effect


def _fields(action: JobAction) -> Callable[[Intent], list[Field]]:
    def fields(intent: Intent) -> list[Field]:
        given, selection = filters(intent.given), _counted(action, intent)
        hidden = given | {"number": str(selection.number), "last": str(selection.last)}
        return [Field(name, name, "hidden", text) for name, text in hidden.items()]

    return fields


def _act(action: JobAction, intent: Intent) -> str:
    selection = agreed(action, intent.given)
    done, wanted_number = list[int](), selection.number
    try:
        count = _of(intent).operate().act(selection, who=intent.who, progress=done.append)
    except RoQError as error:
        so_far = done[-1] if done else 0
        raise RoQError(f"{so_far:,} of {wanted_number:,} jobs are done: {error}") from error
    return f"{count:,} of {wanted_number:,} jobs: {action.value} is done"


def _switch(intent: Intent) -> str:
    if intent["to"] not in SWITCH:
        raise InvalidRequest(f"jobs are switched {' or '.join(SWITCH)}, not {intent['to']!r}")
    on, name = intent["to"] == "on", intent["name"]
    _of(intent).operate().switch(on, who=intent.who, type=name or None)
    return f"{name or 'all jobs'}: {'on' if on else 'off'}"


def _type(intent: Intent) -> TypeRow:
    for row in _of(intent).operate().type_list():
        if row.name == intent["name"]:
            return row
    raise InvalidRequest(f"no program has declared type {intent['name']!r}")


def _limit_fields(intent: Intent) -> list[Field]:
    row = _type(intent)
    found = []
    for name, label in _LIMITS.items():
        choices: tuple[str, ...] = ()
        if name == "priority":
            choices = (AS_DECLARED, *PRIORITIES)
        now = f"Now {text_of(name, getattr(row.limits, name))}."
        none = f" {NONE}: no limit." if name in MAY_BE_NONE else ""
        found.append(
            Field(
                name, label, "select" if choices else "text", row.changes[name], choices,
                f"{now}{none} {AS_DECLARED}: what the program declares.",
            )
        )  # fmt: skip
    return [*found, Field(_BEFORE, _BEFORE, "hidden", _stamp(row))]


def _stamp(row: TypeRow) -> str:
    return " ".join(row.changes.values())


def _set_limits(intent: Intent) -> str:
    if intent[_BEFORE] != _stamp(_type(intent)):
        raise Stale(f"limits of type {intent['name']} have changed since the page was opened")
    given = {name: intent[name] or AS_DECLARED for name in _LIMITS if name in intent.given}
    _of(intent).operate().set_limits(intent["name"], given, who=intent.who)
    return f"type {intent['name']} has new limits"


def _test(intent: Intent) -> str:
    try:
        seconds = float(intent["seconds"] or "1")
    except ValueError:
        raise InvalidRequest(f"seconds are a number, not {intent['seconds']!r}") from None
    ids = _of(intent).operate().submit_trials(
        intent.number("number"), seconds, fail=intent["end"] == _FAILS,
        priority=intent["priority"], who=intent.who,
    )  # fmt: skip
    named = ", ".join(map(str, ids[:10])) + "…" * (len(ids) > 10)
    return f"test jobs are submitted: {named}"


def _dispatch(intent: Intent) -> str:
    _of(intent).operate().dispatch(intent["mechanism"], who=intent.who)
    return f"jobs are dispatched by {intent['mechanism']}"


def _schedule(on: bool, intent: Intent) -> str:
    _of(intent).operate().schedules.switch(intent["name"], on, who=intent.who)
    return f"schedule {intent['name']} " + ("goes on" if on else "is paused")


def _fire(intent: Intent) -> str:
    job = _of(intent).operate().schedules.fire(intent["name"], who=intent.who)
    return f"job {job} is submitted"


def _of_schedule(verb: str, run: Callable[[Intent], str], effect: str) -> Action:
    return Action(
        title=f"{verb} schedule {{name}}", verb=verb, back="/jobs/schedules", places=("name",),
        run=run, effect=lambda _: [effect],
    )  # fmt: skip


JOB_ACTIONS: Final[dict[str, Action]] = {
    **{
        f"{action.value}-jobs": Action(
            title=f"{action.value.capitalize()} jobs", verb=action.value.capitalize(),
            back="/audit", places=(), effect=_effect(action), fields=_fields(action),
            run=partial(_act, action),
        )
        for action in JobAction
    },
    "pause-schedule": _of_schedule(
        "Pause", partial(_schedule, False),
        "It fires no more until it is resumed, also after starts of its program. Its jobs go on.",
    ),
    "resume-schedule": _of_schedule(
        "Resume", partial(_schedule, True),
        "It fires again. What it has missed meanwhile it catches up with as it is declared to.",
    ),
    "fire-schedule": _of_schedule(
        "Fire", _fire,
        "One job of it is submitted now, with its params; its times stay as they are.",
    ),
    "switch-jobs": Action(
        title="Switch jobs on or off", verb="Switch", back="/jobs", places=(), run=_switch,
        effect=lambda _: [
            "Off: no instance claims one any more, within a second. What runs goes on to its end."
        ],
        fields=lambda intent: [
            Field("name", "Type", value=intent["name"], help="Empty: all types."),
            Field("to", "To", "select", intent["to"] or "off", SWITCH),
        ],
    ),
    "set-limits": Action(
        title="Change the limits of type {name}", verb="Change", back="/jobs", places=("name",),
        run=_set_limits, fields=_limit_fields,
        effect=lambda _: [
            "In force in all instances within a second, and kept when programs start again.",
            "What runs goes on, also if it is more than a new limit allows.",
            "A priority is for jobs that are submitted from now on without one.",
        ],
    ),
    "test-jobs": Action(
        title="Submit test jobs", verb="Submit", back="/jobs", places=(), run=_test,
        effect=lambda _: [
            f"They are of type {TRIAL}, which every instance runs, and sleep.",
            "One that fails is tried again as its retries say, and stays then as FAILED.",
        ],
        fields=lambda _: [
            Field("seconds", "Seconds", value="1", help=f"Up to {SECONDS_MAX:,.0f}."),
            Field("end", "Then", "select", _ENDS[0], _ENDS),
            Field("number", "Jobs", "number", "1", help=f"Up to {JOBS_MAX:,}."),
            Field("priority", "Priority", "select", "default", tuple(PRIORITIES)),
        ],
    ),
    "dispatch-jobs": Action(
        title="Change how jobs are dispatched", verb="Change", back="/jobs", places=(),
        run=_dispatch,
        effect=lambda _: ["How instances hear of jobs; in force within a second."],
        fields=lambda _: [Field("mechanism", "By", "select", MECHANISMS[0], tuple(MECHANISMS))],
    ),
}  # fmt: skip
"""Name → action."""
