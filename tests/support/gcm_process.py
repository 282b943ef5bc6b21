"""A configuration manager and host managers of paper over real sockets, each in its own thread."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

import bson
import zmq
from gcm_script import PaperHost

from roq.coordination.addresses import Zk
from roq.coordination.memory import MemoryEnsemble, MemoryRegistry
from roq.errors import Unavailable
from roq.gcm.config import Broadcasting, GcmConfig, Ports
from roq.gcm.daemon import Gcm
from roq.protocol import documents
from roq.protocol.control import Answer, StartExchange, StartMonitor, StopQueue
from roq.protocol.documents import RawDocument
from roq.runtime import sockets
from roq.runtime.reactor import Reactor
from roq.runtime.rpc import Peer, RpcClient, RpcServer

DEADLINE = 30.0
SESSION_SECONDS = 30.0
"""A manager that stands still for half of it believes that somebody else may lead."""
PATIENT = GcmConfig(
    ports=Ports(base=0), broadcast=Broadcasting(period=200), zk=Zk(session_seconds=SESSION_SECONDS)
)


class RunningGcm:
    """A configuration manager on free ports, with a registry in memory."""

    def __init__(self, ensemble: MemoryEnsemble, config: GcmConfig | None = None) -> None:
        self.registries: list[MemoryRegistry] = []
        self.ready = threading.Event()
        self.addresses: dict[str, str] = {}
        self.code: int | None = None
        self.gcm = Gcm(
            config or PATIENT,
            partial(self._registry, ensemble),
            self._on_ready,
        )
        self.manager = self.gcm.manager
        self._thread = threading.Thread(target=self._run, name="gcm")

    def _registry(self, ensemble: MemoryEnsemble, post: Callable[..., None]) -> MemoryRegistry:
        self.registries.append(MemoryRegistry(ensemble, post))
        return self.registries[-1]

    def _on_ready(self, addresses: dict[str, str]) -> None:
        self.addresses = addresses
        self.ready.set()

    def _run(self) -> None:
        self.code = self.gcm.run()

    def __enter__(self) -> Self:
        self._thread.start()
        assert self.ready.wait(DEADLINE)
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self.stop()

    def stop(self) -> None:
        if self._thread.is_alive():
            self.gcm.stop()
            self._thread.join(DEADLINE)
        assert not self._thread.is_alive()


class PaperHostManager:
    """A `PaperHost` behind real sockets, reporting to one configuration manager."""

    def __init__(self, host: PaperHost, gcm: str) -> None:
        self.host = host
        self.accepted = threading.Event()
        self._reactor = Reactor()
        self._context = sockets.new_context()
        socket = sockets.router(self._context)
        host.control = f"tcp://127.0.0.1:{sockets.bind(socket, '127.0.0.1')}"
        self._server = RpcServer(self._reactor, socket, self._request)
        self._client = RpcClient(self._reactor, self._context, gcm)
        self._thread = threading.Thread(target=self._run, name=f"host {host.name}")

    def __enter__(self) -> Self:
        self._thread.start()
        assert self.accepted.wait(DEADLINE)
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self._reactor.stop()
        self._thread.join(DEADLINE)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        self._report()
        self._reactor.run()
        self._server.close()
        self._client.close()
        self._context.term()
        self._reactor.close()

    def _report(self) -> None:
        self._client.request(self.host.report(), 1.0, self._acknowledged)
        self._reactor.call_later(0.2, self._report)

    def _acknowledged(self, answer: Answer | Unavailable) -> None:
        if not isinstance(answer, Unavailable) and getattr(answer, "RESULT", 1) == 0:
            self.accepted.set()

    def _request(self, peer: Peer, data: bytes) -> None:
        message = documents.decode(data, StartMonitor | StartExchange | StopQueue)  # type: ignore[arg-type]
        answer = self.host.answer(message)
        if answer is not None:
            self._server.send(peer, documents.encode(answer))


class Console:
    """A client of the public interfaces that knows pyzmq and bson alone."""

    def __init__(self, endpoint: str, *, kind: int = zmq.REQ, delimiter: bool = False) -> None:
        self.context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.socket = self.context.socket(kind)
        self.socket.setsockopt(zmq.LINGER, 0)
        self.socket.setsockopt(zmq.RCVTIMEO, int(DEADLINE * 1000))
        self.socket.connect(endpoint)
        self.delimiter = delimiter

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self.socket.close(0)
        self.context.term()

    def ask(self, command: int, **fields: object) -> RawDocument:
        return self.ask_raw([bson.encode({"CMD": command, **fields})])

    def ask_raw(self, frames: list[bytes]) -> RawDocument:
        self.socket.send_multipart([b"", *frames] if self.delimiter else frames)
        answer = self.socket.recv_multipart()
        if self.delimiter:
            assert answer.pop(0) == b""
        (data,) = answer
        return bson.decode(data)


class DaemonProcess:
    """`python -m <module>` with a configuration of its own, as `roq up` starts it."""

    def __init__(self, module: str, folder: Path, text: str) -> None:
        self.file = folder / f"{module}.toml"
        self.file.write_text(text)
        read, write = os.pipe()
        self.log = folder / f"{module}.log"
        with self.log.open("ab") as log:
            self.child = subprocess.Popen(
                [
                    *(sys.executable, "-m", module),
                    *("--config", str(self.file), "--ready-fd", str(write)),
                ],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                pass_fds=(write,),
            )
        os.close(write)
        self._ready = os.fdopen(read)

    def ready(self) -> dict[str, str]:
        """What it says about itself once it serves."""
        readable, _, _ = select.select([self._ready], [], [], 30)
        line = self._ready.readline() if readable else ""
        assert line, self.log.read_text()
        told: dict[str, str] = json.loads(line)
        return told

    def ends(self) -> int:
        """Wait for the end; it must have printed nothing."""
        output, _ = self.child.communicate(timeout=30)
        assert output == b""
        return self.child.returncode

    def close(self) -> None:
        if self.child.poll() is None:
            self.child.kill()
            self.child.communicate(timeout=10)
        self._ready.close()
