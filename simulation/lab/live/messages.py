"""What the driver and the tasks of a live run say to each other.

They travel through a queue of their own beside the one under load, which all of them reach,
whatever starts the tasks: JSON, one message each.
"""

from __future__ import annotations

from typing import Annotated, Final, TypeAlias

import msgspec
from msgspec import Meta

from roq.errors import RoQError

TO_DRIVER: Final = "messages.driver"
TO_TASKS: Final = "messages.task"
REASON_MAX: Final = 4_000
Count = Annotated[int, Meta(ge=0)]


class BadMessage(RoQError):
    """A message that is none of these."""


class Message(msgspec.Struct, frozen=True, kw_only=True, tag_field="message"):
    """Base: of which run it is."""

    run: str


# --- from tasks -----------------------------------------------------------------------------------


class Ping(Message, frozen=True, kw_only=True, tag="ping"):
    """What time is it? Answered by `Pong` at once."""

    task: int
    number: int


class Ready(Message, frozen=True, kw_only=True, tag="ready"):
    """All that is to be there when the load begins is there."""

    task: int
    host: str
    clock_error: float
    """Seconds by which its idea of the driver's clock may be wrong."""


class Ended(Message, frozen=True, kw_only=True, tag="ended"):
    """All publishers of a task have gone.

    Attributes:
        sent: messages that were published, by the prefixes of the plan.
    """

    task: int
    sent: dict[str, Count]


class Trouble(Message, frozen=True, kw_only=True, tag="trouble"):
    """A task cannot go on."""

    task: int
    reason: str


# --- from the driver ------------------------------------------------------------------------------


class Pong(Message, frozen=True, kw_only=True, tag="pong"):
    """Answer to a `Ping`: the driver's clock, microseconds since 1970."""

    task: int
    number: int
    time_us: int

    def answers(self, ping: Ping) -> bool:
        """Whether it is the answer to this one."""
        return (self.run, self.task, self.number) == (ping.run, ping.task, ping.number)


class Begin(Message, frozen=True, kw_only=True, tag="begin"):
    """The load begins at this moment by the driver's clock.

    Attributes:
        clock_error: seconds by which a latency between two tasks may be wrong.
    """

    at_us: int
    clock_error: float


class Finish(Message, frozen=True, kw_only=True, tag="finish"):
    """Nothing more comes; a subscriber that has got so much under its prefix may go."""

    sent: dict[str, Count]


class Stop(Message, frozen=True, kw_only=True, tag="stop"):
    """Publish no more; what is under way is waited for shortly."""


class Alive(Message, frozen=True, kw_only=True, tag="alive"):
    """The driver is there; once a second."""


FromTask: TypeAlias = Ping | Ready | Ended | Trouble
FromDriver: TypeAlias = Pong | Begin | Finish | Stop | Alive

_ENCODER: Final = msgspec.json.Encoder()
_FROM_TASK: Final = msgspec.json.Decoder(FromTask)
_FROM_DRIVER: Final = msgspec.json.Decoder(FromDriver)


def encode(message: FromTask | FromDriver) -> bytes:
    """The payload of a message."""
    return _ENCODER.encode(message)


def from_task(payload: bytes) -> FromTask:
    """The message of a task.

    Raises:
        BadMessage: it is none.
    """
    try:
        message: FromTask = _FROM_TASK.decode(payload)
    except msgspec.DecodeError as error:
        raise BadMessage(str(error)) from None
    return message


def from_driver(payload: bytes) -> FromDriver:
    """The message of the driver.

    Raises:
        BadMessage: it is none.
    """
    try:
        message: FromDriver = _FROM_DRIVER.decode(payload)
    except msgspec.DecodeError as error:
        raise BadMessage(str(error)) from None
    return message
