"""What shells need of a loop and of sockets, so that they run in a simulation as they are.

`roq.runtime.reactor.Reactor` is a `Loop`, a ZeroMQ context a `Dialer`; a simulated process has its
own of both.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from math import ceil
from typing import Final, Protocol, TypeVar

BEAT_SECONDS: Final = 0.125
"""Between two times at which timers ring that may do so together."""

Call = Callable[[], None]


class HasFileno(Protocol):
    """Anything with a descriptor that can be polled."""

    def fileno(self) -> int:
        """The descriptor."""
        ...


class Socket(HasFileno, Protocol):
    """A ZeroMQ socket, as far as control messages need one."""

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        ...

    def setsockopt(self, option: int, value: int | bytes, /) -> None:
        """Set an option; before it connects."""
        ...

    def getsockopt(self, option: int, /) -> object:
        """An option."""
        ...

    def connect(self, address: str, /) -> object:
        """Connect, in the background."""
        ...

    def send_multipart(self, frames: list[bytes], flags: int = 0, /) -> object:
        """Send, or raise `zmq.Again`."""
        ...

    def recv_multipart(self, flags: int = 0, /) -> list[bytes]:
        """The next message, or `zmq.Again`."""
        ...

    def get_monitor_socket(self, events: int, /) -> Socket:
        """Where it is told what becomes of the connection."""
        ...

    def disable_monitor(self) -> None:
        """Tell no more."""
        ...

    def close(self, linger: int = 0, /) -> None:
        """End the connections."""
        ...


SocketT_co = TypeVar("SocketT_co", bound=Socket, covariant=True)
Source = int | HasFileno


class Dialer(Protocol[SocketT_co]):
    """Makes sockets."""

    def socket(self, kind: int, /) -> SocketT_co:
        """A new one of this kind."""
        ...


class Timer:
    """A call that will be made once; `cancel()` takes it back."""

    __slots__ = ("call", "when")

    def __init__(self, when: float, call: Call) -> None:
        self.when = when
        self.call: Call | None = call

    def cancel(self) -> None:
        """Do not call any more; harmless when it has been called already."""
        self.call = None


class Loop(Protocol):
    """Calls handlers, one at a time and each to its end."""

    phase: float = 0.0
    """When beats are; processes of one machine take turns."""

    @abstractmethod
    def now(self) -> float:
        """Seconds on the monotonic clock."""

    @abstractmethod
    def add(self, source: Source, handler: Call) -> None:
        """Call `handler` whenever `source` is readable. Loop thread only."""

    @abstractmethod
    def remove(self, source: Source) -> None:
        """Forget `source`; do so before it is closed. Loop thread only."""

    @abstractmethod
    def call_soon(self, function: Call) -> None:
        """Call `function` in the loop; from any thread, in order of the calls."""

    @abstractmethod
    def call_at(self, when: float, function: Call) -> Timer:
        """Call `function` at the time `when` of `now()`. Loop thread only."""

    def call_later(self, seconds: float, function: Call) -> Timer:
        """Call `function` in so many seconds. Loop thread only."""
        return self.call_at(self.now() + seconds, function)

    def call_about(self, seconds: float, function: Call) -> Timer:
        """Call `function` in about so many seconds, at the beat that is nearest; for what is done
        again and again. A loop that has little to do wakes seldom, as its timers ring together.
        """
        beats = round((self.now() + seconds - self.phase) / BEAT_SECONDS)
        return self.call_at(self.phase + beats * BEAT_SECONDS, function)

    def beat_after(self, when: float) -> float:
        """The first beat at or after `when`, if that is far enough away for it not to matter."""
        if when - self.now() < 4 * BEAT_SECONDS:
            return when
        return self.phase + ceil((when - self.phase) / BEAT_SECONDS) * BEAT_SECONDS
