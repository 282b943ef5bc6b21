"""`roq jobs set` and `roq jobs test`: what holds for a type, and whether jobs are run at all."""

from __future__ import annotations

import click

from roq.cli.failures import Failed
from roq.cli.job_option import JobsTarget, jobs_command, operator
from roq.cli.options import Number
from roq.cli.output import done, fields_of, note, print_fields, print_json
from roq.errors import InvalidRequest
from roq.jobs.handle import JobHandle
from roq.jobs.jobs import Jobs
from roq.jobs.limits import AS_DECLARED, LIMITS, text_of
from roq.jobs.states import PRIORITIES, JobStatus
from roq.jobs.trial import JOBS_MAX, SECONDS_MAX

PATIENCE_SECONDS = 60.0
"""For a test job to begin, and to be tried again."""


@click.command("set", short_help="Change the limits of a type, or show them.")
@click.argument("type")
@click.option("--threads", help="Jobs that run at once in one instance; none: no limit.")
@click.option("--cluster-limit", help="Jobs that run at once in the whole cluster; none: no limit.")
@click.option("--retries", help="So often is a restartable job tried again.")
@click.option("--time-limit", help="Seconds that a run may take.")
@click.option(
    "--rate", help="Jobs that begin in a second in the whole cluster, or 100/60; none: no limit."
)
@click.option("--priority", help="Of jobs submitted from now on without one.")
@jobs_command
def set_limits(
    target: JobsTarget,
    type: str,  # noqa: A002 - the name of the argument
    threads: str | None,
    cluster_limit: str | None,
    retries: str | None,
    time_limit: str | None,
    rate: str | None,
    priority: str | None,
) -> None:
    """Change the limits of TYPE in all instances, within a second; without an option show them.

    What is set stays when programs start again. The value `declared` takes it back.

    \b
    Example:
      roq jobs set Resize --rate 100/60 --cluster-limit 20
      roq jobs set Resize --rate declared
    """
    operate = target.operate()
    given = {
        "threads": threads, "cluster_limit": cluster_limit, "retries": retries,
        "time_limit": time_limit, "rate": rate, "priority": priority,
    }  # fmt: skip
    wanted = {name: text for name, text in given.items() if text is not None}
    if wanted:
        operate.set_limits(type, wanted, who=operator())
    found = [row for row in operate.type_list() if row.name == type]
    if not found:
        raise InvalidRequest(f"no program has declared type {type!r}: `roq jobs types`")
    row = found[0]
    if target.as_json:
        print_json(fields_of(row))
        return
    shown = [("type", row.name)]
    for name in LIMITS:
        by_operator = " (set)" * (row.changes[name] != AS_DECLARED)
        shown.append(
            (name.replace("_", " "), text_of(name, getattr(row.limits, name)) + by_operator)
        )
    print_fields(shown)


@click.command("test", short_help="Submit a test job, which sleeps or fails, and wait for it.")
@click.option(
    "--seconds",
    type=Number(0, SECONDS_MAX),
    default=1.0,
    show_default=True,
    help="So long it sleeps.",
)
@click.option("--fail", is_flag=True, help="Then it fails.")
@click.option(
    "--number", type=click.IntRange(1, JOBS_MAX), default=1, show_default=True, help="Jobs."
)
@click.option(
    "--priority", type=click.Choice(list(PRIORITIES)), default="default", show_default=True,
    help="Of the jobs.",
)  # fmt: skip
@click.option("--no-wait", is_flag=True, help="Only submit.")
@jobs_command
def test_jobs(
    target: JobsTarget, seconds: float, fail: bool, number: int, priority: str, no_wait: bool
) -> None:
    """Submit jobs of type roq.test, which every instance runs, and wait until they have ended.

    The command fails if they do not end as they are to: COMPLETE, or FAILED with --fail.

    \b
    Example:
      roq jobs test
      roq jobs test --fail --seconds 0
    """
    operate = target.operate()
    ids = operate.submit_trials(number, seconds, fail=fail, priority=priority, who=operator())
    if no_wait:
        done(f"submitted: {', '.join(map(str, ids))}", as_json=target.as_json, jobs=ids)
        return
    why = operate.job(ids[0]).why
    if why and not target.as_json:
        note(f"job {ids[0]}: {why}")
    wanted = JobStatus.FAILED if fail else JobStatus.COMPLETE
    with Jobs(target.url) as jobs:
        handles = [JobHandle[None](jobs, each, lambda _: None) for each in ids]
        ended = [each.wait(PATIENCE_SECONDS + seconds * (3 if fail else 1)) for each in handles]
    wrong = [(job, status) for job, status in zip(ids, ended, strict=True) if status is not wanted]
    if wrong:
        job, status = wrong[0]
        raise Failed(
            f"{len(wrong)} of {number} test jobs have not ended as they are to: job {job} is "
            f"{status}",
            hint=f"roq jobs show {job}",
        )
    done(f"{number} of {number} test jobs: {wanted}", as_json=target.as_json, jobs=ids)
