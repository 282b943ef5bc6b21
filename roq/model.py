"""The values that the whole system speaks of: names, addresses, positions, exchanges.

Plain data without behaviour beyond its own validity; every layer may import it.
"""

from __future__ import annotations

import operator
import re
from contextlib import suppress
from enum import StrEnum
from math import inf, nan
from typing import Final, NamedTuple, NewType, SupportsFloat, SupportsIndex

import msgspec

from roq.errors import InvalidName, InvalidRequest, LocalProtocolError
from roq.number_ranges import NUMBER_MAX, ChildEpoch, ExchangeNumber, Size

PublisherId = NewType("PublisherId", bytes)
"""128 random bits that name one publisher for its whole life."""

NAME_PATTERN = re.compile(r"[A-Za-z0-9._-]{1,128}\Z")
CLIENT_NAME_MAX = 64
ADDRESS_CHARACTERS_MAX = 300
TOPIC_BYTES_MAX = 255
PUBLISHER_ID_BYTES = 16
QUEUE_ID_BYTES = 16


def check_name(name: str, what: str = "queue") -> str:
    """Give `name` back if RoQ accepts it for a `what` (queue, host, …).

    Raises:
        InvalidName: anything but 1 to 128 of the characters A-Z a-z 0-9 . _ -, and . and ..
        TypeError: no text.
    """
    if not isinstance(name, str):
        raise TypeError(
            f"a{'n' * (what[0] in 'aeiou')} {what} name is text, not {type(name).__name__}"
        )
    if NAME_PATTERN.match(name) is None or name in {".", ".."}:
        shown = name if len(name) <= 40 else name[:40] + "…"
        besides = " (. and .. are paths)" if name in {".", ".."} else ""
        raise InvalidName(
            f"{shown!r} is no valid {what} name: use 1 to 128 of the characters A-Z a-z 0-9 . _ -"
            f"{besides}"
        )
    return name


def check_client_name(name: str) -> str:
    """Give `name` back if a client may call itself so.

    Raises:
        InvalidName: not 1 to 64 characters, or one that cannot be shown.
        TypeError: no text.
    """
    if not isinstance(name, str):
        raise TypeError(f"a client's name is text, not {type(name).__name__}")
    if not 1 <= len(name) <= CLIENT_NAME_MAX or not name.isprintable():
        shown = name if len(name) <= 40 else name[:40] + "…"
        raise InvalidName(
            f"{shown!r} is no name for a client: use 1 to {CLIENT_NAME_MAX} characters that can be "
            "shown on one line"
        )
    return name


def encode_topic(topic: str) -> bytes:
    """Give the bytes of a topic as they travel.

    Topics are UTF-8, so none begins with the byte 0xFF, which marks control topics.

    Raises:
        InvalidName: not encodable, or longer than 255 bytes.
        TypeError: no text.
    """
    if not isinstance(topic, str):
        raise TypeError(f"a topic is text, not {type(topic).__name__}")
    try:
        data = topic.encode()
    except UnicodeEncodeError as error:
        raise InvalidName(f"topic {topic!r} cannot be encoded as UTF-8: {error.reason}") from None
    if len(data) > TOPIC_BYTES_MAX:
        raise InvalidName(f"a topic has at most {TOPIC_BYTES_MAX} bytes, this one {len(data)}")
    return data


NO_END_SECONDS: Final = 10 * 366 * 86_400.0
"""Whoever waits for longer waits without an end: Python's locks and timers do not take any number
of seconds."""


def as_number(value: object) -> float:
    """A number as times are counted; nan: it is none, and neither is a bool or a text."""
    if type(value) is float:
        return value
    if type(value) is not int and (
        isinstance(value, bool) or not isinstance(value, SupportsFloat | SupportsIndex)
    ):
        return nan
    try:
        return float(value)
    except OverflowError:  # an int of hundreds of digits
        return inf if value > 0 else -inf  # type: ignore[operator]
    except (TypeError, ValueError):
        return nan


def check_seconds(
    what: str, value: object, least: float = 0.0, most: float = inf, *, above: bool = False
) -> float:
    """Seconds that somebody gives as the argument `what`.

    Args:
        least, most: what is allowed.
        above: `least` is not.

    Raises:
        InvalidRequest: that is no number, or none that is allowed.
    """
    seconds = as_number(value)
    if least <= seconds <= most and not (above and seconds == least):  # false of nan
        return seconds
    allowed = "" if least == -inf else f" above {least:g}" if above else f" from {least:g} on"
    allowed += "" if most == inf else f", at most {most:g}"
    raise InvalidRequest(f"{what} is a number of seconds{allowed}, not {shown(value)}")


