"""Members, exchanges and the network between them: what may go wrong does, and the promises hold.

    a message whose acknowledgement was confirmed is never handed out again
    everything that was published is done in the end

Members are the client's machines, exchanges the real cores over logs on a disk in memory. Between
them connections are cut, on both sides at once or not, members are frozen beyond their leases, and
exchanges end at any moment and go on with what their disk has kept.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

import pytest
from memory_files import MemoryFiles

from roq.client.consume.holding import ACKED, RETURNED, TOLD, Holding
from roq.client.consume.machine import ConsumerMachine
from roq.client.consume.message import Settlement
from roq.client.consume.seat import Membership, SeatPhase
from roq.client.io.queue_connections import AskExchange
from roq.exchange.events import Received, Send, Unreachable
from roq.exchange.machine import ExchangeCore
from roq.log.disk_groups import Group, perform
from roq.log.recovery import LogSettings, open_log
from roq.log.segments import SegmentLog
from roq.machine import Tick
from roq.model import ExchangeInfo, Limits, LogId, PublisherId
from roq.protocol.batch import pack
from roq.protocol.consuming import GroupSettings, Run
from roq.protocol.framing import join_answer, split_answer

QUEUE = b"q" * 16
TAG = b"\x01\x00\x00\x00"
LEASE = 5.0
Key = tuple[int, int, int]
"""Exchange, offset, index."""


@dataclass
class Wire:
    """One connection of a member to an exchange."""

    route: bytes
    to_exchange: deque[list[bytes]] = field(default_factory=deque)
    to_member: deque[bytes] = field(default_factory=deque)


class Server:
    """One exchange and its disk."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.files = MemoryFiles()
        self.epoch = 0
        self.sequence = 0
        self.wires: dict[bytes, Wire] = {}
        self.group: Group[bytes] | None = None
        self.start()

    def start(self) -> None:
        """A process begins, with what the disk has."""
        self.epoch += 1
        self.group = None
        self.log: SegmentLog[bytes] = open_log(
            self.files,
            LogSettings(
                queue=QUEUE, exchange=self.number, epoch=self.epoch, cluster="c", host="h",
                ring_bytes=1 << 20, topics_max=8, topics_spare=0, capacity_bytes=1 << 30,
                keep_us=1 << 60, now_us=0, segment_bytes=1 << 30, segment_entries=9,
            ),
        )  # fmt: skip
        self.core: ExchangeCore[bytes] = ExchangeCore(
            QUEUE, self.number, self.epoch, Limits(), late=self.log
        )
        found = self.log.recovered
        self.core.begin(0.0, 1)
        self.core.recover(0.0, found.snapshot, found.since, found.changes)
        self.sequence = self.log.end

    @property
    def info(self) -> ExchangeInfo:
        return ExchangeInfo(
            number=self.number, epoch=self.epoch, generation=self.log.generation, host="h",
            data="d", live="l",
        )  # fmt: skip

    def publish(self, random: Random) -> None:
        count = random.randint(1, 4)
        batch = pack(
            [b"m"] * count, publisher=PublisherId(bytes(16)), epoch=0,
            link_number=self.sequence + 1, first_sequence=0, created_us=0,
        )  # fmt: skip
        self.sequence += 1
        self.log.append(b"t", batch, len(batch))

    def take(self, wire: Wire, now: float) -> None:
        letter, *rest = wire.to_exchange.popleft()
        self.core.begin(now, 1)
        self.perform(self.core.handle(Received(wire.route, (letter + TAG, *rest)), now))
        while self.core.requests:
            self.perform(self.core.answer_next(now))

    def perform(self, effects: list[object]) -> None:
        for effect in effects:
            if isinstance(effect, Send) and effect.route in self.wires:
                self.wires[effect.route].to_member.append(join_answer(effect.parts))

    def hand_out(self, now: float, random: Random) -> None:
        consumers = self.core.consumers
        self.core.begin(now, 1)
        for _ in range(random.randint(1, 5)):
            if not consumers.runnable():
                break
            delivery = consumers.next_delivery()
            if delivery is None:
                continue
            wire = self.wires.get(delivery.route)
            if wire is None:
                self.core.handle(Unreachable(delivery.route), now)
            elif random.random() < 0.1:
                consumers.blocked(delivery)
            else:
                wire.to_member.append(join_answer(delivery.parts, delivery.batch))
                consumers.sent(delivery)

    def write(self, random: Random) -> None:
        """The disk comes on, by half a step."""
        if self.group is None:
            self.group = self.log.gather(self.core.snapshot, self.core.consumers.take_changes)
        if self.group is not None and random.random() < 0.7:
            perform(self.files, self.group)
            self.log.commit(self.group.end)
            self.group = None
            self.core.consumers.kept()

    def settle(self) -> None:
        self.perform(list(self.core.take_answers()))
        self.core.check()


