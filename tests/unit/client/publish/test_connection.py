"""The socket of a link; what goes over it is tested with the publisher."""

from __future__ import annotations

import zmq

from roq.client.io.engine import Engine
from roq.client.publish.connection import Connection


def test_it_is_never_full_however_large_the_window_is() -> None:
    """Else libzmq ends the process when it breaks; see docs/decisions/0009."""
    window = 100_000
    engine = Engine()
    connection = Connection(
        engine, 1, "tcp://127.0.0.1:9", window_batches=window, message_bytes=1,
        on_readable=lambda _: None, on_lost=lambda _, __: None,
    )  # fmt: skip
    try:
        # What a publisher sends again may be as much again, and is acknowledged, too. ZeroMQ counts
        # what was read in steps of half the mark.
        assert connection._socket.getsockopt(zmq.RCVHWM) // 2 >= 2 * window
    finally:
        connection.close()
        engine.close()
