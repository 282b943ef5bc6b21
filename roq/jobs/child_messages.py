"""What an instance and the processes that run its handlers say to each other."""

from __future__ import annotations

import sys
from multiprocessing import spawn
from typing import Annotated, Final

import msgspec

from roq.jobs.rows import Body, Claimed, Trouble
from roq.jobs.states import RunEnd
from roq.jobs.types import PARAMS_BYTES_MAX

BYTES_MAX: Final = PARAMS_BYTES_MAX + (1 << 20)
Place = Annotated[int, msgspec.Meta(ge=0, lt=2**53)]
"""As `Job.save` takes it. The database would refuse another, with all that is in its commit."""
_LINE: Final = (
    "import sys, json; sys.path[:] = json.loads(sys.argv[1]);"
    " from roq.jobs.child import main; main(sys.argv[2])"
)


class ChildSetup(msgspec.Struct, frozen=True):
    """What the process is started with."""

    descriptor: int
    """Of its end of the socket."""
    lifeline: int
    """Of its end of a pipe that is closed with the instance."""
    parent: int
    """Process id of the instance."""
    argv: list[str]
    main: dict[str, str]
    """What of the instance's main program is to be imported, as `multiprocessing` says it."""


class BeginRun(msgspec.Struct, frozen=True, tag=True):
    """Run this."""

    module: str
    name: str
    """Where the type is in the module."""
    owner: int
    instance: str
    run: Claimed


class StopRun(msgspec.Struct, frozen=True, tag=True):
    """The run is to stop."""

    why: RunEnd


class ChildReady(msgspec.Struct, frozen=True, tag=True):
    """It has started, and takes runs."""


class PlaceSaid(msgspec.Struct, frozen=True, tag=True):
    """So many items are done."""

    run: tuple[int, int]
    """Id and token, as in all that follows."""
    items: Place


class FinishSaid(msgspec.Struct, frozen=True, tag=True):
    """The handler completes the job in a transaction of its own, or that has failed."""

    run: tuple[int, int]
    done: bool


class EndSaid(msgspec.Struct, frozen=True, tag=True):
    """The run has ended."""

    run: tuple[int, int]
    end: RunEnd
    saved: Place
    result: Body | None = None
    trouble: Trouble | None = None
    forked: bool = False
    """Said by a copy of the process, which the handler has made and let come out of it."""


ChildOrder = BeginRun | StopRun
ChildReport = ChildReady | PlaceSaid | FinishSaid | EndSaid


def command(setup: ChildSetup) -> list[str]:
    """How the process is started."""
    path = msgspec.json.encode(sys.path).decode()
    return [sys.executable, "-P", "-c", _LINE, path, msgspec.json.encode(setup).decode()]


def main_program() -> dict[str, str]:
    """What a process has to import so that it has the handlers of the main program, too."""
    found = spawn.get_preparation_data("roq-job")
    return {name: str(text) for name, text in found.items() if name.startswith("init_main_from_")}
