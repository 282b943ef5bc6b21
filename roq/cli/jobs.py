"""`roq jobs`: run jobs, look at them, and act on many at once."""

from __future__ import annotations

import importlib
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from roq.cli.job_demo import job_demo
from roq.cli.job_option import JobsTarget, ago, clock, jobs_command, limited, now, operator
from roq.cli.job_settings import set_limits, test_jobs
from roq.cli.options import Number
from roq.cli.output import (
    done,
    fields_of,
    note,
    print_fields,
    print_json,
    print_table,
    state_text,
    visible,
)
from roq.cli.schedules import schedule, schedules
from roq.client.admin.wording import age_text
from roq.errors import ConfigError
from roq.jobs.database import MICROSECONDS, JobDatabase
from roq.jobs.instances import MECHANISMS
from roq.jobs.jobs import THREADS, Jobs
from roq.jobs.limits import text_of
from roq.jobs.schema import migrate as migrate_schema
from roq.jobs.states import PRIORITIES, JobStatus
from roq.jobs.types import priority_of
from roq.jobs.views import COUNTED_MAX, Action, BatchRow, JobFilter, JobRow, TypeRow
from roq.jobs.worker import GRACE_SECONDS, JobWorker

if TYPE_CHECKING:
    from roq.jobs.metrics import JobMetrics

PORT_MAX: Final = 65_535
NAMES: Final = {number: name for name, number in PRIORITIES.items()}
T = TypeVar("T")


def filtered(function: Callable[..., T]) -> Callable[..., T]:
    """Give a command options that say which jobs are meant, and the function a `JobFilter`."""

    @click.argument("ids", nargs=-1, type=click.IntRange(min=1))
    @click.option("--type", "types", multiple=True, help="Of this type; may be repeated.")
    @click.option(
        "--status",
        "statuses",
        multiple=True,
        type=click.Choice([each.value for each in JobStatus], case_sensitive=False),
        help="Of this status; may be repeated.",
    )
    @click.option("--priority", type=click.Choice(list(PRIORITIES)), help="Of this priority.")
    @click.option("--tag", help="With this tag.")
    @click.option("--key", help="With this key.")
    @click.option("--failure", metavar="FINGERPRINT", help="As `roq jobs failures` shows it.")
    @wraps(function)
    def command(*args: Any, **kwargs: Any) -> T:
        priority = kwargs.pop("priority")
        wanted = JobFilter(
            ids=kwargs.pop("ids"),
            types=kwargs.pop("types"),
            statuses=tuple(JobStatus(each.upper()) for each in kwargs.pop("statuses")),
            priority=None if priority is None else priority_of(priority),
            tag=kwargs.pop("tag"),
            key=kwargs.pop("key"),
            fingerprint=kwargs.pop("failure"),
        )
        return function(*args, wanted=wanted, **kwargs)

    return command


@click.group()
def jobs() -> None:
    """Run jobs of a database, look at them, restart, interrupt and delete them.

    Commands work on the database that --database or ROQ_JOBS names, a file jobs.db here if none
    does. Programs submit jobs with roq.Jobs.

    \b
    Example:
      roq jobs work shop.tasks:jobs
      roq jobs counts
      roq jobs list --status FAILED
      roq jobs restart --type Resize
    """


jobs.add_command(job_demo)
jobs.add_command(set_limits)
jobs.add_command(test_jobs)
jobs.add_command(schedule)
jobs.add_command(schedules)


