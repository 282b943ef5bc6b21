"""`roq transaction`: the open transactions of a queue, for whoever has to settle one by hand."""

from __future__ import annotations

import base64
from datetime import timedelta

import click
import msgspec

from roq.cli import completion
from roq.cli.client import Target, cluster_command
from roq.cli.options import cluster_before
from roq.cli.output import done, note, print_json, print_table, visible
from roq.client.admin.wording import bytes_text
from roq.client.publish.batching import as_bytes
from roq.client.transact.commands import TransactionListing, TransactionSummary
from roq.client.transact.publisher import TransactionMessage


@click.group()
@cluster_before
def transaction() -> None:
    """List the open transactions of a queue, show one, and end it by hand.

    \b
    Example:
      roq transaction list orders
      roq transaction show orders 8f14e45fceea167a
      roq transaction commit orders 8f14e45fceea167a
    """


@transaction.command("list")
@click.argument("queue", shell_complete=completion.queues)
@click.option("--group", default="", help="Only those of this group of producers.")
@click.option(
    "--most",
    type=click.IntRange(1, 1_000),
    default=100,
    show_default=True,
    help="List so many, the oldest.",
)
@cluster_command
def list_(target: Target, queue: str, group: str, most: int) -> None:
    """List the open transactions of QUEUE, the oldest first.

    NEXT is when a producer of its group is asked again; `kept` is left to a person.

    \b
    Example:
      roq transaction list orders --group checkout
    """
    with target.connect() as cluster:
        found = cluster.transactions(queue, group, most=most, timeout=target.timeout)
    if target.as_json:
        print_json(msgspec.to_builtins(found))
        return
    print_table(
        ("ID", "GROUP", "OPEN FOR", "ATTEMPTS", "NEXT", "SIZE", "EXCHANGE"),
        [_row(each) for each in found.transactions],
        f"No transaction is open in queue {queue}.",
    )
    note(_counts(found))
    for name, why in sorted(found.missing.items()):
        note(f"Without exchange {name}: {why}")


@transaction.command(short_help="Show a transaction of QUEUE.")
@click.argument("queue", shell_complete=completion.queues)
@click.argument("transaction_id", metavar="ID")
@cluster_command
def show(target: Target, queue: str, transaction_id: str) -> None:
    """Show the transaction ID of QUEUE, with its messages if it is open.

    \b
    Example:
      roq transaction show orders 8f14e45fceea167a --json
    """
    with target.connect() as cluster:
        found = cluster.transaction(queue, transaction_id, timeout=target.timeout)
    messages = [_message(each) for each in found.messages]
    if target.as_json:
        shown = msgspec.structs.asdict(found) | {"messages": messages}
        print_json(shown)
        return
    click.echo(
        f"Transaction {found.id} of queue {queue}, exchange {found.exchange}: "
        f"{found.state.replace('_', ' ')}"
    )
    if found.group:
        click.echo(
            f"group {visible(found.group)}, open for {_span(found.seconds)}, "
            f"{found.attempts} attempts"
        )
    for each in messages:
        told = (f"{name} {value}" for name, value in each.items() if value)
        click.echo("  " + visible(", ".join(told)))


@transaction.command(short_help="Publish the messages of an open transaction.")
@click.argument("queue", shell_complete=completion.queues)
@click.argument("transaction_id", metavar="ID")
@cluster_command
def commit(target: Target, queue: str, transaction_id: str) -> None:
    """Have the open transaction ID of QUEUE be committed: its messages are published.

    Nobody is asked. See first whether the work that it belongs to was done.

    \b
    Example:
      roq transaction commit orders 8f14e45fceea167a
    """
    with target.connect() as cluster:
        cluster.commit_transaction(queue, transaction_id, timeout=target.timeout)
    done(f"Transaction {transaction_id} of queue {queue} is committed.", as_json=target.as_json)


@transaction.command(short_help="Drop the messages of an open transaction.")
@click.argument("queue", shell_complete=completion.queues)
@click.argument("transaction_id", metavar="ID")
@cluster_command
def rollback(target: Target, queue: str, transaction_id: str) -> None:
    """Have the open transaction ID of QUEUE be rolled back: its messages are never published.

    Nobody is asked. See first whether the work that it belongs to was done.

    \b
    Example:
      roq transaction rollback orders 8f14e45fceea167a
    """
    with target.connect() as cluster:
        cluster.rollback_transaction(queue, transaction_id, timeout=target.timeout)
    done(f"Transaction {transaction_id} of queue {queue} is rolled back.", as_json=target.as_json)


def _row(each: TransactionSummary) -> tuple[str, ...]:
    following = "kept" if each.state == "kept" else _span(each.next_seconds)
    return (
        each.id, each.group or "?", _span(each.seconds), str(each.attempts), following,
        bytes_text(each.size), each.exchange,
    )  # fmt: skip


def _span(seconds: float) -> str:
    return str(timedelta(seconds=round(seconds)))


def _counts(found: TransactionListing) -> str:
    return (
        f"{found.open:,} open, of which {found.kept:,} are left to a person; "
        f"{found.producers:,} producers may be asked. Since the exchanges have started: "
        f"{found.committed:,} committed, {found.rolled_back:,} rolled back, "
        f"{found.by_policy:,} of them by policy, {found.checked:,} checks."
    )


def _message(message: TransactionMessage) -> dict[str, object]:
    """As JSON has it."""
    payload = as_bytes(message.payload)
    shown: dict[str, object] = {"topic": message.topic}
    try:
        shown["payload"] = payload.decode()
    except UnicodeDecodeError:
        shown["payload_base64"] = base64.b64encode(payload).decode()
    if message.key is not None:
        shown["key"] = message.key
    if message.tags:
        shown["tags"] = list(message.tags)
    if message.properties:
        shown["properties"] = dict(message.properties)
    if message.priority:
        shown["priority"] = message.priority
    return shown
