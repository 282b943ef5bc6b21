"""Whose log a folder holds: a file beside the segments says so; that of another is refused."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from roq.log.files import META, SEGMENT_SUFFIX, Files, LogRefused, put_whole
from roq.number_ranges import UNREADABLE, ChildEpoch, ExchangeNumber

FORMAT: Final = 1
"""Of what a folder says of itself."""
BYTES_MAX: Final = 64 * 1024
"""Of the file that says it; no cluster has so long names."""


class Meta(msgspec.Struct, frozen=True, kw_only=True):
    """Whose log a folder holds; written once, when it is made."""

    format: int = FORMAT
    cluster: str
    queue: str
    """Id of the queue, in hex."""
    exchange: ExchangeNumber
    generation: ChildEpoch
    host: str
    """Whose disk it lies on."""


def is_there(names: Iterable[str]) -> bool:
    """Whether files of these names are a log, or what is left of one."""
    return any(name == META or name.endswith(SEGMENT_SUFFIX) for name in names)


def claim_folder(files: Files, mine: Meta, *, has_log: bool = False) -> Meta:
    """What the folder says of itself, after comparing it; a new folder is made to say it.

    Args:
        mine: what it says if it is this process that makes the log.
        has_log: there was a log in it, and no other one is made.

    Raises:
        LogRefused: it belongs to another one, or cannot be read.
        OSError: likewise.
    """
    names = files.names()
    if META not in names:
        if any(name.endswith(SEGMENT_SUFFIX) for name in names):
            raise LogRefused(
                f"the folder holds segments of a log, but no {META}: it was copied in part. Copy "
                f"it again, or move the segments elsewhere"
            )
        if has_log:
            raise LogRefused("there was a log, and it is not there: mount the disk that it is on")
        put_whole(files, META, [msgspec.json.format(msgspec.json.encode(mine), indent=2)])
        return mine
    found = read_meta(files)
    for what, told, wanted in (
        ("cluster", found.cluster, mine.cluster),
        ("queue", found.queue, mine.queue),
        ("exchange", found.exchange, mine.exchange),
        ("host", found.host, mine.host),
    ):
        if told != wanted:
            raise LogRefused(
                f"the log belongs to {what} {told}, not to {what} {wanted}: it was copied or moved "
                "here. Move the folder back, or away; nothing in it was changed"
            )
    if found.generation > mine.generation:
        raise LogRefused(
            f"the log was made by a later process (epoch {found.generation}) than this one (epoch "
            f"{mine.generation}): the registry of this cluster is older than the log. Restore a "
            "newer copy of it, or move the folder elsewhere; nothing in it was changed"
        )
    if not any(name.endswith(SEGMENT_SUFFIX) for name in names):
        # The start that made it may have failed before its name was on the disk; a power cut would
        # leave segments alone there.
        files.sync_folder()
    return found


def read_meta(files: Files) -> Meta:
    """What a folder says of itself.

    Raises:
        LogRefused: that cannot be read, or is of a newer format.
        OSError: likewise.
    """
    try:
        if files.size(META) > BYTES_MAX:
            raise ValueError(f"it has more than {BYTES_MAX} bytes")
        found = msgspec.json.decode(files.read(META, 0, BYTES_MAX), type=Meta)
        bytes.fromhex(found.queue)
    except UNREADABLE as error:
        raise LogRefused(
            f"{META} cannot be read: {error}. Restore it from a copy of the folder, or move the "
            "folder elsewhere"
        ) from None
    if found.format != FORMAT:
        raise LogRefused(
            f"the log has format {found.format}, and this RoQ reads format {FORMAT}: install the "
            "newer version again"
        )
    return found
