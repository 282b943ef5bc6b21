"""What workers write down as it happens: one JSON line a record, appended, never held back.

A worker may be killed at any moment, so nothing stays in its memory: a publisher says how far it is
about to go *before* it publishes. The judge reads the files while they grow.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Literal, Protocol, TypeAlias

import msgspec

READ_BYTES: Final = 1 << 20
UNAVAILABLE: Final = "unavailable"
"""What became of a request is not known."""
LeaseState: TypeAlias = Literal["held", "resumed", "acked", "back", "kept", "lost", "cut"]
"""What a member does with messages, or hears of them."""


class _Record(msgspec.Struct, frozen=True, array_like=True, tag_field="kind"):
    when: float
    """Seconds on the monotonic clock, one for all processes of a machine."""


# --- publishers -----------------------------------------------------------------------------------


class Opened(_Record, frozen=True, array_like=True, tag="opened"):
    """A publisher is there; the records after this one are its own."""

    stream: str
    """Publisher id, hexadecimal. A publisher of chaos has one topic, so this is a stream."""


class Upto(_Record, frozen=True, array_like=True, tag="upto"):
    """The messages with sequences below `count` may be published from now on."""

    count: int


class State(_Record, frozen=True, array_like=True, tag="state"):
    """How far a publisher is; several times a second."""

    published: int
    """`publish()` has returned for so many."""
    acked: int
    failed: int
    """Given up, or not known to have arrived."""
    replayed: int
    """Batches."""
    slowest: float
    """The longest `publish()` since the last record, seconds."""
    exchange: str
    """Where it publishes; empty: nowhere at the moment."""


class Back(_Record, frozen=True, array_like=True, tag="back"):
    """The first acknowledgement over a new connection to an exchange."""

    connections: int
    exchange: str


class Refused(_Record, frozen=True, array_like=True, tag="refused"):
    """A publisher or subscriber has raised."""

    text: str
    working: bool
    """Whether it was at work already; opening one may fail while no manager is there."""


# --- subscribers ----------------------------------------------------------------------------------


class Subscribed(_Record, frozen=True, array_like=True, tag="subscribed"):
    """The subscription is in force."""

    subscriber: str
    """Its id, hexadecimal."""


class Got(_Record, frozen=True, array_like=True, tag="got"):
    """A batch has come, with the payloads that were sent."""

    stream: str
    first: int
    count: int


class Wrong(_Record, frozen=True, array_like=True, tag="wrong"):
    """A message is not the one that was sent under this sequence."""

    stream: str
    sequence: int


class Lost(_Record, frozen=True, array_like=True, tag="lost"):
    """The subscriber has reported a loss; no stream, or no messages: it cannot say more."""

    stream: str
    first: int
    count: int
    text: str


# --- members of a consumer group ------------------------------------------------------------------


class Entered(_Record, frozen=True, array_like=True, tag="entered"):
    """A member has come into its group."""

    member: str
    """Its id, hexadecimal."""


class Lease(_Record, frozen=True, array_like=True, tag="lease"):
    """Messages of one batch, and what a member does with them or hears of them."""

    state: LeaseState
    """`held`: it begins with them; `resumed`: it holds them by another lease now; `acked`, `back`:
    it is about to acknowledge them, or to give them back; `kept`: its acknowledgement is confirmed;
    `lost`: they are another member's; `cut`: their exchange has gone with what was said to it."""
    log: str
    offset: int
    first: int
    """Index in the batch."""
    count: int
    lease: int
    """By which it holds them, or was confirmed; 0: that is not said, or not known."""
    stream: str
    sequence: int
    """Of the first of them."""


# --- requesters and instances ---------------------------------------------------------------------


class Present(_Record, frozen=True, array_like=True, tag="present"):
    """A requester makes requests from now on, or an instance takes them."""

    name: str


class Asked(_Record, frozen=True, array_like=True, tag="asked"):
    """These requests are about to be made."""

    tickets: list[str]
    """What they are called here and in what is sent; an id they have when they are accepted."""
    once: bool
    """They must not be begun twice."""
    within: float
    """Seconds for which somebody waits for them; then they are late."""
    cancels: bool = False
    """They are cancelled as soon as they were made."""


class Accepted(_Record, frozen=True, array_like=True, tag="accepted"):
    """A request has this id; it has another one after it was sent once more."""

    ticket: str
    id: str


class Told(_Record, frozen=True, array_like=True, tag="told"):
    """A callback was called that waits for a request: so has it ended."""

    ticket: str
    ask: int
    """The number of the callback in its process."""
    id: str
    """Empty: it has none."""
    state: str
    """As `roq.Pending.state`; or `lost`, `refused` (it was not accepted), or `unavailable`: that is
    not known, and it is asked for again by its id, if it has one."""
    run: str
    """Of which its response, or its error, is; empty: there is none."""
    text: str = ""
    """Why there is no response."""


class Left(msgspec.Struct, frozen=True):
    """A request whose requester has ended."""

    ticket: str
    id: str


class Begun(_Record, frozen=True, array_like=True, tag="begun"):
    """A handler begins with a request."""

    ticket: str
    id: str
    run: str
    lease: int


class Ran(_Record, frozen=True, array_like=True, tag="ran"):
    """It is about to return, or to raise."""

    ticket: str
    run: str
    lease: int
    """By which the instance holds the request by now."""


# --- both -----------------------------------------------------------------------------------------


class Finished(_Record, frozen=True, array_like=True, tag="finished"):
    """The worker has done all that it was told to, and ends."""

    replayed: int = 0
    """Batches that were sent again (publishers)."""
    duplicates: int = 0
    """Doubles that were dropped before the program saw them (subscribers)."""
    latency: dict[str, int] = {}
    """Creation to receipt, `roq.demo.latency.Histogram` (subscribers)."""


Record: TypeAlias = (
    Opened | Upto | State | Back | Refused | Subscribed | Got | Wrong | Lost | Entered | Lease
    | Present | Asked | Accepted | Told | Begun | Ran | Finished
)  # fmt: skip

_decoder = msgspec.json.Decoder(Record)
_encoder = msgspec.json.Encoder()


class Written(Protocol):
    """Where records go."""

    def write(self, record: Record) -> None:
        """Write a record."""
        ...


class Journal:
    """A file to which one process appends."""

    def __init__(self, path: Path) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self._file = os.open(path, flags, 0o644)

    def write(self, record: Record) -> None:
        """Write a record; what was written survives the process."""
        os.write(self._file, _encoder.encode(record) + b"\n")


class Tail:
    """Reads a journal while it grows."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = -1
        self._rest = b""

    def read(self) -> Iterator[Record]:
        """What has come since the last look; half a line waits for its other half."""
        if self._file < 0:
            try:
                self._file = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                return
        while data := os.read(self._file, READ_BYTES):
            *lines, self._rest = (self._rest + data).split(b"\n")
            for line in lines:
                record: Record = _decoder.decode(line)
                yield record

    def close(self) -> None:
        """Read no more."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
