"""One raw hop in Python, ROUTER → XPUB, for latency: what a message pays for going through Python.

publisher DEALER → ROUTER [receive, send] XPUB → SUB subscribers
"""

from __future__ import annotations

import zmq

from roq.benchmarks.contender import Contender
from roq.benchmarks.contenders import bare_server
from roq.benchmarks.contenders.zmq_clients import BarePublisher, BareSubscriber


def publisher(style: str, options: dict[str, str]) -> BarePublisher:  # noqa: ARG001
    """The sending side."""
    return BarePublisher(zmq.DEALER, options["data"])


def subscriber(style: str, options: dict[str, str]) -> BareSubscriber:  # noqa: ARG001
    """The receiving side."""
    return BareSubscriber(zmq.DEALER, options["data"], options["live"])


def contenders() -> list[Contender]:
    """The one of this module."""
    return [bare_server.contender("raw_hop", "raw ROUTER→XPUB hop in Python")]


def serve() -> None:
    """Forward message by message until terminated."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    bare_server.bind_and_forward(context.socket(zmq.ROUTER), context.socket(zmq.XPUB), _forward)


def _forward(data: bare_server.Socket, live: bare_server.Socket) -> None:
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
