"""A publisher that is bigger than one exchange is spread over several; one that was, no more.

With b the rate of the publisher and L the limit it is spread over ceil(b / 0.90 L) exchanges, those
with the lowest load, or over as many as there are. It is brought back to fewer when these would
carry no more than 0.63 L of it each for ten seconds, so noise never does and undoes.
"""

from __future__ import annotations

from math import ceil
from typing import Final

from roq.model import PublisherId, exchange_name
from roq.policy.known import FULL, OVERLOAD
from roq.policy.loads import Loads, Shares, shares_of
from roq.policy.memory import Marks
from roq.policy.snapshot import PublisherView, QueueView
from roq.policy.verdict import STRIPES_MAX

SMALL: Final = 0.7 * FULL
"""Part of the limit that each exchange may get of a publisher that is gathered again."""
SMALL_SECONDS: Final = 10.0
GAIN_MIN: Final = 0.10
"""What spreading must take off the peak of the publisher's exchanges, as a part of it."""
_SMALL: Final = "small "


def too_big(view: QueueView, loads: Loads, number: int) -> PublisherView | None:
    """The busiest publisher of an exchange, if it is bigger than any one exchange can take."""
    exchange = next(each for each in view.exchanges if each.number == number)
    if not exchange.top or exchange.top[0].moving:
        return None
    publisher = exchange.top[0]
    shares = shares_of(view, publisher.id)
    settled = all(each in loads.load for each in (*shares, *publisher.exchanges))
    return publisher if settled and sum(shares.values()) > OVERLOAD * loads.limit else None


def spread(view: QueueView, loads: Loads, publisher: PublisherView) -> None:
    """Deal a publisher to as many exchanges as it needs, or as there are, if that helps."""
    shares = shares_of(view, publisher.id)
    rate = sum(shares.values())
    needed = min(ceil(rate / (FULL * loads.limit)), STRIPES_MAX)
    base = _without(loads, shares)
    order = sorted(loads.targets, key=lambda each: (base[each], each not in shares, each))
    counts = range(min(needed, len(order)), min(len(order), STRIPES_MAX) + 1)
    peaks = {n: max(base[each] + rate / n for each in order[:n]) for n in counts if n > 1}
    if not peaks:
        return
    fitting = [n for n, peak in peaks.items() if peak <= loads.limit]
    count = min(fitting) if fitting else min(peaks, key=lambda n: (peaks[n], n))
    before = max(loads.load[number] for number in shares)
    if set(order[:count]) != set(shares) and peaks[count] <= (1 - GAIN_MIN) * before:
        parts = f"{rate / loads.limit:.0%} of what one exchange takes"
        loads.stripe(publisher, shares, sorted(order[:count]), f"striping: it brings {parts}")


def gather(view: QueueView, loads: Loads, marks: Marks) -> None:
    """Bring striped publishers that have become small back to fewer exchanges."""
    seen = set()
    for publisher in _striped(view):
        name = _SMALL + publisher.id.hex()
        seen.add(name)
        shares = shares_of(view, publisher.id)
        rate = sum(shares.values())
        count = max(1, ceil(rate / (SMALL * loads.limit)))
        fewer = count < len(publisher.exchanges)
        if marks.lasting(name, fewer and not publisher.moving) < SMALL_SECONDS:
            continue
        base = _without(loads, shares)
        if any(number not in base for number in publisher.exchanges):
            continue  # one of them is being emptied: that comes first
        order = sorted(publisher.exchanges, key=lambda each: (base[each], each))[:count]
        if all(base[each] + rate / count <= FULL * loads.limit for each in order):
            names = ", ".join(map(exchange_name, sorted(order)))
            loads.stripe(publisher, shares, sorted(order), f"gathering: {names} can take it again")
            marks.drop(name)
    marks.keep(_SMALL, seen)


def _striped(view: QueueView) -> list[PublisherView]:
    found: dict[PublisherId, PublisherView] = {}
    for exchange in view.exchanges:
        for publisher in [each for each in exchange.top if len(each.exchanges) > 1]:
            found.setdefault(publisher.id, publisher)
    return [found[publisher] for publisher in sorted(found)]


def _without(loads: Loads, shares: Shares) -> dict[int, float]:
    return {number: load - shares.get(number, 0.0) for number, load in loads.load.items()}
