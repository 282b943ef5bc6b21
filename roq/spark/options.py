"""What a query may say about its source: every option checked before anything is read."""

from __future__ import annotations

import base64
import json
import uuid
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from roq.errors import ConfigError, InvalidName
from roq.model import LogId, check_name, encode_topic
from roq.read.events import BelowFloor

EARLIEST: Final = "earliest"
LATEST: Final = "latest"
ORDERS: Final = ("key", "topic")
ALL: Final = "all"
"""Of a log, in `acceptedLoss`: whatever is lost of it."""
MICROSECONDS: Final = 1_000_000
TIMEOUT_SECONDS: Final = 10.0
FLUSH_SECONDS: Final = 60.0
FLUSH_SECONDS_MAX: Final = 300.0
SECONDS_MAX: Final = 3_600.0
PARTITIONS_MAX: Final = 1_000
BATCHES_MAX: Final = 1_000_000_000
KEY_MOST: Final = 32
"""Characters of a log's name."""

_WRITE_KNOWN: Final = (
    "cluster", "queue", "topic", "stagingLocation", "writerId", "checkpointLocation",
    "timeoutSeconds", "flushSeconds",
)  # fmt: skip
_TASKS_KNOWN: Final = (
    "cluster", "queue", "topic", "stagingLocation", "writerId", "orderBy", "publishTasks",
    "timeoutSeconds", "flushSeconds",
)  # fmt: skip
_READ_KNOWN: Final = (
    "cluster", "queue", "topic", "topics", "startingOffsets", "startingTime", "endingOffsets",
    "endingTime", "failOnDataLoss", "acceptedLoss", "belowFloor", "maxBatchesPerTrigger",
    "partitionsPerExchange", "timeoutSeconds", "group", "groupPosition",
)  # fmt: skip
_NOT_WITH_GROUP: Final = ("topic", "topics", "startingOffsets", "startingTime", "belowFloor")


@dataclass(frozen=True, slots=True)
class Place:
    """Where to begin or to end, in all logs of a queue. Exactly one of the three is set.

    Attributes:
        word: `earliest` or `latest`.
        time_us: the append time, µs UTC.
        offsets: offset by log.
    """

    word: str = ""
    time_us: int | None = None
    offsets: Mapping[LogId, int] | None = None