def wait_seconds(timeout: object, default: float = NO_END_SECONDS, what: str = "timeout") -> float:
    """For how long somebody waits: not at all if the time is over, and infinity is without an end.

    Args:
        timeout: None: as long as `default`.

    Raises:
        InvalidRequest: that is no number.
    """
    seconds = default if timeout is None else check_seconds(what, timeout, -inf)
    return min(max(0.0, seconds), NO_END_SECONDS)


def check_count(what: str, value: object, least: int, most: int = NUMBER_MAX) -> int:
    """A whole number that somebody gives as the argument `what`.

    Raises:
        InvalidRequest: it is none, or none that is allowed.
    """
    if type(value) is int and least <= value <= most:  # at once, as it is asked for each message
        return value
    if isinstance(value, SupportsIndex) and not isinstance(value, bool):
        with suppress(Exception):  # of an object that is one only at times, as an array
            if least <= (number := operator.index(value)) <= most:
                return number
    allowed = f"from {least:,} on" if most == NUMBER_MAX else f"from {least:,} to {most:,}"
    raise InvalidRequest(f"{what} is a whole number {allowed}, not {shown(value)}")


def shown(value: object) -> str:
    """What somebody has given, in an error: however long it is, and whatever it does."""
    try:
        return f"{value!r:.80}"
    except Exception:  # noqa: BLE001 - ints of thousands of digits, too
        return f"what cannot be shown, of type {type(value).__name__}"


class QueueState(StrEnum):
    """Where a logical queue stands in its life."""

    CREATING = "creating"
    RUNNING = "running"
    STOPPED = "stopped"
    STOPPING = "stopping"
    STARTING = "starting"
    REMOVING = "removing"


VOLATILE: Final = "none"
"""Durability of a queue whose messages live in the memory of its exchanges."""
FLUSH: Final = "flush"
"""Durability of one whose exchanges acknowledge what is on their disk, and nothing before."""
ASYNC: Final = "async"
"""Durability of one whose exchanges acknowledge what is written, and sync it a moment later."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What a queue allows; every number may be set when the queue is created."""

    message_bytes: Size = 64 * 1024 * 1024
    """Largest payload in bytes."""
    batch_bytes: Size = 64 * 1024
    """A batch is sent at the latest when its payloads reach this size."""
    batch_messages: Size = 500
    """A batch is sent at the latest when it holds this many messages."""
    window_bytes: Size = 16 * 1024 * 1024
    """Unacknowledged bytes that one publisher may have under way."""
    window_batches: Size = 256
    """Unacknowledged batches that one publisher may have under way."""
    ring_bytes: Size = 128 * 1024 * 1024
    """Memory in which one exchange keeps what it got last, for late and slow readers."""
    slow_bytes: Size = 256 * 1024 * 1024
    """What batches that have left the ring may take beside it, as they wait for slow subscribers,
    for all subscribers of one exchange together."""
    topics: Size = 65_536
    """Different topics that one exchange remembers."""
    publishers: Size = 10_000
    """Publishers that one exchange remembers."""
    throughput_bytes: Size = 3_000_000_000
    """The limit L of one exchange, payload bytes per minute, by which publishers are assigned and
    moved."""
    exchanges_max: Size = 4
    """The queue grows by itself to so many exchanges, unless its rules say otherwise; 1: not at
    all."""
    ordered: Size = 0
    """1: the queue has one exchange, and never another one beside it, so all that is published has
    one order. No rule makes it grow, and no other exchange stands in while the host with its log is
    away: publishers wait."""
    log_bytes: Size = 10 * 1024 * 1024 * 1024
    """What the log of one exchange of a durable queue may take on its disk; beyond, the oldest
    messages go."""
    log_seconds: Size = 7 * 24 * 60 * 60
    """Messages that are older go from the log of a durable queue, in whole files."""
    log_until_done: Size = 0
    """1: a file of a log also goes when all consumer groups of the queue have done everything in
    it, and that was half a minute ago. As long as the queue has no group, nothing goes by that.
    Subscribers, Spark and readers of logs find less then: what is done nobody keeps for them."""
    message_seconds: Size = 0
    """Time to live of each message, from when an exchange has taken it in: older ones are handed to
    no consumer group; 0: without an end. A shorter one of its own counts."""
    disk_free_bytes: Size = 256 * 1024 * 1024
    """An exchange of a durable queue takes nothing more while less of its disk is free, or a tenth
    of a small one; 0: it takes what the disk takes."""
    disk_free_files: Size = 1_000
    """Likewise of files that can still be made."""


