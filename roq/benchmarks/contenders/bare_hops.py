"""Bare ZeroMQ forwarders, each in a process of its own: what one hop costs that checks nothing.

`zmq.proxy`, the fastest that one hop can be: a loop in C. The PUB has XPUB_NODROP, so that a full
subscriber holds the publisher back instead of losing messages: without it there would be nothing to
compare.

    publisher PUSH → PULL [proxy] PUB → SUB subscribers

One raw hop in Python, for latency: what a message pays for going through Python.

    publisher DEALER → ROUTER [receive, send] XPUB → SUB subscribers
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

import zmq

from roq.benchmarks.contender import OPEN_SECONDS, Contender, ProgramServer
from roq.benchmarks.contenders.zmq_clients import BarePublisher, BareSubscriber
from roq.benchmarks.processes import PYTHON

Socket = zmq.Socket[bytes]

MODULE: Final = "bare_hops"
PROXY: Final = "zmq_proxy"
HOP: Final = "raw_hop"
_SENDS: Final = {PROXY: zmq.PUSH, HOP: zmq.DEALER}


def publisher(style: str, options: dict[str, str]) -> BarePublisher:
    """The sending side."""
    return BarePublisher(_SENDS[style], options["data"])


def subscriber(style: str, options: dict[str, str]) -> BareSubscriber:
    """The receiving side."""
    return BareSubscriber(_SENDS[style], options["data"], options["live"])


def contenders() -> list[Contender]:
    """Both forwarders."""
    return [
        _contender(PROXY, "zmq.proxy (C loop, nothing checked)"),
        _contender(HOP, "raw ROUTER→XPUB hop in Python"),
    ]


def _contender(style: str, title: str) -> Contender:
    server = BareServer(style)
    return Contender(style, title, kind=style, module=MODULE, style=style, server=server)


class BareServer(ProgramServer):
    """Runs this module, which forwards in one of the two ways."""

    def start(self, directory: Path) -> None:
        """Start it; it says where it is bound."""
        command = [*PYTHON, f"roq.benchmarks.contenders.{MODULE}", self._name]
        program = self._run(command, directory / f"{self._name}.log")
        data, live = program.read_line(OPEN_SECONDS).decode().split()
        self._options = {"data": data, "live": live}


def serve(style: str) -> None:
    """Bind, print where, and forward until terminated."""
    context: zmq.Context[Socket] = zmq.Context()
    if style == PROXY:
        data, live = context.socket(zmq.PULL), context.socket(zmq.PUB)
        live.setsockopt(zmq.XPUB_NODROP, 1)
    else:
        data, live = context.socket(zmq.ROUTER), context.socket(zmq.XPUB)
    endpoints = []
    for socket in (data, live):
        socket.bind("tcp://127.0.0.1:*")
        endpoints.append(socket.getsockopt_string(zmq.LAST_ENDPOINT))
    print(*endpoints, flush=True)
    if style == PROXY:
        zmq.proxy(data, live)
    else:
        _forward(data, live)


def _forward(data: Socket, live: Socket) -> None:
    """Message by message."""
    poller = zmq.Poller()
    poller.register(data, zmq.POLLIN)
    poller.register(live, zmq.POLLIN)
    while True:
        for socket, _ in poller.poll():
            frames = socket.recv_multipart()
            if socket is data:
                live.send_multipart(frames[1:])


if __name__ == "__main__":
    serve(sys.argv[1])
