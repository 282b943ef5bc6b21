"""`roq queue`: the life of logical queues."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from time import monotonic
from typing import BinaryIO, Final

import click
import msgspec

import roq
from roq.cli import completion
from roq.cli.client import Target, change_command, cluster_command
from roq.cli.options import cluster_before
from roq.cli.output import (
    done,
    fields_of,
    note,
    print_fields,
    print_json,
    print_listing,
    print_memory,
    print_table,
    state_text,
)
from roq.client.admin.board import Board, QueueView
from roq.client.admin.rules import in_force
from roq.client.admin.views import rules_of
from roq.client.admin.wording import age_text, bytes_text, setting_text
from roq.errors import InvalidRequest
from roq.model import VOLATILE
from roq.number_ranges import UNREADABLE
from roq.protocol.defined_services import DefinedServices, checked_services
from roq.protocol.public import DURABILITIES, LIMIT_RANGES
from roq.protocol.public_answers import ExchangeSummary, QueueDescription
from roq.protocol.reports import RETENTION

ACTIVITY_SECONDS: Final = 2.5
"""The monitor of a queue speaks every second, or every two."""
REQUESTS_BYTES: Final = 64 * 1024
_REQUESTS: Final = click.File("rb", lazy=False)


@click.group()
@cluster_before
def queue() -> None:
    """Create, start, stop, remove and list queues.

    \b
    Example:
      roq queue create orders
      roq queue list
    """


@queue.command()
@click.argument("name")
@click.option(
    "--host",
    default="",
    shell_complete=completion.hosts,
    help="Host for the monitor and the first exchange; chosen by the cluster if not given.",
)
@click.option(
    "--exists-ok", is_flag=True, help="Fine if the queue exists already; it keeps its limits."
)
@click.option(
    "--durability",
    type=click.Choice(DURABILITIES),
    help="flush: messages are acknowledged when they are on the disk of an exchange, and outlive "
    "its process. async: likewise, but acknowledged when written, and synced within 100 ms: a "
    "power cut may take the last of them. none: messages live in memory. If it is not given: what "
    "the cluster is set to, flush as shipped.",
)
@click.option(
    "--limit",
    "limits",
    multiple=True,
    metavar="NAME=NUMBER",
    help="A limit of the queue, such as ring_bytes=268435456; may be repeated.",
)
@click.option(
    "--ordered",
    is_flag=True,
    help="One exchange for as long as the queue lives, and with it one order of everything: the "
    "queue does not grow. The same as --limit ordered=1.",
)
@click.option(
    "--requests",
    type=_REQUESTS,
    metavar="FILE",
    help="Settings of services, as of `roq queue change`.",
)
@change_command
def create(
    target: Target,
    name: str,
    host: str,
    exists_ok: bool,
    durability: str | None,
    limits: tuple[str, ...],
    ordered: bool,
    requests: BinaryIO | None,
) -> None:
    """Create the queue NAME and start it: one monitor, one exchange.

    A queue keeps its durability for its whole life, and whether it is ordered.

    \b
    Example:
      roq queue create orders
      roq queue create payments --limit log_seconds=86400
      roq queue create work --limit log_until_done=1
      roq queue create ledger --ordered
      roq queue create ticks --durability none
      roq queue create work --requests services.json
      roq queue create orders --host 127.0.0.2 --limit ring_bytes=268435456
    """
    given = parse_limits(limits)
    if ordered and given.setdefault("ordered", 1) != 1:
        raise click.UsageError("--ordered and --limit ordered=0: one of them")
    services = read_services(requests) if requests is not None else None
    with target.connect() as cluster:
        cluster.create_queue(
            name,
            host=host or None,
            exists_ok=exists_ok,
            durability=durability,
            limits=given,
            services=services,
            timeout=target.change_timeout,
        )
        warning = _other_limits(cluster.describe(name), given) if exists_ok and given else ""
    done(f"queue {name} is running", as_json=target.as_json, warning=warning, queue=name)


@queue.command(short_help="Change what the queue NAME defines.")
@click.argument("name", shell_complete=completion.queues)
@click.option(
    "--requests",
    type=_REQUESTS,
    metavar="FILE",
    required=True,
    help="Settings of services, in the place of all that is defined; {} defines none.",
)
@change_command
def change(target: Target, name: str, requests: BinaryIO) -> None:
    """Change the settings of services that the queue NAME defines, while it runs.

    The file is JSON: settings by name of a service, or "*" for all that do not say otherwise. They
    hold at every exchange of the queue, whatever clients choose; `roq service show` shows what is
    in force. What is not defined any more has its default, until a client chooses.

    \b
    Example:
      echo '{"billing": {"keep_result": 600, "send_attempts": 8}}' > services.json
      roq queue change work --requests services.json
      roq queue show work --json | jq .services
    """
    services = read_services(requests)
    with target.connect() as cluster:
        cluster.define_services(name, services, timeout=target.change_timeout)
    text = f"queue {name} defines settings of {', '.join(services) or 'no service'}"
    done(text, as_json=target.as_json, queue=name, services=services)


@queue.command()
@click.argument("name", shell_complete=completion.queues)
@change_command
def remove(target: Target, name: str) -> None:
    """Remove the queue NAME, running or stopped, with everything in it.

    \b
    Example:
      roq queue remove orders
    """
    with target.connect() as cluster:
        warning = cluster.remove_queue(name, timeout=target.change_timeout)
    done(f"queue {name} is removed", as_json=target.as_json, warning=warning, queue=name)


@queue.command()
@click.argument("name", shell_complete=completion.queues)
@change_command
def start(target: Target, name: str) -> None:
    """Start the stopped queue NAME.

    \b
    Example:
      roq queue start orders
    """
    with target.connect() as cluster:
        warning = cluster.start_queue(name, timeout=target.change_timeout)
    done(f"queue {name} is running", as_json=target.as_json, warning=warning, queue=name)


@queue.command()
@click.argument("name", shell_complete=completion.queues)
@change_command
def stop(target: Target, name: str) -> None:
    """Stop the queue NAME; its definition stays, its publishers wait.

    \b
    Example:
      roq queue stop orders
    """
    with target.connect() as cluster:
        cluster.stop_queue(name, timeout=target.change_timeout)
    done(f"queue {name} is stopped", as_json=target.as_json, queue=name)


@queue.command("list")
@cluster_command
def list_(target: Target) -> None:
    """List all queues.

    A running queue that lacks something is degraded; below the table stands what is wrong with it
    and what becomes of it.

    \b
    Example:
      roq queue list
      roq queue list --json | jq '.[].name'
    """
    with target.connect() as cluster:
        rows = cluster.queues()
    if target.as_json:
        print_listing(rows)
        return
    print_table(
        ("QUEUE", "STATE", "HOST", "EXCHANGES#", "DURABILITY", "SLOW SUBSCRIBER"),
        [
            (
                r.name,
                state_text(r.shown_state),
                r.host,
                r.exchanges,
                r.durability,
                _slow_text(r.slow_subscriber, r.hold_seconds),
            )
            for r in rows
        ],
        "No queue yet: `roq queue create NAME` makes one.",
    )
    for row in rows:
        for reason in row.reasons:
            click.echo(f"{row.name}: {reason}")
    print_memory(rows.from_memory)


@queue.command(short_help="Show everything about the queue NAME.")
@click.argument("name", shell_complete=completion.queues)
@cluster_command
def show(target: Target, name: str) -> None:
    """Show everything about the queue NAME: state, throughput, addresses, limits, exchanges.

    The throughput is the monitor's word of the last seconds; `roq top NAME` shows it live.

    \b
    Example:
      roq queue show orders
    """
    with target.connect() as cluster:
        description = cluster.describe(name)
        view = present(cluster, name) if description.running else None
    # A monitor that says nothing is not waited for a second time.
    held = "" if view is None else what_is_held(description, target.timeout)
    if target.as_json:
        rules = fields_of(rules_of(description.rules)) if description.rules else {}
        waiting = in_force(description)
        print_json(
            {
                **fields_of(description),
                "rules": rules,
                "slow_subscriber": waiting.slow_subscriber,
                "hold_seconds": waiting.hold_seconds,
                "activity": view,
                "held": held,
            }
        )
    else:
        _print_description(description, view, held)


def what_is_held(description: QueueDescription, seconds: float) -> str:
    """Why its logs do not let go what all groups have done, as its monitor says; empty: they do,
    or it does not say."""
    if not (description.running and description.limits.log_until_done):
        return ""
    from roq.client.operate.survey import one  # noqa: PLC0415 - rarely needed, and loads a whole client

    (monitor,) = one(description.monitor, min(seconds, ACTIVITY_SECONDS)).findings
    return next((each.detail for each in monitor.checks if each.name == RETENTION), "")


def present(cluster: roq.Cluster, name: str) -> QueueView | None:
    """What a running queue carries at the moment; None if its monitor says nothing in time."""
    board = Board(name)
    deadline = monotonic() + ACTIVITY_SECONDS
    with cluster.statistics(name) as statistics:
        while not board.complete():
            sample = statistics.receive(max(0.0, deadline - monotonic()))
            if sample is None:
                return None
            board.take(sample.document, sample.when)
    return board.view(monotonic())


def parse_limits(given: tuple[str, ...]) -> dict[str, int]:
    """The limits in `NAME=NUMBER` arguments.

    Raises:
        click.BadParameter: not of that form, or no such limit.
    """
    limits = {}
    for text in given:
        name, _, value = text.partition("=")
        if name not in LIMIT_RANGES:
            raise click.BadParameter(
                f"there is no limit {name!r}; there are {', '.join(LIMIT_RANGES)}",
                param_hint="--limit",
            )
        if not (value.isascii() and value.isdecimal()):
            raise click.BadParameter(
                f"{text!r} is not NAME=NUMBER, with a whole number", param_hint="--limit"
            )
        limits[name] = int(value)
    return limits


def _other_limits(there: QueueDescription, given: dict[str, int]) -> str:
    """What a queue that exists allows instead of what was given; empty if it is the same."""
    other = [
        f"{name} is {value}"
        for name, value in msgspec.structs.asdict(there.limits).items()
        if given.get(name, value) != value
    ]
    return f"it exists already, and keeps its limits: {', '.join(other)}" if other else ""


def read_services(file: BinaryIO) -> DefinedServices:
    """Settings of services from a file.

    Raises:
        click.BadParameter: it is too large, no JSON, or says what cannot be.
    """
    data, problem = file.read(REQUESTS_BYTES + 1), f"it has more than {REQUESTS_BYTES} bytes"
    if len(data) <= REQUESTS_BYTES:
        try:
            return checked_services(msgspec.json.decode(data))
        except (InvalidRequest, *UNREADABLE) as error:
            problem = str(error)
    raise click.BadParameter(f"{file.name}: {problem}", param_hint="--requests")


def print_exchanges(rows: list[ExchangeSummary], queue_name: str) -> None:
    """The table of a queue's exchanges."""
    print_table(
        ("EXCHANGE", "STATE", "ORIGIN", "HOST", "DATA", "LIVE", "EPOCH#", "PID#"),
        [
            (
                r.name,
                state_text(r.state),
                r.origin,
                r.host,
                r.data,
                r.live,
                str(r.epoch),
                str(r.pid),
            )
            for r in rows
        ],
        f"Queue {queue_name} has no exchange: `roq exchange add {queue_name}` starts one.",
    )


