"""Flies the flight of a machine again, and tells it as a story.

The file is hostile: what it says that a machine was told goes through the types of its events, and
an error that the machine raises is compared like an effect.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from math import isfinite
from types import UnionType
from typing import Any, Final, get_args, get_origin, get_type_hints

import msgspec

from roq.errors import REQUEST_ERRORS, NotLeader, RemoteProtocolError, RoQError, Unavailable
from roq.gcm.daemon import KIND as GCM
from roq.hcm.daemon import KIND as HOST
from roq.monitor.daemon import KIND as MONITOR
from roq.number_ranges import UNREADABLE
from roq.protocol import documents
from roq.protocol.version import WIRE_VERSION
from roq.runtime.flight import Flight, FlightKind, Header, Record, encode, own_version

KINDS: Final = {each.name: each for each in (GCM, HOST, MONITOR)}
ERRORS: Final[dict[str, type[RoQError]]] = {
    each.__name__: each for each in (*REQUEST_ERRORS.values(), Unavailable) if each is not NotLeader
}
"""Errors that events carry."""
TEXT_MAX: Final = 2_000
"""Characters of an event or effect that are shown."""
BYTES_SHOWN: Final = 16
DEPTH_MAX: Final = 8


@dataclass(frozen=True, slots=True)
class Difference:
    """An event that the machine does not take as it did.

    Attributes:
        number: of the event, from 0.
        recorded, replayed: a line for each effect.
    """

    number: int
    recorded: list[str]
    replayed: list[str]


def replay(flight: Flight) -> Difference | None:
    """Have a new machine take all events in; gives the first difference.

    What comes behind it says nothing: the machine stands elsewhere then.

    Raises:
        RemoteProtocolError: the flight cannot be flown again; the text says why.
    """
    header, birth, records = flight
    kind = _kind_of(header)
    types = {each.__name__: each for each in get_args(kind.events)}
    before = float("-inf")
    try:
        machine = kind.make(_value(msgspec.msgpack.decode(birth), kind.birth))
    except (RoQError, *UNREADABLE) as error:
        raise RemoteProtocolError(f"its birth makes no sense: {error}") from None
    for number, record in enumerate(records):
        if not isfinite(record.now) or record.now < before or record.event not in types:
            raise RemoteProtocolError(f"event {number} makes no sense")
        before = record.now
        event = _event(record, types[record.event])
        found: list[tuple[str, bytes]] = []
        raised = ""
        try:
            effects = machine.handle(event, record.now)
            found = [(type(each).__name__, encode(each)) for each in effects]
        except Exception as error:  # noqa: BLE001 - it is compared
            raised = f"{type(error).__name__}: {error}"
        same = raised == record.raised and len(found) == len(record.effects)
        if not same or not all(map(_same, found, record.effects)):
            again = msgspec.structs.replace(
                record, effects=[(name, msgspec.Raw(data)) for name, data in found], raised=raised
            )
            return Difference(number, wanted(record), wanted(again))
    return None


def story(flight: Flight) -> Iterator[str]:
    """What happened, a line for each event and each effect."""
    header, _, records = flight
    lost = (
        f"; {header.lost} are not there: {header.why_lost}" if header.lost else ", from its birth"
    )
    yield f"# {about(header)}: {len(records)} events{lost}"
    for number, record in enumerate(records):
        yield told(header, number, record)
        yield from (f"{'':12} {'':>6} → {each}" for each in wanted(record))


def told(header: Header, number: int, record: Record) -> str:
    """The line of an event."""
    try:
        moment = datetime.fromtimestamp(header.epoch + record.now, UTC)
    except (ValueError, OverflowError, OSError):
        clock = "at no time"
    else:
        clock = moment.strftime("%H:%M:%S.%f")[:-3]
    return f"{clock:12} {number:>6} {_line(record.event, record.fields)}"


def wanted(record: Record) -> list[str]:
    """A line for each effect, and for the error."""
    lines = [_line(name, fields) for name, fields in record.effects]
    return [*lines, f"raises {record.raised}"] if record.raised else lines


def about(header: Header) -> str:
    """Whose flight it is."""
    kind = "" if header.kind == header.name else f"{header.kind} "
    return f"{kind}{header.name} of RoQ {header.roq} (wire {header.wire}), process {header.pid}"


def _kind_of(header: Header) -> FlightKind:
    if (header.roq, header.wire) != (own_version(), WIRE_VERSION):
        raise RemoteProtocolError(
            f"a flight of RoQ {header.roq} (wire {header.wire}), and this is RoQ "
            f"{own_version()} (wire {WIRE_VERSION}); `roq debug show` tells it"
        )
    if header.lost:
        raise RemoteProtocolError(
            f"{header.lost} events are not there ({header.why_lost}), and a machine can be flown "
            "from its birth only; `roq debug show` tells the rest"
        )
    if header.kind not in KINDS:
        raise RemoteProtocolError(f"{header.kind!r} is no kind of machine ({', '.join(KINDS)})")
    return KINDS[header.kind]


def _event(record: Record, kind: type) -> object:
    """The event, checked field by field.

    Raises:
        RemoteProtocolError: it does not have these fields, or not with such values.
    """
    hints = _hints(kind)
    try:
        fields = msgspec.msgpack.decode(record.fields, type=dict[str, Any])
        return kind(**{name: _value(each, hints[name]) for name, each in fields.items()})
    except (KeyError, *UNREADABLE) as error:
        raise RemoteProtocolError(f"{record.event} makes no sense: {error}") from None


@lru_cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind, include_extras=True)


def _value(found: object, wanted: Any) -> Any:
    """A value of the type, or of the first alternative that fits."""
    kinds = get_args(wanted) if get_origin(wanted) is UnionType else (wanted,)
    if Hashable in kinds:
        return _hashable(found)
    error = _error(found)
    if error is not None:
        if any(isinstance(each, type) and isinstance(error, each) for each in kinds):
            return error
        raise RemoteProtocolError(f"{type(error).__name__} has no place here")
    for each in kinds:
        try:
            return msgspec.convert(found, each)
        except UNREADABLE:
            continue
    raise RemoteProtocolError(f"{_text(found)[:100]} is no {getattr(wanted, '__name__', wanted)}")


def _hashable(found: object) -> Hashable:
    if isinstance(found, list):
        return tuple(_hashable(each) for each in found)
    if isinstance(found, Hashable):
        return found
    raise RemoteProtocolError("a peer is no table")


def _error(found: object) -> RoQError | None:
    match found:
        case {"error": str(name), "text": str(text), "endpoint": str(endpoint)}:
            if name == NotLeader.__name__:
                return NotLeader(text, endpoint)
            if name not in ERRORS:
                raise RemoteProtocolError(f"{name[:50]!r} is no error of an event")
            return ERRORS[name](text)
        case _:
            return None


def _same(found: tuple[str, bytes], recorded: tuple[str, msgspec.Raw]) -> bool:
    """Whether two effects are: an amount that is 5 in one and 5.0 in the other is one amount."""
    (name, data), (other, fields) = found, recorded
    if name != other or data == bytes(fields):
        return name == other
    try:
        return bool(msgspec.msgpack.decode(data) == msgspec.msgpack.decode(fields))
    except UNREADABLE:
        return False


def _line(name: str, fields: msgspec.Raw) -> str:
    try:
        shown = _shown(msgspec.msgpack.decode(fields), DEPTH_MAX)
    except UNREADABLE as error:
        return f"{name} (unreadable: {error})"
    if isinstance(shown, dict):
        text = " ".join(f"{key}={_text(value)}" for key, value in shown.items())
    else:
        text = _text(shown)
    return f"{name} {text}".rstrip()[:TEXT_MAX]


def _shown(value: object, depth: int) -> object:
    """A value as people read it: documents that are inside as what they say."""
    if isinstance(value, dict | list) and depth == 0:
        return "…"
    if isinstance(value, dict):
        return {str(key): _shown(each, depth - 1) for key, each in value.items()}
    if isinstance(value, list):
        return [_shown(each, depth - 1) for each in value]
    return _shown_bytes(value, depth) if isinstance(value, bytes) else value


def _shown_bytes(value: bytes, depth: int) -> object:
    if len(value) > BYTES_SHOWN:
        try:
            return _shown(documents.decode_raw(value), max(0, depth - 1))
        except RemoteProtocolError:
            return f"{len(value)} bytes"
    return value.decode() if value.isascii() and value.decode().isprintable() else value.hex()


def _text(value: object) -> str:
    return json.dumps(value, ensure_ascii=True, default=str, separators=(",", ":"))
