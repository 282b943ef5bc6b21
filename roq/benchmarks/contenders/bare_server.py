"""A bare ZeroMQ forwarder in a process of its own, and the contender that it makes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import zmq

from roq.benchmarks.contender import OPEN_SECONDS, Contender, ProgramServer
from roq.benchmarks.processes import PYTHON

Socket = zmq.Socket[bytes]


class BareServer(ProgramServer):
    """Runs `serve` of a contender's module.

    Args:
        module: its name in this package.
    """

    def __init__(self, module: str) -> None:
        super().__init__(module)

    def start(self, directory: Path) -> None:
        """Start it; it says where it is bound."""
        command = [*PYTHON, f"roq.benchmarks.contenders.{self._name}"]
        program = self._run(command, directory / f"{self._name}.log")
        data, live = program.read_line(OPEN_SECONDS).decode().split()
        self._options = {"data": data, "live": live}


def contender(module: str, title: str) -> Contender:
    """The one contender of a module, which is also its kind."""
    return Contender(module, title, kind=module, module=module, style="", server=BareServer(module))


def bind_and_forward(data: Socket, live: Socket, forward: Callable[[Socket, Socket], None]) -> None:
    """Bind both, print where, and forward until terminated."""
    endpoints = []
    for socket in (data, live):
        socket.bind("tcp://127.0.0.1:*")
        endpoints.append(socket.getsockopt_string(zmq.LAST_ENDPOINT))
    print(*endpoints, flush=True)
    forward(data, live)
