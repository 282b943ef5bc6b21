"""What a daemon's machine was told and what it wanted, the last of it, for when it matters.

A `Recorder` stands between a shell and its machine. It keeps each event with its time and effects
as encoded bytes, so what it takes is known, and nothing that is changed later changes what it has
kept. When there is no room the oldest go. `save` writes the flights of a process into one file:

    MAGIC, then MessagePack: [[header, birth, [record…]]…]
    record: [now, event, fields, [[effect, fields]…], raised]

`birth` is what the machine was made of: a flight that has lost nothing can be flown again.
"""

from __future__ import annotations

import logging
import os
import stat
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

import msgspec

from roq.errors import ConfigError, NotLeader, RemoteProtocolError, RoQError
from roq.machine import Machine
from roq.number_ranges import UNREADABLE, Whole
from roq.protocol.version import WIRE_VERSION
from roq.runtime.files import write_whole

MAGIC: Final = b"RoQ flight 1\n"
"""Also the version of the format."""
KILOBYTES: Final = "ROQ_FLIGHT_KB"
"""Variable: so much is kept of each machine; 0: nothing."""
FOLDER: Final = "ROQ_FLIGHT_FOLDER"
"""Variable: where flights are written."""
KILOBYTES_MAX: Final = 1 << 20
FILE_BYTES_MAX: Final = 1 << 30
FILES_MAX: Final = 32
"""Of one folder; the oldest go."""
RECORD_BYTES: Final = 56
"""What a record takes beside its bytes; with it the bound on bytes is one on their number, too."""

log = logging.getLogger(__name__)
EventT = TypeVar("EventT")
EffectT = TypeVar("EffectT")


@dataclass(frozen=True, slots=True)
class FlightKind:
    """How a flight of one kind of machine is read and flown again.

    Attributes:
        birth: the type of what the machine is made of.
        events: the union of what it is told.
        make: makes it.
    """

    name: str
    birth: Any
    events: Any
    make: Callable[[Any], Machine[Any, Any]]


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """Whose flight it is."""

    roq: str
    """Version of RoQ."""
    wire: Whole
    kind: str
    name: str
    pid: Whole
    lost: Whole = 0
    """Events that were not kept."""
    why_lost: str = ""
    epoch: float = 0.0
    """Seconds since 1970 at which the clock of the machine was 0."""


class Record(msgspec.Struct, frozen=True, array_like=True):
    """One event, and what came of it."""

    now: float
    event: str
    fields: msgspec.Raw
    effects: list[tuple[str, msgspec.Raw]]
    raised: str
    """The error that the machine has raised; empty: none."""


Flight = tuple[Header, msgspec.Raw, list[Record]]
_Encoded = tuple[Header, object, list[msgspec.Raw]]


def _error_fields(value: object) -> object:
    """An error of RoQ in an event, as plain values: as the nearest one that all know."""
    if not isinstance(value, RoQError):
        raise TypeError(f"{type(value).__name__} cannot be written down")
    endpoint = value.endpoint if isinstance(value, NotLeader) else ""
    kind = next(each for each in type(value).__mro__ if each.__module__ == RoQError.__module__)
    return {"error": kind.__name__, "text": str(value), "endpoint": endpoint}


_ENCODER: Final = msgspec.msgpack.Encoder(enc_hook=_error_fields, order="deterministic")
encode: Final = _ENCODER.encode
"""A value as it stands in a flight."""


class Recorder(Generic[EventT, EffectT]):
    """Has a machine handle events, and keeps the last of them.

    Args:
        kind: of the machine.
        name: of the machine in its process.
        birth: gives what it was made of.
        machine: decides.
        kilobytes: to keep.
    """

    def __init__(
        self,
        kind: FlightKind,
        name: str,
        birth: Callable[[], object],
        machine: Machine[EventT, EffectT],
        kilobytes: int,
    ) -> None:
        self._kind = kind.name
        self._name = name
        self._birth = birth
        self._machine = machine
        self._most = kilobytes * 1024
        self._kept: deque[bytes] = deque()
        self._bytes = 0
        self._lost = 0
        self._why_lost = ""
        if not kilobytes:
            self.handle = machine.handle  # type: ignore[method-assign] # nothing in between

    def handle(self, event: EventT, now: float) -> Sequence[EffectT]:
        """What the machine wants to be done, in order."""
        try:
            effects = self._machine.handle(event, now)
        except Exception as error:
            self._keep(event, now, (), f"{type(error).__name__}: {error}")
            raise
        self._keep(event, now, effects, "")
        return effects

    def flight(self) -> _Encoded:
        """What is kept at this moment."""
        header = Header(
            roq=own_version(), wire=WIRE_VERSION, kind=self._kind, name=self._name,
            pid=os.getpid(), lost=self._lost, why_lost=self._why_lost,
            epoch=time.time() - time.monotonic(),
        )  # fmt: skip
        return header, self._birth(), [msgspec.Raw(each) for each in self._kept]

    def _keep(self, event: EventT, now: float, effects: Sequence[EffectT], raised: str) -> None:
        named = [(type(each).__name__, each) for each in effects]
        try:
            record = encode((now, type(event).__name__, event, named, raised))
        except UNREADABLE as error:
            self._lost += 1
            self._why_lost = f"{type(event).__name__}: {error}"
            return
        # The encoder gives bytes that occupy up to half as much again.
        self._kept.append(bytes(memoryview(record)))
        self._bytes += len(record) + RECORD_BYTES
        while self._bytes > self._most:
            self._bytes -= len(self._kept.popleft()) + RECORD_BYTES
            self._lost += 1
            self._why_lost = self._why_lost or f"only the last {self._most // 1024} kB are kept"


