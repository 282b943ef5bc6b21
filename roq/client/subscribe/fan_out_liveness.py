"""Tells by its silence whether the fan-out of an exchange has lost its connection: pure.

Nobody watches a connection of the fan-out that stands, as that would take two descriptors more than
the connection itself. An exchange says twice a second how far its log goes, so one that has been
silent for some seconds, and meanwhile answers questions, is not heard any more. One that answers
nothing either works hard: it has time, and is not called by everybody meanwhile.
"""

from __future__ import annotations

from roq.timing import (
    ANSWERING_SECONDS,
    END_SILENT_SECONDS,
    LIVE_LOST_SECONDS,
    LIVE_SILENT_SECONDS,
)


class FanOutLiveness:
    """Of one connection, from when it is made.

    Args:
        since: from when on the fan-out should say something.
    """

    __slots__ = ("_doubted_at", "_since")

    def __init__(self, since: float) -> None:
        self._since = since
        self._doubted_at: float | None = None

    @property
    def doubted(self) -> bool:
        """Whether it was silent for so long that the exchange should be asked something."""
        return self._doubted_at is not None

    def unheard(self, now: float) -> None:
        """Nobody listens, so it is not silent."""
        self._since, self._doubted_at = now, None

    def lost(self, now: float, live_at: float, answered_at: float | None, *, stands: bool) -> bool:
        """Whether the connection is to be made anew.

        Args:
            now: the present time.
            live_at: when the fan-out has said something last.
            answered_at: when the exchange has answered a question last; None: there is no
                connection by which it could.
            stands: it was greeted by the exchange.
        """
        silent = now - max(self._since, live_at)
        if silent <= END_SILENT_SECONDS:
            self._doubted_at = None
            return False
        if self._doubted_at is None:
            self._doubted_at = now
        if silent > LIVE_SILENT_SECONDS:
            return True
        if not stands:
            return False
        if answered_at is None:
            return True
        answering = answered_at - self._doubted_at >= ANSWERING_SECONDS
        return answering and silent > LIVE_LOST_SECONDS
