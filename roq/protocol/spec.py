"""What a host manager writes down for a child before it starts it: one JSON file.

`python -m roq.exchange FILE` reads it and needs nothing else. `python -m roq.monitor PIPE` serves
the queues of many files: it reads from the pipe which child of the same folder to begin with, and
which to end, one JSON document a line.
"""

from __future__ import annotations

import msgspec

from roq.errors import InvalidRequest
from roq.model import Limits
from roq.number_ranges import UNREADABLE, Amount, ChildEpoch, ExchangeNumber, Port


class ChildSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What every child is told."""

    child: str
    """`<queue>.monitor` or `<queue>.x<number>`."""
    queue: str
    queue_id: bytes
    epoch: ChildEpoch
    bind: str
    """Address to bind to."""
    advertise: str
    """Address under which others reach it."""
    ports: tuple[Port, Port]
    """Range of ports to choose from: first, and first that is too high. (0, 0): any free port."""
    avoid_ports: list[Port] = []
    """Ports that were in use within the last ten minutes."""
    manager: str
    """Control address of the host manager."""
    managers: list[str] = []
    """Client addresses of configuration managers, for as long as the host manager is away."""
    orphan_seconds: Amount = 60.0
    """Without an answer from the host manager for so long, the child drains and ends."""
    kpi_seconds: Amount = 1.0
    log_level: str = "info"
    log_format: str = "text"
    limits: Limits
    cluster: str = ""
    """Identity of the cluster it belongs to, for a later life of the host manager."""


class MonitorSpec(ChildSpec, frozen=True, kw_only=True, tag="monitor"):
    """What a monitor is told."""

    statistics_ports: tuple[Port, Port] = (0, 0)
    restarted: bool = False
    """A monitor of this queue was there before: exchanges that it does not know yet may serve."""


class ExchangeSpec(ChildSpec, frozen=True, kw_only=True, tag="exchange"):
    """What an exchange is told."""

    number: ExchangeNumber
    host: str
    monitor: str
    """Control address of the queue's monitor."""
    log: str = ""
    """Folder of its log; empty: it keeps its log in memory."""
    has_log: bool = False
    """It has had a log there, and does not begin another one."""
    ahead: bool = False
    """It acknowledges what is written to its log, and has it synced a moment later."""


Spec = MonitorSpec | ExchangeSpec


class Serve(msgspec.Struct, frozen=True, kw_only=True, tag="serve"):
    """Be the monitor that `<child>.json` describes."""

    child: str


class End(msgspec.Struct, frozen=True, kw_only=True, tag="end"):
    """Be this monitor no more; as SIGTERM is for a process."""

    child: str
    epoch: ChildEpoch


Command = Serve | End
COMMAND_BYTES_MAX = 1_024
"""Of a line; a pipe takes that much as a whole or not at all."""


def encode_command(command: Command) -> bytes:
    """One line."""
    return msgspec.json.encode(command) + b"\n"


def decode_command(line: bytes) -> Command:
    """The command in a line.

    Raises:
        InvalidRequest: it is none.
    """
    try:
        command: Command = msgspec.json.decode(line, type=Command)
    except UNREADABLE as error:
        raise InvalidRequest(f"no command of a host manager: {error}") from None
    return command


def encode_spec(spec: ChildSpec) -> bytes:
    """The JSON of a spec."""
    return msgspec.json.format(msgspec.json.encode(spec), indent=2)
