"""Everything that can happen to a cluster, one function each.

A fault is a generator: what is before its `yield` makes it happen, what is after it heals. It
yields who was hit, in words.
"""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

import roq
from roq.errors import ExchangeNotFound, RoQError
from roq.simulation.experiments.chaos.environment import Environment
from roq.simulation.experiments.chaos.plan import Draw, Kind
from roq.simulation.real.detour import Detour
from roq.simulation.real.parts import QUORUM_PORT, ZOOKEEPER_PORT, Daemon, Offspring, send
from roq.testing.faults import parse_endpoint

T = TypeVar("T")
Happening = Iterator[str]
WRITTEN_SECONDS: Final = 30.0
REPLACED_SECONDS: Final = 150.0
"""After that it is not tried again, and the cluster is not whole."""
DISK_CHUNK: Final = bytes(1 << 16)


@dataclass(frozen=True, slots=True)
class Fault:
    """A kind of fault and how it is done.

    Attributes:
        needs: `links`, `disks` or `clocks` of the site, `zookeeper` or a `file` as the registry,
            `members` of consumer groups, `requests`, or `apart`, requests and links; empty:
            nothing.
        forgets: memory of exchanges is lost, with what was acknowledged a while ago.
        deafens: subscribers, or consumers, do not get what is published meanwhile.
    """

    kind: Kind
    happen: Callable[[Environment, Draw], Happening]
    needs: str = ""
    forgets: bool = False
    deafens: bool = False


class NobodyThere(Exception):
    """There is nothing that this fault could hit at the moment."""


def pick(items: Sequence[T], dice: float) -> T:
    """One of them.

    Raises:
        NobodyThere: there is none.
    """
    if not items:
        raise NobodyThere
    return items[min(len(items) - 1, int(dice * len(items)))]


# --- monitors and exchanges -----------------------------------------------------------------------


def _offspring(environment: Environment, role: str) -> list[Offspring]:
    found = [each for each in environment.parts.offspring() if each.role == role]
    return sorted(found, key=lambda each: each.child)


def kill_child(role: str) -> Callable[[Environment, Draw], Happening]:
    """SIGKILL a monitor or an exchange."""

    def happen(environment: Environment, draw: Draw) -> Happening:
        hit = pick(_offspring(environment, role), draw.dice)
        send(hit.pid, signal.SIGKILL)
        yield str(hit)

    return happen


def pause_child(role: str) -> Callable[[Environment, Draw], Happening]:
    """SIGSTOP a monitor or an exchange, and SIGCONT if it is still there."""

    def happen(environment: Environment, draw: Draw) -> Happening:
        hit = pick(_offspring(environment, role), draw.dice)
        send(hit.pid, signal.SIGSTOP)
        yield str(hit)
        if any(each.pid == hit.pid for each in _offspring(environment, role)):
            send(hit.pid, signal.SIGCONT)

    return happen


def replace_exchange(environment: Environment, draw: Draw) -> Happening:
    """A queue gets one more exchange, and another one is emptied and removed, in the background."""
    queues = [wish.name for wish in environment.wishes if wish.exchanges > 1]
    queue = pick(queues, draw.strength)
    running = [
        x.name for x in environment.cluster.describe(queue).exchanges if x.state == "running"
    ]
    name, change = pick(running, draw.dice), Future[None]()
    if not all(each.done() for each in environment.changes):
        raise NobodyThere
    addresses, ends = environment.parts.addresses, time.monotonic() + REPLACED_SECONDS

    def replace() -> None:
        number = f"replace-{queue}-{name}-{ends}"
        while not change.done() and time.monotonic() < ends:
            with suppress(RoQError), roq.connect(addresses, timeout=WRITTEN_SECONDS) as cluster:
                cluster.add_exchange(queue, transaction_id=number)
                with suppress(ExchangeNotFound):
                    cluster.remove_exchange(queue, name, timeout=WRITTEN_SECONDS)
                break
        change.set_result(None)

    threading.Thread(target=replace, daemon=True).start()
    environment.changes.append(change)
    yield f"{queue}.{name}"


