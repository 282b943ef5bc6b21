"""`roq pub` and `roq sub`: lines in, lines out."""

from __future__ import annotations

import base64
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from typing import BinaryIO, Final

import click
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

import roq
from roq.cli import completion
from roq.cli.client import Target, cluster_command
from roq.cli.interrupts import ends_quietly
from roq.cli.options import Number, texts_option
from roq.cli.output import console, note, print_json, rate_text
from roq.client.admin.wording import bytes_text
from roq.client.subscribe.subscriber import StartOption
from roq.errors import RemoteProtocolError
from roq.protocol.columns import PRIORITY_MAX
from roq.read.events import BelowFloor

_READ_BYTES: Final = 1 << 18
_FLUSH_SECONDS: Final = 60.0
_FILE: Final = click.File("rb", lazy=False)
_Advance = Callable[[int], None]


@dataclass(slots=True)
class _Published:
    messages: int = 0
    bytes: int = 0
    seconds: float = 0.0


@click.command(short_help="Publish lines as messages.")
@click.argument("queue", shell_complete=completion.queues)
@click.argument("file", type=_FILE, default="-")
@click.option("--topic", default="", help="Topic of every message.")
@click.option("--key", help="Key of every message.")
@click.option("--tag", "tags", multiple=True, help="A tag of every message; may be repeated.")
@click.option(
    "--priority",
    type=click.IntRange(0, PRIORITY_MAX),
    default=0,
    help="Priority of every message, for groups that heed it: higher ones first.  [default: 0]",
)
@texts_option("--property", "properties", help="A property of every message; may be repeated.")
@click.option("--delay", type=Number(), help="Seconds after which every message is given out.")
@click.option(
    "--at",
    callback=lambda _context, _option, given: None if given is None else parse_time(given),
    help="When every message is given out, such as 2026-11-21T08:30 (UTC unless it says so).",
)
@click.option("--ttl", type=Number(), help="Seconds after which no consumer group gets a message.")
@click.option("--quiet", "-q", is_flag=True, help="No progress and no summary.")
@cluster_command
def pub(
    target: Target,
    queue: str,
    file: BinaryIO,
    topic: str,
    key: str | None,
    tags: tuple[str, ...],
    properties: dict[str, str],
    priority: int,
    delay: float | None,
    at: datetime | None,
    ttl: float | None,
    quiet: bool,
) -> None:
    """Publish each line of FILE (standard input by default) as one message to QUEUE.

    Ends when all lines are acknowledged by an exchange; exits with 1 if some could not be
    delivered. A line from a terminal or a pipe leaves at once.

    \b
    Example:
      echo hello | roq pub orders --topic eu.be
      roq pub orders --topic eu.nl --key 4711 --tag paid orders.jsonl
      echo hello | roq pub orders --delay 3600
    """
    if delay is not None and at is not None:
        raise click.UsageError("--delay and --at: say one of them")
    when = delay if at is None else at
    if when is not None and ttl is not None:
        raise click.UsageError("--ttl and --delay or --at: say one of them")
    published = _Published()
    with target.connect() as cluster, cluster.publisher(queue) as publisher:
        started = time.monotonic()
        try:
            with _progress(file, shown=not quiet) as advance:
                for lines, size in read_lines(file):
                    if when is None:
                        publisher.publish_many(
                            lines, topic, key=key, tags=tags, properties=properties,
                            priority=priority, ttl=ttl,
                        )  # fmt: skip
                    else:
                        for line in lines:
                            publisher.publish_later(
                                line, topic, key, tags, properties, delay=when, priority=priority
                            )
                    published.messages += len(lines)
                    published.bytes += sum(map(len, lines))
                    advance(size)
            publisher.flush(timeout=_FLUSH_SECONDS)
        finally:
            published.seconds = time.monotonic() - started
            # Of what could not begin there is nothing to say beside the error.
            ended = sys.exc_info()[0] is not None
            if (published.messages or not ended) and not (quiet or target.as_json):
                acked = publisher.stats().acked_messages if ended else None
                note(_summary(published, queue, acked))
    if target.as_json:
        print_json({"queue": queue, "topic": topic, **_document(published)})


@click.command(short_help="Print messages as lines.")
@click.argument("queue", shell_complete=completion.queues)
@click.option("--topic", default="", help="Only topics that begin with this.")
@click.option("--count", type=click.IntRange(min=1), help="End after so many messages.")
@click.option(
    "--from",
    "start",
    metavar="WHERE",
    default="latest",
    show_default=True,
    help="Where to begin: `latest` (only what comes now), `earliest` (all that is still there), an "
    "offset of each exchange, offsets as x1=120,x2=90 (others: from their beginning), or a time "
    "such as 2026-11-21T08:30 (UTC unless it says otherwise).",
)
@click.option(
    "--below-floor",
    type=click.Choice([str(each) for each in BelowFloor]),
    default="earliest",
    show_default=True,
    help="If that is an offset which is not kept any more: begin with the oldest message that is, "
    "with what comes now, or end with an error.",
)
@click.option("--quiet", "-q", is_flag=True, help="Nothing on standard error.")
@cluster_command
def sub(
    target: Target,
    queue: str,
    topic: str,
    count: int | None,
    start: str,
    below_floor: str,
    quiet: bool,
) -> None:
    """Print the payload of each message of QUEUE, one a line, until Ctrl-C.

    With --json one object a line: topic, payload (text, or `payload_base64` if it is no text),
    publisher, sequence, timestamp, and key, tags, properties, priority if there are any.

    \b
    Example:
      roq sub orders --topic eu.
      roq sub orders --from earliest --count 10 --json
      roq sub orders --from x1=120 --below-floor error
      roq sub orders --from 2026-11-21T08:30
    """
    place = parse_start(start)
    with (
        ends_quietly(),
        target.connect() as cluster,
        cluster.subscriber(queue, topic=topic, start=place, below_floor=below_floor) as subscriber,
    ):
        if not quiet:
            note(f"Subscribed to {queue}" + (f", topics {topic}*" if topic else "") + ".")
            _note_unknown(cluster, queue, place)
        write = _write_json if target.as_json else _write_lines
        left = count
        for batch in subscriber.batches():
            if left is not None and len(batch) >= left:
                write(batch, left)
                return
            write(batch, len(batch))
            left = None if left is None else left - len(batch)


