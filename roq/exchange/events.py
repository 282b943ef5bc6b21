"""What the shell tells the exchange core, and what the core asks of the shell.

Batches do not come this way: they go through `ExchangeCore.append`, one plain call each.
"""

from __future__ import annotations

from dataclasses import dataclass

from roq.machine import Tick
from roq.model import PublisherId
from roq.protocol.control import OrderAsk, OrderTold


@dataclass(frozen=True, slots=True)
class Received:
    """A message on the data socket whose first frame says that it is no batch."""

    route: bytes
    """Routing id of the connection."""
    frames: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Garbled:
    """A message on the data socket with a number of frames that no message has."""

    route: bytes


@dataclass(frozen=True, slots=True)
class Unreachable:
    """The connection behind a routing id is gone."""

    route: bytes


@dataclass(frozen=True, slots=True)
class Subscribed:
    """A peer subscribed to a prefix on the live socket."""

    prefix: bytes


@dataclass(frozen=True, slots=True)
class Unsubscribed:
    """A subscription ended, or its subscriber did."""

    prefix: bytes


@dataclass(frozen=True, slots=True)
class Passed:
    """The monitor says that a publisher publishes elsewhere under this epoch."""

    publisher: PublisherId
    epoch: int
    addresses: tuple[str, ...] = ()
    """Where it publishes now."""


@dataclass(frozen=True, slots=True)
class Stop:
    """No new publishers from now on."""


Event = (
    Received | Garbled | Unreachable | Subscribed | Unsubscribed | Passed | OrderAsk | OrderTold
    | Stop | Tick
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Send:
    """Send on the data socket without waiting; drop it if the peer does not read."""

    route: bytes
    parts: tuple[bytes, ...]
    """Letter and body, see `roq.protocol.framing`."""


@dataclass(frozen=True, slots=True)
class Publish:
    """Send on the live socket."""

    parts: tuple[bytes, bytes] | tuple[bytes, bytes, bytes]
    """Topic and entry, and the batch if there is one."""


@dataclass(frozen=True, slots=True)
class Woken:
    """Somebody has come after a long time: report at once, and as usual from now on."""


@dataclass(frozen=True, slots=True)
class Tell:
    """Say this to the monitor; it is not answered, and may be lost."""

    message: OrderAsk | OrderTold


Effect = Send | Publish | Woken | Tell