@jobs.command(short_help="Run the jobs of a program's types.")
@click.argument("program", metavar="MODULE:NAME")
@click.option(
    "--threads",
    type=click.IntRange(1, 1_000),
    default=THREADS,
    show_default=True,
    help="Jobs that run at once in this process.",
)
@click.option("--type", "types", multiple=True, help="Only this type; may be repeated.")
@click.option("--name", help="By which people find it.  [default: program, host, process id]")
@click.option(
    "--grace",
    type=Number(min=0.0),
    default=GRACE_SECONDS,
    show_default=True,
    help="Seconds for jobs to stop at SIGTERM.",
)
@click.option(
    "--metrics", metavar="[HOST:]PORT", help="Serve /metrics for Prometheus, and /healthz, there."
)
def work(
    program: str,
    threads: int,
    types: tuple[str, ...],
    name: str | None,
    grace: float,
    metrics: str | None,
) -> None:
    """Run jobs until SIGTERM or Ctrl-C; NAME in MODULE is the roq.Jobs with the types.

    Then what runs is interrupted, and goes on elsewhere, or at the next start, if it is
    restartable. A second signal ends the process at once.

    \b
    Example:
      roq jobs work shop.tasks:jobs --threads 16
    """
    found = loaded(program)
    worker = found.worker(threads=threads, types=types or None, name=name, grace=grace)
    served = None if metrics is None else serve_metrics(found, worker, metrics)

    def stop(number: int, _frame: FrameType | None) -> None:
        for each in (signal.SIGTERM, signal.SIGINT):
            signal.signal(each, signal.SIG_DFL)
        worker.stop()
        said = f"{signal.Signals(number).name}: jobs are interrupted; once more ends at once.\n"
        with suppress(OSError):
            # Not through a stream: the signal may have come while its thread was writing there.
            os.write(2, said.encode())

    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, stop)
    note(f"Running {', '.join(sorted(types or found.types))} from {found.database.name}.")
    try:
        worker.run()
    finally:
        if served is not None:
            served.close()
    stats = worker.stats
    stale = ", ".join(f"{number:,} {reason}" for reason, number in sorted(stats.stale.items()))
    note(
        f"{stats.complete:,} complete, {stats.other:,} ended otherwise, {stats.outdated:,} outdated"
        + f"; stale messages: {stale}" * bool(stale)
    )


def serve_metrics(jobs: Jobs, worker: JobWorker, place: str) -> JobMetrics:
    """Serve the metrics of an instance.

    Raises:
        ConfigError: the place cannot be.
    """
    from roq.jobs.metrics import JobMetrics  # noqa: PLC0415 - few want them, and they take time to load

    host, _, port = place.rpartition(":")
    if not port.isascii() or not port.isdigit() or int(port) > PORT_MAX:
        raise ConfigError(f"--metrics is a port, or HOST:PORT, not {place!r}")
    served = JobMetrics(jobs.operate, worker, host or "127.0.0.1", int(port))
    note(f"Metrics at http://{host or '127.0.0.1'}:{served.port}/metrics.")
    return served


def loaded(program: str) -> Jobs:
    """The `roq.Jobs` that a program names.

    Raises:
        ConfigError: there is none.
    """
    module, _, name = program.partition(":")
    sys.path.insert(0, str(Path.cwd()))
    try:
        found = getattr(importlib.import_module(module), name or "jobs")
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(f"{program}: {error}; give MODULE:NAME, as in shop.tasks:jobs") from None
    found = getattr(found, "sync", found)  # of `roq.aio`
    if not isinstance(found, Jobs):
        raise ConfigError(f"{program} is no roq.Jobs, but {type(found).__name__}")
    return found


@jobs.command(short_help="Count jobs by type, priority and status.")
@jobs_command
def counts(target: JobsTarget) -> None:
    """Count jobs by type, priority and status, with their items and failures.

    OLDEST is the age of the oldest that waits. A type in brackets is declared by no program.

    \b
    Example:
      roq jobs counts
    """
    rows = target.operate().counts()
    if target.as_json:
        print_json([fields_of(row) for row in rows])
        return
    print_table(
        ("TYPE", "PRIORITY", "STATUS", "JOBS#", "ITEMS#", "FAILURES#", "OLDEST"),
        [
            (
                row.type if row.known else f"({row.type})", NAMES.get(row.priority, row.priority),
                state_text(row.status.lower()), row.number, row.items, row.failures,
                ago(row.oldest),
            )
            for row in rows
        ],
        "There is no job.",
    )  # fmt: skip


@jobs.command("list", short_help="List jobs, the newest first.")
@limited
@click.option("--below", type=click.IntRange(min=1), help="Only ids below; for the next page.")
@filtered
@jobs_command
def list_(target: JobsTarget, limit: int, below: int | None, wanted: JobFilter) -> None:
    """List jobs that fit all options, the newest first.

    \b
    Example:
      roq jobs list --type Resize --status FAILED
      roq jobs list --json | jq '.[].id'
    """
    _print_jobs(target, target.operate().jobs(wanted, below=below, most=limit))