def print_reasons(rows: list[ExchangeSummary]) -> None:
    """Why exchanges are not what they should be."""
    for row in rows:
        if row.reason:
            click.echo(f"{row.name} {row.reason}")


def _activity(view: QueueView | None) -> list[tuple[str, str]]:
    if view is None:
        return []
    return [
        ("Publishers", f"{view.publisher_count:,}"),
        ("Subscribers", f"{view.subscriber_count:,}"),
        ("Throughput in", f"{view.messages_in:,.0f} messages/s, {bytes_text(view.bytes_in)}/s"),
        ("Throughput out", f"{view.messages_out:,.0f} messages/s, {bytes_text(view.bytes_out)}/s"),
        ("Busiest exchange", f"{view.load:.0%} of its limit"),
    ]


def _print_description(description: QueueDescription, view: QueueView | None, held: str) -> None:
    age = (datetime.now(UTC) - description.created_at).total_seconds()
    created = description.created_at.strftime("%Y-%m-%d %H:%M:%S UTC")
    limits = msgspec.structs.asdict(description.limits)
    rules = in_force(description)
    print_fields(
        [
            ("Queue", description.name),
            ("State", state_text(description.shown_state)),
            *(("Reason", reason) for reason in description.reasons),
            *_activity(view),
            ("Host", description.host),
            ("Durability", description.durability),
            *_retention(description, held),
            ("Created", f"{created} ({age_text(max(age, 0.0))} ago)"),
            ("Monitor", description.monitor),
            ("Statistics", description.statistics),
            ("Id", description.queue_id),
            *((name, _limit_text(name, value)) for name, value in limits.items()),
            ("slow_subscriber", rules.slow_subscriber),
            ("hold_seconds", rules.hold_seconds),
            *(
                (f"Service {service}", _defined_text(settings))
                for service, settings in description.services.items()
            ),
        ]
    )
    if description.rules:
        print_fields([("Rules", ", ".join(sorted(description.rules)))])
    note("")
    print_exchanges(description.exchanges, description.name)
    print_memory(description.from_memory)


def _defined_text(settings: Mapping[str, float]) -> str:
    """Settings that the queue defines of a service."""
    return ", ".join(f"{name} {setting_text(name, value)}" for name, value in settings.items())


def _retention(description: QueueDescription, held: str) -> list[tuple[str, str]]:
    """For how long messages stay in the logs, in words."""
    if description.durability == VOLATILE:
        return []
    limits = description.limits
    stays = f"{age_text(limits.log_seconds)}, {bytes_text(limits.log_bytes)} for each exchange"
    done = "; what all groups have done goes before that" if limits.log_until_done else ""
    rows = [("Retention", f"{stays}, whichever comes first, read or not{done}")]
    return [*rows, ("Held", held)] if held else rows


def _slow_text(slow: str, seconds: int) -> str:
    """What is done for a slow subscriber; empty if an older manager has not told."""
    return f"{slow} {seconds} s" if slow == "hold" else slow


def _limit_text(name: str, value: int) -> str | int:
    if name == "throughput_bytes":
        return f"{bytes_text(value)} a minute"
    return bytes_text(value) if name.endswith("_bytes") else value
