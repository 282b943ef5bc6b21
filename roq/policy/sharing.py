"""Who may use how much of a limit that holds for all together: a fair share, and what others lend.

Each comes to its share alone, from what all know, so nobody has to be asked.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection


def fair_share(limit: int, instances: Collection[int], me: int, subject: str) -> int:
    """How much of a limit is mine while others want some of it, too.

    Each has the limit divided by their number, and what remains goes to some of them by one each.
    Which ones follows from the subject, so that the instance that is first for one type is not
    first for all. Whoever knows the same instances comes to the same result, without asking.

    Args:
        limit: of all instances together.
        instances: all that want some, by ids that each of them knows; me among them.
        me: my id.
        subject: what is limited.

    The shares of all instances add up to the limit. With more instances than the limit some have
    nothing.
    """
    order = sorted({*instances, me})
    each, rest = divmod(limit, len(order))
    first = int.from_bytes(hashlib.sha256(subject.encode()).digest()[:8], "big") % len(order)
    place = (order.index(me) - first) % len(order)
    return each + (place < rest)


def lent(
    limit: int, instances: Collection[int], hungry: Collection[int], me: int, subject: str
) -> int:
    """How much of a limit I may use now.

    All of it while nobody else is hungry: what others do not use is lent. Otherwise my fair share.

    Args:
        limit: of all instances together.
        instances: all that can use some; me among them.
        hungry: those that have work and lack some of it.
        me: my id.
        subject: what is limited.
    """
    if not set(hungry) - {me}:
        return limit
    return fair_share(limit, instances, me, subject)
