"""`roq service`: the services that answer the requests of a queue."""

from __future__ import annotations

import importlib
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from time import monotonic
from typing import Final, cast

import click

import roq
from roq.cli import completion
from roq.cli.client import Target, cluster_command
from roq.cli.failures import Failed
from roq.cli.fleet import Fleet
from roq.cli.options import cluster_before
from roq.cli.output import done, fields_of, note, print_fields, print_json, print_table
from roq.client.admin.wording import (
    age_text,
    bytes_text,
    durations_text,
    ended_text,
    settings_texts,
)
from roq.client.consume.groups import GroupMember
from roq.client.io.exchange_questions import told
from roq.client.request.service import Service
from roq.client.request.views import ServiceView
from roq.errors import ConfigError
from roq.local.part import guarded
from roq.protocol.requesting import ENDS
from roq.runtime.signals import SignalEvent

LOOK_SECONDS: Final = 0.25
DRAINED_STATUS: Final = 64
"""With this one of several processes ends that an operator has drained."""
instance_option = click.option(
    "--instance", help="Name or id of the one that is meant.  [default: all]"
)


@click.group()
@cluster_before
def service() -> None:
    """List the services of a queue, show, run, flag and drain their instances.

    A service is made by its first instance, or by who requests something of it. It is a consumer
    group: `roq group pause|resume|delete` do with it what they say.

    \b
    Example:
      roq service list work
      roq service show work billing
      roq service run shop.billing:service --processes 4
      roq service flag work billing --off
      roq service drain work billing
    """


@service.command("list")
@click.argument("queue", shell_complete=completion.queues)
@cluster_command
def list_(target: Target, queue: str) -> None:
    """List the services of QUEUE, summed up over its exchanges.

    OPEN are requests that have not ended, OLDEST the age of the first of them, STORED responses
    that nobody has fetched yet. Below the table stands where nothing is handed out although there
    is something to do, and why.

    \b
    Example:
      roq service list work
    """
    with target.connect() as cluster:
        names = cluster.services(queue, timeout=target.timeout)
        rows = [cluster.describe_service(queue, name, timeout=target.timeout) for name in names]
    if target.as_json:
        print_json([_document(row) for row in rows])
        return
    print_table(
        ("SERVICE", "INSTANCES#", "OPEN#", "OLDEST", "STORED#", "SIZE#", "DONE#", "FAILED#",
         "OTHER ENDS#"),
        [
            (
                row.name, len(row.instances), row.open, _age(row.oldest_seconds), row.stored,
                bytes_text(row.stored_bytes), row.counts.get("done", 0),
                row.counts.get("failed", 0), _others(row),
            )
            for row in rows
        ],
        f"Queue {queue} has no service: its first instance makes one.",
    )  # fmt: skip
    for row in rows:
        _print_troubles(row)


@service.command(short_help="Show SERVICE of QUEUE with its instances.")
@click.argument("queue", shell_complete=completion.queues)
@click.argument("service", shell_complete=completion.groups)
@cluster_command
def show(target: Target, queue: str, service: str) -> None:
    """Show SERVICE of QUEUE: settings, how its requests have ended, and its instances.

    \b
    Example:
      roq service show work billing
    """
    with target.connect() as cluster:
        row = cluster.describe_service(queue, service, timeout=target.timeout)
    if target.as_json:
        print_json(_document(row))
        return
    print_fields(
        [
            ("Service", row.name),
            ("Queue", queue),
            ("Open", f"{row.open:,} requests"),
            ("Oldest", _age(row.oldest_seconds)),
            ("Stored", f"{row.stored:,} responses, {bytes_text(row.stored_bytes)}"),
            ("Accepted", f"{row.accepted:,}"),
            ("Retried", f"{row.retried:,}"),
            *((ended_text(ending), f"{count:,}") for ending, count in sorted(row.counts.items())),
            ("Waiting", durations_text(row.waiting)),
            ("Running", durations_text(row.running)),
            ("Until fetched", durations_text(row.unfetched)),
            *settings_texts(row.settings).items(),
        ]
    )
    note("")
    print_table(
        ("INSTANCE", "STATE", "BUSY#", "THREADS#", "RESPONSE", "CPU#", "MEMORY#", "VERSION",
         "HELD#", "SILENT", "ENDPOINTS"),
        [_instance(each) for each in row.instances],
        "No instance is there.",
    )  # fmt: skip
    _print_troubles(row)


@service.command(short_help="Run instances of a service.")
@click.argument("program", metavar="MODULE:FUNCTION")
@click.option(
    "--processes",
    type=click.IntRange(1, 256),
    default=1,
    show_default=True,
    help="So many, each an instance of its own.",
)
@click.option(
    "--one-of-many", is_flag=True, hidden=True, help="Says by its status if it was drained."
)
@cluster_command
def run(target: Target, program: str, processes: int, one_of_many: bool) -> None:
    """Run instances of a service until SIGTERM or Ctrl-C; then they finish what runs.

    FUNCTION in MODULE is called with a `roq.Cluster`, and gives a `roq.Service` with its handlers,
    which is not started. Of several processes one that ends is started again, unless it was
    drained; if all of them end as soon as they have begun, and again, this command ends with an
    error. A second signal kills them. If this command is killed, they finish what runs and end.

    \b
    Example:
      roq service run shop.billing:service --processes 4
    """
    if processes > 1:
        _run_fleet(target, program, processes)
        return
    make = _loaded(program)
    with target.connect() as cluster:
        made = make(cluster)
        if not isinstance(made, Service):
            raise ConfigError(f"{program} has given no roq.Service, but {type(made).__name__}")
        made.start()
        note(f"{made.instance} answers requests to service {made.name} of queue {made.queue}.")
        made.run()
        if made.drained and one_of_many:
            click.get_current_context().exit(DRAINED_STATUS)


