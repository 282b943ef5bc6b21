"""The relays of the naive hand-off, as processes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Final

from roq.local.part import guarded
from roq.simulation.real.workers import ScenarioError

END_SECONDS: Final = 5.0


@contextmanager
def relays(count: int) -> Iterator[list[str]]:
    """So many relays until the block ends; gives their addresses.

    Raises:
        ScenarioError: one did not start.
    """
    addresses = []
    with ExitStack() as stack:
        for _ in range(count):
            process = subprocess.Popen(
                guarded([sys.executable, "-P", "-m", "roq.simulation.real.naive"]),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                start_new_session=True,
            )
            stack.callback(_end, process)
            if process.stdout is None:
                raise ScenarioError("a relay has no output")
            line = process.stdout.readline().decode().strip()
            if not line:
                raise ScenarioError("a relay did not start")
            addresses.append(line)
        yield addresses


def _end(process: subprocess.Popen[bytes]) -> None:
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()
    try:
        process.wait(END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