@dataclass(frozen=True, slots=True)
class Options:
    """The options of one source, checked.

    Attributes:
        cluster: addresses of configuration managers.
        queue: name of the queue.
        prefixes: topics begin with one of these; an empty one: all topics.
        start: where a query begins that has no checkpoint.
        end: where a batch query ends.
        fail_on_data_loss: end with an error where messages have left a log before they were read;
            otherwise a warning tells it.
        below_floor: what to do where `start` names an offset that is kept no more: begin with the
            oldest batch that is, or at the end; or it counts as a loss.
        accepted: of which logs a loss is no error in spite of that: below this offset; None:
            whatever is lost of it.
        max_batches: log entries that one micro-batch reads at most; 0: no limit.
        partitions: into how many tasks the part of one exchange is split at most.
        timeout: seconds to wait for a word from the cluster or an exchange.
        group: the consumer group whose work the query does; empty: of none.
        position: how far that group was in each log when it was taken over, as its exchanges have
            said; empty: they are asked.
    """

    cluster: tuple[str, ...]
    queue: str
    prefixes: tuple[bytes, ...]
    start: Place
    end: Place
    fail_on_data_loss: bool
    accepted: Mapping[LogId, int | None]
    max_batches: int
    partitions: int
    timeout: float
    below_floor: BelowFloor = BelowFloor.ERROR
    group: str = ""
    position: Mapping[LogId, bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """The options of one sink, checked.

    Attributes:
        cluster: addresses of configuration managers.
        queue: name of the queue.
        topic: of rows that have none.
        staging: folder where tasks leave their rows for the driver.
        checkpoint: folder of the query's checkpoint; empty if it is not known.
        writer: names a streaming query over its restarts; empty: the staging folder does.
        timeout: seconds to wait for a word from the cluster.
        flush: seconds to wait until everything of a micro-batch is acknowledged.
        order: where tasks publish, the column by whose values rows are brought together in one
            task: `key` or `topic`; empty: rows stay where they are.
        tasks: into how many tasks they are brought then; 0: Spark decides.
    """

    cluster: tuple[str, ...]
    queue: str
    topic: str
    staging: str
    checkpoint: str
    writer: str
    timeout: float
    flush: float
    order: str = ""
    tasks: int = 0


def write_options(
    given: Mapping[str, str], *, streaming: bool, tasks: bool = False
) -> WriteOptions:
    """Check the options of a sink.

    Args:
        given: as Spark gives them; names are taken in any case.
        streaming: it goes on after failures; what was staged stays until it was published.
        tasks: the sink is a `TaskSink`, which has other options.

    Raises:
        ConfigError: one is missing, unknown or makes no sense; the text says which and what to do.
    """
    told = {key.lower(): value for key, value in given.items()}
    _check_known(told, _TASKS_KNOWN if tasks else _WRITE_KNOWN)
    checkpoint = told.get("checkpointlocation", "")
    staging = told.get("staginglocation") or (f"{checkpoint}/roq" if checkpoint else "")
    if not staging:
        raise ConfigError(
            "stagingLocation is missing: a folder that driver and executors share, where rows wait "
            "until all tasks have written theirs"
        )
    topic = told.get("topic", "")
    try:
        encode_topic(topic)
    except InvalidName as error:
        raise ConfigError(f"topic: {error}") from None
    order = told.get("orderby", "")
    if order not in {"", *ORDERS}:
        raise ConfigError(f"orderBy: {' or '.join(ORDERS)}, not {order[:40]!r}")
    if "publishtasks" in told and not order:
        raise ConfigError(
            "publishTasks: says into how many tasks orderBy brings the rows; without orderBy each "
            "task publishes what it has: use df.repartition() or df.coalesce()"
        )
    return WriteOptions(
        cluster=_addresses(told),
        queue=_queue(told),
        topic=topic,
        staging=staging if streaming else f"{staging.rstrip('/')}/{uuid.uuid4().hex}",
        checkpoint=checkpoint if streaming else "",
        writer=told.get("writerid", ""),
        timeout=_seconds(told, "timeoutSeconds", TIMEOUT_SECONDS),
        flush=_seconds(told, "flushSeconds", FLUSH_SECONDS, FLUSH_SECONDS_MAX),
        order=order,
        tasks=_number(told, "publishTasks", 0, PARTITIONS_MAX),
    )


def read_options(given: MutableMapping[str, str], *, streaming: bool) -> Options:
    """Check the options of a query; names are taken in any case, as Spark does.

    Raises:
        ConfigError: one is missing, unknown or makes no sense; the text says which and what to do.
    """
    told = {key.lower(): value for key, value in given.items()}
    _check_known(told, _READ_KNOWN)
    group = _group(told)
    start = _place(told, "startingOffsets", "startingTime", LATEST if streaming else EARLIEST)
    end = _place(told, "endingOffsets", "endingTime", LATEST)
    if not streaming and start.word == LATEST:
        raise ConfigError("startingOffsets: a batch query that begins at the latest reads nothing")
    if end.word == EARLIEST:
        raise ConfigError("endingOffsets: a query cannot end at the earliest")
    if streaming and ("endingoffsets" in told or "endingtime" in told):
        raise ConfigError("endingOffsets, endingTime: a streaming query has no end")
    _check_order(start, end)
    return Options(
        cluster=_addresses(told),
        queue=_queue(told),
        prefixes=_prefixes(told),
        start=start,
        end=end,
        fail_on_data_loss=_flag(told, "failOnDataLoss", default=True),
        accepted=_accepted(told),
        max_batches=_number(told, "maxBatchesPerTrigger", 0, BATCHES_MAX),
        partitions=_number(told, "partitionsPerExchange", 1, PARTITIONS_MAX),
        timeout=_seconds(told, "timeoutSeconds", TIMEOUT_SECONDS),
        below_floor=_below_floor(told),
        group=group,
        position=_position(told),
    )


def _check_known(told: Mapping[str, str], known: tuple[str, ...]) -> None:
    unknown = sorted(set(told) - {name.lower() for name in known} - {"path"})
    if unknown:
        raise ConfigError(f"unknown option {unknown[0]!r}; there are {', '.join(known)}")


def _addresses(told: Mapping[str, str]) -> tuple[str, ...]:
    addresses = tuple(part.strip() for part in told.get("cluster", "").split(",") if part.strip())
    if not addresses:
        raise ConfigError(
            'option "cluster" is missing: addresses of configuration managers, such as '
            "127.0.0.1:5000, several separated by commas"
        )
    return addresses


def _queue(told: Mapping[str, str]) -> str:
    name = told.get("queue") or told.get("path", "")
    if not name:
        raise ConfigError('option "queue" is missing: the name of a queue')
    try:
        return check_name(name)
    except InvalidName as error:
        raise ConfigError(f"queue: {error}") from None


def _group(told: Mapping[str, str]) -> str:
    name = told.get("group", "")
    if not name:
        return ""
    given = [each for each in _NOT_WITH_GROUP if each.lower() in told]
    if given:
        raise ConfigError(
            f"group, {given[0]}: give one of them; with group a query begins where the group is, "
            "and reads the group's topics"
        )
    try:
        return check_name(name, "group")
    except InvalidName as error:
        raise ConfigError(f"group: {error}") from None


def _position(told: Mapping[str, str]) -> dict[LogId, bytes]:
    problem = ConfigError("groupPosition: is set by roq.spark.TakenGroup, by nobody else")
    found: dict[LogId, bytes] = {}
    for log, what in _by_log(told.get("groupposition", "{}"), problem).items():
        try:
            found[log] = base64.b64decode(what if isinstance(what, str) else "?", validate=True)
        except ValueError:
            raise problem from None
    return found


def _prefixes(told: Mapping[str, str]) -> tuple[bytes, ...]:
    if "topic" in told and "topics" in told:
        raise ConfigError("topic, topics: give one of them")
    prefixes = [told.get("topic", "")]
    if "topics" in told:
        prefixes = _strings(told["topics"])
    try:
        return tuple(encode_topic(prefix) for prefix in prefixes)
    except InvalidName as error:
        raise ConfigError(f"topic: {error}") from None


def _strings(text: str) -> list[str]:
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, list) or not value or not all(isinstance(x, str) for x in value):
        raise ConfigError('topics: a JSON list of topic prefixes, such as ["eu.", "us."]')
    return value