# --- daemons --------------------------------------------------------------------------------------


def _daemons(environment: Environment, kind: str) -> list[Daemon]:
    found = {
        "zookeeper": environment.parts.zookeepers,
        "gcm": environment.parts.gcms,
        "hcm": environment.parts.hcms,
    }[kind]
    return [daemon for daemon in found if daemon.pid]


def kill_daemon(kind: str) -> Callable[[Environment, Draw], Happening]:
    """SIGKILL a daemon; it is started again when it is healed."""

    def happen(environment: Environment, draw: Draw) -> Happening:
        hit = pick(_daemons(environment, kind), draw.dice)
        hit.kill()
        yield str(hit)
        hit.wanted = True

    return happen


def pause_daemon(kind: str) -> Callable[[Environment, Draw], Happening]:
    """SIGSTOP a daemon, and SIGCONT."""

    def happen(environment: Environment, draw: Draw) -> Happening:
        hit = pick(_daemons(environment, kind), draw.dice)
        hit.signal(signal.SIGSTOP)
        yield str(hit)
        hit.signal(signal.SIGCONT)

    return happen


def empty_zookeeper(environment: Environment, _draw: Draw) -> Happening:
    """All servers of the registry are killed, and come back without any data."""
    for daemon in environment.parts.zookeepers:
        daemon.kill()
    yield "all servers"
    for daemon in environment.parts.zookeepers:
        for path in daemon.node.folder.glob("zookeeper/data/version-2"):
            shutil.rmtree(path)
        daemon.wanted = True


def remove_registry(environment: Environment, _draw: Draw) -> Happening:
    """The registry's file is removed, under all that use it; then they have time to notice."""
    file = environment.parts.registry
    if file is None:
        raise NobodyThere
    for path in file.parent.glob(f"{file.name}*"):
        path.unlink()
    yield file.name
    # The manager that remembers what stood there may be killed next: that is two failures too many.
    wanted = len(environment.wishes)
    environment.until(lambda: _queues_in(file) >= wanted, WRITTEN_SECONDS)


def _queues_in(file: Path) -> int:
    """Of how many queues the registry knows."""
    if not file.exists():
        return 0
    with closing(sqlite3.connect(file)) as connection, suppress(sqlite3.Error):
        query = "SELECT COUNT(*) FROM nodes WHERE parent = '/queues'"
        return int(connection.execute(query).fetchone()[0])
    return 0


# --- clients --------------------------------------------------------------------------------------


def kill_client(kind: str) -> Callable[[Environment, Draw], Happening]:
    """SIGKILL a client of this kind; another one takes its place."""

    def happen(environment: Environment, draw: Draw) -> Happening:
        hit = pick(getattr(environment.workers, kind), draw.dice)
        environment.workers.kill(hit)
        yield str(hit)
        environment.workers.again(hit)

    return happen


def pause_client(kind: str) -> Callable[[Environment, Draw], Happening]:
    """SIGSTOP a client of this kind, and SIGCONT."""

    def happen(environment: Environment, draw: Draw) -> Happening:
        hit = pick(getattr(environment.workers, kind), draw.dice)
        hit.signal(signal.SIGSTOP)
        yield str(hit)
        hit.signal(signal.SIGCONT)

    return happen


# --- whole machines and the network ---------------------------------------------------------------


def kill_host(environment: Environment, draw: Draw) -> Happening:
    """Everything on a machine is gone at the same instant, and no peer hears a last word of it."""
    node = pick(environment.machines.nodes, draw.dice)
    if node.link is not None:
        node.link.cut()
    for daemon in environment.parts.on(node):
        daemon.kill()
    for each in environment.parts.offspring():
        if each.node is node:
            send(each.pid, signal.SIGKILL)
    yield node.address
    if node.link is not None:
        node.link.join()
    for daemon in environment.parts.on(node):
        daemon.wanted = True


def cut_link(environment: Environment, draw: Draw) -> Happening:
    """The plug of a machine is pulled, and put in again."""
    node = pick(environment.machines.nodes, draw.dice)
    if node.link is None:
        raise NobodyThere
    node.link.cut()
    yield node.address
    node.link.join()


