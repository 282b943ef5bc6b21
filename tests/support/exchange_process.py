"""A real exchange process, and plain sockets to talk to it; no test in here."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec
import zmq
from waiting import eventually

from roq.model import Limits, PublisherId
from roq.protocol import batch, channel, documents
from roq.protocol.channel import Hello
from roq.protocol.entry import Entry, EntryKind, read_entry
from roq.protocol.framing import Answers, split_answer, split_live
from roq.protocol.spec import ExchangeSpec, encode_spec
from roq.runtime import sockets

QUEUE: Final = b"q" * 16
EPOCH: Final = 5
DEADLINE_SECONDS: Final = 30.0
Message = list[bytes]


def spec(**fields: object) -> ExchangeSpec:
    values: dict[str, object] = {
        "child": "q.x1", "queue": "q", "queue_id": QUEUE, "epoch": EPOCH, "bind": "127.0.0.1",
        "advertise": "127.0.0.1", "ports": (0, 0), "manager": "", "monitor": "", "number": 1,
        "host": "127.0.0.1", "limits": Limits(), **fields,
    }  # fmt: skip
    return msgspec.convert(values, ExchangeSpec)


class Process:
    """`python -m roq.exchange FILE`, standing alone unless the spec names a host manager."""

    def __init__(self, folder: Path, described: ExchangeSpec) -> None:
        path = folder / "exchange.json"
        path.write_bytes(encode_spec(described))
        self.log_path = folder / "exchange.log"
        with self.log_path.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "roq.exchange", str(path)],
                stdout=subprocess.PIPE, stderr=log, text=True,
            )  # fmt: skip
        self.data = self.live = ""
        if not described.manager:
            assert self.process.stdout is not None
            child = json.loads(self.process.stdout.readline())
            self.data, self.live = child["data"], child["live"]

    @property
    def log(self) -> str:
        return self.log_path.read_text()

    def wait(self) -> int:
        return self.process.wait(DEADLINE_SECONDS)

    def stop(self) -> int:
        self.process.terminate()
        return self.wait()

    def close(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()


@contextlib.contextmanager
def running(folder: Path, **fields: object) -> Iterator[Process]:
    process = Process(folder, spec(**fields))
    try:
        yield process
    finally:
        process.close()


class Peers:
    """Sockets that are closed together."""

    def __init__(self) -> None:
        self._context = sockets.new_context()
        self._sockets: list[zmq.Socket[bytes]] = []

    def close(self) -> None:
        for socket in self._sockets:
            socket.close(0)
        self._context.term()

    def socket(self, kind: int) -> zmq.Socket[bytes]:
        socket = self._context.socket(kind)
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.RCVTIMEO, int(DEADLINE_SECONDS * 1000))
        socket.setsockopt(zmq.SNDTIMEO, int(DEADLINE_SECONDS * 1000))
        self._sockets.append(socket)
        return socket

    def dealer(self, endpoint: str, waiting_most: int = 1_000) -> zmq.Socket[bytes]:
        """A connection; `waiting_most` messages wait in it when it is not read."""
        socket = self.socket(zmq.DEALER)
        socket.setsockopt(zmq.RCVHWM, waiting_most)
        socket.connect(endpoint)
        return socket

    def publisher(
        self, process: Process, name: str = "good", waiting_most: int = 1_000
    ) -> Publisher:
        return Publisher(self.dealer(process.data, waiting_most), name)

    def reader(self, process: Process, *prefixes: bytes) -> Reader:
        return Reader(self, process, prefixes)


class Publisher:
    """Sends batches and waits for their acks."""

    def __init__(self, socket: zmq.Socket[bytes], name: str) -> None:
        self.socket = socket
        self.id = PublisherId(name.encode().ljust(16, b"."))
        self.number = 0
        hello = Hello(queue=QUEUE, publisher=self.id, epoch=1, attempt=1)
        socket.send_multipart([channel.HELLO, documents.encode(hello)])
        assert split_answer(socket.recv())[0] == channel.READY

    def send(self, payload: bytes, topic: bytes = b"t") -> None:
        self.number += 1
        data = batch.pack(
            [payload], publisher=self.id, epoch=1, link_number=self.number,
            first_sequence=self.number - 1, created_us=0,
        )  # fmt: skip
        self.socket.send_multipart([topic, data])

    def settle(self) -> None:
        """Until everything sent is acknowledged."""
        while self.ack() < self.number:
            continue

    def ack(self) -> int:
        letter, body = split_answer(self.socket.recv())
        assert letter == channel.ACK, letter
        return channel.read_number(body)


class Reader:
    """Reads the live socket, and asks for old batches."""

    def __init__(self, peers: Peers, process: Process, prefixes: tuple[bytes, ...]) -> None:
        self.live = peers.socket(zmq.SUB)
        self.data = peers.dealer(process.data)
        presence = channel.PRESENCE_TOPIC + b"n" * channel.NONCE_BYTES
        for prefix in (*prefixes, channel.END_TOPIC, presence):
            self.live.subscribe(prefix)
        self.live.connect(process.live)
        eventually(lambda: self.message()[0] == presence, "presence")

    def message(self) -> Message:
        return split_live(self.live.recv())

    def entry(self) -> tuple[bytes, Entry, bytes]:
        """The next batch or announcement: topic, entry, batch."""
        deadline = time.monotonic() + DEADLINE_SECONDS
        while time.monotonic() < deadline:  # what says that nothing is new comes again and again
            frames = self.message()
            entry = read_entry(frames[1])
            if entry.kind not in {EntryKind.END, EntryKind.PRESENCE}:
                return frames[0], entry, frames[2] if len(frames) > 2 else b""
        raise AssertionError(f"no batch came within {DEADLINE_SECONDS:g} s")

    def payload(self) -> bytes:
        _, _, data = self.entry()
        return payload_of(data)

    def fetch(self, *wants: tuple[bytes, int, int]) -> list[bytes]:
        """The payloads of the wanted batches."""
        request = channel.FetchRequest(id=3, queue=QUEUE, generation=EPOCH, wants=list(wants))
        self.data.send_multipart([channel.FETCH, documents.encode(request)])
        found: list[bytes] = []
        answers = Answers()
        while True:
            frames = answers.take(self.data.recv())
            if frames is None:
                continue
            if frames[0] == channel.FETCH:
                return found
            assert frames[0] == channel.FETCHED_ENTRY, frames[0]
            found.append(payload_of(frames[4]))


def payload_of(data: bytes) -> bytes:
    (payload,) = batch.read_payloads(data, batch.read_header(data))
    return payload