@jobs.command(short_help="List what runs, the longest first.")
@limited
@jobs_command
def running(target: JobsTarget, limit: int) -> None:
    """List the jobs that run, in the whole cluster, the longest first.

    \b
    Example:
      roq jobs running
    """
    _print_jobs(target, target.operate().running(most=limit), "No job runs.")


def _print_jobs(target: JobsTarget, rows: list[JobRow], empty: str = "No job fits.") -> None:
    if target.as_json:
        print_json([fields_of(row) for row in rows])
        return
    print_table(
        ("ID#", "TYPE", "PRIORITY", "STATUS", "CREATED", "RUNS", "ITEMS", "FAILURES#", "WHERE",
         "TAG", "ERROR"),
        [
            (
                str(row.id), row.type, NAMES.get(row.priority, row.priority),
                state_text(row.status.lower()), ago(row.created), span(row),
                f"{row.saved}/{row.items}" if row.items or row.saved else "", row.failures,
                row.instance, row.tag, (row.error or "")[:80],
            )
            for row in rows
        ],
        empty,
    )  # fmt: skip


@jobs.command(short_help="Show one job, with params, errors and why it waits.")
@click.argument("id", type=click.IntRange(min=1))
@jobs_command
def show(target: JobsTarget, id: int) -> None:  # noqa: A002 - the name of the argument
    """Show job ID: its row, the beginning of params and result, its last errors, why it waits.

    \b
    Example:
      roq jobs show 4711
    """
    page = target.operate().job(id)
    if target.as_json:
        print_json(fields_of(page))
        return
    job = page.job
    print_fields(
        [
            ("job", str(job.id)), ("type", job.type), ("status", state_text(job.status.lower())),
            ("why", page.why), ("priority", NAMES.get(job.priority, job.priority)),
            ("created", clock(job.created)), ("due", clock(job.due)),
            ("started", clock(job.started)), ("ended", clock(job.ended)),
            ("instance", job.instance), ("token", job.token), ("restartable", job.restartable),
            ("failures", job.failures), ("time-outs", job.timeouts), ("losses", job.losses),
            ("items", job.items), ("saved", job.saved), ("tag", job.tag), ("key", job.key),
            ("unique", job.unique), ("after", ", ".join(map(str, page.parents))),
            ("before", ", ".join(map(str, page.children))), ("batch", _batch(page.batch)),
            ("params", _shown(page.params)), ("result", _shown(page.result)),
        ]
    )  # fmt: skip
    for each in page.errors:
        where = visible(each.instance or "-")
        click.echo(f"\n{clock(each.at)}  token {each.token}, {each.end} at {where}")
        click.echo(visible(each.trace.rstrip() or each.text, "\n"))


def _batch(batch: BatchRow | None) -> str:
    if batch is None:
        return ""
    failed = f", {batch.failed:,} failed" if batch.failed else ""
    return f"{batch.name}: {batch.complete:,} of {batch.number:,} complete{failed}"


def _shown(body: Any) -> str:
    if body is None:
        return ""
    return f"{body.text}… ({body.bytes:,} bytes)" if body.cut else str(body.text)


@jobs.command(short_help="List batches and how far they are.")
@limited
@jobs_command
def batches(target: JobsTarget, limit: int) -> None:
    """List batches, the newest first: how many of their jobs are COMPLETE, how many did not end so.

    LAST is the job that waits for the others, with its type and status. The NAME is the tag of all
    jobs of a batch; those that failed are to be restarted, or the last one waits for ever.

    \b
    Example:
      roq jobs batches
      roq jobs restart --tag "import 7" --status FAILED
    """
    rows = target.operate().batches(most=limit)
    if target.as_json:
        print_json([fields_of(row) for row in rows])
        return
    print_table(
        ("NAME", "JOBS#", "COMPLETE#", "FAILED#", "LAST#", "TYPE", "STATUS", "CREATED"),
        [
            (
                row.name, row.number, row.complete, row.failed, str(row.job), row.type,
                state_text(row.status.lower()), ago(row.created),
            )
            for row in rows
        ],
        "There is no batch: `jobs.batch(…)` in a program.",
    )  # fmt: skip


