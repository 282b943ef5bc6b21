"""The configuration broadcast: three BSON frames that tell the whole cluster in short.

    frame 1   {CMD: 1500, CMD_ID: 1500, Version: int}
    frame 2   {Queues: [{Name: str, Host: str, State: bool (running)}, …]}
    frame 3   {Hosts: [str, …], hosts: [str, …]}      readers exist for both spellings

Sent on an XPUB socket every period, at once after a change and at once to a new subscriber. The
version rises with each change of what is told.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from roq.errors import RemoteProtocolError
from roq.number_ranges import Int32, Whole
from roq.protocol import documents

BROADCAST: Final = 1500


class QueueStatus(msgspec.Struct, frozen=True):
    """A queue as everybody may know it."""

    Name: str
    Host: str
    State: bool
    """Whether it runs."""


class Configuration(msgspec.Struct, frozen=True, kw_only=True):
    """What one broadcast says."""

    version: Whole
    queues: tuple[QueueStatus, ...] = ()
    hosts: tuple[str, ...] = ()


class _Queues(msgspec.Struct):
    Queues: list[QueueStatus]


class _Hosts(msgspec.Struct):
    Hosts: list[str]


class _Head(msgspec.Struct):
    CMD: Int32
    Version: Whole = 0


def encode(configuration: Configuration) -> list[bytes]:
    """The three frames."""
    hosts = list(configuration.hosts)
    return [
        documents.encode_raw(
            {"CMD": BROADCAST, "CMD_ID": BROADCAST, "Version": configuration.version}
        ),
        documents.encode(_Queues(list(configuration.queues))),
        documents.encode_raw({"Hosts": hosts, "hosts": hosts}),
    ]


def decode(frames: Sequence[bytes]) -> Configuration:
    """What the frames say.

    Raises:
        RemoteProtocolError: not three frames, or not the ones of a broadcast.
    """
    if len(frames) != 3:
        raise RemoteProtocolError(f"a broadcast has 3 frames, not {len(frames)}")
    head = documents.decode(frames[0], _Head)
    if head.CMD != BROADCAST:
        raise RemoteProtocolError(f"CMD {head.CMD} is no broadcast")
    queues = documents.decode(frames[1], _Queues).Queues
    hosts = documents.decode(frames[2], _Hosts).Hosts
    return Configuration(version=head.Version, queues=tuple(queues), hosts=tuple(hosts))
