"""What a worker says to the process that started it: one JSON document a line."""

from __future__ import annotations

from typing import TypeAlias

import msgspec


class Stream(msgspec.Struct, frozen=True, kw_only=True):
    """All messages of one publisher and one topic, in order."""

    publisher: str
    """Hexadecimal."""
    topic: str
    messages: int
    bytes: int
    sha256: str
    """Of the payloads, one after the other."""


class _Report(msgspec.Struct, frozen=True, kw_only=True, tag_field="event"):
    pass


class Ready(_Report, frozen=True, kw_only=True, tag="ready"):
    """Connected; a subscription is in force."""


class Progress(_Report, frozen=True, kw_only=True, tag="progress"):
    """So much until now."""

    messages: int
    bytes: int


class Calm(_Report, frozen=True, kw_only=True, tag="calm"):
    """A publisher has sent the lines that go one by one, and all are acknowledged."""


class Finished(_Report, frozen=True, kw_only=True, tag="finished"):
    """All is done."""

    streams: list[Stream]
    first: float
    """When the first message at full speed was sent or received, seconds since 1970."""
    last: float
    calm_latency: dict[str, int] = {}
    """Creation to receipt of the lines that went one by one, `roq.demo.latency.Histogram`;
    subscribers only."""
    latency: dict[str, int] = {}
    """The same at full speed."""
    lost: int = 0
    duplicates: int = 0


Report: TypeAlias = Ready | Progress | Calm | Finished

_decoder = msgspec.json.Decoder(Report)


def encode(report: Report) -> bytes:
    """One line."""
    return msgspec.json.encode(report) + b"\n"


def decode(line: bytes) -> Report:
    """The document of one line.

    Raises:
        msgspec.DecodeError: it is none; a worker's own output is at fault then.
    """
    decoded: Report = _decoder.decode(line)
    return decoded