@jobs.command(short_help="List what went wrong, alike runs together.")
@limited
@jobs_command
def failures(target: JobsTarget, limit: int) -> None:
    """List runs that did not end well; those that came the same way through the code are one line.

    Of each 10,000 are counted at most.

    \b
    Example:
      roq jobs failures
      roq jobs restart --failure 0123456789abcdef
    """
    rows = target.operate().failures(most=limit)
    if target.as_json:
        print_json([fields_of(row) for row in rows])
        return
    print_table(
        ("FINGERPRINT", "RUNS#", "FIRST", "LAST", "TYPE", "JOB#", "TEXT"),
        [
            (row.fingerprint, f"{row.number:,}" + "+" * (row.number == COUNTED_MAX),
             ago(row.first), ago(row.last), row.type, str(row.job), row.text[:100])
            for row in rows
        ],
        "Nothing went wrong.",
    )  # fmt: skip


@jobs.command(short_help="List the programs that run jobs.")
@jobs_command
def instances(target: JobsTarget) -> None:
    """List the programs that run jobs, with what they run and the slots that they hold.

    \b
    Example:
      roq jobs instances
    """
    rows = target.operate().instance_list()
    if target.as_json:
        print_json([fields_of(row) for row in rows])
        return
    print_table(
        ("ID#", "NAME", "PID#", "STATE", "RUNS#", "THREADS#", "SLOTS", "TYPES", "SINCE"),
        [
            (
                str(row.id), row.name, str(row.pid), state_text("missing" if row.dead else "live"),
                row.running, row.threads,
                " ".join(f"{name}:{number}" for name, number in sorted(row.slots.items())),
                " ".join(row.types), ago(row.started),
            )
            for row in rows
        ],
        "No program runs jobs: `roq jobs work MODULE:NAME`.",
    )  # fmt: skip


@jobs.command(short_help="List the types that programs have declared.")
@jobs_command
def types(target: JobsTarget) -> None:
    """List the types of jobs that programs have declared, with the limits that hold.

    `roq jobs set` changes them.

    \b
    Example:
      roq jobs types
    """
    rows = target.operate().type_list()
    if target.as_json:
        print_json([fields_of(row) for row in rows])
        return
    print_table(
        ("TYPE", "ON", "RESTARTABLE", "THREADS#", "LIMIT#", "RATE#", "RETRIES#", "SECONDS#",
         "USED#", "PRIORITY", "VERSION#"),
        [
            (
                row.name, row.on, row.restartable,
                *("-" if each is None else f"{each:g}" for each in _limits(row)),
                row.slots_used, text_of("priority", row.limits.priority), row.version,
            )
            for row in rows
        ],
        "No program has declared a type.",
    )  # fmt: skip


@jobs.command(short_help="List what does not go on, and why.")
@jobs_command
def stalls(target: JobsTarget) -> None:
    """List what does not go on as it is: jobs that wait for what will not come, jobs whose instance
    has died and that no other one has taken over yet, and schedules that do not fire.

    \b
    Example:
      roq jobs stalls
    """
    rows = target.operate().stalls()
    if target.as_json:
        print_json([fields_of(row) for row in rows])
        return
    print_table(
        ("TYPE", "REASON", "NUMBER#", "WHY"),
        [(row.type, row.reason, row.number, row.why) for row in rows],
        "Everything goes on.",
    )


def _limits(row: TypeRow) -> tuple[float | None, ...]:
    holds = row.limits
    return holds.threads, holds.cluster_limit, holds.rate, holds.retries, holds.time_limit


