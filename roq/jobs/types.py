"""Types of jobs: what runs, with which params, how often and how long."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any, Final, Generic, Protocol, TypeVar

import msgspec
import sqlalchemy as sa

from roq.errors import ConfigError, InvalidRequest, MessageTooLarge
from roq.jobs.database import MICROSECONDS
from roq.jobs.handle import JobHandle
from roq.jobs.instances import TypeFacts
from roq.jobs.limits import TypeLimits, checked
from roq.jobs.rows import TEXT_MAX, Body, NewJob
from roq.jobs.states import PRIORITIES

CODEC: Final = "json"
PARAMS_BYTES_MAX: Final = 16 * 1024 * 1024
"""Params larger than that belong into a store of their own; the job has their address."""
ITEMS_MAX: Final = 2**53
"""Fewer items has a job: all programs and pages can show them."""
PARENTS_MAX: Final = 10_000
ON_UNIQUE: Final = ("skip", "replace", "raise")
R = TypeVar("R")

Upgrade = Callable[[int, Any], Any]
"""From the version that params were written with, and what JSON says, to what they are now."""


class JobKind(StrEnum):
    """Where a handler runs."""

    THREAD = "thread"
    ASYNC = "async"
    """As a task of an event loop."""
    PROCESS = "process"
    """In a process of its own, which is killed if it does not stop."""


class Unreadable(Exception):
    """Params that this program cannot read; the text says why."""


class Submitter(Protocol):
    """What a type asks of the jobs that it belongs to."""

    def submit(
        self, type_: JobType[Any], jobs: Sequence[NewJob], connection: sa.Connection | None
    ) -> list[JobHandle[Any]]:
        """Write jobs down."""
        ...


class JobType(Generic[R]):
    """A type of jobs, made by `Jobs.type` from the function that runs them.

    Attributes:
        name: by which the database knows it.
        handler: the function: of a `Job` and of the params, if the jobs have any.
        version: of the params, as this program writes them.
        restartable: whether a job may run again by itself after it failed half way.
        limits: that hold unless an operator sets others.
        kind: where the handler runs.
        jobs: that it belongs to.
    """

    def __init__(
        self,
        submitter: Submitter,
        handler: Callable[..., Any],
        *,
        name: str,
        version: int = 1,
        upgrade: Upgrade | None = None,
        items: Callable[[Any], int] | None = None,
        restartable: bool = False,
        limits: TypeLimits | None = None,
        kind: str | None = None,
    ) -> None:
        self.name = checked_text("the name of a type", name)
        self.handler = handler
        self.version = _within("version", version, 1, 1_000_000)
        self.restartable = restartable
        self.limits = _checked(limits or TypeLimits())
        self.kind = _kind(name, handler, kind)
        self.jobs = submitter
        self._items = items
        self._upgrade = upgrade
        self.takes_params, self._params_type, self._result_type = _signature(name, handler)

    @property
    def is_async(self) -> bool:
        """Whether the handler is a coroutine."""
        return self.kind is JobKind.ASYNC

    @property
    def address(self) -> tuple[str, str]:
        """Module and name in it, where another process finds the type."""
        return self.handler.__module__, self.handler.__qualname__

    @property
    def facts(self) -> TypeFacts:
        """As other programs see the type in the database."""
        return TypeFacts(self.name, self.version, self.restartable, self.limits)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The handler itself, called here and now."""
        return self.handler(*args, **kwargs)

    # --- submit -----------------------------------------------------------------------------------

    def submit(
        self,
        params: Any = None,
        *,
        priority: int | str | None = None,
        due: datetime | None = None,
        unique: str | None = None,
        on_unique: str = "raise",
        key: str | None = None,
        after: Iterable[JobHandle[Any] | int] = (),
        tag: str = "",
        connection: sa.Connection | None = None,
    ) -> JobHandle[R]:
        """Submit a job; it is in the database when this returns.

        Args:
            params: what the handler gets.
            priority: `roq.HIGH`, `roq.DEFAULT`, `roq.LOW`, or their names; None: that of the type.
            due: not before that time (with a time zone); None: at once.
            unique: there is no other job of the type with this text that waits or runs.
            on_unique: what is done if there is: `raise`, `skip` (the handle is of that one), or
                `replace` its params and tag, unless it runs.
            key: jobs of the type with the same key run one at a time, in their order; one that
                waits to be tried again lets the others pass.
            after: jobs that have to be COMPLETE first.
            tag: a text for people, by which jobs can be listed.
            connection: a transaction of yours, in the same database: the job is there when you
                commit it, or not at all.

        Raises:
            JobExists: there is one with the same `unique`.
            JobNotFound: there is no such job to come after.
            InvalidRequest: a value that cannot be.
            MessageTooLarge: params of more than 16 MiB.
            Unavailable: the database cannot be reached.
        """
        job = self.new(
            params, priority=priority, due=due, unique=unique, on_unique=on_unique, key=key,
            after=after, tag=tag,
        )  # fmt: skip
        return self.jobs.submit(self, [job], connection)[0]

    def submit_many(
        self,
        params: Iterable[Any],
        *,
        priority: int | str | None = None,
        due: datetime | None = None,
        key: str | None = None,
        after: Iterable[JobHandle[Any] | int] = (),
        tag: str = "",
        connection: sa.Connection | None = None,
    ) -> list[JobHandle[R]]:
        """Submit a job for each of these params, all in one transaction; otherwise as `submit`."""
        parents = tuple(after)
        jobs = [
            self.new(each, priority=priority, due=due, key=key, after=parents, tag=tag)
            for each in params
        ]
        return self.jobs.submit(self, jobs, connection)

    def new(
        self,
        params: Any = None,
        *,
        priority: int | str | None = None,
        due: datetime | None = None,
        unique: str | None = None,
        on_unique: str = "raise",
        key: str | None = None,
        after: Iterable[JobHandle[Any] | int] = (),
        tag: str = "",
    ) -> NewJob:
        """A job that is checked and encoded, and not submitted."""
        parents = tuple(each.id if isinstance(each, JobHandle) else each for each in after)
        if not all(isinstance(each, int) for each in parents):
            raise InvalidRequest("`after` takes handles of jobs, or their ids")
        if len(parents) > PARENTS_MAX:
            raise InvalidRequest(f"a job comes after {PARENTS_MAX:,} others at most")
        if on_unique not in ON_UNIQUE:
            raise InvalidRequest(f"on_unique is one of {', '.join(ON_UNIQUE)}, not {on_unique!r}")
        return NewJob(
            type=self.name,
            priority=self.limits.priority if priority is None else priority_of(priority),
            chosen=priority is not None,
            restartable=self.restartable,
            items=self._count(params),
            tag=checked_text("a tag", tag, empty=True),
            due=0 if due is None else microseconds(due),
            unique=None if unique is None else checked_text("`unique`", unique),
            on_unique=on_unique,
            key=None if key is None else checked_text("a key", key),
            parents=parents,
            params=self.encode(params),
        )

    def _count(self, params: Any) -> int:
        if self._items is None:
            return 0
        number = self._items(params)
        if not isinstance(number, int) or not 0 <= number < ITEMS_MAX:
            raise InvalidRequest(f"items of type {self.name} is to give a number, not {number!r}")
        return number

    # --- params and results -----------------------------------------------------------------------

    def encode(self, params: Any) -> Body | None:
        """Params for the database.

        Raises:
            InvalidRequest: they cannot be encoded, or are not what the handler takes.
            MessageTooLarge: they are.
        """
        if not self.takes_params:
            if params is not None:
                raise InvalidRequest(f"the handler of type {self.name} takes no params")
            return None
        try:
            body = msgspec.json.encode(params)
            msgspec.json.decode(body, type=self._params_type)
        except (TypeError, ValueError, msgspec.MsgspecError, RecursionError) as error:
            raise InvalidRequest(f"params of type {self.name}: {error}") from None
        if len(body) > PARAMS_BYTES_MAX:
            raise MessageTooLarge(
                f"params of type {self.name} have {len(body):,} bytes, and may have "
                f"{PARAMS_BYTES_MAX:,}: store them elsewhere and submit where they are"
            )
        return Body(CODEC, self.version, body)

    def decode(self, body: Body | None) -> Any:
        """Params out of the database, of this version or an earlier one.

        Raises:
            Unreadable: they cannot be read; says why.
        """
        if not self.takes_params:
            return None
        if body is None:
            raise Unreadable("the job has no params, and its handler takes some")
        if body.codec != CODEC:
            raise Unreadable(f"its params are encoded by {body.codec!r}, which is not known here")
        if body.version > self.version:
            raise Unreadable(
                f"its params have version {body.version}, and this program knows {self.version}: "
                "start a newer one, and restart the job"
            )
        try:
            if self._upgrade is not None and body.version < self.version:
                raw = self._upgrade(body.version, msgspec.json.decode(body.body))
                return msgspec.convert(raw, self._params_type)
            return msgspec.json.decode(body.body, type=self._params_type)
        except BaseException as error:  # noqa: BLE001 - an upgrade is the user's; the job says what it raised
            said = str(error) or type(error).__name__
            raise Unreadable(f"its params cannot be read: {said}") from None

    def encode_result(self, result: Any) -> Body | None:
        """What a handler has returned, for the database; None is nothing.

        Raises:
            InvalidRequest: it cannot be encoded, or is too large.
        """
        if result is None:
            return None
        try:
            body = msgspec.json.encode(result)
        except (TypeError, ValueError, RecursionError) as error:
            raise InvalidRequest(f"the result of type {self.name}: {error}") from None
        if len(body) > PARAMS_BYTES_MAX:
            raise InvalidRequest(f"the result has {len(body):,} bytes, of {PARAMS_BYTES_MAX:,}")
        return Body(CODEC, self.version, body)

    def decode_result(self, body: Body | None) -> R:
        """A result out of the database.

        Raises:
            InvalidRequest: it is not of the type that the handler says.
        """
        if body is None:
            return typing.cast("R", None)
        try:
            return typing.cast("R", msgspec.json.decode(body.body, type=self._result_type))
        except msgspec.MsgspecError as error:
            raise InvalidRequest(f"the result of type {self.name}: {error}") from None


