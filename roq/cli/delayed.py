"""`roq message`: single messages of a queue, those that are delayed among them."""

from __future__ import annotations

import base64
from typing import Final

import click

from roq.cli import completion
from roq.cli.client import Target, cluster_command
from roq.cli.failures import Failed
from roq.cli.options import cluster_before
from roq.cli.output import done, note, print_json, print_table
from roq.client.admin.wording import bytes_text
from roq.client.consume.lookup import MOST_MAX, FoundMessage

_SHOWN: Final = 60
"""Characters of a payload in a table."""


@click.group()
@cluster_before
def message() -> None:
    """Look messages of a queue up; list those that are delayed, and cancel them.

    \b
    Example:
      echo hello | roq pub orders --delay 3600
      roq message list orders
      roq message cancel orders 8f14e45fceea167a
      roq message find orders --key order-4711
      roq message show orders x1-65537-1200-0
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


@message.command(short_help="Find the messages of a key in QUEUE.")
@click.argument("queue", shell_complete=completion.queues)
@click.option("--key", required=True, help="The key, as it was published.")
@click.option(
    "--most",
    type=click.IntRange(1, MOST_MAX),
    default=100,
    show_default=True,
    help="List so many, the newest.",
)
@cluster_command
def find(target: Target, queue: str, key: str, most: int) -> None:
    """List the messages of QUEUE that have this key and are still there, the newest first.

    Of what is complete on the disks an index tells where they are; what came last is read. Exits
    with 1 if there is none.

    \b
    Example:
      roq message find orders --key order-4711
    """
    with target.connect() as cluster:
        found = cluster.find_messages(queue, key, most=most, timeout=target.timeout)
    if target.as_json:
        print_json({
            "messages": [_document(each) for each in found.messages], "more": found.more,
            "missing": found.missing,
        })  # fmt: skip
    elif found.messages:
        print_table(
            ("ID", "APPENDED", "TOPIC", "PAYLOAD"),
            [(each.id, each.appended.isoformat(" ", "milliseconds"), each.topic,
              _shortened(each.payload)) for each in found.messages],
            "",
        )  # fmt: skip
    for name, why in sorted(found.missing.items()):
        note(f"Without all of exchange {name}: {why}")
    if found.more and not found.missing:
        note("There are older ones: --most lists more.")
    if not found.messages:
        raise Failed(f"queue {queue} has no message of key {key!r}, or not any more")


@message.command(short_help="Show a message of QUEUE.")
@click.argument("queue", shell_complete=completion.queues)
@click.argument("message_id", metavar="ID")
@cluster_command
def show(target: Target, queue: str, message_id: str) -> None:
    """Show the message ID of QUEUE, with all that it has.

    Exits with 1 if it is not there any more.

    \b
    Example:
      roq message show orders x1-65537-1200-0
    """
    with target.connect() as cluster:
        found = cluster.find_message(queue, message_id, timeout=target.timeout)
    if found is None:
        raise Failed(
            f"queue {queue} has no message {message_id}: it has left the log, or never was there"
        )
    document = _document(found)
    if target.as_json:
        print_json(document)
        return
    for name, value in document.items():
        click.echo(f"{name:<11}{value}")


def _document(found: FoundMessage) -> dict[str, object]:
    """A message as JSON has it; without what it has not."""
    document: dict[str, object] = {"id": found.id, "topic": found.topic}
    if found.key is not None:
        document["key"] = found.key
    if found.tags:
        document["tags"] = list(found.tags)
    if found.properties:
        document["properties"] = found.properties
    if found.priority:
        document["priority"] = found.priority
    document |= {
        "publisher": found.publisher, "sequence": found.sequence,
        "published": found.published.isoformat(), "appended": found.appended.isoformat(),
    }  # fmt: skip
    try:
        return document | {"payload": found.payload.decode()}
    except UnicodeDecodeError:
        return document | {"payload_base64": base64.b64encode(found.payload).decode()}


def _shortened(payload: bytes) -> str:
    text = payload[: 4 * _SHOWN].decode(errors="backslashreplace")
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"
