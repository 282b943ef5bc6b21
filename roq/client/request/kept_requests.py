"""What a requester keeps of idempotent requests, to send it once more if an exchange dies."""

from __future__ import annotations

import threading
from typing import Any, Final

from roq.client.request.many import PendingMany
from roq.client.request.pending import Pending, Requested

REPEAT_BYTES: Final = 64 * 1024 * 1024
"""What is kept at most."""


class KeptRequests:
    """Those of one collector, as far as the allowance reaches; from any thread.

    Attributes:
        bytes: what is kept.
    """

    def __init__(self) -> None:
        self.bytes = 0
        self._lock = threading.Lock()

    def keep(self, pending: Pending[Any], data: bytes) -> None:
        """This may be sent once more."""
        with self._lock:
            if self.bytes + len(data) <= REPEAT_BYTES:
                self.bytes += len(data)
                pending.repeat = data

    def keep_many(self, many: PendingMany[Any], data: list[bytes]) -> None:
        """Likewise, all of these or none."""
        size = sum(map(len, data))
        with self._lock:
            if self.bytes + size <= REPEAT_BYTES:
                self.bytes += size
                many.repeat = data

    def let_go(self, requested: Requested) -> None:
        """It will not be sent once more."""
        with self._lock:
            self.bytes -= requested.forget_repeat()
