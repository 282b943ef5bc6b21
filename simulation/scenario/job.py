"""What a worker process is told, and what it says: one JSON document a line, both ways."""

from __future__ import annotations

from typing import TypeAlias

import msgspec


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker is for; given on its command line."""

    name: str
    """Its name in the history, such as `subscriber-3`."""
    address: str
    """Client address of the cluster; for the naive hand-off those of the relays, `,` between."""
    queue: str
    publishes: bool
    payload: int = 500
    """Bytes of a message."""
    burst: int = 1
    """So many messages are published at a time."""
    topic: str = "load"
    history: str = ""
    """File for what was sent or received; empty: none is kept, and nothing can be checked."""
    timings: str = ""
    """File for how long each `publish()` took; empty: none."""
    naive: bool = False
    """Bare ZeroMQ sockets: see naive.py."""


# --- commands -------------------------------------------------------------------------------------


class _Command(msgspec.Struct, frozen=True, kw_only=True, tag_field="command"):
    pass


class Open(_Command, frozen=True, kw_only=True, tag="open"):
    """Connect. Answered by `Ready`."""


class Rate(_Command, frozen=True, kw_only=True, tag="rate"):
    """Publish so many messages a second from now on; below 0: as many as go."""

    per_second: float


class Move(_Command, frozen=True, kw_only=True, tag="move"):
    """Publish at the next relay (naive hand-off only)."""


class Finish(_Command, frozen=True, kw_only=True, tag="finish"):
    """Bring the work to its end, write the files, and say `Finished`."""


Command: TypeAlias = Open | Rate | Move | Finish


# --- reports --------------------------------------------------------------------------------------


class _Report(msgspec.Struct, frozen=True, kw_only=True, tag_field="report"):
    pass


class Ready(_Report, frozen=True, kw_only=True, tag="ready"):
    """Connected; a subscription is in force."""

    id: str
    """Of the publisher or subscriber, hexadecimal."""


class Progress(_Report, frozen=True, kw_only=True, tag="progress"):
    """So much until now; twice a second."""

    messages: int
    bytes: int
    latency_ms: float = 0.0
    """Mean since the last report (subscribers)."""


class Finished(_Report, frozen=True, kw_only=True, tag="finished"):
    """All is done, the files are written."""

    messages: int
    bytes: int
    latency: dict[str, int] = {}
    """Creation to receipt, `roq.demo.latency.Histogram` (subscribers)."""
    replayed: int = 0
    """Batches that were sent again (publishers)."""
    failed: int = 0
    """Messages that were not delivered, or nobody knows (publishers)."""
    duplicates: int = 0
    """Doubles that were dropped before anybody saw them (subscribers)."""
    lost: int = 0
    """As the subscriber has counted and reported."""


class Broken(_Report, frozen=True, kw_only=True, tag="broken"):
    """The worker cannot go on."""

    reason: str


Report: TypeAlias = Ready | Progress | Finished | Broken

_commands = msgspec.json.Decoder(Command)
_reports = msgspec.json.Decoder(Report)


def line(message: Command | Report) -> bytes:
    """A message as one line."""
    return msgspec.json.encode(message) + b"\n"


def command(data: bytes) -> Command:
    """The command in a line.

    Raises:
        msgspec.DecodeError: there is none.
    """
    decoded: Command = _commands.decode(data)
    return decoded


def report(data: bytes) -> Report:
    """The report in a line.

    Raises:
        msgspec.DecodeError: there is none.
    """
    decoded: Report = _reports.decode(data)
    return decoded