class ElasticRules(msgspec.Struct, frozen=True, kw_only=True):
    """When a queue moves publishers, grows and shrinks by itself. A limit of 0 is not looked at."""

    policy: str = "balanced"
    """Name of the policy: one of RoQ's own, or of an entry point in `roq.policies`."""
    exchange_bytes: Size = 0
    """The limit L of one exchange, payload bytes per minute; 0: `Limits.throughput_bytes`."""
    host_cpu_percent: Size = 0
    """A host is overloaded above this use of all of its cores."""
    host_memory_mb: Size = 0
    """A host is overloaded above so much memory in use."""
    queue_bytes_per_exchange: Size = 0
    """The queue grows above so many payload bytes per minute and exchange."""
    queue_publishers_per_exchange: Size = 0
    """The queue grows above so many publishers per exchange."""
    latency_ms: Size = 0
    """The queue grows when its subscribers report a higher mean latency."""
    exchanges_min: Size = 1
    """It never shrinks below this by itself."""
    exchanges_max: Size = 4
    """It never grows above this by itself; 1: never at all."""
    cooldown_seconds: Size = 10
    """After the number of exchanges was changed it is left alone for so long."""
    slow_subscriber: str = "hold"
    """`hold`: publishers wait for who reads slowly; `drop`: it loses what leaves the ring."""
    hold_seconds: Size = 10
    """So long they wait for a subscriber that does not read on."""

    @property
    def hold(self) -> int:
        """For how many seconds publishers wait; 0: not at all."""
        return self.hold_seconds if self.slow_subscriber == "hold" else 0


class LogId(NamedTuple):
    """Which log of a queue: what offsets count in.

    A process and its log are two things. The epoch of the process tells who is outdated; a log on
    disk goes on under the next process, and then keeps its generation and its offsets.
    """

    number: ExchangeNumber
    """Of the exchange."""
    generation: ChildEpoch
    """The epoch of the process that has made the log; a higher one of the same number is another
    log."""

    def __str__(self) -> str:
        return f"{self.number}:{self.generation}"


NO_LOG = LogId(0, 0)


class ExchangeInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One exchange of a queue as publishers and subscribers see it."""

    number: ExchangeNumber
    """Unique in its queue and never used again; `name` is derived from it."""
    epoch: ChildEpoch
    """Rises each time the exchange is started: of two processes the later one has the higher."""
    generation: ChildEpoch
    """Of its log, see `LogId`."""
    host: str
    data: str
    """Address where publishers send and readers ask."""
    live: str
    """Address of the fan-out."""

    @property
    def name(self) -> str:
        """The name that people see, such as `x3`."""
        return exchange_name(self.number)

    @property
    def log(self) -> LogId:
        """The log that it serves."""
        return LogId(self.number, self.generation)


def exchange_name(number: int) -> str:
    """The name of exchange `number` as people see it."""
    return f"x{number}"


def is_address(text: str) -> bool:
    """Whether what another process has named may be connected to."""
    return text.startswith("tcp://") and len(text) <= ADDRESS_CHARACTERS_MAX and text.isprintable()


def endpoint_of(host: str, port: int) -> str:
    """The ZeroMQ address of a TCP port; brackets an IPv6 host."""
    return f"tcp://[{host}]:{port}" if ":" in host else f"tcp://{host}:{port}"


_HOST_EPOCH_BITS = 20
HOST_EPOCH_MAX = (1 << _HOST_EPOCH_BITS) - 1
_CHILD_BITS = 16
_MOVE_BITS = 27


def child_epoch(host_epoch: int, counter: int) -> int:
    """The epoch of a child process: the epoch of its host manager, then the manager's own count.

    Host manager epochs come from one counter of the cluster, so a child that is started later, on
    whatever host, has a higher epoch, and starting one needs no registry.
    """
    if not (0 < host_epoch < 1 << _HOST_EPOCH_BITS and 0 <= counter < 1 << _CHILD_BITS):
        raise LocalProtocolError(f"epoch ({host_epoch}, {counter}) is out of range")
    return host_epoch << _CHILD_BITS | counter


def host_epoch(child: int) -> int:
    """The epoch of the host manager that started a child of this epoch."""
    return child >> _CHILD_BITS


def child_number(child: int) -> int:
    """The host manager's own count in the epoch of a child."""
    return child & ((1 << _CHILD_BITS) - 1)


def publisher_epoch(monitor_epoch: int, counter: int) -> int:
    """The epoch of a publisher: the epoch of the monitor that assigned it, then its own count."""
    if not 0 <= counter < 1 << _MOVE_BITS:
        raise LocalProtocolError(
            f"a monitor assigns {1 << _MOVE_BITS} epochs and is restarted then"
        )
    return monitor_epoch << _MOVE_BITS | counter


def monitor_epoch(publisher: int) -> int:
    """The epoch of the monitor that has given a publisher this epoch."""
    return publisher >> _MOVE_BITS
