"""`roq health`: is everything there, and does it do its work?"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from functools import partial
from typing import Final

import click
from rich.text import Text

from roq.cli.client import Target, answered_within, what_is_there_instead
from roq.cli.failures import REFUSED
from roq.cli.options import Number
from roq.cli.output import note, print_json, print_table, state_text
from roq.client.operate.survey import Ask, Finding, Survey, everybody, one
from roq.errors import InvalidRequest
from roq.runtime.addresses import parse_addresses

AGAIN_SECONDS: Final = 0.5
"""Between two surveys of `--wait`."""


@click.command(short_help="Ask every daemon whether it is well.")
@click.option(
    "--at",
    metavar="HOST:PORT",
    default="",
    help="Ask this one daemon only: client address of a configuration manager, control address of "
    "a host manager or monitor. Shows all of its checks.",
)
@click.option(
    "--wait",
    type=Number(min=0.0),
    default=0.0,
    metavar="SECONDS",
    help="Ask again until everything is ready, for so long at most.",
)
@click.option(
    "--hosts",
    type=click.IntRange(min=0),
    default=1,
    show_default=True,
    metavar="N",
    help="So many host managers must be ready at least.",
)
@answered_within(3.0)
def health(target: Target, at: str, wait: float, hosts: int) -> None:
    """Ask every daemon of the cluster whether it is well.

    These are the configuration managers, the host managers, and the monitors of all running queues;
    exchanges are watched by their host manager.

    \b
    alive   it answers. One that does not, within --timeout, is gone, cut off or
            hung.
    ready   it does all of its work: a configuration manager has its registry and
            knows who leads, a host manager reports to the leader and all its
            monitors and exchanges run, a monitor has exchanges. A daemon that
            is alive and not ready wants time or help, no restart: messages flow
            all the same.

    What is wrong beside that (a disk nearly full, say) is shown and changes nothing. So is a host
    that is lost and of which nothing is missing: perhaps it was taken away; --hosts asks for a
    number of them. Exits with 0 if all are ready, 1 if one is not or does not answer, 2 for
    wrong usage.

    \b
    Example:
      roq health
      roq health --wait 60 --hosts 3      # in a script, after a start
      roq health --at 127.0.0.1:5100
    """
    ask = partial(everybody, target.address, target.timeout)
    if at:
        ask, hosts = partial(one, _endpoint(at), target.timeout), 0
    survey = _until_ready(ask, hosts, wait, quiet=target.as_json)
    troubles = _troubles(survey, hosts)
    if not at and survey.findings and all(each.trouble for each in survey.findings):
        troubles += what_is_there_instead(target.address)
    if target.as_json:
        print_json(_document(survey, troubles))
    else:
        _print(survey, troubles, every_check=bool(at))
    if troubles or not survey.ready:
        raise SystemExit(REFUSED)


def _endpoint(address: str) -> str:
    try:
        endpoints = parse_addresses(address)
    except InvalidRequest as error:
        raise click.UsageError(f"--at: {error}") from None
    if len(endpoints) != 1:
        raise click.UsageError("--at: name one daemon")
    return endpoints[0]


def _until_ready(ask: Ask, hosts: int, wait: float, *, quiet: bool) -> Survey:
    """The first survey that finds all well, or the last one in time."""
    deadline = time.monotonic() + wait
    pause = threading.Event()
    said = ""
    while True:
        survey = ask()
        late = time.monotonic() + AGAIN_SECONDS > deadline
        if late or (survey.ready and not _troubles(survey, hosts)):
            return survey
        text = _first_trouble(survey, hosts)
        if not quiet and text != said:
            note(f"waiting: {text}")
            said = text
        pause.wait(AGAIN_SECONDS)


def _troubles(survey: Survey, hosts: int) -> list[str]:
    """What is wrong with the cluster as such."""
    there = survey.ready_hosts()
    if survey.troubles or there >= hosts:
        return list(survey.troubles)
    text = f"{there} of {hosts} host managers are ready"
    missing = hosts > sum(each.role == "host" for each in survey.findings)
    return [f"{text}; `roq host` starts one" if missing else text]


def _first_trouble(survey: Survey, hosts: int) -> str:
    texts = [
        f"{each.role} {each.name}: {'; '.join(each.wrong) or each.state}"
        for each in survey.findings
        if not each.ready
    ]
    return [*texts, *_troubles(survey, hosts)][0]


def _document(survey: Survey, troubles: Sequence[str]) -> dict[str, object]:
    return {
        "ready": survey.ready and not troubles,
        "troubles": list(troubles),
        "daemons": [
            {
                "role": each.role,
                "name": each.name,
                "address": each.address,
                "state": each.state,
                "ready": each.ready,
                "wrong": each.wrong,
                "checks": each.checks,
            }
            for each in survey.findings
        ],
    }


def _print(survey: Survey, troubles: Sequence[str], *, every_check: bool) -> None:
    print_table(
        ("ROLE", "NAME", "STATE", "READY", "WHAT IS WRONG"),
        [
            (each.role, each.name, state_text(each.state), _ready(each), "\n".join(each.wrong))
            for each in survey.findings
        ],
        "no daemon was asked",
    )
    if every_check:
        checks = [check for each in survey.findings for check in each.checks]
        print_table(
            ("CHECK", "OK", "WHAT IT SAYS"),
            [
                (check.name, _ok(check.ok, essential=check.essential), check.detail)
                for check in checks
            ],
            "no check is known",
        )
    for text in troubles:
        note(text)
    bad = sum(not each.ready for each in survey.findings)
    if bad and not every_check:
        note(f"{bad} of {len(survey.findings)} daemons are not ready")


def _ready(finding: Finding) -> Text:
    if not finding.ready:
        return Text("no", style="red")
    return Text("yes", style="yellow" if finding.wrong else "green")


def _ok(ok: bool, *, essential: bool) -> Text:
    if ok:
        return Text("yes", style="green")
    return Text("no" if essential else "warning", style="red" if essential else "yellow")
