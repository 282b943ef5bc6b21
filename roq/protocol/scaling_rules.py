"""The sub-documents of the scaling rules (commands 2006 and 2007), and which numbers they may hold.

The first three are those of existing tools; a limit of 0 in them is not evaluated. The last one is
RoQ's own and says the rest of what elasticity needs. Any of them may be absent, but one that is
there is complete: a tool that forgets a number is told so, instead of switching a rule off.
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from roq.errors import InvalidName, InvalidRequest
from roq.model import check_name

NUMBER_MAX: Final = (1 << 53) - 1
"""Largest integer that a JavaScript client can say."""
INT32_MAX: Final = (1 << 31) - 1
HOLD_SECONDS_MAX: Final = 3_600
HoldSeconds = Annotated[int, msgspec.Meta(ge=0, le=HOLD_SECONDS_MAX)]
SLOW: Final = ("hold", "drop")
"""What may become of a slow subscriber."""
EXCHANGES_MAX: Final = 1_024
"""Exchanges that one queue may have."""


class HostRule(msgspec.Struct, frozen=True, kw_only=True):
    """When a host is full; 0: not evaluated."""

    AUTOSCALING_HOST_CPU: int
    """Percent."""
    AUTOSCALING_HOST_RAM: int
    """Megabytes."""


class ExchangeRule(msgspec.Struct, frozen=True, kw_only=True):
    """When an exchange is full; 0: not evaluated."""

    AUTOSCALING_XCHANGE_THR: int
    """Bytes per minute."""


class QueueRule(msgspec.Struct, frozen=True, kw_only=True):
    """When a queue needs another exchange; 0: not evaluated."""

    AUTOSCALING_THR_PROD_EXCH: int
    """Throughput per exchange, bytes per minute."""
    AUTOSCALING_Q_PROD_EXCH: int
    """Publishers per exchange."""


class ElasticityRule(msgspec.Struct, frozen=True, kw_only=True):
    """By which policy a queue grows and shrinks, and within which bounds. RoQ's own."""

    AUTOSCALING_ROQ_POLICY: str
    """Name of the policy: one of RoQ's own, or one that is installed beside it."""
    AUTOSCALING_ROQ_LATENCY: int
    """The queue grows when its subscribers report a higher mean, in ms; 0: not evaluated."""
    AUTOSCALING_ROQ_XCHANGE_MIN: int
    """Exchanges below which it does not shrink by itself."""
    AUTOSCALING_ROQ_XCHANGE_MAX: int
    """Exchanges above which it does not grow by itself."""
    AUTOSCALING_ROQ_COOLDOWN: int
    """Seconds for which the number of exchanges is left alone after a change."""
    AUTOSCALING_ROQ_SLOW: str = "hold"
    """What becomes of a slow subscriber: `hold` (publishers wait for it) or `drop`."""
    AUTOSCALING_ROQ_HOLD: int = 10
    """Seconds that they wait for one that does not read on."""


Part = HostRule | ExchangeRule | QueueRule | ElasticityRule

PARTS: Final[dict[str, type[Part]]] = {
    "AUTOSCALING_HOST": HostRule,
    "AUTOSCALING_XCHANGE": ExchangeRule,
    "AUTOSCALING_Q": QueueRule,
    "AUTOSCALING_ROQ": ElasticityRule,
}
"""Name of the sub-document → what it holds."""

RANGES: Final[dict[str, tuple[int, int]]] = {
    "AUTOSCALING_HOST_CPU": (0, 100),
    "AUTOSCALING_HOST_RAM": (0, INT32_MAX),
    "AUTOSCALING_XCHANGE_THR": (0, NUMBER_MAX),
    "AUTOSCALING_THR_PROD_EXCH": (0, NUMBER_MAX),
    "AUTOSCALING_Q_PROD_EXCH": (0, INT32_MAX),
    "AUTOSCALING_ROQ_LATENCY": (0, INT32_MAX),
    "AUTOSCALING_ROQ_XCHANGE_MIN": (1, EXCHANGES_MAX),
    "AUTOSCALING_ROQ_XCHANGE_MAX": (1, EXCHANGES_MAX),
    "AUTOSCALING_ROQ_COOLDOWN": (0, 86_400),
    "AUTOSCALING_ROQ_HOLD": (1, HOLD_SECONDS_MAX),
}
"""Field → smallest and largest value. Bytes per minute exceed an int32 on a fast network."""


def check_part(part: Part) -> None:
    """Whether a sub-document makes sense.

    Raises:
        InvalidRequest: a number is out of its range, or no policy can have this name; the text
            names the field.
    """
    for name, value in msgspec.structs.asdict(part).items():
        if name in RANGES:
            low, high = RANGES[name]
            if not low <= value <= high:
                raise InvalidRequest(f"{name} must be from {low} to {high}, not {value}")
    if isinstance(part, ElasticityRule):
        _check_elasticity(part)


def _check_elasticity(part: ElasticityRule) -> None:
    try:
        check_name(part.AUTOSCALING_ROQ_POLICY, "policy")
    except InvalidName as error:
        raise InvalidRequest(f"AUTOSCALING_ROQ_POLICY: {error}") from None
    if part.AUTOSCALING_ROQ_SLOW not in SLOW:
        raise InvalidRequest(
            f"AUTOSCALING_ROQ_SLOW must be {' or '.join(SLOW)}, not {part.AUTOSCALING_ROQ_SLOW!r}"
        )
    low, high = part.AUTOSCALING_ROQ_XCHANGE_MIN, part.AUTOSCALING_ROQ_XCHANGE_MAX
    if low > high:
        raise InvalidRequest(
            f"AUTOSCALING_ROQ_XCHANGE_MIN {low} is above AUTOSCALING_ROQ_XCHANGE_MAX {high}"
        )
