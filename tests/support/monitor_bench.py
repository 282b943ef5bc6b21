"""A process with monitors that is run by the test, and a host manager that only listens."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from waiting import run_until

from roq.model import Limits
from roq.monitor.process import MonitorProcess
from roq.protocol import documents
from roq.protocol.control import ChildAck, ChildReport
from roq.protocol.spec import Command, MonitorSpec, Serve, encode_command, encode_spec
from roq.runtime import sockets
from roq.runtime.reactor import Reactor
from roq.runtime.rpc import Peer, RpcServer


class Bench:
    """A process that is run by the test, and what it has reported."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        pipe = folder / "monitors-1.pipe"
        os.mkfifo(pipe)
        self.process = MonitorProcess(pipe)
        self.pipe = os.open(pipe, os.O_WRONLY)
        self.reactor: Reactor = self.process._reactor
        self.context = sockets.new_context()
        socket = sockets.router(self.context)
        self.port = sockets.bind_port(socket, "127.0.0.1", 0)
        self.server = RpcServer(self.reactor, socket, self._request)
        self.reports: list[ChildReport] = []
        self.noted = True
        """Whether the host manager answers."""

    def write(self, queue: str, epoch: int = 1, *, name: str = "", **changes: object) -> str:
        """Write the spec of a queue's monitor; gives its name."""
        values: dict[str, object] = {
            "child": f"{queue}.monitor", "queue": queue, "queue_id": queue.encode() * 16,
            "epoch": epoch, "bind": "127.0.0.1", "advertise": "127.0.0.1", "ports": (0, 0),
            "manager": f"tcp://127.0.0.1:{self.port}", "limits": Limits(), **changes,
        }  # fmt: skip
        child = name or f"{queue}.monitor"
        (self.folder / f"{child}.json").write_bytes(encode_spec(MonitorSpec(**values)))  # type: ignore[arg-type]
        return child

    def tell(self, *commands: Command | bytes) -> None:
        for command in commands:
            os.write(self.pipe, command if isinstance(command, bytes) else encode_command(command))

    def serve(self, *queues: str) -> None:
        """Have it serve these, and wait for their first reports."""
        self.tell(*(Serve(child=self.write(queue)) for queue in queues))
        self.until(lambda: {f"{queue}.monitor" for queue in queues} <= self.said("running"))

    def said(self, state: str) -> set[str]:
        """Those that have been reported to be so."""
        return {each.child.child for each in self.reports if each.child.state == state}

    def until(self, condition: Callable[[], object]) -> None:
        run_until(self.reactor, condition)

    def ends_by_itself(self) -> None:
        late = self.reactor.call_later(20, lambda: pytest.fail("it goes on"))
        self.process.run()
        late.cancel()

    def close(self) -> None:
        self.server.close()
        os.close(self.pipe)
        for monitor in list(self.process._monitors.values()):
            monitor.end()
        self.process.close()
        self.context.term()

    def _request(self, peer: Peer, data: bytes) -> None:
        report = documents.decode(data, ChildReport)
        self.reports.append(report)
        if self.noted:
            stops = report.child.state in {"stopping", "ended"}
            ack = ChildAck(
                id=report.id, child=report.child.child, action="stop" if stops else "keep"
            )
            self.server.send(peer, documents.encode(ack))


def ends(bench: Bench) -> list[tuple[str, str]]:
    """Each time that an end was told: again and again, until it is noted."""
    return [(each.child.child, each.child.reason) for each in bench.reports
            if each.child.state == "ended"]  # fmt: skip


def ended(bench: Bench) -> list[tuple[str, str]]:
    """Those that have ended, each once."""
    return list(dict.fromkeys(ends(bench)))
