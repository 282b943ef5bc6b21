"""`zmq.proxy`, the fastest that one hop can be: a loop in C that forwards and checks nothing.

    publisher PUSH → PULL [proxy] PUB → SUB subscribers

The PUB has XPUB_NODROP, so that a full subscriber holds the publisher back instead of losing
messages: without it there would be nothing to compare.
"""

from __future__ import annotations

import zmq

from roq.benchmarks.contender import Contender
from roq.benchmarks.contenders import bare_server
from roq.benchmarks.contenders.zmq_clients import BarePublisher, BareSubscriber


def publisher(style: str, options: dict[str, str]) -> BarePublisher:  # noqa: ARG001
    """The sending side."""
    return BarePublisher(zmq.PUSH, options["data"])


def subscriber(style: str, options: dict[str, str]) -> BareSubscriber:  # noqa: ARG001
    """The receiving side."""
    return BareSubscriber(zmq.PUSH, options["data"], options["live"])


def contenders() -> list[Contender]:
    """The one of this module."""
    return [bare_server.contender("zmq_proxy", "zmq.proxy (C loop, nothing checked)")]


def serve() -> None:
    """Forward until terminated."""
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    live = context.socket(zmq.PUB)
    live.setsockopt(zmq.XPUB_NODROP, 1)
    bare_server.bind_and_forward(context.socket(zmq.PULL), live, _forward)


def _forward(data: bare_server.Socket, live: bare_server.Socket) -> None:
    zmq.proxy(data, live)


if __name__ == "__main__":
    serve()
