"""A queue of real exchange processes under a fake configuration manager and monitor."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Self

from fake_control import FakeControl

from roq.model import ExchangeInfo, Limits, child_epoch
from roq.protocol.spec import ExchangeSpec, encode_spec


class SpreadingControl(FakeControl):
    """Deals publishers out to the exchanges, one after the other."""

    def choose(self, good: list[ExchangeInfo]) -> ExchangeInfo:
        return good[(self._moves + 1) % len(good)]


class ExchangeProcess:
    """`python -m roq.exchange`, standing alone."""

    def __init__(self, control: FakeControl, number: int, folder: Path) -> None:
        spec = ExchangeSpec(
            child=f"{control.queue}.x{number}", queue=control.queue, queue_id=control.queue_id,
            epoch=child_epoch(1, number), bind="127.0.0.1", advertise="127.0.0.1", ports=(0, 0),
            manager="", monitor=control.monitor, number=number, host="127.0.0.1",
            limits=control.limits,
        )  # fmt: skip
        path = folder / f"x{number}.json"
        path.write_bytes(encode_spec(spec))
        self._process = subprocess.Popen(
            [sys.executable, "-m", "roq.exchange", str(path)], stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        child = json.loads(self._process.stdout.readline())
        self.info = ExchangeInfo(
            number=number,
            epoch=spec.epoch,
            generation=spec.epoch,
            host="127.0.0.1",
            data=child["data"],
            live=child["live"],
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    def resume(self) -> None:
        """Let it go on after somebody has stopped it."""
        self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        self._process.kill()

    def close(self) -> None:
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(30)
        assert self._process.stdout is not None
        self._process.stdout.close()


class QueueProcesses:
    """A control plane in this process, and exchanges in processes of their own."""

    def __init__(self, folder: Path, exchanges: int = 3, limits: Limits | None = None) -> None:
        self.control = SpreadingControl(limits=limits)
        self.exchanges = [
            ExchangeProcess(self.control, number, folder) for number in range(1, exchanges + 1)
        ]
        self.control.exchanges = [exchange.info for exchange in self.exchanges]

    def kill(self, index: int) -> None:
        """End an exchange without a word; the monitor notices."""
        gone = self.exchanges[index]
        gone.kill()
        self.control.exchanges = [x for x in self.control.exchanges if x != gone.info]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for exchange in self.exchanges:
            exchange.close()
        self.control.close()
