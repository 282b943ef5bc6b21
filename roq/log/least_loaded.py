"""Which instance of a service gets the next request: the less loaded of two at random. Pure.

Of two, and not the best of all: what instances say of themselves is a second or two old, and all
exchanges of a queue would run to the same one. And an instance that fails at once whatever it gets,
and so seems to be the quickest, gets twice its part at most.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from roq.log.leases import Member
from roq.protocol.requesting import Figures

RULES_TOLD: Final = 3
"""Instances of which it is told why they take nothing."""
_FACTOR: Final = 6_364_136_223_846_793_005
_STEP: Final = 1_442_695_040_888_963_407
_MASK: Final = (1 << 64) - 1


class LeastLoadedOfTwo:
    """Draws two, and compares them.

    Args:
        seed: what is drawn follows from it.
    """

    def __init__(self, seed: int = 0) -> None:
        self._drawn = seed & _MASK

    def choose(
        self, members: Sequence[Member], figures: Mapping[bytes, Figures], count: int, reserve: int
    ) -> Member | None:
        """Who gets so many requests; None: neither of the two takes them now.

        Args:
            members: at least two.
            figures: what instances have said of themselves.
            count, reserve: as of `Member.share`.
        """
        first = self._draw(len(members))
        second = self._draw(len(members) - 1)
        pair = members[first], members[second + (second >= first)]
        willing = [member for member in pair if member.share(count, reserve)]
        if len(willing) < len(pair):
            return willing[0] if willing else None
        one, other = pair
        ahead = _ahead(one, other, figures.get(one.id), figures.get(other.id))
        return other if ahead else one

    def _draw(self, below: int) -> int:
        self._drawn = (self._drawn * _FACTOR + _STEP) & _MASK
        return (self._drawn >> 32) % below


def _ahead(one: Member, other: Member, of_one: Figures | None, of_other: Figures | None) -> bool:
    """Whether a request would wait for longer at the first one than at the other: by what each
    holds, which is known here, and by how long it takes, if both have said so."""
    if of_one is None or of_other is None:
        return one.held > other.held
    quick, other_quick = 1.0, 1.0
    if of_one.response_ms > 0 and of_other.response_ms > 0:
        quick, other_quick = of_one.response_ms, of_other.response_ms
    mine = (one.held + 1) * quick * max(1, of_other.threads)
    return mine > (other.held + 1) * other_quick * max(1, of_one.threads)


def why_nobody(
    service: str, members: Collection[Member], figures: Mapping[bytes, Figures]
) -> tuple[str, str]:
    """Why no instance takes anything: in a word to count it by, and in a sentence."""
    if not members:
        return "none registered", f"no instance of service {service} is registered"
    count = len(members)
    rules = sorted(
        f"{member.name}: {said.rule}"
        for member in members
        if (said := figures.get(member.id)) is not None and not said.available
    )
    if len(rules) < count:
        return "all busy", f"all {count - len(rules)} available instances are busy"
    told = "; ".join(rules[:RULES_TOLD]) + ("; …" if count > RULES_TOLD else "")
    return "all unavailable", f"all {count} instances are unavailable: {told}"
