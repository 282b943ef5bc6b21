"""What was done by way of the console: who, what, and how it ended. In the log, and on a page."""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

RECORDS_MAX: Final = 500
RUNNING, DONE, FAILED = "running", "done", "failed"

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Deed:
    """Something that somebody wanted.

    Attributes:
        number: of it, from 1.
        at: when it began; seconds since 1970.
        who: role, and the address of the browser.
        what: in a clause.
        given: the fields of its form.
        state: `running`, `done` or `failed`.
        result: in a sentence, or why it failed.
        seconds: that it took.
    """

    number: int
    at: float
    who: str
    what: str
    given: Mapping[str, str]
    state: str = RUNNING
    result: str = ""
    seconds: float = 0.0


class Audit:
    """The last deeds. From any thread."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._deeds: deque[Deed] = deque(maxlen=RECORDS_MAX)
        self._lock = threading.Lock()

    def begin(self, who: str, what: str, given: Mapping[str, str]) -> Deed:
        """Somebody wants something."""
        deed = Deed(next(self._numbers), time.time(), who, what, dict(given))
        with self._lock:
            self._deeds.append(deed)
        _tell(deed)
        return deed

    def end(self, deed: Deed, state: str, result: str) -> None:
        """How it ended."""
        seconds = max(0.0, time.time() - deed.at)
        ended = replace(deed, state=state, result=result, seconds=seconds)
        with self._lock:
            for index, each in enumerate(self._deeds):
                if each.number == deed.number:
                    self._deeds[index] = ended
        _tell(ended)

    def deeds(self) -> list[Deed]:
        """The last ones, the newest first."""
        with self._lock:
            return list(reversed(self._deeds))

    def find(self, number: str) -> Deed | None:
        """The one of this number; None: there is none, or not any more."""
        return next((each for each in self.deeds() if str(each.number) == number), None)


def _tell(deed: Deed) -> None:
    level = logging.WARNING if deed.state == FAILED else logging.INFO
    log.log(
        level, "%s: %s: %s%s", deed.who, deed.what, deed.state, deed.result and f": {deed.result}",
        extra={
            "event": f"console_action_{deed.state}", "number": deed.number, "who": deed.who,
            "what": deed.what, "given": dict(deed.given),
        },
    )  # fmt: skip
