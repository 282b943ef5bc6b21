"""Writes down what the parties of a simulated queue say to each other, a line for each message.

Publishers, exchanges and subscribers are the real machines on a virtual clock; the monitor is the
one of `roq.simulation.virtual.queue`, which does what the story wants. A message stands where it
arrives, so one that is lost stands nowhere. What is left out: ids, limits, and what a story hides
because it comes again and again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final

import msgspec

from roq.model import Limits, PublisherId, monitor_epoch, publisher_epoch
from roq.protocol import channel, documents
from roq.protocol.batch import Kind, read_header
from roq.protocol.control import Assigned, Control, Relocate, Relocated, Topology
from roq.protocol.entry import NONE, EntryKind, read_entry
from roq.read.message import Batch, Gap
from roq.simulation.virtual.actors.exchange import SUBSCRIBE, UNSUBSCRIBE
from roq.simulation.virtual.actors.monitor import Listener, Monitor
from roq.simulation.virtual.actors.publisher import Publisher
from roq.simulation.virtual.actors.subscriber import Subscriber
from roq.simulation.virtual.network import Client, Connection, Frames, Network, Server
from roq.simulation.virtual.queue import QUEUE, VirtualQueue
from roq.testing.history import History

DELAY_SECONDS: Final = 0.001
REQUESTS: Final[dict[bytes, type[msgspec.Struct]]] = {
    channel.HELLO: channel.Hello,
    channel.BYE: channel.Bye,
    channel.HEADS: channel.HeadsRequest,
    channel.STREAMS: channel.StreamsRequest,
    channel.SEEK: channel.SeekRequest,
    channel.POSITION: channel.Position,
    channel.FETCH: channel.FetchRequest,
}
ANSWERS: Final[dict[bytes, type[msgspec.Struct]]] = {
    channel.READY: channel.Ready,
    channel.RESET: channel.Reset,
    channel.REFUSED: channel.Refused,
    channel.HELD: channel.Held,
    channel.HEADS: channel.Heads,
    channel.STREAMS: channel.Streams,
    channel.SEEK: channel.Seek,
    channel.POSITION: channel.Reading,
    channel.FETCH: channel.Fetched,
}
SHOWN: Final[dict[type[msgspec.Struct], tuple[str, ...]]] = {
    channel.Hello: ("epoch", "attempt", "streams"),
    channel.Bye: ("epoch",),
    channel.Ready: ("expected",),
    channel.Reset: ("expected",),
    channel.Refused: ("code", "link_number"),
    channel.Held: ("seconds",),
    channel.HeadsRequest: ("since",),
    channel.Heads: ("floor", "end", "heads"),
    channel.StreamsRequest: (),
    channel.Streams: ("streams",),
    channel.SeekRequest: ("time_us",),
    channel.Seek: ("offset", "floor", "end"),
    channel.Position: ("read", "since", "until"),
    channel.Reading: ("floor", "until", "heads"),
    channel.FetchRequest: ("wants", "first", "until"),
    channel.Fetched: ("reached", "floor", "done"),
    Assigned: ("epoch", "exchange"),
    Relocate: ("epoch", "exchanges"),
    Relocated: ("epoch", "outcome"),
    Topology: ("version", "exchanges"),
}


class Transcript(VirtualQueue):
    """A queue whose parties are heard; messages take a millisecond each.

    Args:
        hidden: lines that contain one of these texts are left out.

    Attributes:
        lines: what was said so far.
    """

    def __init__(
        self, limits: Limits | None = None, *, hidden: Collection[str] = (), seed: int = 1
    ) -> None:
        super().__init__(seed, limits or Limits())
        self.lines: list[str] = []
        self._hidden = tuple(hidden)
        self._began = self.world.now
        self.network.weather.delay_seconds = (DELAY_SECONDS, DELAY_SECONDS)
        self.network = _HeardNetwork(self)
        self.monitor = _HeardMonitor(self)
        self.history = _HeardHistory(self)

    @property
    def text(self) -> str:
        """All of it."""
        return "".join(f"{line}\n" for line in self.lines)

    def note(self, text: str) -> None:
        """What the story does next."""
        self.lines.append(f"# {text}")

    def heard(self, sender: str, receiver: str, text: str) -> None:
        """One says this to the other."""
        self._write(f"{sender:>7} → {receiver:<7} {text}")

    def happened(self, who: str, text: str) -> None:
        """One of them does this."""
        self._write(f"{who:>7}   {'':7} {text}")

    def _write(self, line: str) -> None:
        if not any(text in line for text in self._hidden):
            self.lines.append(f"{self.world.now - self._began:7.3f} {line}".rstrip())


class _HeardNetwork(Network):
    def __init__(self, transcript: Transcript) -> None:
        super().__init__(transcript.world, transcript.network.weather)
        self._transcript = transcript

    def listen(self, address: str, server: Server) -> None:
        super().listen(address, _HeardServer(self._transcript, exchange_at(address), server))

    def _connect_to(self, server: Server, client: Client) -> Connection:
        name = server.name if isinstance(server, _HeardServer) else ""
        heard = _HeardClient(self._transcript, name, name_of(client), client)
        connection = super()._connect_to(server, heard)
        if isinstance(server, _HeardServer):
            server.clients[connection] = heard.name
        return connection


class _HeardServer:
    def __init__(self, transcript: Transcript, name: str, server: Server) -> None:
        self.name = name
        self.clients: dict[Connection, str] = {}
        self._transcript = transcript
        self._server = server

    def accepted(self, connection: Connection) -> None:
        self._server.accepted(connection)

    def received(self, connection: Connection, frames: Frames) -> None:
        self._transcript.heard(self.clients[connection], self.name, said_to_exchange(frames))
        self._server.received(connection, frames)

    def disconnected(self, connection: Connection) -> None:
        self._server.disconnected(connection)


class _HeardClient:
    def __init__(self, transcript: Transcript, server: str, name: str, client: Client) -> None:
        self.name = name
        self._server_name = server
        self._transcript = transcript
        self._client = client

    def received(self, connection: Connection, frames: Frames) -> None:
        self._transcript.heard(self._server_name, self.name, said_by_exchange(frames))
        self._client.received(connection, frames)

    def disconnected(self, connection: Connection) -> None:
        there = self._server_name
        ended = f"connection to {there} has ended" if there else "no exchange listens there"
        self._transcript.happened(self.name, ended)
        self._client.disconnected(connection)


class _HeardMonitor(Monitor):
    def __init__(self, transcript: Transcript) -> None:
        super().__init__(transcript.world, transcript.network.weather, QUEUE, transcript.limits)
        self._transcript = transcript

    def enter(self, publisher: PublisherId, listener: Listener) -> None:
        super().enter(publisher, _Told(self._transcript, "pub", listener.told))

    def attach(self, publisher: PublisherId, failed: tuple[tuple[int, int], ...]) -> None:
        but = ", ".join(exchange_name(*each) for each in failed)
        self._transcript.heard("pub", "monitor", f"Attach, but not to {but or 'none'}")
        super().attach(publisher, failed)

    def relocated(self, message: Relocated) -> None:
        self._transcript.heard("pub", "monitor", shown(message))
        super().relocated(message)


class _Told:
    def __init__(self, transcript: Transcript, name: str, told: Callable[[Control], None]) -> None:
        self._transcript = transcript
        self._name = name
        self._told = told

    def told(self, message: Control) -> None:
        self._transcript.heard("monitor", self._name, shown(message))
        self._told(message)


class _HeardHistory(History):
    def __init__(self, transcript: Transcript) -> None:
        super().__init__()
        self._transcript = transcript

    def received(self, subscriber: str, batch: Batch) -> None:
        last = batch.sequence + len(batch) - 1
        self._transcript.happened(subscriber, f"delivers {batch.topic} {batch.sequence}…{last}")
        super().received(subscriber, batch)

    def gap(self, subscriber: str, gap: Gap) -> None:
        self._transcript.happened(subscriber, f"reports {gap.text}")
        super().gap(subscriber, gap)


def said_to_exchange(frames: Frames) -> str:
    """What a client says to an exchange."""
    first = frames[0]
    if first in {SUBSCRIBE, UNSUBSCRIBE}:
        word = "subscribe" if first == SUBSCRIBE else "unsubscribe"
        return f"{word} {topic_text(frames[1])}"
    if first in REQUESTS:
        return shown(documents.decode(frames[1], REQUESTS[first]))
    return f"batch {batch_text(first, frames[1])}"


def said_by_exchange(frames: Frames) -> str:
    """What an exchange says to a client, by either socket."""
    first = frames[0]
    if first == channel.ACK:
        return f"Ack {channel.read_number(frames[1])}"
    if first == channel.FETCHED_ENTRY:
        return f"fetched {entry_text(frames[2:])}"
    if first in ANSWERS:
        return shown(documents.decode(frames[1], ANSWERS[first]))
    return f"live {entry_text(frames)}"


def entry_text(frames: Frames) -> str:
    """An entry of the log, and its batch if that came."""
    topic, frame, *batch = frames
    entry = read_entry(frame)
    kind = EntryKind(entry.kind).name
    if kind in {"END", "PRESENCE"}:
        return f"{kind} at {entry.offset}"
    before = "" if entry.previous == NONE else f" after {entry.previous}"
    return f"{kind} {entry.offset}{before}: {batch_text(topic, batch[0]) if batch else ''}"


def batch_text(topic: bytes, data: bytes) -> str:
    """A batch: link number, topic, sequences; what it is if it is no data."""
    header = read_header(data)
    kind = "" if header.kind == Kind.DATA else f" {Kind(header.kind).name}"
    last = f"…{header.next_sequence - 1}" if header.count else ""
    numbers = f"{epoch_text(header.epoch)}/{header.link_number}"
    return f"{numbers}{kind} {topic_text(topic)} {header.first_sequence}{last}"


def shown(message: msgspec.Struct) -> str:
    """A document by its name and what matters of it."""
    told = ((name, getattr(message, name)) for name in SHOWN[type(message)])
    fields = (
        f"{name}={epoch_text(value) if name == 'epoch' else value_text(value)}"
        for name, value in told
    )
    return " ".join([type(message).__name__, *fields])


def value_text(value: object) -> str:
    """A field as people read it; ids are left out."""
    match value:
        case bytes():
            return topic_text(value)
        case list():
            return f"[{', '.join(value_text(each) for each in value)}]"
        case channel.StreamState(topic=topic, first=first):
            return f"{topic_text(topic)}:{first}"
        case (bytes(publisher), *rest) if len(publisher) == 16 and len(rest) == 2:
            return value_text(tuple(rest))
        case tuple():
            return ":".join(value_text(each) for each in value)
        case _:
            number, epoch = getattr(value, "number", None), getattr(value, "epoch", None)
            return str(value) if number is None else exchange_name(number, epoch)


def epoch_text(epoch: int) -> str:
    """The epoch of a publisher: that of the monitor, and how many it has given."""
    monitor = monitor_epoch(epoch)
    return f"{monitor}.{epoch - publisher_epoch(monitor, 0)}" if epoch else "none"


def topic_text(topic: bytes) -> str:
    """A topic; a control topic by its letter, without what is drawn by chance."""
    return f"<{topic[1:2].decode()}>" if topic[:1] == b"\xff" else topic.decode() or "everything"


def exchange_name(number: int, epoch: object) -> str:
    """An exchange and its life."""
    return f"x{number}.{epoch}"


def exchange_at(address: str) -> str:
    """The exchange with this address, which the simulation makes of number and epoch."""
    _, number, epoch = address.split("-")
    return exchange_name(int(number), epoch)


def name_of(client: Client) -> str:
    """Who this is."""
    if isinstance(client, Publisher):
        return "pub"
    return client.name if isinstance(client, Subscriber) else "client"
