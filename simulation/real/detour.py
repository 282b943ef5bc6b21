"""A bad line for one machine: everything that it opens goes through a relay that can be slow.

    python -m roq.simulation.real.detour     prints its port, then takes commands on standard input

Commands, one a line: `delay SECONDS` (each way), `stall`, `go on`, `cut`.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from signal import SIGKILL
from typing import IO, Final

from roq.errors import Unavailable
from roq.local.part import guarded
from roq.testing.faults import MARK, Relay, parse_endpoint
from roq.testing.namespaces import NetworkHost

NETWORK: Final = "10.97.0.0/24"
END_SECONDS: Final = 5.0


class Detour:
    """The relay of one machine, seen by the process that has started it.

    Attributes:
        host: everything that is started there takes the detour.
    """

    def __init__(self, host: NetworkHost, commands: IO[str]) -> None:
        self.host = host
        self._commands = commands

    def delay(self, seconds: float) -> None:
        """What is sent from now on, over old and new connections, takes so much longer each way."""
        self._tell(f"delay {seconds}")

    def stall(self) -> None:
        """Nothing passes, and nothing breaks."""
        self._tell("stall")

    def go_on(self) -> None:
        """Everything passes again."""
        self._tell("go on")

    def cut(self) -> None:
        """All connections break; new ones can be made at once."""
        self._tell("cut")

    def _tell(self, command: str) -> None:
        self._commands.write(command + "\n")
        self._commands.flush()


@contextmanager
def detour(host: NetworkHost, log: Path) -> Iterator[Detour]:
    """Put a relay between this machine and all others.

    Raises:
        Unavailable: the system refused.
    """
    argv = [*host.absolute_prefix, sys.executable, "-P", "-m", "roq.simulation.real.detour"]
    with log.open("ab") as errors:
        process = subprocess.Popen(
            guarded(argv, SIGKILL),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            start_new_session=True,
        )
    try:
        if process.stdin is None or process.stdout is None:
            raise Unavailable("the detour has no pipes")
        port = process.stdout.readline().strip()
        if not port:
            raise Unavailable(f"the detour has not started, see {log}")
        host.run(
            *("iptables", "-w", "5", "-t", "nat", "-A", "OUTPUT", "-p", "tcp", "-d", NETWORK),
            *("-m", "mark", "!", "--mark", str(MARK), "-j", "REDIRECT", "--to-ports", port),
        )
        yield Detour(host, process.stdin)
    finally:
        process.kill()
        process.communicate(timeout=END_SECONDS)


def main() -> int:
    """Relay until standard input ends."""
    with Relay(None) as relay:
        sys.stdout.write(f"{parse_endpoint(relay.address)[1]}\n")
        sys.stdout.flush()
        for line in sys.stdin:
            match line.split():
                case ["delay", seconds]:
                    relay.set_delay(float(seconds))
                case ["stall"]:
                    relay.pause()
                case ["go", "on"]:
                    relay.resume()
                case ["cut"]:
                    relay.cut_now()
                case _:
                    return 2
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
