"""`roq message`: the delayed messages of a queue."""

from __future__ import annotations

import click

from roq.cli import completion
from roq.cli.client import Target, cluster_command
from roq.cli.cluster_option import cluster_before
from roq.cli.failures import Failed
from roq.cli.output import done, note, print_json, print_table
from roq.client.admin.wording import bytes_text


@click.group()
@cluster_before
def message() -> None:
    """List the delayed messages of a queue, and cancel them.

    \b
    Example:
      echo hello | roq pub orders --delay 3600
      roq message list orders
      roq message cancel orders 8f14e45fceea167a
    """


@message.command("list")
@click.argument("queue", shell_complete=completion.queues)
@click.option(
    "--most",
    type=click.IntRange(1, 1_000),
    default=100,
    show_default=True,
    help="List so many, the soonest.",
)
@cluster_command
def list_(target: Target, queue: str, most: int) -> None:
    """List the messages of QUEUE that wait for their time, the soonest first.

    \b
    Example:
      roq message list orders --most 10
    """
    with target.connect() as cluster:
        found = cluster.delayed_messages(queue, most=most, timeout=target.timeout)
    if target.as_json:
        print_json({
            "pending": found.pending, "bytes": found.size, "missing": found.missing,
            "messages": [
                {"id": each.id, "due": each.due.isoformat(), "exchange": each.exchange}
                for each in found.messages
            ],
        })  # fmt: skip
        return
    print_table(
        ("ID", "DUE", "EXCHANGE"),
        [(each.id, each.due.isoformat(" ", "milliseconds"), each.exchange)
         for each in found.messages],
        f"No delayed message waits in queue {queue}.",
    )  # fmt: skip
    if found.pending > len(found.messages):
        note(f"{found.pending:,} wait in all, of {bytes_text(found.size)}.")
    for name, why in sorted(found.missing.items()):
        note(f"Without exchange {name}: {why}")


@message.command(short_help="Cancel a delayed message of QUEUE.")
@click.argument("queue", shell_complete=completion.queues)
@click.argument("message_id", metavar="ID")
@cluster_command
def cancel(target: Target, queue: str, message_id: str) -> None:
    """Have the delayed message ID of QUEUE never be published.

    Exits with 1 if no such message waits: it was published or cancelled before.

    \b
    Example:
      roq message cancel orders 8f14e45fceea167a
    """
    with target.connect() as cluster:
        cancelled = cluster.cancel_message(queue, message_id, timeout=target.timeout)
    if not cancelled:
        raise Failed(
            f"no message {message_id} waits in queue {queue}: it was published or cancelled before"
        )
    done(f"Message {message_id} of queue {queue} is cancelled.", as_json=target.as_json)
