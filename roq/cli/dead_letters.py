"""`roq dead-letter`: what consumers could not do, to be looked at, tried anew or dropped.

The commands are consumers of the queue of dead letters, in one group for all of them: a letter is
acknowledged there when it is back in its queue, or dropped, and that is how it is gone. One command
at a time: two would each see a part of what there is, so the second one says who is at work.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import wraps
from typing import Concatenate, Final, ParamSpec, TypeVar

import click

import roq
from roq.cli import completion
from roq.cli.client import Target, cluster_command
from roq.cli.cluster_option import cluster_before
from roq.cli.messages import document_of
from roq.cli.output import bytes_text, done, note, print_fields, print_json, print_table
from roq.client.consume.dead_letters import SUFFIX, DeadLetter, read_letter
from roq.errors import RemoteProtocolError

GROUP: Final = "dead-letters"
HELD_MAX: Final = 100_000
HELD_BYTES_MAX: Final = 256 * 1024 * 1024
CUT_SHOWN_MAX: Final = 5
CHUNK: Final = 500
"""Letters that are published, acknowledged and then done together."""
FLUSH_SECONDS: Final = 60.0
P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which dead letters.

    Attributes:
        reason: is in their reason.
        topic: their topic begins so.
        group: they come from this group; empty: from any.
        count: so many at most.
        wait: seconds without another one after which those that are there are taken for all.
    """

    letters: str | None
    reason: str
    topic: str
    group: str
    count: int
    wait: float

    def admits(self, letter: DeadLetter) -> bool:
        """Whether this is one of them."""
        return (
            self.reason in letter.reason
            and letter.topic.startswith(self.topic)
            and self.group in {"", letter.group}
        )


@dataclass(frozen=True, slots=True)
class Found:
    """A dead letter that this command holds."""

    message: roq.ConsumedMessage
    letter: DeadLetter


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
            type=click.FloatRange(min=0.1),
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
    with target.connect() as cluster, _found(cluster, queue, wanted) as found:
        if target.as_json:
            print_json([_document(each) for each in found])
            return
        print_table(
            ("DIED", "GROUP", "TOPIC", "KEY", "ATTEMPTS#", "SIZE", "REASON", "ID"),
            [
                (
                    _when(each), each.letter.group, each.letter.topic, each.message.key,
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
    with target.connect() as cluster, _found(cluster, queue, wanted) as found:
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
                ("Died", _when(one)),
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
@click.option("--rate", type=click.FloatRange(min=0.1), help="So many a second at most.")
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
    with target.connect() as cluster, _found(cluster, queue, wanted) as letters:
        found = [each for each in letters if not each.letter.cut]
        cut = [each for each in letters if each.letter.cut]
        if cut:
            note(
                f"{_many(cut)} cannot be requeued, as they were too large to be kept whole: "
                f"{', '.join(each.letter.id for each in cut[:CUT_SHOWN_MAX])}"
            )
        places = sorted({each.letter.queue for each in found})
        _confirm(f"Publish {_many(found)} anew to {', '.join(places)}?", found, yes=yes)
        count, requeueing = 0, _Requeue(cluster)
        try:
            for chunk in _paced(found, rate):
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
    with target.connect() as cluster, _found(cluster, queue, wanted) as found:
        _confirm(f"Drop {_many(found)} for good?", found, yes=yes)
        for each in found:
            each.message.ack()
    done(
        f"{len(found)} dead letter{'' if len(found) == 1 else 's'} of queue {queue} dropped",
        as_json=target.as_json,
        queue=queue,
        purged=len(found),
    )


@contextmanager
def _found(cluster: roq.Cluster, queue: str, wanted: Wanted) -> Iterator[list[Found]]:
    """The letters that are wanted, held for as long as the block runs.

    What was acknowledged in the block is kept when it has ended.
    """
    letters = wanted.letters or f"{queue}{SUFFIX}"
    if not cluster.queue_exists(letters):
        if wanted.letters is not None or not cluster.queue_exists(queue):
            cluster.describe(letters if wanted.letters else queue)  # raises: there is none
        yield []
        return
    with cluster.consumer(
        letters, GROUP, attempts=0, prefetch=HELD_MAX, prefetch_bytes=HELD_BYTES_MAX
    ) as consumer:
        _check_alone(cluster, letters, consumer.id)
        found: list[Found] = []
        looked = 0
        while len(found) < wanted.count and looked < HELD_MAX:
            message = consumer.receive(wanted.wait)
            if message is None:
                break
            looked += 1
            letter = _letter(message)
            if letter is not None and wanted.admits(letter):
                found.append(Found(message, letter))
        yield found
        consumer.flush(FLUSH_SECONDS)


def _check_alone(cluster: roq.Cluster, letters: str, mine: bytes) -> None:
    """Of two commands that begin at once both may be told: none sees a part for the whole."""
    (group,) = cluster.groups(letters, GROUP)
    others = [each for each in group.who if each.id != mine.hex()]
    if others:
        held = sum(each.held for each in others)
        raise click.ClickException(
            f"{others[0].name} is at work on the dead letters in {letters} and holds {held} of "
            "them: try again when it has ended"
        )


def _letter(message: roq.ConsumedMessage) -> DeadLetter | None:
    try:
        return read_letter(message)
    except RemoteProtocolError:
        return None  # it was not put there as a dead letter


def _paced(found: list[Found], rate: float | None) -> Iterator[list[Found]]:
    """In chunks, no faster than that."""
    size = CHUNK if rate is None else max(1, min(CHUNK, int(rate)))
    began, pace = time.monotonic(), threading.Event()
    for first in range(0, len(found), size):
        if rate is not None:
            due = began + first / rate
            pace.wait(max(0.0, due - time.monotonic()))
        yield found[first : first + size]


class _Requeue:
    """Publishes dead letters where they come from."""

    def __init__(self, cluster: roq.Cluster) -> None:
        self._cluster = cluster
        self._publishers: dict[str, roq.Publisher] = {}

    def publish(self, chunk: list[Found]) -> None:
        """Publish these; when they are acknowledged, they are done here."""
        for message, letter in ((each.message, each.letter) for each in chunk):
            self._to(letter.queue).publish(
                message.payload, letter.topic, key=message.key, tags=message.tags,
                properties=letter.properties,
            )  # fmt: skip
        for publisher in self._publishers.values():
            publisher.flush(FLUSH_SECONDS)
        for each in chunk:
            each.message.ack()

    def _to(self, queue: str) -> roq.Publisher:
        publisher = self._publishers.get(queue)
        if publisher is None:
            publisher = self._publishers[queue] = self._cluster.publisher(queue)
        return publisher


def _confirm(question: str, found: list[Found], *, yes: bool) -> None:
    if found and not yes:
        click.confirm(question, abort=True, err=True)


def _many(found: list[Found]) -> str:
    return f"{len(found)} dead letter{'' if len(found) == 1 else 's'}"


def _when(each: Found) -> str:
    died = datetime.fromtimestamp(each.message.batch.timestamp, UTC)
    return died.strftime("%Y-%m-%d %H:%M:%S UTC")


def _document(each: Found) -> dict[str, object]:
    letter = each.letter
    document = document_of(each.message) | {
        "queue": letter.queue, "topic": letter.topic, "group": letter.group, "id": letter.id,
        "attempts": letter.attempts, "reason": letter.reason,
    }  # fmt: skip
    document.pop("properties", None)
    return document | ({"properties": letter.properties} if letter.properties else {})
