"""A bare ZeroMQ forwarder in a process of its own, and the contender that it makes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import zmq

from roq.benchmarks.case import Case
from roq.benchmarks.contender import OPEN_SECONDS, Contender
from roq.benchmarks.processes import PYTHON, Program

Socket = zmq.Socket[bytes]


class BareServer:
    """Runs `serve` of a contender's module.

    Args:
        module: its name in this package.
    """

    def __init__(self, module: str) -> None:
        self._module = module
        self._program: Program | None = None
        self._options: dict[str, str] = {}

    def start(self, directory: Path) -> None:
        """Start it; it says where it is bound."""
        self._program = Program(
            [*PYTHON, f"roq.benchmarks.contenders.{self._module}"],
            directory / f"{self._module}.log",
        )
        data, live = self._program.read_line(OPEN_SECONDS).decode().split()
        self._options = {"data": data, "live": live}

    def stop(self) -> None:
        """Stop it."""
        if self._program is not None:
            self._program.stop()
            self._program = None

    def options(self, case: Case) -> dict[str, str]:  # noqa: ARG002 - the same for all
        """Both addresses: `data` to send to, `live` to receive from."""
        return self._options

    def processes(self, case: Case) -> dict[str, int]:  # noqa: ARG002 - the same for all
        """The forwarder."""
        return {"exchange": self._program.pid} if self._program else {}


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