def cut_client(kind: str) -> Callable[[Environment, Draw], Happening]:
    """The plug of the machine of such clients is pulled, and put in again."""

    def happen(environment: Environment, draw: Draw) -> Happening:
        apart = environment.machines.apart
        hit = pick([x for x in getattr(environment.workers, kind) if x.place in apart], draw.dice)
        hit.place.cut()
        yield f"{hit}, {hit.place.address}"
        hit.place.join()

    return happen


def deafen(environment: Environment, draw: Draw) -> Happening:
    """A machine gets nothing any more, but is heard."""
    node = pick(environment.machines.nodes, draw.dice)
    if node.link is None:
        raise NobodyThere
    with node.link.deaf():
        yield node.address


def mute_exchange(environment: Environment, draw: Draw) -> Happening:
    """An exchange acknowledges and is not heard by subscribers; then it is killed.

    What it took meanwhile died with it: publishers have to replay it, for they still have it.
    """
    hit = pick(_offspring(environment, "exchange"), draw.dice)
    queue, _, name = hit.child.rpartition(".")
    exchanges = environment.cluster.describe(queue).exchanges
    ports = [parse_endpoint(each.live)[1] for each in exchanges if each.name == name and each.live]
    if hit.node.link is None or not ports:
        raise NobodyThere
    with hit.node.link.mute_at(ports[0]):
        yield str(hit)
        send(hit.pid, signal.SIGKILL)


def lose_packets(environment: Environment, draw: Draw) -> Happening:
    """1 to 10 % of the packets of a machine are lost."""
    node = pick(environment.machines.nodes, draw.dice)
    if node.link is None:
        raise NobodyThere
    percent = 1.0 + 9.0 * draw.strength
    with node.link.loses(percent):
        yield f"{node.address}, {percent:.0f} %"


def part_registry(environment: Environment, draw: Draw) -> Happening:
    """A machine does not reach ZooKeeper elsewhere, long enough for its sessions to expire."""
    node = pick(environment.machines.nodes, draw.dice)
    if node.link is None or not environment.parts.zookeepers:
        raise NobodyThere
    with node.link.closed_to(ZOOKEEPER_PORT), node.link.closed_to(QUORUM_PORT):
        yield node.address


def fill_disk(environment: Environment, draw: Draw) -> Happening:
    """The disk of a machine is full: logs, start files and the registry's data."""
    node = pick([node for node in environment.machines.nodes if node.small], draw.dice)
    with node.ballast.open("wb", buffering=0) as ballast:
        try:
            while ballast.write(DISK_CHUNK):
                continue
        except OSError:  # full
            os.fsync(ballast.fileno())
    yield node.address
    node.ballast.unlink()


# --- a client's bad line --------------------------------------------------------------------------


def _far(environment: Environment) -> Detour:
    if environment.machines.far is None:
        raise NobodyThere
    return environment.machines.far


def delay_line(environment: Environment, draw: Draw) -> Happening:
    """What a client sends and gets takes up to a third of a second longer, each way."""
    far, seconds = _far(environment), 0.01 + 0.3 * draw.strength
    far.delay(seconds)
    yield f"{far.host.address}, {1_000 * seconds:.0f} ms"
    far.delay(0.0)


def stall_line(environment: Environment, _draw: Draw) -> Happening:
    """Nothing passes between a client and the cluster, and no connection breaks."""
    far = _far(environment)
    far.stall()
    yield far.host.address
    far.go_on()


def cut_line(environment: Environment, _draw: Draw) -> Happening:
    """All connections of a client break at once."""
    far = _far(environment)
    far.cut()
    yield far.host.address


# --- clocks ---------------------------------------------------------------------------------------


def jump_clock(environment: Environment, draw: Draw) -> Happening:
    """The clock of a machine is an hour off at most, and then right again."""
    node = pick(environment.hosts, draw.dice)
    seconds = round(7_200 * (draw.strength - 0.5))
    node.clock.write_text(f"{seconds:+d}\n")
    yield f"{node.address}, {seconds:+d} s"
    node.clock.write_text("+0\n")


