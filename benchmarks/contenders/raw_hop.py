"""One raw hop in Python, ROUTER → XPUB, for latency: what a message pays for going through Python.

publisher DEALER → ROUTER [receive, send] XPUB → SUB subscribers
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import zmq

from benchmarks.case import Case
from benchmarks.contender import OPEN_SECONDS, Contender
from benchmarks.contenders.zmq_clients import BarePublisher, BareSubscriber
from benchmarks.processes import PYTHON, Program

MODULE: Final = "raw_hop"


class HopServer:
    """The forwarder in a process of its own."""

    def __init__(self) -> None:
        self._program: Program | None = None
        self._options: dict[str, str] = {}

    def start(self, directory: Path) -> None:
        """Start it; it says where it is bound."""
        self._program = Program(
            [*PYTHON, f"benchmarks.contenders.{MODULE}"], directory / "raw-hop.log"
        )
        data, live = self._program.read_line(OPEN_SECONDS).decode().split()
        self._options = {"data": data, "live": live}

    def stop(self) -> None:
        """Stop it."""
        if self._program is not None:
            self._program.stop()
            self._program = None

    def options(self, case: Case) -> dict[str, str]:  # noqa: ARG002 - the same for all
        """Both addresses."""
        return self._options

    def processes(self, case: Case) -> dict[str, int]:  # noqa: ARG002 - the same for all
        """The forwarder."""
        return {"exchange": self._program.pid} if self._program else {}


def publisher(style: str, options: dict[str, str]) -> BarePublisher:  # noqa: ARG001
    """The sending side."""
    return BarePublisher(zmq.DEALER, options["data"])


def subscriber(style: str, options: dict[str, str]) -> BareSubscriber:  # noqa: ARG001
    """The receiving side."""
    return BareSubscriber(zmq.DEALER, options["data"], options["live"])


def contenders() -> list[Contender]:
    """The one of this module."""
    return [
        Contender(
            "raw_hop",
            "raw ROUTER→XPUB hop in Python",
            kind="raw_hop",
            module=MODULE,
            style="",
            server=HopServer(),
        )
    ]


def serve() -> None:
    """Bind, say where, forward message by message until terminated."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    data, live = context.socket(zmq.ROUTER), context.socket(zmq.XPUB)
    endpoints = []
    for socket in (data, live):
        socket.bind("tcp://127.0.0.1:*")
        endpoints.append(socket.getsockopt_string(zmq.LAST_ENDPOINT))
    print(*endpoints, flush=True)
    poller = zmq.Poller()
    poller.register(data, zmq.POLLIN)
    poller.register(live, zmq.POLLIN)
    while True:
        for socket, _ in poller.poll():
            frames = socket.recv_multipart()
            if socket is data:
                live.send_multipart(frames[1:])


if __name__ == "__main__":
    serve()
