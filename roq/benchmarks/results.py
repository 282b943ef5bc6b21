"""All that one run of the benchmark found out, as one JSON document."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import time
from importlib import metadata
from pathlib import Path
from typing import Final

import msgspec
import zmq

from roq.benchmarks.case import CaseFailure
from roq.benchmarks.statistics import Figure
from roq.simulation.real.results import cpu_model

LIBRARIES: Final = ("roq", "pyzmq", "msgspec", "xxhash", "nats-py", "redis", "hiredis")


class ProcessCost(msgspec.Struct, frozen=True):
    """What a process costs while nothing happens."""

    cpu_percent: float
    """Of one core."""
    rss: int
    """Resident bytes."""


class Idle(msgspec.Struct, frozen=True):
    """A fresh cluster with one queue, one exchange and no client."""

    up_seconds: float
    """From the start of `roq up` until its ready line."""
    measured_seconds: float
    processes: dict[str, ProcessCost]


class Verdict(msgspec.Struct, frozen=True):
    """One target and what came out."""

    text: str
    goal: float
    at_least: bool
    """Whether more is better; else `goal` is the most that is allowed."""
    measured: float | None
    """None: could not be measured in this run."""
    low: float | None = None
    high: float | None = None
    unit: str = " x"

    @property
    def reached(self) -> bool | None:
        """Whether the target was reached; None if nothing was measured."""
        if self.measured is None:
            return None
        return self.measured >= self.goal if self.at_least else self.measured <= self.goal


class Environment(msgspec.Struct, frozen=True):
    """On what all this was measured."""

    when: str
    cpu: str
    cores: int
    memory_bytes: int
    system: str
    python: str
    libzmq: str
    libraries: dict[str, str]
    """Python packages; empty text: not installed."""
    servers: dict[str, str]
    load_before: float
    """Load average of the last minute when it began: what else ran on the machine."""


class Results(msgspec.Struct, frozen=True, kw_only=True):
    """The document."""

    environment: Environment
    rounds: int
    fan_out_rounds: int
    seconds_per_run: float
    titles: dict[str, str]
    """Contender → name for people."""
    skipped: dict[str, str]
    """Contender → why it did not take part."""
    figures: list[Figure]
    failures: list[CaseFailure]
    idle: Idle | None
    verdicts: list[Verdict]


def environment() -> Environment:
    """Look at the machine."""
    return Environment(
        when=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        cpu=cpu_model(),
        cores=os.cpu_count() or 0,
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        system=f"{platform.system()} {platform.release()}",
        python=f"{platform.python_implementation()} {platform.python_version()}",
        libzmq=zmq.zmq_version(),
        libraries={name: _version(name) for name in LIBRARIES},
        servers={name: _output(name, "--version") for name in ("nats-server", "redis-server")},
        load_before=os.getloadavg()[0],
    )


def write_json(results: Results, path: Path) -> None:
    """Write the document, readable."""
    path.write_bytes(msgspec.json.format(msgspec.json.encode(results), indent=1) + b"\n")


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


def _output(program: str, option: str) -> str:
    path = shutil.which(program)
    if path is None:
        return ""
    done = subprocess.run([path, option], capture_output=True, text=True, check=False)
    return (done.stdout or done.stderr).strip().splitlines()[0]


def write_document(results: msgspec.Struct, path: Path) -> None:
    """Write the results as JSON for people and programs; makes the folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(results), indent=1) + b"\n")
