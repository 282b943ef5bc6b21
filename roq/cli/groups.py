"""`roq group`: the consumer groups of a queue."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

import click

from roq.cli import completion
from roq.cli.client import Target, cluster_command
from roq.cli.options import cluster_before
from roq.cli.output import done, fields_of, note, print_fields, print_json, print_table, state_text
from roq.client.admin.wording import age_text, place_of
from roq.client.consume.groups import GroupListing, GroupPart, GroupSummary
from roq.errors import InvalidRequest

OLDEST_SHOWN: Final = 20
"""Topics and priorities."""


@click.group()
@cluster_before
def group() -> None:
    """List the consumer groups of a queue, pause, move and delete them.

    A group is made by its first consumer, and stays until it is deleted.

    \b
    Example:
      roq group list orders
      roq group show orders billing
      roq group seek orders billing --to 2026-11-25T08:00:00Z
    """


@group.command("list")
@click.argument("queue", shell_complete=completion.queues)
@cluster_command
def list_(target: Target, queue: str) -> None:
    """List the consumer groups of QUEUE, summed up over its exchanges.

    BEHIND are batches that are not done, OUT messages that consumers hold, WAITING messages that
    were given back, OLDEST the age of the oldest batch that is not done. Below the table stands
    where a group gets nothing although there is something to do, and why.

    \b
    Example:
      roq group list orders
      roq group list orders --json | jq '.[] | select(.stalled != [])'
    """
    with target.connect() as cluster:
        rows = cluster.groups(queue, timeout=target.timeout)
    if target.as_json:
        print_json([_document(row, rows) for row in rows])
        return
    print_table(
        ("GROUP", "STATE", "MODE", "MEMBERS#", "BEHIND#", "OUT#", "WAITING#", "OLDEST", "DONE#",
         "FAILED#", "LAPSED#"),
        [
            (
                row.name, state_text(row.state), _mode(row), row.members, row.behind, row.out,
                row.waiting, _age(row.oldest_seconds), row.acknowledged, row.failed, row.lapsed,
            )
            for row in rows
        ],
        f"Queue {queue} has no consumer group: `roq consume {queue} --group NAME` makes one.",
    )  # fmt: skip
    _print_troubles(rows)


@group.command(short_help="Show GROUP of QUEUE with its members.")
@click.argument("queue", shell_complete=completion.queues)
@click.argument("group", shell_complete=completion.groups)
@cluster_command
def show(target: Target, queue: str, group: str) -> None:
    """Show GROUP of QUEUE: how it stands at each exchange, its members, and for each topic and
    priority how old the oldest message is that is not done; --json tells more of these.

    \b
    Example:
      roq group show orders billing
      roq group show orders billing --json | jq '.oldest[]'
    """
    with target.connect() as cluster:
        rows = cluster.groups(queue, group, timeout=target.timeout)
    row = rows[0]
    if target.as_json:
        print_json(_document(row, rows))
        return
    created = datetime.fromtimestamp(row.created, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    print_fields(
        [
            ("Group", row.name),
            ("Queue", queue),
            ("State", state_text(row.state)),
            ("Mode", _mode(row)),
            ("Topics", ", ".join(f"{topic}*" for topic in row.topics)),
            ("Tags", ", ".join(row.tags) or "all"),
            ("Lease", f"{row.lease_seconds:g} s"),
            ("Attempts", row.attempts or "without an end"),
            ("Created", created),
            ("Members", row.members),
            ("Behind", f"{row.behind:,} batches"),
            ("Oldest", _age(row.oldest_seconds)),
            ("Out", f"{row.out:,} messages"),
            ("Waiting", f"{row.waiting:,} messages"),
            ("Done", f"{row.acknowledged:,} messages"),
            ("Failed", f"{row.failed:,} messages"),
            ("Lapsed", f"{row.lapsed:,} messages"),
            ("Expired", f"{row.expired:,} batches"),
            ("Malformed", f"{row.malformed:,} batches"),
            ("Stale", f"{row.stale:,} messages, {'buried' if row.bury_expired else 'done unseen'}"),
        ]
    )
    note("")
    _print_parts(row.parts)
    note("")
    _print_oldest(row)
    note("")
    print_table(
        ("MEMBER", "EXCHANGES", "HELD#", "CREDIT#", "DONE#", "SILENT", "ID"),
        [
            (
                each.name, ", ".join(each.exchanges), each.held, each.credit, each.acknowledged,
                f"{each.silent_seconds:.1f} s", each.id[:8],
            )
            for each in row.who
        ],
        "No consumer is there.",
    )  # fmt: skip
    _print_troubles(rows)


@group.command(short_help="Have GROUP of QUEUE go on from elsewhere.")
@click.argument("queue", shell_complete=completion.queues)
@click.argument("group", shell_complete=completion.groups)
@click.option(
    "--to",
    required=True,
    metavar="PLACE",
    help="earliest: all that is still there; latest: only what comes now; or a time with its zone, "
    "such as 2026-11-25T08:00:00Z: what was published from then on.",
)
@cluster_command
def seek(target: Target, queue: str, group: str, to: str) -> None:
    """Have GROUP of QUEUE go on from elsewhere, at every exchange.

    What consumers hold at that moment is theirs no longer, so they may do it twice.

    \b
    Example:
      roq group seek orders billing --to earliest
      roq group seek orders billing --to 2026-11-25T08:00:00+01:00
    """
    place = parse_place(to)
    with target.connect() as cluster:
        exchanges = cluster.seek_group(queue, group, place, timeout=target.timeout)
    _done(target, queue, group, f"goes on from {to}", exchanges)


@group.command(short_help="Have GROUP of QUEUE hand out nothing more.")
@click.argument("queue", shell_complete=completion.queues)
@click.argument("group", shell_complete=completion.groups)
@cluster_command
def pause(target: Target, queue: str, group: str) -> None:
    """Have GROUP of QUEUE hand out nothing more; what consumers hold they may still do.

    \b
    Example:
      roq group pause orders billing
    """
    with target.connect() as cluster:
        exchanges = cluster.pause_group(queue, group, timeout=target.timeout)
    _done(target, queue, group, "is paused", exchanges)


@group.command(short_help="Have the paused GROUP of QUEUE go on.")
@click.argument("queue", shell_complete=completion.queues)
@click.argument("group", shell_complete=completion.groups)
@cluster_command
def resume(target: Target, queue: str, group: str) -> None:
    """Have the paused GROUP of QUEUE go on.

    \b
    Example:
      roq group resume orders billing
    """
    with target.connect() as cluster:
        exchanges = cluster.resume_group(queue, group, timeout=target.timeout)
    _done(target, queue, group, "goes on", exchanges)


@group.command(short_help="Forget GROUP of QUEUE and what it has done.")
@click.argument("queue", shell_complete=completion.queues)
@click.argument("group", shell_complete=completion.groups)
@cluster_command
def delete(target: Target, queue: str, group: str) -> None:
    """Forget GROUP of QUEUE and what it has done; its consumers are told, and end.

    The messages stay. A consumer that comes later makes the group anew, and begins where it says.

    \b
    Example:
      roq group delete orders billing
    """
    with target.connect() as cluster:
        exchanges = cluster.delete_group(queue, group, timeout=target.timeout)
    _done(target, queue, group, "is deleted", exchanges)


def parse_place(text: str, option: str = "--to") -> str | datetime:
    """Where a group goes on.

    Raises:
        click.BadParameter: no such place.
    """
    try:
        return place_of(text)
    except InvalidRequest as error:
        raise click.BadParameter(str(error), param_hint=option) from None


def _done(target: Target, queue: str, group: str, what: str, exchanges: list[str]) -> None:
    done(
        f"group {group} of queue {queue} {what}",
        as_json=target.as_json,
        queue=queue,
        group=group,
        exchanges=exchanges,
    )


def _document(row: GroupSummary, rows: GroupListing) -> dict[str, object]:
    return fields_of(row) | ({"missing": rows.missing} if rows.missing else {})


def _mode(row: GroupSummary) -> str:
    return "service" if row.service else row.mode


def _age(seconds: float | None) -> str:
    return "" if seconds is None else age_text(seconds)


def _print_parts(parts: list[GroupPart]) -> None:
    print_table(
        ("EXCHANGE", "BASE#", "END#", "OUT#", "WAITING#", "OLDEST", "MEMBERS#", "DONE#"),
        [
            (
                part.exchange, part.base, part.end, part.out, part.waiting,
                _age(part.oldest_seconds), part.members, part.acknowledged,
            )
            for part in parts
        ],
        "",
    )  # fmt: skip


def _print_oldest(row: GroupSummary) -> None:
    print_table(
        ("TOPIC", "PRIORITY#", "OLDEST", "EXCHANGE"),
        [
            (
                "(all others)" if each.topic is None else each.topic or "(empty)", each.priority,
                _age(each.seconds), each.exchange,
            )
            for each in row.oldest[:OLDEST_SHOWN]
        ],
        "",
    )  # fmt: skip
    if len(row.oldest) > OLDEST_SHOWN:
        note(f"and {len(row.oldest) - OLDEST_SHOWN} that are younger (--json)")
    if row.unseen_seconds is not None:
        note(f"Not all was looked at that is as old as {age_text(row.unseen_seconds)}, or younger.")


def _print_troubles(rows: GroupListing) -> None:
    for row in rows:
        for reason in row.stalled:
            click.echo(f"{row.name}: {reason}")
    if rows.missing:
        click.echo(rows.partial)
