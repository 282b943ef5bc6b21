"""`roq consume`: a member of a consumer group that prints what it gets."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from itertools import islice
from typing import Final

import click

import roq
from roq.cli import completion
from roq.cli.client import Target, cluster_command
from roq.cli.groups import parse_place
from roq.cli.interrupts import ends_quietly
from roq.cli.messages import document_of
from roq.cli.options import Number
from roq.cli.output import note
from roq.protocol.consuming import MODES

PREFETCH: Final = 1_000
"""Of a consumer that prints: others are to have something, too."""
HELD_MAX: Final = 100_000
"""Of one that acknowledges nothing."""
MOST: Final = 500
"""Messages that are printed, and then acknowledged, together."""


@click.command(short_help="Take messages of a consumer group, and print them.")
@click.argument("queue", shell_complete=completion.queues)
@click.option("--group", required=True, help="The group; it is made if there is none.")
@click.option(
    "--topic",
    "topics",
    multiple=True,
    help="Only topics that begin with this; may be repeated. The same for all of the group.",
)
@click.option(
    "--tag",
    "tags",
    multiple=True,
    help="Only messages with this tag; may be repeated. The same for all of the group.",
)
@click.option(
    "--mode",
    type=click.Choice(MODES),
    default=MODES[0],
    show_default=True,
    help="shared: any consumer gets the next batch. exclusive: one gets all of an exchange, in "
    "order, and the others wait to take its place. keyed: the messages of one key go to one "
    "consumer, in order. priority: as shared, the higher priorities first.",
)
@click.option(
    "--start",
    default="earliest",
    show_default=True,
    metavar="PLACE",
    help="Where a new group begins: earliest, latest, or a time such as 2026-11-25T08:00:00Z.",
)
@click.option(
    "--bury-expired",
    is_flag=True,
    help="Of a new group: messages whose time to live is over go to the dead letters, with the "
    "reason expired; else they are done unseen, and counted.",
)
@click.option(
    "--prefetch",
    type=click.IntRange(min=1),
    help=f"Messages that are held at most, at all exchanges together.  [default: {PREFETCH:,}, or "
    f"COUNT if that is less; {HELD_MAX:,} with --no-ack]",
)
@click.option("--count", type=click.IntRange(min=1), help="End after so many messages.")
@click.option("--follow", is_flag=True, help="Go on until Ctrl-C; so it is without --wait.")
@click.option(
    "--wait",
    type=Number(min=0.0),
    help="End when no message has come for so many seconds.",
)
@click.option(
    "--ack/--no-ack",
    default=True,
    show_default=True,
    help="Acknowledge what is printed; or give it back in the end, for others to do.",
)
@click.option("--quiet", "-q", is_flag=True, help="Nothing on standard error.")
@cluster_command
def consume(
    target: Target,
    queue: str,
    group: str,
    topics: tuple[str, ...],
    tags: tuple[str, ...],
    mode: str,
    start: str,
    bury_expired: bool,
    prefetch: int | None,
    count: int | None,
    follow: bool,
    wait: float | None,
    ack: bool,
    quiet: bool,
) -> None:
    """Print messages of QUEUE as a member of a group, one a line, each acknowledged when printed.

    Other members of the group get other messages. With --json one object a line, as `roq sub` has
    it, and id and attempt. What was taken and not printed goes to others when this ends.

    \b
    Example:
      roq consume orders --group billing
      roq consume orders --group look --no-ack --count 10 --json
    """
    if follow and wait is not None:
        raise click.UsageError("--follow and --wait: one of them")
    if prefetch is None:
        # What is not acknowledged is held to the end, and each exchange has a share of this.
        prefetch = HELD_MAX if not ack else min(count or PREFETCH, PREFETCH)
    place = parse_place(start, "--start")
    write = _write_json if target.as_json else _write_lines
    with (
        ends_quietly(),
        target.connect() as cluster,
        cluster.consumer(
            queue, group, topic=topics or "", tags=tags, mode=mode, start=place,
            bury_expired=bury_expired, prefetch=prefetch,
        ) as consumer,
    ):  # fmt: skip
        if not quiet:
            note(f"Consuming {queue} in group {group}.")
        left = count
        for batch in consumer.batches(MOST, wait):
            messages = list(islice(batch, left))
            write(messages)
            if ack:
                _acknowledge(batch, messages)
            left = None if left is None else left - len(messages)
            if left == 0:
                break
        if ack:
            consumer.flush()


def _acknowledge(batch: roq.ConsumedBatch, printed: list[roq.ConsumedMessage]) -> None:
    if len(printed) == len(batch):
        batch.ack()
        return
    for message in printed:
        message.ack()


def _write_lines(messages: Iterable[roq.ConsumedMessage]) -> None:
    out = sys.stdout.buffer
    out.write(b"".join(message.payload + b"\n" for message in messages))
    out.flush()


def _write_json(messages: Iterable[roq.ConsumedMessage]) -> None:
    for message in messages:
        document = document_of(message) | {"id": message.id, "attempt": message.attempt}
        sys.stdout.write(json.dumps(document, ensure_ascii=False) + "\n")
    sys.stdout.flush()