def own_version() -> str:
    """Of RoQ, as it is installed."""
    from importlib.metadata import version  # noqa: PLC0415 - large, and wanted by few processes

    return version("roq-cluster")


def kept_kilobytes(environ: Mapping[str, str], default: int) -> int:
    """How much is kept of each machine of this process.

    Raises:
        ConfigError: the variable is no such number.
    """
    text = environ.get(KILOBYTES, "").strip() or str(default)
    if not (text.isascii() and text.isdigit() and int(text[:9]) <= KILOBYTES_MAX):
        raise ConfigError(f"environment: {KILOBYTES}={text[:20]!r}: 0 to {KILOBYTES_MAX}")
    return int(text[:9])


def folder_of(environ: Mapping[str, str], uid: int) -> Path:
    """Where a process with these variables, of this user, writes flights."""
    return Path(environ.get(FOLDER) or f"{environ.get('TMPDIR') or '/tmp'}/roq-flights-{uid}")  # noqa: S108 - it is looked at before it is used


def save(process: str, recorders: Sequence[Recorder[Any, Any]], *, crashed: bool = False) -> None:
    """Write what is kept into a file of its own; a failure costs the file and nothing else.

    Args:
        process: what the process is called.
        recorders: of its machines.
        crashed: it is written because of an error.
    """
    folder = folder_of(os.environ, os.getuid())
    path = folder / f"{process}.{os.getpid()}{'.crash' * crashed}.flight"
    try:
        _open_folder(folder)
        write_whole(path, MAGIC + encode([each.flight() for each in recorders]), mode=0o600)
        _thin_out(folder)
    except (OSError, *UNREADABLE) as error:
        log.warning("no flight is written: %s", error, extra={"event": "flight_not_written"})
    else:
        log.info("what was decided last stands in %s", path, extra={"event": "flight_written"})


def read(path: Path) -> list[Flight]:
    """The flights in a file.

    Raises:
        RemoteProtocolError: it is none, not whole, or of another format.
        OSError: it cannot be read.
    """
    with path.open("rb") as file:
        return decode(file.read(FILE_BYTES_MAX + 1))


def decode(data: bytes) -> list[Flight]:
    """The flights in these bytes.

    Raises:
        RemoteProtocolError: they are none, not whole, or of another format.
    """
    word = MAGIC.rsplit(b" ", 1)[0]
    if not data.startswith(word):
        raise RemoteProtocolError("no flight of RoQ")
    if not data.startswith(MAGIC):
        other = data[len(word) : len(word) + 10].split(b"\n")[0].decode("ascii", "replace").strip()
        own = MAGIC.split()[-1].decode()
        raise RemoteProtocolError(
            f"a flight in format {other!r}; RoQ {own_version()} reads format {own!r}"
        )
    if len(data) > FILE_BYTES_MAX:
        raise RemoteProtocolError(f"a flight above {FILE_BYTES_MAX} bytes")
    try:
        return msgspec.msgpack.decode(memoryview(data)[len(MAGIC) :], type=list[Flight])
    except UNREADABLE as error:
        raise RemoteProtocolError(f"not a whole flight: {error}") from None


def _open_folder(folder: Path) -> None:
    """Make it ours alone; others may have made it where all may write.

    Raises:
        OSError: it is not, or cannot be made.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o022:
        raise PermissionError(f"{folder} must be a folder of this user that no other can write to")


def _thin_out(folder: Path) -> None:
    files = sorted(folder.glob("*.flight"), key=lambda each: each.stat().st_mtime_ns)
    for path in files[:-FILES_MAX]:
        path.unlink()
