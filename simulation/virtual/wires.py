"""Machines and the wires between them: cut in one direction or both, or because a machine is down.

What is sent into a wire that is cut waits, as in TCP; after two seconds the heartbeats of ZeroMQ
give the connection up. No peer is told that a machine is down: it just says nothing.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from roq.simulation.virtual.network import Client, Connection, Network, Server, Void
from roq.simulation.virtual.world import World

HEARTBEAT_SECONDS: Final = (2.0, 2.5)
"""After so long without a sign of life a connection is given up."""


class Wires(Network):
    """Who listens where on which machine, and who can reach whom."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._machines: dict[str, str] = {}
        self._lines: list[tuple[Connection, str, str]] = []
        self._cuts: set[tuple[str, str]] = set()
        self._down: set[str] = set()

    # --- connections ------------------------------------------------------------------------------

    def listen_at(self, machine: str, address: str, server: Server) -> None:
        """A client that connects to this address reaches this server on this machine."""
        self.listen(address, server)
        self._machines[address] = machine

    def dial(self, machine: str, address: str, client: Client) -> Connection:
        """Connect from a machine to an address; whatever is wrong with it shows later."""
        there = self._machines.get(address, machine)
        if not (self.reaches(machine, there) and self.reaches(there, machine)):
            # An attempt that is not answered is given up, even if the way is free by then.
            connection = self._connect_to(Void(), client)
            patience = self._world.random.uniform(*HEARTBEAT_SECONDS)
            self._world.call_later(patience, connection.cut)
            return connection
        connection = self.connect(address, client)
        self._lines.append((connection, machine, there))
        if len(self._lines) > 64 and connection.number % 32 == 0:
            self._lines = [line for line in self._lines if not line[0].over]
        return connection

    def answers(self, machine: str, address: str) -> bool | None:
        """Whether a server listens there; None if nothing at all comes back."""
        there = self._machines.get(address, machine)
        if not (self.reaches(machine, there) and self.reaches(there, machine)):
            return None
        return self.listens(address)

    def of(self, machine: str) -> list[Connection]:
        """The connections from and to a machine."""
        return [line[0] for line in self._lines if machine in line[1:] and not line[0].over]

    def between(self, machine: str, others: Collection[str]) -> list[Connection]:
        """The connections between a machine and any of these."""
        return [
            connection
            for connection, one, other in self._lines
            if not connection.over
            and ((one == machine and other in others) or (other == machine and one in others))
        ]

    # --- what may happen to them ------------------------------------------------------------------

    def reaches(self, one: str, other: str) -> bool:
        """Whether what leaves the one machine arrives at the other."""
        if one in self._down or other in self._down:
            return False
        return one == other or (one, other) not in self._cuts

    def cut(self, ones: Collection[str], others: Collection[str], *, both: bool) -> None:
        """Let nothing through from these machines to those, and back if `both`."""
        pairs = {(one, other) for one in ones for other in others if one != other}
        self._cuts |= pairs
        if both:
            self._cuts |= {(other, one) for one, other in pairs}
        self._look()

    def mend(self) -> None:
        """Let everything through again."""
        self._cuts.clear()
        self._look()

    def machine_down(self, machine: str) -> None:
        """A machine is gone, and so is what was on its way to and from it."""
        doomed = self.of(machine)
        self._down.add(machine)
        for connection in doomed:
            connection.hold(up=True, down=True)
            self._world.call_later(self._world.random.uniform(*HEARTBEAT_SECONDS), connection.cut)
        self._lines = [line for line in self._lines if line[0] not in doomed]

    def machine_up(self, machine: str) -> None:
        """It is there again."""
        self._down.discard(machine)

    def _look(self) -> None:
        self._lines = [line for line in self._lines if not line[0].over]
        for connection, one, other in self._lines:
            was_held = connection.held
            up, down = not self.reaches(one, other), not self.reaches(other, one)
            connection.hold(up=up, down=down)
            if (up or down) and not was_held:
                self._give_up_later(connection)

    def _give_up_later(self, connection: Connection) -> None:
        def give_up() -> None:
            if connection.held:
                connection.cut()

        self._world.call_later(self._world.random.uniform(*HEARTBEAT_SECONDS), give_up)
