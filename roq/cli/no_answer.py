"""What is at an address at which no configuration manager answers: mostly another port of RoQ."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Final

import zmq

from roq.client.operate.survey import ask_all
from roq.errors import RemoteProtocolError
from roq.protocol import documents
from roq.protocol.control import ClusterInfo, ClusterInfoRequest, Failure, Health, HealthRequest
from roq.runtime.addresses import without_zeromq
from roq.runtime.sockets import new_context

SECONDS: Final = 1.0
"""For each of the three looks."""
CLIENT_PORT: Final = 5000
_BROADCAST: Final = 1500
_WANTED: Final = f"name the client port of a configuration manager, {CLIENT_PORT} by default"
_ROLES: Final = {"host": "a host manager", "monitor": "the monitor of a queue"}


def what_is_at(endpoint: str) -> str:
    """What is wrong with this address, in a sentence; empty if nothing can be said."""
    shown = endpoint.removeprefix("tcp://")
    reason = without_zeromq(endpoint, SECONDS)
    if reason:
        return reason
    info, health = ask_all([(endpoint, ClusterInfoRequest()), (endpoint, HealthRequest())], SECONDS)
    if isinstance(info, ClusterInfo):
        return ""
    if isinstance(health, Health):
        role = _ROLES.get(health.role)
        return f"{shown} is the control port of {role}: {_WANTED}" if role else ""
    if isinstance(health, Failure):
        return ""
    port = _port(endpoint)
    if port:
        return f"{shown} is the {port}: {_WANTED}"
    return f"{shown} speaks ZeroMQ, but is no configuration manager: {_WANTED}"


def _port(endpoint: str) -> str:
    """Which other port of RoQ it is; empty if it is none that can be told."""
    context = new_context()
    try:
        asked = context.socket(zmq.DEALER)
        heard = context.socket(zmq.SUB)
        asked.connect(endpoint)
        heard.connect(endpoint)
        heard.subscribe(b"")
        asked.send(documents.encode_raw({"CMD": 0}), zmq.NOBLOCK)
        poller = zmq.Poller()
        poller.register(asked, zmq.POLLIN)
        poller.register(heard, zmq.POLLIN)
        deadline = time.monotonic() + SECONDS
        while (left := deadline - time.monotonic()) > 0:
            for readable, _ in poller.poll(int(1_000 * left) + 1):
                frames = readable.recv_multipart()
                name = _answered(frames) if readable is asked else _told(frames)
                if name:
                    return name
    except zmq.ZMQError:
        return ""
    finally:
        context.destroy(0)
    return ""


def _answered(frames: list[bytes]) -> str:
    document = _document(frames[-1])
    return "management port of a configuration manager" if "RESULT" in document else ""


def _told(frames: list[bytes]) -> str:
    command = _document(frames[0]).get("CMD")
    if command == _BROADCAST:
        return "broadcast port of a configuration manager"
    return "statistics port of a queue" if isinstance(command, int) else ""


def _document(frame: bytes) -> Mapping[str, object]:
    try:
        return documents.decode_raw(frame)
    except RemoteProtocolError:
        return {}
