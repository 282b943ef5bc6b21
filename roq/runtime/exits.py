"""How a process of RoQ ends: the table of exit codes, and the last line of defence.

| code | means |
|---|---|
| 0 | stopped as it was told |
| 2 | wrong usage |
| 69 | a dependency was away at the start |
| 70 | crashed; the log has the traceback |
| 74 | what has to be kept could not be written to the disk |
| 78 | a configuration is wrong, or a port is in use |
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

STOPPED: Final = 0
USAGE: Final = 2
UNAVAILABLE: Final = 69
CRASHED: Final = 70
DISK: Final = 74
CONFIG: Final = 78

log = logging.getLogger(__name__)


def logged(run: Callable[[], int]) -> int:
    """Run to the end; an error that nobody has named is logged with its traceback and gives 70."""
    try:
        return run()
    except Exception:
        log.exception("crashed", extra={"event": "crashed"})
        return CRASHED
