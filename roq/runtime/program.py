"""A daemon as a program: its arguments, its configuration, its logs, its exit code.

    program.main() -> load the configuration -> run(config, on_ready) -> serve() -> exit code

A daemon says what it is (`Program`) and how it is made and run (`serve`); what every daemon does
around that stands here once.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Generic, Protocol, TypeAlias, TypeVar

from roq.errors import ConfigError, Unavailable
from roq.runtime import descriptors, exits, structured_logs
from roq.runtime.service import SystemdService

log = logging.getLogger(__name__)


class LogSettings(Protocol):
    """The section `[log]` of a daemon's configuration."""

    @property
    def level(self) -> str:
        """`debug`, `info`, `warning` or `error`."""
        ...

    @property
    def format(self) -> str:
        """`text` or `json`."""
        ...


ConfigT = TypeVar("ConfigT")
DaemonT = TypeVar("DaemonT")
Readiness: TypeAlias = Callable[[Mapping[str, object]], None]
"""Called once with what a daemon tells about itself when it serves."""


@dataclass(frozen=True, slots=True)
class Program(Generic[ConfigT]):
    """What `python -m <module>` does.

    Attributes:
        module: as it is started.
        process: its name in the log.
        file: of its configuration.
        description: for `--help`.
        ready: what `--ready-fd` gets, for `--help`.
        load: reads the configuration; raises `ConfigError`.
        run: runs the daemon until it ends; gives the exit code.
    """

    module: str
    process: str
    file: str
    description: str
    ready: str
    load: Callable[[Path | None, Mapping[str, str]], ConfigT]
    run: Callable[[ConfigT, Readiness], int]

    def main(self, arguments: Sequence[str] | None = None) -> int:
        """Parse the arguments, read the configuration, run."""
        parser = argparse.ArgumentParser(
            prog=f"python -m {self.module}", description=self.description
        )
        parser.add_argument("--config", type=Path, help=f"{self.file}; searched for if not given")
        parser.add_argument("--ready-fd", type=int, help=f"descriptor that gets {self.ready}")
        options = parser.parse_args(arguments)
        structured_logs.hold()
        descriptors.raise_limit()
        try:
            config = self.load(options.config, os.environ)
        except ConfigError as error:
            structured_logs.configure("info", "text", process=self.process)
            return _misconfigured(error)
        return self.run(config, partial(_ready, SystemdService(os.environ), options.ready_fd))


def serve(
    settings: LogSettings,
    process: str,
    make: Callable[[], DaemonT],
    run: Callable[[DaemonT], int],
) -> int:
    """Make a daemon and run it to its end.

    Args:
        settings: how it logs.
        process: its name in the log.
        make: binds and constructs; what it raises as `ConfigError` or `Unavailable` is a setting
            that does not fit this machine.
        run: serves until the daemon ends.

    Returns:
        What `run` gives, 78 when a setting is wrong, 70 when it crashed.
    """
    structured_logs.configure(settings.level, settings.format, process=process)
    try:
        daemon = make()
    except (ConfigError, Unavailable) as error:
        return _misconfigured(error)

    def work() -> int:
        try:
            return run(daemon)
        except ConfigError as error:  # what it found elsewhere cannot be used, as in the registry
            return _misconfigured(error)

    return exits.logged(work)


def _misconfigured(error: Exception) -> int:
    log.error("%s", error, extra={"event": "configuration"})
    return exits.CONFIG


def _ready(service: SystemdService, descriptor: int | None, told: Mapping[str, object]) -> None:
    service.ready()
    if descriptor is None:
        return
    with os.fdopen(descriptor, "w") as stream:
        stream.write(json.dumps(told) + "\n")
