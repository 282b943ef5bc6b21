"""What one member of a consumer group knows of one exchange: its seat there."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from roq.client.consume.extensions import Extensions
from roq.client.consume.holding import Holding
from roq.client.consume.message import Settlement
from roq.model import ExchangeInfo
from roq.protocol.consuming import GroupSettings, Run

LOOK_SECONDS: Final = 0.05
HOLD_SECONDS: Final = 0.1
"""A member holds what it settles within this, between the two bounds."""
IDLE_SECONDS: Final = 0.5
"""Who has told nothing for so long is not quick: one message keeps it, or there are none."""
UNCONFIRMED_BYTES_MAX: Final = 64 * 1024 * 1024
UNCONFIRMED_BATCHES_MAX: Final = 25_000
"""When a member has settled so much that its exchanges have not confirmed, it takes nothing more: a
disk that stands still does not fill its memory."""
RENEW_PARTS: Final = 3
"""Leases are renewed in this part of their time."""
RENEW_SECONDS_MAX: Final = 5.0

Return = tuple[Holding, Run, Settlement]
"""Messages that the user returns, and how."""
Told = tuple[Holding, list[Run], int]
"""What an exchange was told of a holding: what is acknowledged, and how many messages returned."""


class SeatPhase(Enum):
    """How a seat stands."""

    AWAY = "away"
    JOINING = "joining"
    WAITING = "waiting"
    """There is no group yet: whether it is made depends on the other exchanges."""
    IN = "in"


IN: Final = SeatPhase.IN
"""To look it up in its class takes as long as a call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Membership:
    """What a member says of itself.

    Attributes:
        latest: a group that is made begins at the end; else `start_us` counts.
        prefetch, prefetch_bytes: what it holds at most, at all exchanges together.
        prefetch_quick: and if it is quick.
    """

    id: bytes
    name: str
    group: str
    settings: GroupSettings
    latest: bool
    start_us: int
    prefetch: int
    prefetch_bytes: int
    prefetch_quick: int = 0


class Prefetch:
    """How many messages a member holds: more if it is quick, so that it and its exchange do not
    wait for each other; few if it is slow, so that others have the rest.

    Args:
        least: it holds so many in any case.
        most: and at most so many.

    Attributes:
        messages: that it may hold now.
        most: the argument.
    """

    def __init__(self, least: int, most: int) -> None:
        self.messages = least
        self._least = least
        self.most = most
        self._settled = 0
        self._looked = 0.0

    def look(self, settled: int, now: float) -> None:
        """So many messages were settled by now, since the beginning."""
        seconds = now - self._looked
        if seconds < LOOK_SECONDS:
            return
        quick = int((settled - self._settled) / seconds * HOLD_SECONDS)
        self.messages = max(self._least, min(self.most, quick))
        self._settled, self._looked = settled, now

    def idle(self, now: float) -> bool:
        """Whether it holds fewer from now on, as it has told nothing for a while."""
        if self.messages <= self._least or now - self._looked < IDLE_SECONDS:
            return False
        self.messages = self._least
        return True


@dataclass(slots=True)
class Seat:
    """One exchange, as the member knows it."""

    exchange: ExchangeInfo
    queue: bytes
    phase: SeatPhase = SeatPhase.AWAY
    up: bool = False
    attempt: int = 0
    request: int = 0
    ask_at: float = float("inf")
    patience: float = 0.0
    """Seconds that the exchange has to answer the Join that was sent last."""
    make: bool = False
    holdings: dict[int, Holding] = field(default_factory=dict)
    """By their numbers; those of which anything is not confirmed."""
    arrived: int = 0
    arrived_bytes: int = 0
    granted: int = 0
    open: int = 0
    """Messages that are not settled."""
    open_bytes: int = 0
    held_bytes: int = 0
    """Of batches in `holdings`."""
    told_at: float = 0.0
    serial: int = 0
    unconfirmed: deque[tuple[int, list[Told]]] = field(default_factory=deque)
    returns: list[Return] = field(default_factory=list)
    """What the user has returned while it was not in."""
    returning: int = 0
    """Messages that were returned, and the exchange has not confirmed that."""
    lease_seconds: float = 30.0
    frame_bytes: int = 0
    """The largest that the exchange takes."""
    extensions: Extensions = field(default_factory=Extensions)
    trouble: str = ""

    @property
    def renew_seconds(self) -> float:
        """Leases are renewed after so long."""
        return min(self.lease_seconds / RENEW_PARTS, RENEW_SECONDS_MAX)
