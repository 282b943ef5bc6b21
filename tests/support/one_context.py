"""ZeroMQ with one context, in the place of a module's `zmq`; its sockets are closed from here."""

from __future__ import annotations

from typing import Any

import zmq


class OneContext:
    """Whoever makes a context gets this one.

    Attributes:
        context: the one.
        sockets: all that were made of it.
    """

    def __init__(self) -> None:
        sockets = self.sockets = list[zmq.Socket[bytes]]()

        class Keeping(zmq.Context[zmq.Socket[bytes]]):
            def socket(self, *given: Any, **named: Any) -> Any:
                sockets.append(super().socket(*given, **named))
                return sockets[-1]

        self.context = Keeping()

    def Context(self) -> zmq.Context[zmq.Socket[bytes]]:  # noqa: N802 - as ZeroMQ has it
        """The one."""
        return self.context

    def close(self) -> None:
        """Close all sockets; what waits for one in another thread must have ended."""
        for each in self.sockets:
            each.close(linger=0)
        self.context.term()

    def __getattr__(self, name: str) -> Any:
        return getattr(zmq, name)
