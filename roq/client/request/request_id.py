"""The ids of requests: text that may be stored, and says where the request is."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from roq.errors import InvalidRequest
from roq.model import LogId
from roq.protocol.requesting import Position
from roq.ranges import OFFSET_MAX

_PATTERN: Final = re.compile(r"([A-Za-z0-9._-]{1,128})/x(\d{1,9})-(\d{1,18})-(\d{1,19})-(\d{1,7})")


class RequestId(NamedTuple):
    """Where a request is: queue, log of an exchange, and position."""

    queue: str
    log: LogId
    position: Position

    def __str__(self) -> str:
        return (
            f"{self.queue}/x{self.log.number}-{self.log.generation}"
            f"-{self.position.offset}-{self.position.at}"
        )


def parse_id(text: str) -> RequestId:
    """The id that this text is.

    Raises:
        InvalidRequest: it is none.
    """
    found = _PATTERN.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        raise InvalidRequest(f"{text!r:.80} is no id of a request, such as work/x1-1-42-0")
    queue, *numbers = found.groups()
    number, generation, offset, index = map(int, numbers)
    if offset > OFFSET_MAX:
        raise InvalidRequest(f"{text!r:.80} is no id of a request: no log has such an offset")
    return RequestId(queue, LogId(number, generation), Position(offset, index))