class Client:
    """One member, and its user."""

    def __init__(self, number: int, world: World, mode: str = "shared") -> None:
        self.world = world
        settings = GroupSettings(mode=mode, lease_seconds=LEASE, retry_seconds=0.5)
        self.machine = ConsumerMachine(
            Membership(
                id=bytes((number,)) * 16, name=str(number), group="g", settings=settings,
                latest=False, start_us=0, prefetch=8, prefetch_bytes=1 << 20,
            )
        )  # fmt: skip
        self.wires: dict[int, Wire] = {}
        self.frozen = False
        self.holdings: list[Holding] = []
        self.acked: list[tuple[Key, Holding]] = []

    def connect(self, server: Server) -> None:
        world = self.world
        world.routes += 1
        wire = self.wires[server.number] = Wire(world.routes.to_bytes(4, "big"))
        server.wires[wire.route] = wire
        self.machine.open(server.info, QUEUE)
        self.send(self.machine.up(server.info.log, world.now))

    def cut(self, server: Server) -> None:
        """The connection ends; the exchange may notice later."""
        wire = self.wires.pop(server.number, None)
        if wire is not None:
            self.machine.down(server.info.log)
            server.wires.pop(wire.route, None)
            self.world.unnoticed.append((server, server.epoch, wire.route))

    def send(self, asks: list[AskExchange]) -> None:
        for ask in asks:
            wire = self.wires.get(ask.log.number)
            if wire is not None:
                wire.to_exchange.append(ask.frames)

    def take(self, wire: Wire, log: LogId) -> None:
        parts = split_answer(wire.to_member.popleft(), len(TAG))
        self.send(self.machine.take(log, parts, self.world.now))
        for holding in self.machine.arrived:
            self.world.handed_out(self, holding)
            self.holdings.append(holding)
        self.machine.arrived.clear()

    def use(self) -> None:
        """The user settles some of what it has."""
        random = self.world.random
        self.holdings = [each for each in self.holdings if each.open and not each.lost]
        if not self.holdings:
            return
        holding = random.choice(self.holdings)
        index = random.randrange(len(holding.batch))
        count = random.randint(1, len(holding.batch) - index)
        if random.random() < 0.15:
            if holding.settle(index, 1, RETURNED):
                run = Run(holding.offset, holding.first + index, 1)
                self.send(self.machine.tell([], [(holding, run, Settlement())], self.world.now))
            return
        for at in range(index, index + count):
            if holding.settle(at, 1, ACKED):
                key = (holding.log.number, holding.offset, holding.first + at)
                self.acked.append((key, holding))
        self.send(self.machine.tell([holding], [], self.world.now))

    def use_up(self) -> None:
        """The user settles all that it has."""
        for holding in self.holdings:
            for at in range(len(holding.batch)):
                if not holding.lost and holding.settle(at, 1, ACKED):
                    key = (holding.log.number, holding.offset, holding.first + at)
                    self.acked.append((key, holding))
        self.send(self.machine.tell(self.holdings, [], self.world.now))
        self.holdings = []

    def freeze(self) -> None:
        """The process is stopped, or goes on."""
        self.frozen = not self.frozen

    def confirmed(self) -> set[Key]:
        """What this member was told that it is kept."""
        open_ones = {
            id(each) for seat in self.machine.seats.values() for each in seat.holdings.values()
        }
        return {
            key
            for key, holding in self.acked
            if id(holding) not in open_ones and holding.states[key[2] - holding.first] == TOLD
        }


