"""A local cluster in a thread of its own, for programs that have something else to do."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Final, Self

from roq.errors import RoQError, Unavailable
from roq.local.launcher import Launcher, StartFailed
from roq.local.part import Part
from roq.local.plan import Addresses
from roq.local.settings import LocalSettings
from roq.runtime.reactor import Reactor

_SLACK_SECONDS: Final = 45.0
"""What a stop may take at most on top of a start: three steps of ten seconds, and the folder."""


class BackgroundCluster:
    """Started by `start`, ended by `stop`; the thread in between lives as long as the cluster.

    Attributes:
        settings: what is wanted.
        ended: parts that have ended unasked since the start.
    """

    def __init__(self, settings: LocalSettings) -> None:
        self.settings = settings
        self.ended: list[Part] = []
        self._reactor = Reactor()
        self._launcher = Launcher(
            self._reactor,
            settings,
            on_ready=self._on_ready,
            on_failed=self._on_failed,
            on_part_ended=self.ended.append,
        )
        self._thread = threading.Thread(target=self._run, name="roq-cluster", daemon=True)
        self._settled = threading.Event()
        self._addresses: Addresses | None = None
        self._failure: BaseException | None = None

    @property
    def addresses(self) -> Addresses:
        """Where it answers.

        Raises:
            Unavailable: it does not run.
        """
        if self._addresses is None:
            raise Unavailable("this cluster is not running: start it first")
        return self._addresses

    @property
    def parts(self) -> dict[str, Part]:
        """The processes by name (`gcm`, `host 127.0.0.1`, `zookeeper`, …)."""
        return self._launcher.parts

    @property
    def folder(self) -> Path:
        """Where its configuration, data and logs are.

        Raises:
            Unavailable: it does not run.
        """
        if self._launcher.folder is None:
            raise Unavailable("this cluster is not running: start it first")
        return self._launcher.folder.path

    def start(self) -> Addresses:
        """Start it and wait until all of it serves.

        Raises:
            StartFailed: a part did not start; says which and why.
            ConfigError: a port is in use, or the data directory cannot be used.
            Unavailable: no Java for the embedded ZooKeeper.
        """
        self._thread.start()
        if not self._settled.wait(self.settings.start_seconds + _SLACK_SECONDS):
            self.stop()
            raise Unavailable("the cluster neither started nor failed to: see its logs")
        if self._failure is not None:
            self._thread.join()
            self._reactor.close()
            raise self._failure
        return self.addresses

    def stop(self) -> None:
        """Stop everything and wait until nothing of it is left; idempotent."""
        if self._thread.is_alive():
            self._reactor.call_soon(self._stop)
            self._thread.join(_SLACK_SECONDS)
        if self._thread.is_alive():
            raise Unavailable("the cluster does not stop: see its logs")
        self._addresses = None
        self._reactor.close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _run(self) -> None:
        try:
            self._launcher.start()
            self._reactor.run()
        except RoQError as error:
            self._failure = error
        finally:
            self._settled.set()

    def _stop(self) -> None:
        self._launcher.stop(self._reactor.stop)

    def _on_ready(self, addresses: Addresses) -> None:
        self._addresses = addresses
        self._settled.set()

    def _on_failed(self, error: StartFailed) -> None:
        self._failure = error
        self._reactor.stop()