def _signature(name: str, handler: Callable[..., Any]) -> tuple[bool, Any, Any]:
    """Whether a handler takes params, of which type, and the type of what it returns."""
    positional = [
        each
        for each in inspect.signature(handler).parameters.values()
        if each.kind in {each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD}
    ]
    if not 1 <= len(positional) <= 2:
        raise ConfigError(f"the handler of type {name} is to take a job, and params if it has any")
    try:
        hints: Mapping[str, Any] = typing.get_type_hints(handler)
    except NameError as error:
        raise ConfigError(f"an annotation of the handler of type {name}: {error}") from None
    takes = len(positional) == 2
    wanted = hints.get(positional[1].name, Any) if takes else None
    result = hints.get("return", Any)
    if result is type(None):
        result = Any  # a handler that completes its job by itself says there what the result is
    try:
        msgspec.json.Decoder(wanted)
        msgspec.json.Decoder(result)
    except TypeError as error:
        raise ConfigError(f"type {name}: {error}") from None
    return takes, wanted, result


def priority_of(value: int | str) -> int:
    """A priority by its number or its name.

    Raises:
        InvalidRequest: it is none.
    """
    found = PRIORITIES.get(value.lower()) if isinstance(value, str) else value
    if found is None or found not in PRIORITIES.values():
        raise InvalidRequest(f"{value!r} is no priority: use {', '.join(PRIORITIES)}")
    return found