class World:
    """Everything, and what it has promised."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.now = 100.0
        self.routes = 0
        self.unnoticed: list[tuple[Server, int, bytes]] = []
        self.servers = [Server(1), Server(2)]
        self.clients = [Client(number, self) for number in range(1, 4)]
        for client in self.clients:
            for server in self.servers:
                client.connect(server)

    def handed_out(self, client: Client, holding: Holding) -> None:
        confirmed: set[Key] = set().union(*(each.confirmed() for each in self.clients))
        for index in range(holding.first, holding.first + len(holding.batch)):
            key = (holding.log.number, holding.offset, index)
            assert key not in confirmed, f"{key} is done, and {client.machine.stats} got it"

    def step(self) -> None:
        random = self.random
        server, client = random.choice(self.servers), random.choice(self.clients)
        events: list[tuple[float, Callable[[], object]]] = [
            (12, lambda: server.publish(random)),
            (18, lambda: server.write(random)),
            (15, lambda: server.hand_out(self.now, random)),
            (15, lambda: self.deliver_to(server)),
            (15, lambda: self.deliver_from(client)),
            (15, lambda: client.frozen or client.use()),
            (6, lambda: self.pass_time(random.choice([0.1, 0.5]))),
            (1.5, lambda: client.cut(server)),
            (1, client.freeze),
            (0.5, lambda: self.restart(server)),
            (1, self.notice),
        ]
        random.choices([event for _, event in events], [weight for weight, _ in events])[0]()
        self.reconnect(0.2)
        server.settle()

    def reconnect(self, chance: float) -> None:
        for client in self.clients:
            for server in self.servers:
                away = not client.frozen and server.number not in client.wires
                if away and self.random.random() < chance:
                    client.connect(server)

    def deliver_to(self, server: Server) -> None:
        wires = [wire for wire in server.wires.values() if wire.to_exchange]
        if wires:
            server.take(self.random.choice(wires), self.now)

    def deliver_from(self, client: Client) -> None:
        if client.frozen:
            return
        for server in self.servers:
            wire = client.wires.get(server.number)
            if wire is not None and wire.to_member:
                client.take(wire, server.info.log)
                return

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        for server in self.servers:
            server.core.begin(self.now, 1)
            server.perform(server.core.handle(Tick(), self.now))
            server.settle()
        for client in self.clients:
            if not client.frozen:
                client.send(client.machine.tick(self.now))

    def restart(self, server: Server) -> None:
        for client in self.clients:
            client.cut(server)
        server.wires.clear()
        server.start()

    def notice(self) -> None:
        """Exchanges find out which connections have ended."""
        for server, epoch, route in self.unnoticed:
            if epoch == server.epoch:
                server.core.begin(self.now, 1)
                server.core.handle(Unreachable(route), self.now)
        self.unnoticed = []

    def finish(self) -> None:
        """Nothing goes wrong any more: everything is done in the end."""
        for client in self.clients:
            client.frozen = False
        for _ in range(4_000):
            self.notice()
            self.reconnect(1.0)
            for client in self.clients:
                for _ in range(3):
                    self.deliver_from(client)
                client.use_up()
            for server in self.servers:
                self.deliver_to(server)
                self.deliver_to(server)
                server.write(self.random)
                server.hand_out(self.now, self.random)
                server.settle()
            self.pass_time(0.1)
            if all(map(self.is_done, self.servers)):
                break
        for server in self.servers:
            (group,) = server.core.consumers.groups
            state = group.state(who=True, most=9)
            assert group.base == server.log.committed == server.log.end, state
        assert all(
            seat.phase is SeatPhase.IN
            for client in self.clients
            for seat in client.machine.seats.values()
        )

    def is_done(self, server: Server) -> bool:
        groups = server.core.consumers.groups
        return (
            bool(groups)
            and groups[0].base == server.log.committed == server.log.end
            and not groups[0].out
        )


@pytest.mark.parametrize("seed", range(40))
def test_what_was_confirmed_is_never_handed_out_again_and_all_is_done(seed: int) -> None:
    world = World(seed)
    for _ in range(1_500):
        world.step()
    world.finish()


def test_in_order_nothing_comes_before_all_that_was_returned_is_back_on_the_disk() -> None:
    """It would go back again, as it may overtake something: at the pace of the network, for as long
    as the disk does not write."""
    world = World(0)
    server, client = world.servers[0], Client(9, world, "exclusive")
    world.clients = [client]
    client.connect(server)
    wire = client.wires[1]

    def go_on() -> None:
        for _ in range(20):
            world.pass_time(0.1)
            while wire.to_exchange:
                server.take(wire, world.now)
            server.hand_out(world.now, world.random)
            server.settle()
            while wire.to_member:
                client.take(wire, server.info.log)

    def write() -> None:
        group = server.log.gather(server.core.snapshot, server.core.consumers.take_changes)
        assert group is not None
        perform(server.files, group)
        server.log.commit(group.end)
        server.core.consumers.kept()

    for _ in range(6):
        server.publish(world.random)
    go_on()
    write()
    go_on()
    held, client.holdings = client.holdings, []
    assert len(held) > 1
    for holding in held:
        count = len(holding.batch)
        holding.settle(0, count, RETURNED)
        verdict = Settlement(counted=holding is held[0])
        back = holding, Run(holding.offset, holding.first, count), verdict
        client.send(client.machine.tell([], [back], world.now))
    go_on()
    assert client.holdings == []
    write()
    go_on()
    again = [(each.offset, each.first) for each in client.holdings]
    assert again[: len(held)] == [(each.offset, each.first) for each in held]
