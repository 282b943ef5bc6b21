"""`roq log`: the log of a durable exchange in its folder, looked at beside the exchange."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any, Final, TypeVar

import click
import msgspec

from roq.cli.failures import Failed
from roq.cli.output import console, note, print_table
from roq.errors import RemoteProtocolError
from roq.log.disk import DiskFiles
from roq.log.records import Found
from roq.log.repair import RepairStep, Way, plan
from roq.log.repair import repair as mend
from roq.log.survey import LogSurvey, SegmentSurvey
from roq.protocol.batch import Kind, read_header, read_payloads
from roq.protocol.entry import read_entry

T = TypeVar("T")
_FOLDER: Final = click.argument(
    "folder", type=click.Path(path_type=Path, file_okay=False, exists=True)
)
_JSON: Final = click.option("--json", "as_json", is_flag=True, help="JSON for programs.")


@click.group()
def log() -> None:
    """The log of a durable exchange, in its folder.

    A host manager keeps the log of each exchange below its data directory, in
    logs/QUEUE-ID/xNUMBER. `verify` and `dump` change nothing there, so the exchange may run
    meanwhile.

    \b
    Example:
      roq log verify /var/lib/roq/logs/8e1f…/x1
    """


@log.command()
@_FOLDER
@_JSON
def verify(folder: Path, as_json: bool) -> None:
    """Read a whole log, and tell what cannot be read.

    A line for each segment. Ends with 1 if entries are lost, or a start would refuse the log. Of a
    log that is being written the end may be half written: that is told, and no loss. So is a file
    that only has the name of a segment.

    \b
    Example:
      roq log verify /var/lib/roq/logs/8e1f…/x1
    """
    with _survey(folder) as survey:
        _tell(survey.strange)
        found: list[SegmentSurvey] = []
        with click.progressbar(
            _each(folder, survey.segments()), length=len(survey), label="segments", file=sys.stderr
        ) as segments:
            found.extend(segments)
        lost = sum(behind - first for each in found for first, behind in each.lost)
        if as_json:
            document = {
                "log": msgspec.to_builtins(survey.meta), "segments": msgspec.to_builtins(found),
                "lost": lost, "refused": survey.refused, "strange": survey.strange,
            }  # fmt: skip
            click.echo(json.dumps(document, indent=2))
        else:
            _print(survey, found)
    missing = f"{lost} entries cannot be read any more"
    if survey.refused:
        told = [f"the exchange does not start on this log: {'; '.join(survey.refused)}"]
        raise Failed(
            ". And ".join([*told, missing] if lost else told),
            hint="What does not belong there `roq log repair` sets aside; it says first what.",
        )
    if lost:
        raise Failed(
            missing,
            hint="Readers are told of them as lost; all others are served. Look at the disk.",
        )


@log.command()
@_FOLDER
@click.option("--from", "first", type=click.IntRange(0), default=0, help="The first offset.")
@click.option("--count", type=click.IntRange(1), help="At most so many entries.")
@click.option("--payloads", is_flag=True, help="The messages of each batch, too.")
@_JSON
def dump(folder: Path, first: int, count: int | None, payloads: bool, as_json: bool) -> None:
    """Print what a log holds, a line for each batch.

    \b
    Example:
      roq log dump /var/lib/roq/logs/8e1f…/x1 --from 1200 --count 10 --payloads
    """
    with _survey(folder) as survey:
        _tell([*survey.refused, *survey.strange])
        for found in islice(_each(folder, survey.entries(first)), count):
            told = _told(found, payloads=payloads)
            if as_json:
                click.echo(json.dumps(told))
            else:
                click.echo(
                    f"{told['offset']:>8}  {told['appended']}  {told['topic']!r}  {told['kind']}  "
                    f"publisher {told['publisher']} epoch {told['epoch']} link {told['link']}  "
                    f"sequence {told['sequence']} + {told['count']}  {told['bytes']} B"
                )
                for payload in told["payloads"]:
                    click.echo(f"          {payload}")


@log.command()
@_FOLDER
@click.option("--yes", is_flag=True, help="Do it; else it is only told.")
@click.option(
    "--aside",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder for a copy of what goes; NAME.aside in this folder if not given.",
)
@_JSON
def repair(folder: Path, yes: bool, aside: Path | None, as_json: bool) -> None:
    """Repair a log whose exchange does not run; nothing is guessed.

    What cannot be read is cut off at the end, and passed over elsewhere; files that do not belong
    there are set aside. What goes is copied first. Each start of an exchange cuts off and passes
    over by itself: this is for a log that a start refuses, and for indexes that are wrong. Stop the
    queue before: a log that a process has is refused. Ends with 1 if something is left to do.

    \b
    Example:
      roq log repair /var/lib/roq/logs/8e1f…/x1
      roq log repair /var/lib/roq/logs/8e1f…/x1 --yes
    """
    with _survey(folder):  # what is no log is left as it is, and gets no file of ours
        pass
    files = DiskFiles(folder)
    try:
        steps = plan(files)
        if steps and yes:
            goes = any(step.way in {Way.CUT, Way.ASIDE} for step in steps)
            there = aside or Path(f"{folder.resolve().name}.aside")
            _do(files, there, steps, goes=goes)
            left = plan(files)
        else:
            left = steps
    except OSError as error:
        raise Failed(f"{folder} cannot be repaired: {error}") from error
    finally:
        files.close()
    if as_json:
        document = {"steps": msgspec.to_builtins(steps), "done": yes, "left": len(left)}
        click.echo(json.dumps(document, indent=2))
    else:
        for step in steps:
            click.echo(f"{step.way}: {step.name}: {step.text}")
        click.echo("nothing to repair" if not steps else "done" if yes else "nothing was changed")
    if left:
        raise Failed(
            f"{len(left)} things are to be done in {folder}",
            hint="" if yes else "Read what they are; --yes does them.",
        )


def _do(files: DiskFiles, aside: Path, steps: list[RepairStep], *, goes: bool) -> None:
    if not goes:
        mend(files, files, steps)
        return
    kept = DiskFiles(aside)
    try:
        mend(files, kept, steps)
    finally:
        kept.close()
    note(f"what was taken out is in {aside}")


def _told(found: Found, *, payloads: bool) -> dict[str, Any]:
    entry = read_entry(found.frame)
    told: dict[str, Any] = {
        "payloads": [], "offset": found.offset, "appended": _time(entry.appended_us),
        "topic": found.topic.decode(errors="backslashreplace"), "bytes": len(found.body),
    }  # fmt: skip
    try:
        header = read_header(found.body)
        told |= {
            "kind": Kind(header.kind).name.lower(), "publisher": header.publisher.hex(),
            "epoch": header.epoch, "link": header.link_number, "sequence": header.first_sequence,
            "count": header.count,
        }  # fmt: skip
        if payloads and header.kind == Kind.DATA:
            told["payloads"] = [
                each.decode(errors="backslashreplace") for each in read_payloads(found.body, header)
            ]
    except RemoteProtocolError as error:
        raise Failed(f"the batch at offset {found.offset} cannot be read: {error}") from None
    return told


def _tell(problems: list[str]) -> None:
    for problem in problems:
        note(problem)


def _print(survey: LogSurvey, found: list[SegmentSurvey]) -> None:
    meta = survey.meta
    out = console()
    out.print(
        f"queue {meta.queue}, exchange x{meta.exchange}, generation {meta.generation}, of host "
        f"{meta.host}"
    )
    print_table(
        ("segment", "offsets", "entries#", "bytes#", "from", "to", "lost#", "what is wrong"),
        [
            (
                each.name, f"{each.first} …", each.entries, each.bytes,
                *(_time(at) if at else "-" for at in each.appended_us),
                sum(behind - first for first, behind in each.lost),
                "; ".join(
                    [*(f"offsets {a} to {b - 1} are lost" for a, b in each.lost), *each.problems]
                ),
            )
            for each in found
        ],
        "nothing was written yet",
    )  # fmt: skip


@contextmanager
def _survey(folder: Path) -> Iterator[LogSurvey]:
    files = DiskFiles(folder, read_only=True)
    try:
        with _reads(folder):
            survey = LogSurvey(files)
        yield survey
    finally:
        files.close()


def _each(folder: Path, found: Iterator[T]) -> Iterator[T]:
    """What is read from a log. Where it goes to may fail as well: that is another matter."""
    with _reads(folder):
        yield from found


@contextmanager
def _reads(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise Failed(f"{folder} cannot be read: {error}") from error


def _time(us: int) -> str:
    return datetime.fromtimestamp(us / 1e6, UTC).isoformat(timespec="milliseconds")