def _acting(action: Action, example: str, text: str) -> None:
    """Make the command that does something to many jobs."""

    @click.option("--yes", "-y", is_flag=True, help="Do not ask.")
    @click.option("--all", "every", is_flag=True, help="All jobs; with --yes this has to be said.")
    @filtered
    @jobs_command
    def command(target: JobsTarget, yes: bool, every: bool, wanted: JobFilter) -> None:
        if every and wanted != JobFilter():
            raise click.UsageError("--all and some of them: one of the two")
        # A program whose list of ids is empty does not mean all jobs.
        if yes and not every and action != Action.REQUEUE and wanted == JobFilter():
            raise click.UsageError("no job is named: give ids or options that say which, or --all")
        operate = target.operate()
        selection = operate.select(action, wanted)
        if not selection.number:
            done("No job fits.", as_json=target.as_json, number=0)
            return
        if not yes:
            if target.as_json or not sys.stdin.isatty():
                raise click.UsageError(f"{selection.number:,} jobs fit: add --yes to {action} them")
            click.confirm(f"{action.capitalize()} {selection.number:,} jobs?", abort=True)
        number = operate.act(selection, who=operator())
        done(
            f"{number:,} of {selection.number:,} jobs: {action}",
            as_json=target.as_json,
            number=number,
        )

    command.__doc__ = f"{text}\n\nThey are counted first.\n\n\b\nExample:\n  {example}"
    jobs.command(str(action), short_help=text)(command)


_acting(
    Action.RESTART,
    "roq jobs restart --type Resize --status FAILED",
    "Run jobs again that are FAILED, INTERRUPTED or TIMED_OUT.",
)
_acting(
    Action.REQUEUE,
    "roq jobs requeue --type Resize",
    "Have instances hear again of jobs that wait; always safe.",
)
_acting(Action.DELETE, "roq jobs delete --tag import-7", "Delete jobs that do not run.")
_acting(Action.INTERRUPT, "roq jobs interrupt 4711", "Interrupt jobs that run.")


def _switching(on: bool) -> None:
    word = "on" if on else "off"
    text = "Let jobs be run." if on else "Let no more jobs be begun; what runs goes on."

    @click.argument("type", required=False)
    @jobs_command
    def command(target: JobsTarget, type: str | None) -> None:  # noqa: A002 - the argument's name
        target.operate().switch(on, who=operator(), type=type)
        done(f"{type or 'All jobs'}: {word}", as_json=target.as_json)

    command.__doc__ = (
        f"{text}\n\nOf TYPE, or of all; seen by all instances within a second.\n\n\b\n"
        f"Example:\n  roq jobs {word} Resize"
    )
    jobs.command(word, short_help=text)(command)


_switching(True)
_switching(False)


@jobs.command(short_help="Say how instances hear of jobs.")
@click.argument("mechanism", type=click.Choice(MECHANISMS))
@jobs_command
def dispatch(target: JobsTarget, mechanism: str) -> None:
    """Have instances hear of jobs by the DATABASE, or by a QUEUE of their roq.Jobs' cluster.

    Seen within a second. Those without a cluster, and those that cannot reach it, ask the database.

    \b
    Example:
      roq jobs dispatch queue
    """
    target.operate().dispatch(mechanism, who=operator())
    done(f"jobs are dispatched by the {mechanism}", as_json=target.as_json)


@jobs.command(short_help="Show what operators have done.")
@limited
@jobs_command
def audit(target: JobsTarget, limit: int) -> None:
    """Show what operators have done, the newest first.

    \b
    Example:
      roq jobs audit
    """
    rows = target.operate().audit(most=limit)
    if target.as_json:
        print_json([fields_of(row) for row in rows])
        return
    print_table(
        ("WHEN", "WHO", "ACTION", "JOBS#", "WHICH"),
        [(clock(row.at), row.who, row.action, row.number, row.subject) for row in rows],
        "Nobody has done anything.",
    )


@jobs.command(short_help="Bring the tables to the version of this program.")
@jobs_command
def migrate(target: JobsTarget) -> None:
    """Bring the tables of jobs to the version of this program, and make them if there is none.

    End the programs that use them first.

    \b
    Example:
      roq jobs migrate --database postgresql://roq@db/jobs
    """
    before, after = migrate_schema(JobDatabase(target.url))
    text = f"schema {after}" if before == after else f"schema {before or 'none'} → {after}"
    done(text, as_json=target.as_json, before=before, after=after)


def span(row: JobRow) -> str:
    """How long it runs, or has run."""
    if row.started is None:
        return ""
    end = row.ended if row.ended is not None else now()
    return age_text(max(0.0, (end - row.started) / MICROSECONDS))