@service.command(short_help="Set the flag of instances of SERVICE.")
@click.argument("queue", shell_complete=completion.queues)
@click.argument("service", shell_complete=completion.groups)
@instance_option
@click.option("--on/--off", "on", default=True, show_default=True, help="What they see.")
@cluster_command
def flag(target: Target, queue: str, service: str, instance: str | None, on: bool) -> None:
    """Set the flag that the availability functions of instances of SERVICE see.

    Instances without such a function take requests while their flag is on. What they run they
    finish. An instance that comes later has its flag on.

    \b
    Example:
      roq service flag work billing --off
      roq service flag work billing --instance billing@host7#4711 --on
    """
    with target.connect() as cluster:
        names = cluster.flag_service(
            queue, service, available=on, instance=instance, timeout=target.timeout
        )
    word = "on" if on else "off"
    done(f"{word}: {', '.join(names)}", as_json=target.as_json, flag=on, instances=names)


@service.command(short_help="Have instances of SERVICE end.")
@click.argument("queue", shell_complete=completion.queues)
@click.argument("service", shell_complete=completion.groups)
@instance_option
@cluster_command
def drain(target: Target, queue: str, service: str, instance: str | None) -> None:
    """Have instances of SERVICE finish what runs, give back the rest, and end.

    They take nothing more from now on, and what runs has a minute. Their programs end if they are
    in `Service.run`, as those of `roq service run` are, which starts none again. This command does
    not wait for that: `roq service show` shows who is there.

    \b
    Example:
      roq service drain work billing
      roq service drain work billing --instance billing@host7#4711
    """
    with target.connect() as cluster:
        names = cluster.drain_service(queue, service, instance=instance, timeout=target.timeout)
    done(f"told to end: {', '.join(names)}", as_json=target.as_json, instances=names)


def _run_fleet(target: Target, program: str, processes: int) -> None:
    words = [sys.executable, "-m", "roq", "service", "run", program]
    words += ["--cluster", target.address, "--timeout", str(target.timeout)]
    words = guarded([*words, "--one-of-many"])
    fleet = Fleet(
        lambda: subprocess.Popen(words, start_new_session=True), processes, DRAINED_STATUS
    )
    stop = SignalEvent()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    told = 0
    try:
        while not fleet.over:
            for status in fleet.look(monotonic()):
                if not told:
                    note(f"an instance has ended with status {status}")
            if stop.take(LOOK_SECONDS):
                fleet.end(signal.SIGKILL if told else signal.SIGTERM)
                told += 1
    finally:
        fleet.end()  # none is left behind, whatever went wrong here
    if not told and not fleet.left:
        raise Failed(f"{program}: its instances end as soon as they have begun")


def _loaded(program: str) -> Callable[[roq.Cluster], object]:
    """The function that a program names.

    Raises:
        ConfigError: there is none.
    """
    module, _, name = program.partition(":")
    sys.path.insert(0, str(Path.cwd()))
    try:
        found = getattr(importlib.import_module(module), name or "service")
    except (ImportError, AttributeError, ValueError) as error:
        why = f"{program}: {error}; give MODULE:FUNCTION, as in shop.billing:service"
        raise ConfigError(why) from None
    if not callable(found):
        raise ConfigError(f"{program} is no function, but {type(found).__name__}")
    return cast("Callable[[roq.Cluster], object]", found)


def _instance(member: GroupMember) -> tuple[object, ...]:
    silent = f"{member.silent_seconds:.1f} s"
    said = member.figures
    if said is None:
        return (member.name, "-", "-", "-", "-", "-", "-", "-", member.held, silent, "-")
    state = "available" if said.available else f"unavailable: {said.rule or 'its rule says so'}"
    return (
        member.name, state, said.busy, said.threads, f"{said.response_ms:.1f} ms",
        f"{said.cpu_percent:.0f} %", bytes_text(said.memory_bytes), said.version or "-",
        member.held, silent, ", ".join(said.endpoints),
    )  # fmt: skip


def _others(row: ServiceView) -> int:
    return sum(row.counts.get(ending, 0) for ending in ENDS - {"done", "failed"})


def _print_troubles(row: ServiceView) -> None:
    for trouble in row.stalled:
        note(f"{row.name}: {trouble}")
    if row.missing:
        note(f"{row.name}: without {told(row.missing)}")


def _age(seconds: float | None) -> str:
    return "-" if seconds is None else age_text(seconds)


def _document(row: ServiceView) -> dict[str, object]:
    document = fields_of(row)
    del document["requests"]  # `roq request list` has them
    return document
