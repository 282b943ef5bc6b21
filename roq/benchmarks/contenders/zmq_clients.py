"""Bare ZeroMQ clients, shared by the contenders that have nothing but a forwarder in between.

They pack and unpack the same msgpack as RoQ and send the same batches, but check nothing: no
sequence, no acknowledgement, no checksum.
"""

from __future__ import annotations

import itertools

import msgspec
import zmq

from roq.benchmarks.case import Run
from roq.benchmarks.clients import age_us, paced

encode = msgspec.msgpack.Encoder().encode
decode = msgspec.msgpack.Decoder(tuple[list[bytes], list[object] | None]).decode

PROBE = b"~"
"""Sorts after every topic: subscriptions travel in byte order, so this one arrives last."""


class BarePublisher:
    """Sends `[topic][batch]` into the forwarder."""

    def __init__(self, socket_type: int, endpoint: str) -> None:
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._socket = self._context.socket(socket_type)
        self._socket.connect(endpoint)

    def open(self, run: Run) -> None:
        """Nothing to do: the socket stays."""

    def publish(self, run: Run, payloads: list[bytes]) -> None:
        """Send batches; ZeroMQ's own high-water marks hold the publisher back."""
        send, topic = self._socket.send, run.topic.encode()
        full, rest = divmod(run.count, len(payloads))
        for _ in range(full):
            send(topic, zmq.SNDMORE)
            send(encode((payloads, None)))
        if rest:
            send(topic, zmq.SNDMORE)
            send(encode((payloads[:rest], None)))

    def pace(self, run: Run) -> None:
        """Send single messages at a rate."""
        topic = run.topic.encode()
        for payload in paced(run):
            self._socket.send(topic, zmq.SNDMORE)
            self._socket.send(encode(([payload], None)))

    def close(self) -> None:
        """Nothing to do: the socket stays."""


class BareSubscriber:
    """Receives `[topic][batch]` from the forwarder."""

    def __init__(self, probe_type: int, probe_endpoint: str, live_endpoint: str) -> None:
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._live = live_endpoint
        self._socket: zmq.Socket[bytes] | None = None
        self._probe = self._context.socket(probe_type)
        self._probe.connect(probe_endpoint)

    def open(self, run: Run) -> None:
        """Subscribe, and prove that the filter is in place by a message to itself."""
        socket = self._context.socket(zmq.SUB)
        private = PROBE + encode(id(self)) + run.topic.encode()
        socket.subscribe(run.topic.encode())
        socket.subscribe(private)
        socket.connect(self._live)
        self._socket = socket
        for _ in itertools.count():
            self._probe.send_multipart([private, b""])
            if socket.poll(20):
                break
        # Probes that are still under way would be taken for messages.
        socket.unsubscribe(private)
        while socket.poll(50):
            socket.recv_multipart()

    def receive(self, run: Run) -> None:
        """Receive and unpack batches."""
        assert self._socket is not None  # noqa: S101 - the harness opens first
        recv, received, size, count = self._socket.recv, 0, 0, run.count
        while received < count:
            recv()
            payloads, _ = decode(recv())
            received += len(payloads)
            size += sum(map(len, payloads))
        assert size == count * run.size  # noqa: S101 - a broken benchmark must not go unseen

    def ages(self, run: Run) -> list[float]:
        """Receive single messages and tell their ages."""
        assert self._socket is not None  # noqa: S101 - the harness opens first
        recv, ages = self._socket.recv, list[float]()
        for _ in range(run.count):
            recv()
            payloads, _ = decode(recv())
            ages.append(age_us(payloads[0]))
        return ages

    def close(self) -> None:
        """Close the subscription."""
        if self._socket is not None:
            self._socket.close(linger=0)