def _place(told: Mapping[str, str], offsets: str, at: str, default: str) -> Place:
    where, time = told.get(offsets.lower()), told.get(at.lower())
    if where is not None and time is not None:
        raise ConfigError(f"{offsets}, {at}: give one of them")
    if time is not None:
        return Place(time_us=_time_us(time, at))
    where = default if where is None else where.strip()
    if where.lower() in {EARLIEST, LATEST}:
        return Place(word=where.lower())
    return Place(offsets=_offsets(where, offsets))


def _below_floor(told: Mapping[str, str]) -> BelowFloor:
    given = told.get("belowfloor", BelowFloor.ERROR).strip().lower()
    try:
        return BelowFloor(given)
    except ValueError:
        raise ConfigError(
            f"belowFloor: {given[:40]!r} is none of {', '.join(BelowFloor)}"
        ) from None


def _check_order(start: Place, end: Place) -> None:
    ends = end.offsets or {}
    for log, first in sorted((start.offsets or {}).items()):
        if first > ends.get(log, first):
            raise ConfigError(
                f"startingOffsets, endingOffsets: the log of exchange x{log.number} (generation "
                f"{log.generation}) would be read from {first} up to {ends[log]}"
            )


def _time_us(text: str, name: str) -> int:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigError(
            f"{name}: {text[:40]!r} is no time; write it as 2026-11-21T08:30:00+00:00"
        ) from None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return int(moment.timestamp() * MICROSECONDS)


def _offsets(text: str, name: str) -> dict[LogId, int]:
    problem = ConfigError(
        f'{name}: earliest, latest, or JSON such as {{"1:65537": 120}}: offset by log '
        "(columns `exchange` and `generation`)"
    )
    found: dict[LogId, int] = {}
    for log, offset in _by_log(text, problem).items():
        if type(offset) is not int or offset < 0:
            raise problem
        found[log] = offset
    return found


def _accepted(told: Mapping[str, str]) -> dict[LogId, int | None]:
    problem = ConfigError(
        'acceptedLoss: JSON such as {"1:65537": "all", "2:65538": 120}, as the error says that '
        'tells of a loss: by log (exchange and generation), "all", or the offset below which '
        "messages may be missing"
    )
    found: dict[LogId, int | None] = {}
    for log, what in _by_log(told.get("acceptedloss", "{}"), problem).items():
        if what != ALL and (type(what) is not int or what < 0):
            raise problem
        found[log] = what if isinstance(what, int) else None
    return found


def _by_log(text: str, problem: ConfigError) -> dict[LogId, object]:
    """What a JSON object holds whose keys are logs."""
    try:
        value = json.loads(text)
    except ValueError:
        raise problem from None
    if not isinstance(value, dict):
        raise problem
    found: dict[LogId, object] = {}
    for key, what in value.items():
        number, _, generation = key.partition(":")
        if not (number.isdecimal() and generation.isdecimal() and len(key) <= KEY_MOST):
            raise problem
        found[LogId(int(number), int(generation))] = what
    return found


def _flag(told: Mapping[str, str], name: str, *, default: bool) -> bool:
    words = {"true": True, "false": False}
    value = told.get(name.lower())
    if value is None:
        return default
    if value.lower() not in words:
        raise ConfigError(f"{name}: true or false, not {value[:40]!r}")
    return words[value.lower()]


def _number(told: Mapping[str, str], name: str, default: int, most: int) -> int:
    value = told.get(name.lower())
    if value is None:
        return default
    if not (value.isdecimal() and 0 < int(value) <= most):
        raise ConfigError(f"{name}: a number from 1 to {most}, not {value[:40]!r}")
    return int(value)


def _seconds(
    told: Mapping[str, str], name: str, default: float, most: float = SECONDS_MAX
) -> float:
    value = told.get(name.lower())
    try:
        seconds = default if value is None else float(value)
    except ValueError:
        seconds = 0.0
    if not 0.0 < seconds <= most:
        raise ConfigError(f"{name}: seconds above 0 and up to {most:g}")
    return seconds
