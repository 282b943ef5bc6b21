"""`roq dead-letter`: what consumers could not do, to be looked at, tried anew or dropped."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, Final, ParamSpec, TypeVar

import click

from roq.cli import completion
from roq.cli.client import Target, cluster_command
from roq.cli.failures import confirm
from roq.cli.messages import document_of
from roq.cli.options import Number, cluster_before
from roq.cli.output import done, note, print_fields, print_json, print_table
from roq.client.admin.wording import bytes_text
from roq.client.consume.dead_letters import SUFFIX
from roq.client.operate.dead_letters import HELD_MAX, Found, Requeue, Wanted, held, paced

CUT_SHOWN_MAX: Final = 5
P = ParamSpec("P")
T = TypeVar("T")


@click.group("dead-letter")
@cluster_before
def dead_letter() -> None:
    """Look at what consumers of a queue could not do, have it tried anew, or drop it.

    A message that was tried too often, or rejected, goes to the queue of dead letters: that of
    orders is orders.dead.

    \b
    Example:
      roq dead-letter list orders
      roq dead-letter requeue orders --reason timeout --rate 100
    """


def _which(default: int) -> Callable[[Callable[Concatenate[Target, str, Wanted, P], T]],
                                     Callable[Concatenate[Target, P], T]]:  # fmt: skip
    """Give a command the queue, and the options that say which letters."""

    def decorate(
        function: Callable[Concatenate[Target, str, Wanted, P], T],
    ) -> Callable[Concatenate[Target, P], T]:
        @click.argument("queue", shell_complete=completion.queues)
        @click.option("--reason", default="", help="Only if this is in the reason.")
        @click.option("--topic", default="", help="Only if the topic begins with this.")
        @click.option("--group", default="", help="Only what this group could not do.")
        @click.option(
            "--count",
            type=click.IntRange(1, HELD_MAX),
            default=default,
            show_default=True,
            help="So many at most, the oldest first.",
        )
        @click.option(
            "--letters",
            metavar="QUEUE",
            shell_complete=completion.queues,
            help=f"The queue of dead letters.  [default: QUEUE{SUFFIX}]",
        )
        @click.option(
            "--wait",
            type=Number(min=0.1),
            default=2.0,
            show_default=True,
            help="Seconds without another one after which these are all.",
        )
        @wraps(function)
        def command(target: Target, /, *args: P.args, **kwargs: P.kwargs) -> T:
            letters = kwargs.pop("letters")
            wanted = Wanted(
                letters=None if letters is None else str(letters),
                reason=str(kwargs.pop("reason")),
                topic=str(kwargs.pop("topic")),
                group=str(kwargs.pop("group")),
                count=int(str(kwargs.pop("count"))),
                wait=float(str(kwargs.pop("wait"))),
            )
            return function(target, str(kwargs.pop("queue")), wanted, *args, **kwargs)

        return command

    return decorate


@dead_letter.command("list")
@cluster_command
@_which(100)
def list_(target: Target, queue: str, wanted: Wanted) -> None:
    """List the dead letters of QUEUE that were neither requeued nor purged, the oldest first.

    \b
    Example:
      roq dead-letter list orders
      roq dead-letter list orders --group billing --json
    """
    with target.connect() as cluster, held(cluster, queue, wanted) as found:
        if target.as_json:
            print_json([_document(each) for each in found])
            return
        print_table(
            ("DIED", "GROUP", "TOPIC", "KEY", "ATTEMPTS#", "SIZE", "REASON", "ID"),
            [
                (
                    _died(each), each.letter.group, each.letter.topic, each.message.key,
                    each.letter.attempts, bytes_text(len(each.message.payload)),
                    each.letter.reason, each.letter.id,
                )
                for each in found
            ],
            f"Queue {queue} has no dead letter like that.",
        )  # fmt: skip


@dead_letter.command(short_help="Show the dead letter ID of QUEUE.")
@cluster_command
@_which(HELD_MAX)
@click.argument("letter_id", metavar="ID")
def show(target: Target, queue: str, wanted: Wanted, letter_id: str) -> None:
    """Show the dead letter ID of QUEUE, with its payload; `roq dead-letter list` names the ids.

    \b
    Example:
      roq dead-letter show orders x1-3-4711-0
    """
    with target.connect() as cluster, held(cluster, queue, wanted) as found:
        one = next((each for each in found if each.letter.id == letter_id), None)
        if one is None:
            raise click.ClickException(f"queue {queue} has no dead letter {letter_id}")
        if target.as_json:
            print_json(_document(one))
            return
        message, letter = one.message, one.letter
        print_fields(
            [
                ("Id", letter.id),
                ("Queue", letter.queue),
                ("Topic", letter.topic),
                ("Group", letter.group),
                ("Attempts", letter.attempts),
                ("Reason", letter.reason),
                ("Died", _died(one)),
                ("Key", message.key),
                ("Tags", ", ".join(message.tags)),
                *((f"Property {name}", text) for name, text in letter.properties.items()),
                ("Size", bytes_text(len(message.payload))),
                *([("Cut, was", bytes_text(letter.cut))] if letter.cut else []),
            ]
        )
        click.echo(message.payload.decode(errors="backslashreplace"))


@dead_letter.command(short_help="Publish dead letters of QUEUE anew.")
@cluster_command
@_which(HELD_MAX)
@click.option("--rate", type=Number(min=0.1), help="So many a second at most.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
def requeue(target: Target, queue: str, wanted: Wanted, rate: float | None, yes: bool) -> None:
    """Publish dead letters of QUEUE anew to the queue that they come from.

    Each keeps its topic, key, tags and properties, begins with its first attempt, and comes behind
    what is there. It is no dead letter any more when an exchange has acknowledged it: if this is
    interrupted, a few may be requeued twice, and none is lost.

    \b
    Example:
      roq dead-letter requeue orders --reason timeout --rate 100
      roq dead-letter requeue orders --topic eu. --count 10 --yes
    """
    with target.connect() as cluster, held(cluster, queue, wanted) as letters:
        found = [each for each in letters if not each.letter.cut]
        cut = [each.letter.id for each in letters if each.letter.cut]
        if cut:
            note(
                f"not requeued, as they were too large to be kept whole: "
                f"{', '.join(cut[:CUT_SHOWN_MAX])}{', …' if len(cut) > CUT_SHOWN_MAX else ''}"
            )
        places = sorted({each.letter.queue for each in found})
        _confirm(f"Publish {_many(found)} anew to {', '.join(places)}?", found, yes=yes)
        count, requeueing = 0, Requeue(cluster)
        try:
            for chunk in paced(found, rate):
                requeueing.publish(chunk)
                count += len(chunk)
        finally:
            if found and count < len(found):
                note(f"{count} of {_many(found)} are requeued; the others are where they were")
    done(
        f"{count} dead letter{'' if count == 1 else 's'} of queue {queue} requeued",
        as_json=target.as_json,
        queue=queue,
        requeued=count,
    )


@dead_letter.command(short_help="Drop dead letters of QUEUE for good.")
@cluster_command
@_which(HELD_MAX)
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
def purge(target: Target, queue: str, wanted: Wanted, yes: bool) -> None:
    """Drop dead letters of QUEUE: no command here shows them again.

    \b
    Example:
      roq dead-letter purge orders --reason "cannot be parsed"
    """
    with target.connect() as cluster, held(cluster, queue, wanted) as found:
        _confirm(f"Drop {_many(found)} for good?", found, yes=yes)
        for each in found:
            each.message.ack()
    done(
        f"{len(found)} dead letter{'' if len(found) == 1 else 's'} of queue {queue} dropped",
        as_json=target.as_json,
        queue=queue,
        purged=len(found),
    )


def _confirm(question: str, found: list[Found], *, yes: bool) -> None:
    if found and not yes:
        confirm(question)


def _many(found: list[Found]) -> str:
    return f"{len(found)} dead letter{'' if len(found) == 1 else 's'}"


def _died(each: Found) -> str:
    return each.died.strftime("%Y-%m-%d %H:%M:%S UTC")


def _document(each: Found) -> dict[str, object]:
    letter = each.letter
    document = document_of(each.message) | {
        "queue": letter.queue, "topic": letter.topic, "group": letter.group, "id": letter.id,
        "attempts": letter.attempts, "reason": letter.reason,
    }  # fmt: skip
    document.pop("properties", None)
    return document | ({"properties": letter.properties} if letter.properties else {})
