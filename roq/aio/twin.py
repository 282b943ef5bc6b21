"""How objects for event loops are made of those for threads, without telling twice what these do.

    class Reader(Leaving[sync.Reader]):
        name = Told[str](sync.Reader.name)    # a property
        stop = called(sync.Reader.stop)       # a method that never waits
        close = awaited(sync.Reader.close)    # one that may: it is called in a thread

Signatures and docstrings are those of the object for threads. What differs is written out.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial, wraps
from typing import (
    Any,
    Concatenate,
    Final,
    Generic,
    Never,
    ParamSpec,
    Protocol,
    Self,
    TypeVar,
    cast,
    overload,
)


class _Left(Protocol):
    """What can be left at the end of a `with`."""

    def __exit__(self, kind: Any, error: Any, trace: Any, /) -> object: ...


CALLBACKS: Final = "Callbacks are called in the event loop."
P = ParamSpec("P")
T = TypeVar("T")
S = TypeVar("S")
L = TypeVar("L", bound=_Left)


class Twin(Generic[S]):
    """As the object for threads that it is made of, in one event loop."""

    __slots__ = ("_sync",)

    def __init__(self, sync: S) -> None:
        self._sync = sync

    def __repr__(self) -> str:
        return repr(self._sync).replace("<roq.", "<roq.aio.", 1)


class Leaving(Twin[L]):
    """One for `async with`, which is left as the other one is."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *raised: Any) -> None:
        await asyncio.to_thread(self._sync.__exit__, *raised)


class Told(Generic[T]):
    """A property of the object for threads.

    Args:
        of: that property; or what it is, if the object has a plain attribute of that name.
    """

    def __init__(self, of: object) -> None:
        self.__doc__ = of if isinstance(of, str) else of.__doc__
        self._name = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, twin: None, owner: type) -> Self: ...

    @overload
    def __get__(self, twin: Twin[Any], owner: type) -> T: ...

    def __get__(self, twin: Twin[Any] | None, owner: type) -> Self | T:
        return self if twin is None else cast("T", getattr(twin._sync, self._name))  # noqa: SLF001

    def __set__(self, twin: Twin[Any], value: Never) -> None:
        raise AttributeError(f"{self._name} cannot be set")


def called(method: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Any, P], T]:
    """This method of the object for threads, which never waits."""
    return made_of(method, lambda given: given)


def made_of(
    method: Callable[Concatenate[Any, P], S], twin: Callable[[S], T]
) -> Callable[Concatenate[Any, P], T]:
    """This method, which never waits, and the twin of what it gives."""

    @wraps(method)
    def call(self: Twin[Any], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return twin(getattr(self._sync, method.__name__)(*args, **kwargs))

    return call


def awaited(
    method: Callable[Concatenate[Any, P], T], callback: str = ""
) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]:
    """This method of the object for threads, called in one and waited for.

    Args:
        method: of the object for threads.
        callback: argument that is called in the event loop, if there is one.
    """

    @wraps(method)
    async def call(self: Twin[Any], /, *args: P.args, **kwargs: P.kwargs) -> T:
        if callback:
            kwargs[callback] = in_loop(kwargs.get(callback))
        function = getattr(self._sync, method.__name__)
        return cast("T", await asyncio.to_thread(function, *args, **kwargs))

    return _said(call, callback)


def opened(
    method: Callable[Concatenate[Any, P], S],
    twin: Callable[[S], T],
    undo: Callable[[S], object],
    callback: str = "",
) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]:
    """This method, called in a thread and waited for, and the twin of what it opens.

    Args:
        method, callback: as of `awaited`.
        twin: makes it.
        undo: closes what was opened if nobody waits for it any more.
    """

    @wraps(method)
    async def call(self: Twin[Any], /, *args: P.args, **kwargs: P.kwargs) -> T:
        if callback:
            kwargs[callback] = in_loop(kwargs.get(callback))
        function = getattr(self._sync, method.__name__)
        return twin(await made(partial(function, *args, **kwargs), undo))

    return _said(call, callback)


def _said(call: T, callback: str) -> T:
    if callback:
        call.__doc__ = f"{inspect.getdoc(call)}\n\n{CALLBACKS}"
    return call


def in_loop(callback: Any) -> Any:
    """The same callback of one argument, called in the event loop that runs now."""
    if callback is None:
        return None
    loop = asyncio.get_running_loop()

    def call(value: object) -> None:
        with suppress(RuntimeError):  # the loop was closed meanwhile
            loop.call_soon_threadsafe(callback, value)

    return call


async def made(make: Callable[[], T], undo: Callable[[T], object]) -> T:
    """What `make` gives, which is called in a thread.

    Args:
        make: may wait; it cannot be interrupted.
        undo: called in a thread with what was made if nobody waits for it any more.
    """
    lock, things, wanted = threading.Lock(), list[T](), True

    def work() -> None:
        thing = make()
        with lock:
            if wanted:
                things.append(thing)
                return
        undo(thing)

    try:
        await asyncio.to_thread(work)
    except asyncio.CancelledError:
        with lock:
            wanted = False
        for thing in things:  # it was made just now
            asyncio.get_running_loop().run_in_executor(None, undo, thing)
        raise
    return things[0]
