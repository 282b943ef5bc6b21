"""What exchanges ask each other about consumer groups that keep order; the monitor passes it on."""

from __future__ import annotations

from typing import Annotated, Final, NamedTuple

import msgspec

from roq.model import LogId
from roq.ranges import Whole

ORDER_QUESTIONS_MAX: Final = 256
"""In one message."""
DONE: Final = "done"
GONE: Final = "gone"
"""The log is no more, and what was there is nobody's."""
WAITS: Final = "waits"
AWAY: Final = "away"
"""Its exchange does not serve at the moment, and comes back with its log."""
NO_GROUP: Final = "no_group"
"""There is none of that name there; its members may be on their way."""


class OrderQuestion(NamedTuple):
    """Has this group done all that a publisher has sent into this log under lower epochs?"""

    group: Annotated[str, msgspec.Meta(max_length=128)]
    publisher: Annotated[bytes, msgspec.Meta(max_length=16)]
    epoch: Whole
    log: LogId


class OrderAnswer(NamedTuple):
    """What is answered: one of the words above."""

    question: OrderQuestion
    outcome: Annotated[str, msgspec.Meta(max_length=16)]


OrderQuestions = Annotated[list[OrderQuestion], msgspec.Meta(max_length=ORDER_QUESTIONS_MAX)]
OrderAnswers = Annotated[list[OrderAnswer], msgspec.Meta(max_length=ORDER_QUESTIONS_MAX)]
