"""`roq jobs schedules` and `roq jobs schedule`: when jobs are submitted by themselves."""

from __future__ import annotations

import sys

import click

from roq.cli.job_option import JobsTarget, ago, clock, jobs_command, operator
from roq.cli.options import Number
from roq.cli.output import done, fields_of, print_json, print_table, state_text
from roq.jobs.states import PRIORITIES
from roq.jobs.timetable import CatchUp, Overlap, planned
from roq.jobs.types import priority_of
from roq.jobs.views import ScheduleRow


@click.command(short_help="List schedules with their next time and last job.")
@jobs_command
def schedules(target: JobsTarget) -> None:
    """List schedules: when they fire next, their last time and last job, who declared them when.

    NEXT is in the zone of the schedule. WHY says why one does not fire, and what to do. A LAST time
    that is later than that of its last job had none: the job was still waiting or running.

    \b
    Example:
      roq jobs schedules
      roq jobs list --tag nightly            # the jobs of one
    """
    rows = target.operate().schedules.look()
    if target.as_json:
        print_json([fields_of(row) for row in rows])
        return
    print_table(
        ("NAME", "TYPE", "TIMES", "ZONE", "CATCH-UP", "OVERLAP", "STATE", "NEXT", "LAST", "JOB#",
         "STATUS", "DECLARED", "BY", "WHY"),
        [
            (
                row.name, row.type, row.times, row.zone, row.catch_up, row.overlap,
                state_text("on" if row.on else "paused"), clock(row.next, row.zone),
                ago(row.last), *_job(row), ago(row.at), row.by, row.why,
            )
            for row in rows
        ],
        "There is no schedule: `jobs.schedule(…)` in a program, or `roq jobs schedule set`.",
    )  # fmt: skip


def _job(row: ScheduleRow) -> tuple[object, object]:
    if not row.jobs:
        return "", ""
    status = row.jobs[0].status
    return str(row.jobs[0].job), "deleted" if status is None else state_text(status.lower())


@click.group(short_help="Set, pause, resume, fire and delete a schedule.")
def schedule() -> None:
    """Set, pause, resume, fire and delete a schedule; `roq jobs schedules` lists them.

    Any instance fires any schedule: as long as one lives, jobs are submitted.

    \b
    Example:
      roq jobs schedule set nightly --type Resize --cron "0 3 * * *"
      roq jobs schedule pause nightly
    """


@schedule.command("set", short_help="Make a schedule, or change it.")
@click.argument("name")
@click.option("--type", "type_", required=True, help="Of its jobs; some program has declared it.")
@click.option("--cron", help="Minute, hour, day, month and weekday, as in Debian's cron.")
@click.option("--every", type=Number(), metavar="SECONDS", help="Instead of --cron; from 1 on.")
@click.option("--zone", default="UTC", show_default=True, help="Time zone of --cron.")
@click.option("--params", metavar="JSON", help="Params of its jobs.")
@click.option(
    "--catch-up",
    type=click.Choice([each.value for each in CatchUp]),
    default=CatchUp.LAST.value,
    show_default=True,
    help="What becomes of times when all instances were away, or it was paused.",
)
@click.option(
    "--overlap",
    type=click.Choice([each.value for each in Overlap]),
    default=Overlap.SKIP.value,
    show_default=True,
    help="What becomes of a time while an earlier job waits or runs.",
)
@click.option(
    "--priority",
    type=click.Choice(list(PRIORITIES)),
    default="default",
    show_default=True,
    help="Of its jobs.",
)
@jobs_command
def set_(
    target: JobsTarget,
    name: str,
    type_: str,
    cron: str | None,
    every: float | None,
    zone: str,
    params: str | None,
    catch_up: str,
    overlap: str,
    priority: str,
) -> None:
    """Make schedule NAME, or change it: what is not given is as its default.

    A program that declares the same name sets it back when an instance of it begins. Params are
    read when a job runs; what its handler cannot read makes the job FAILED.

    \b
    Example:
      roq jobs schedule set beat --type Beat --every 10 --params '{"to": "a"}'
      roq jobs schedule set nightly --type Resize --cron "0 3 * * *" \\
        --zone Europe/Warsaw
    """
    plan = planned(
        cron=cron, every=every, zone=zone, catch_up=catch_up, overlap=overlap,
        priority=priority_of(priority),
    )  # fmt: skip
    operate = target.operate().schedules
    body = None if params is None else params.encode(errors="surrogateescape")
    operate.put(name, type_, plan, body, who=operator())
    (row,) = [each for each in operate.look() if each.name == name]
    done(
        f"{name} fires next at {clock(row.next, zone)}" + (f", but {row.why}" if row.why else ""),
        as_json=target.as_json,
        next=row.next,
    )


def _switching(on: bool) -> None:
    word = "resume" if on else "pause"
    text = (
        "Let a schedule go on; it catches up with what it has missed as it says."
        if on
        else "Let a schedule fire no more, until it is resumed; also over starts of programs."
    )

    @click.argument("name")
    @jobs_command
    def command(target: JobsTarget, name: str) -> None:
        target.operate().schedules.switch(name, on, who=operator())
        done(f"{name}: {word}d", as_json=target.as_json)

    command.__doc__ = f"{text}\n\n\b\nExample:\n  roq jobs schedule {word} nightly"
    schedule.command(word, short_help=text.partition(";")[0])(command)


_switching(False)
_switching(True)


@schedule.command(short_help="Submit a job of a schedule now.")
@click.argument("name")
@jobs_command
def fire(target: JobsTarget, name: str) -> None:
    """Submit a job of schedule NAME now; its times stay as they are. A paused one does so, too.

    \b
    Example:
      roq jobs schedule fire nightly
    """
    job = target.operate().schedules.fire(name, who=operator())
    done(f"job {job}", as_json=target.as_json, job=job)


@schedule.command(short_help="Delete a schedule; its jobs stay.")
@click.argument("name")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@jobs_command
def delete(target: JobsTarget, name: str, yes: bool) -> None:
    """Delete schedule NAME; its jobs stay.

    A program that declares it makes it again when an instance of it begins: pause it instead.

    \b
    Example:
      roq jobs schedule delete nightly
    """
    operate = target.operate().schedules
    if not yes:
        if target.as_json or not sys.stdin.isatty():
            raise click.UsageError(f"add --yes to delete schedule {name}")
        click.confirm(f"Delete schedule {name}?", abort=True)
    operate.delete(name, who=operator())
    done(f"{name}: deleted", as_json=target.as_json)
