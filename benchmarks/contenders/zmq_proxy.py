"""`zmq.proxy`, the fastest that one hop can be: a loop in C that forwards and checks nothing.

    publisher PUSH → PULL [proxy] PUB → SUB subscribers

The PUB has XPUB_NODROP, so that a full subscriber holds the publisher back instead of losing
messages: without it there would be nothing to compare.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import zmq

from benchmarks.case import Case
from benchmarks.contender import OPEN_SECONDS, Contender
from benchmarks.contenders.zmq_clients import BarePublisher, BareSubscriber
from benchmarks.processes import PYTHON, Program

MODULE: Final = "zmq_proxy"


class ProxyServer:
    """The proxy in a process of its own."""

    def __init__(self) -> None:
        self._program: Program | None = None
        self._options: dict[str, str] = {}

    def start(self, directory: Path) -> None:
        """Start it; it says where it is bound."""
        self._program = Program(
            [*PYTHON, f"benchmarks.contenders.{MODULE}"], directory / "zmq-proxy.log"
        )
        push, live = self._program.read_line(OPEN_SECONDS).decode().split()
        self._options = {"push": push, "live": live}

    def stop(self) -> None:
        """Stop it."""
        if self._program is not None:
            self._program.stop()
            self._program = None

    def options(self, case: Case) -> dict[str, str]:  # noqa: ARG002 - the same for all
        """Both addresses."""
        return self._options

    def processes(self, case: Case) -> dict[str, int]:  # noqa: ARG002 - the same for all
        """The proxy."""
        return {"exchange": self._program.pid} if self._program else {}


def publisher(style: str, options: dict[str, str]) -> BarePublisher:  # noqa: ARG001
    """The sending side."""
    return BarePublisher(zmq.PUSH, options["push"])


def subscriber(style: str, options: dict[str, str]) -> BareSubscriber:  # noqa: ARG001
    """The receiving side."""
    return BareSubscriber(zmq.PUSH, options["push"], options["live"])


def contenders() -> list[Contender]:
    """The one of this module."""
    return [
        Contender(
            "zmq_proxy",
            "zmq.proxy (C loop, nothing checked)",
            kind="zmq_proxy",
            module=MODULE,
            style="",
            server=ProxyServer(),
        )
    ]


def serve() -> None:
    """Bind, say where, forward until terminated."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    pull, live = context.socket(zmq.PULL), context.socket(zmq.PUB)
    live.setsockopt(zmq.XPUB_NODROP, 1)
    endpoints = []
    for socket in (pull, live):
        socket.bind("tcp://127.0.0.1:*")
        endpoints.append(socket.getsockopt_string(zmq.LAST_ENDPOINT))
    print(*endpoints, flush=True)
    zmq.proxy(pull, live)


if __name__ == "__main__":
    serve()