def _note_unknown(cluster: roq.Cluster, queue: str, place: StartOption) -> None:
    """Say which offsets are of no exchange: all is read of those that were meant instead."""
    if not isinstance(place, Mapping):
        return
    known = {each.name for each in cluster.describe(queue).exchanges}
    unknown = sorted(place.keys() - known)
    if unknown:
        note(
            f"Queue {queue} has no {', '.join(unknown)} now; it has {', '.join(sorted(known))}. An "
            "exchange that is not named is read from its beginning."
        )


def parse_start(text: str) -> StartOption:
    """What `--from` says.

    Raises:
        click.BadParameter: it is no place to begin at.
    """
    if text in {"latest", "earliest"}:
        return text
    if text.isascii() and text.isdecimal():
        return int(text)
    places = dict(each.partition("=")[::2] for each in text.split(","))
    if all(each.isascii() and each.isdecimal() for each in places.values()):
        return {name.strip(): int(offset) for name, offset in places.items()}
    try:
        return parse_time(text)
    except click.BadParameter:
        raise click.BadParameter(
            f"{text!r}: say latest, earliest, an offset, offsets as x1=120,x2=90, or a time such "
            "as 2026-11-21T08:30",
            param_hint="--from",
        ) from None


def parse_time(text: str) -> datetime:
    """A time as people write it, UTC unless it says otherwise.

    Raises:
        click.BadParameter: it is none.
    """
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise click.BadParameter(f"{text!r} is no time such as 2026-11-21T08:30") from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def read_lines(file: BinaryIO) -> Iterator[tuple[list[bytes], int]]:
    """The lines of a file without their ends, as many at a time as are there, and their bytes.

    From a pipe or a terminal a line comes as soon as it is complete.
    """
    rest: list[bytes] = []
    while chunk := os.read(file.fileno(), _READ_BYTES):
        if b"\n" not in chunk:
            rest.append(chunk)  # a long line: joined once, not at each chunk
            continue
        lines = b"".join((*rest, chunk)).split(b"\n")
        rest = [lines.pop()]
        yield lines, len(chunk)
    last = b"".join(rest)
    if last:
        yield [last], len(last)


def _write_lines(batch: roq.Batch, count: int) -> None:
    out = sys.stdout.buffer
    payloads = batch.payloads if count == len(batch) else batch.payloads[:count]
    out.write(b"\n".join(payloads) + b"\n")
    out.flush()


def _write_json(batch: roq.Batch, count: int) -> None:
    messages = islice(batch.messages(), count)
    lines = [json.dumps(document_of(message), ensure_ascii=False) for message in messages]
    sys.stdout.write("\n".join(lines) + "\n")
    sys.stdout.flush()


def document_of(message: roq.Message) -> dict[str, object]:
    """A message as JSON has it."""
    batch, payload = message.batch, message.payload
    document: dict[str, object] = {"topic": batch.topic}
    try:
        document["payload"] = payload.decode()
    except UnicodeDecodeError:
        document["payload_base64"] = base64.b64encode(payload).decode()
    document["publisher"] = batch.publisher.hex()
    document["sequence"] = message.sequence
    document["timestamp"] = batch.timestamp
    if batch.attributes is not None:
        document |= _attributes(message)
    return document


def _attributes(message: roq.Message) -> dict[str, object]:
    """Those that the message has; why they cannot be read, if so."""
    try:
        given: dict[str, object] = {} if message.key is None else {"key": message.key}
        if message.tags:
            given["tags"] = list(message.tags)
        if message.properties:
            given["properties"] = dict(message.properties)
        if message.priority:
            given["priority"] = message.priority
    except RemoteProtocolError as error:
        return {"attributes_unreadable": str(error)}
    return given


@contextmanager
def _progress(file: BinaryIO, *, shown: bool) -> Iterator[_Advance]:
    """A bar on a terminal, if the input has a size worth waiting for."""
    size = _size(file)
    if not shown or size is None or not sys.stderr.isatty():
        yield lambda _count: None
        return
    columns = (
        TextColumn("publishing"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console(error=True), transient=True) as progress:
        task = progress.add_task("", total=size)
        yield lambda count: progress.advance(task, count)


def _size(file: BinaryIO) -> int | None:
    size = os.fstat(file.fileno()).st_size
    return size or None


def _summary(published: _Published, queue: str, acked: int | None) -> str:
    """What became of the lines; of those that were taken so many are acknowledged, None: all."""
    if acked is not None:
        return (
            f"Took {published.messages:,} message{'' if published.messages == 1 else 's'} for "
            f"{queue} in {published.seconds:.2f} s; {acked:,} are acknowledged by now."
        )
    return (
        f"Published {published.messages:,} message{'' if published.messages == 1 else 's'} "
        f"({bytes_text(published.bytes)}) to {queue} in {published.seconds:.2f} s: "
        f"{rate_text(published.messages, published.seconds)} messages/s."
    )


def _document(published: _Published) -> dict[str, object]:
    return {
        "messages": published.messages,
        "bytes": published.bytes,
        "seconds": round(published.seconds, 6),
    }
