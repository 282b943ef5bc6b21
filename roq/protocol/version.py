"""Which version of the wire this release speaks, and what those are told who speak another one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from roq.errors import OtherVersion

WIRE_VERSION: Final = 2
"""Of batches, entries and all that clients, exchanges, monitors and managers say to each other. Not
of the public interfaces that other tools speak: those stay. 1: several frames for each message, no
attributes."""
FIELD: Final = "wire"
"""Of a document: which version its sender speaks."""
FIRST: Final = 1
"""What those speak who do not say what they speak."""


def spoken_in(document: Mapping[str, object]) -> object:
    """The version that the sender of a document speaks, as far as it says."""
    return document.get(FIELD, FIRST)


def other_version(who: str, version: object, here: str = "this side") -> str:
    """Why `who` is not understood, and what helps."""
    return (
        f"{who} speaks version {version!r:.20} of RoQ's wire protocol, and {here} version "
        f"{WIRE_VERSION}: run the same release of roq-cluster on all hosts and in all clients"
    )


def check_version(document: Mapping[str, object]) -> None:
    """Refuse the request of a sender that speaks another version of the wire.

    Raises:
        OtherVersion: it does.
    """
    version = spoken_in(document)
    if version != WIRE_VERSION:
        raise OtherVersion(other_version("the client", version, "the server"))