def microseconds(time: datetime) -> int:
    """A time as the database has it.

    Raises:
        InvalidRequest: it has no time zone.
    """
    if not isinstance(time, datetime) or time.tzinfo is None:
        raise InvalidRequest(f"due is a datetime with a time zone, not {time!r}")
    return max(0, int(time.timestamp() * MICROSECONDS))


def checked_text(what: str, text: str, *, empty: bool = False) -> str:
    """A short text that databases and terminals take.

    Raises:
        InvalidRequest: it is not.
    """
    if not isinstance(text, str) or len(text) > TEXT_MAX or (not text and not empty):
        least = 0 if empty else 1
        raise InvalidRequest(f"{what} is a text of {least} to {TEXT_MAX} characters")
    if not text.isprintable():
        raise InvalidRequest(f"{what} has characters that cannot be printed: {text!r}")
    return text


def _within(what: str, value: int, least: int, most: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise ConfigError(f"{what} is a number from {least} to {most:,}, not {value!r}")
    return value


def _kind(name: str, handler: Callable[..., Any], wanted: str | None) -> JobKind:
    """Where a handler is to run.

    Raises:
        ConfigError: it cannot run there.
    """
    coroutine = inspect.iscoroutinefunction(handler)
    if wanted is None:
        return JobKind.ASYNC if coroutine else JobKind.THREAD
    if wanted not in set(JobKind):
        raise ConfigError(f"kind of type {name} is one of {', '.join(JobKind)}, not {wanted!r}")
    if coroutine != (wanted == JobKind.ASYNC):
        what = "`async def`" if coroutine else "no `async def`"
        raise ConfigError(f"the handler of type {name} is {what}, so it cannot be of kind {wanted}")
    if wanted == JobKind.PROCESS and "<" in getattr(handler, "__qualname__", "<"):
        raise ConfigError(
            f"the handler of type {name} runs in another process, which has to find it: define it"
            " in a module, and not within a function"
        )
    return JobKind(wanted)


def _checked(limits: TypeLimits) -> TypeLimits:
    try:
        return checked(limits)
    except InvalidRequest as error:
        raise ConfigError(str(error)) from None