def _kind(name: str, weight: float, *seconds: float) -> Kind:
    low, high = seconds or (0.0, 0.0)
    return Kind(name=name, weight=weight, seconds=(low, high))


_ALL: Final = (
    Fault(_kind("exchange-kill", 3), kill_child("exchange"), forgets=True),
    Fault(_kind("exchange-pause", 2, 0.3, 5), pause_child("exchange"), forgets=True),
    Fault(_kind("exchange-mute", 2, 0.3, 2), mute_exchange, needs="links", forgets=True),
    Fault(_kind("exchange-replace", 2), replace_exchange, needs="requests"),
    Fault(_kind("monitor-kill", 2), kill_child("monitor")),
    Fault(_kind("monitor-pause", 2, 0.3, 5), pause_child("monitor")),
    Fault(_kind("hcm-kill", 2, 0, 9), kill_daemon("hcm")),
    Fault(_kind("hcm-pause", 1, 0.5, 9), pause_daemon("hcm")),
    Fault(_kind("gcm-kill", 2, 0, 9), kill_daemon("gcm")),
    Fault(_kind("gcm-pause", 1, 0.5, 9), pause_daemon("gcm")),
    Fault(_kind("zookeeper-kill", 1, 0, 12), kill_daemon("zookeeper"), needs="zookeeper"),
    Fault(_kind("zookeeper-pause", 1, 0.5, 9), pause_daemon("zookeeper"), needs="zookeeper"),
    Fault(
        Kind(name="zookeeper-emptied", weight=0.5, seconds=(0.0, 3.0), alone=True),
        empty_zookeeper,
        needs="zookeeper",
    ),
    Fault(
        Kind(name="registry-removed", weight=0.5, seconds=(0.0, 3.0), alone=True),
        remove_registry,
        needs="file",
    ),
    Fault(_kind("registry-part", 1, 6, 10), part_registry, needs="links"),
    Fault(_kind("publisher-kill", 1, 0, 2), kill_client("publishers")),
    Fault(_kind("publisher-pause", 1, 0.5, 6), pause_client("publishers")),
    Fault(_kind("subscriber-kill", 1, 0, 2), kill_client("subscribers")),
    Fault(_kind("subscriber-pause", 1, 0.5, 6), pause_client("subscribers"), deafens=True),
    Fault(_kind("member-kill", 2, 0, 2), kill_client("members"), needs="members"),
    Fault(_kind("member-pause", 2, 0.5, 8), pause_client("members"), needs="members", deafens=True),
    Fault(_kind("instance-kill", 3, 0, 2), kill_client("instances"), needs="requests"),
    Fault(_kind("instance-pause", 3, 3.5, 8), pause_client("instances"), needs="requests"),
    Fault(_kind("instance-cut", 3, 0.5, 12), cut_client("instances"), needs="apart"),
    Fault(_kind("requester-cut", 3, 0.5, 12), cut_client("requesters"), needs="apart"),
    Fault(_kind("requester-kill", 3, 0, 2), kill_client("requesters"), needs="requests"),
    Fault(_kind("requester-pause", 3, 3.5, 8), pause_client("requesters"), needs="requests"),
    Fault(_kind("host-kill", 2, 1, 12), kill_host, forgets=True),
    Fault(_kind("link-cut", 2, 0.5, 12), cut_link, needs="links", forgets=True, deafens=True),
    Fault(_kind("link-deaf", 1, 0.5, 10), deafen, needs="links", forgets=True, deafens=True),
    Fault(_kind("link-loss", 2, 2, 6), lose_packets, needs="links"),
    Fault(_kind("line-delay", 1, 2, 6), delay_line, needs="links"),
    Fault(_kind("line-stall", 1, 0.3, 6), stall_line, needs="links", deafens=True),
    Fault(_kind("line-cut", 1), cut_line, needs="links"),
    Fault(_kind("clock-jump", 1, 1.5, 6), jump_clock, needs="clocks"),
    Fault(_kind("disk-full", 1, 1, 5), fill_disk, needs="disks"),
)
FAULTS: Final = {fault.kind.name: fault for fault in _ALL}
