"""Takes batches in: the hot path of the exchange, and what becomes of batches out of the ordinary.

Per link the batches 1, 2, 3… each get into the log once and in this order: the expected one is
appended, an older one is acknowledged again, a gap asks for a replay, and one that is not
acceptable is refused by its number, whereupon the publisher puts a VOID in its place. A VOID is
never refused: one that the log does not take is acknowledged without a place in it.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Final, Generic, TypeVar, cast

from roq.errors import RemoteProtocolError
from roq.exchange.backpressure import TAKE_NONE, Backpressure
from roq.exchange.commit import CommitGate, SyncGate, Uncommitted
from roq.exchange.counters import Counters
from roq.exchange.delayed_messages import DelayedMessages
from roq.exchange.disk_room import DiskRoom
from roq.exchange.events import Effect, Send
from roq.exchange.links import Link, LinkTable, owner_of
from roq.exchange.publishers import Publishers
from roq.exchange.readers import refusal
from roq.exchange.subscriptions import Subscriptions
from roq.log.log import Log
from roq.model import Limits
from roq.number_ranges import TIME_US_MAX
from roq.protocol import documents
from roq.protocol.batch import (
    HEADER,
    HEADER_BYTES,
    MAGIC,
    SEQUENCE_MAX,
    Header,
    Kind,
    read_header,
)
from roq.protocol.channel import HELD, HELD_SECONDS_MAX, RESET, Held, Reset
from roq.protocol.delayed import DELAYED_TOPIC
from roq.protocol.version import WIRE_VERSION
from roq.timing import (
    ACK_SILENCE_SECONDS,
    RESET_ASK_SECONDS,
    RESET_REPEAT_SECONDS,
)

B = TypeVar("B")

PROBE_PARTS: Final = 2
"""Calls of `probe` in which all links have their turn."""
ASK_LOOK_SECONDS: Final = 0.05
"""Between looks whether a publisher may be asked by now."""
STRANGERS_MAX: Final = 1_024
SEQUENCE_JUMP_MAX: Final = 1 << 48
"""A publisher may have sent so many messages of a topic to other exchanges in between: nine years
at a million a second."""
BATCH_SLACK_BYTES: Final = 64 * 1024
"""What msgpack and extensions may add to the payloads of a batch."""

# The fields of a batch that the hot path needs; publisher and epoch are compared in one go.
_HOT: Final = Struct("<6sHI4x24sQQQ")
_PLAIN: Final = MAGIC + bytes((WIRE_VERSION, Kind.DATA, 0, 0))
_unpack = cast("Callable[[object], tuple[bytes, int, int, bytes, int, int, int]]", _HOT.unpack_from)

assert _HOT.size == HEADER.size  # noqa: S101 - one layout, read in two ways


def batch_bytes_max(limits: Limits) -> int:
    """The largest batch that an exchange takes: a batch that was not full yet, plus one message."""
    return limits.message_bytes + limits.batch_bytes + BATCH_SLACK_BYTES


class Intake(Generic[B]):
    """From a batch to the log, an acknowledgement or a refusal."""

    def __init__(
        self,
        limits: Limits,
        log: Log[B | bytes],
        memory: Log[B | bytes],
        gate: CommitGate[B | bytes],
        links: LinkTable,
        publishers: Publishers[B],
        subscriptions: Subscriptions,
        counters: Counters,
        backpressure: Backpressure[B | bytes],
        later: DelayedMessages[B],
        disk: DiskRoom,
        uncommitted: Uncommitted[B | bytes] | None = None,
        sync_gate: SyncGate[B | bytes] | None = None,
    ) -> None:
        self._log = log
        self._memory = memory
        self._log_append = log.append
        self._gate = gate
        self._backpressure = backpressure
        self._delayed = later
        self._disk = disk
        self._uncommitted = uncommitted
        """None: the log commits what it accepts."""
        self._sync_gate = sync_gate
        self._committed_seen = log.committed
        self._stuck_since: float | None = None
        """Since when nothing that waits for the disk was committed, as far as was looked."""
        self._links = links
        self._routes = links.routes
        self._publishers = publishers
        self._copies = subscriptions.copies
        self._counters = counters
        self._count_max = limits.batch_messages
        self._bytes_max = batch_bytes_max(limits)
        self._fast_bytes = self._bytes_max
        """Larger ones get a closer look."""
        self._waits = False
        """Whether a link waits for room."""
        self._ask_at = 0.0
        self._now = 0.0
        self._acks: list[Link] = []
        self._answers: list[Effect] = []
        self._strangers: dict[bytes, float] = {}
        self._probe_part = 0

    def begin(self, now: float) -> None:
        """What follows happens at this time."""
        self._now = now
        if self._memory.gone + self._memory.kept >= self._backpressure.look_at:
            self._backpressure.look()
        self.look()

    def look(self) -> None:
        """Follow what `backpressure` has found."""
        fast_bytes = min(self._bytes_max, self._backpressure.fast_bytes)
        relieved = not self._backpressure.near
        if self._uncommitted is not None:
            fast_bytes = min(fast_bytes, self._uncommitted.fast_bytes)
            relieved = self._uncommitted.relieved() and relieved
        elif self._disk.retired:
            fast_bytes, relieved = TAKE_NONE, False
        self._fast_bytes = fast_bytes
        if self._waits and relieved and self._now >= self._ask_at:
            self._ask_again()

    def append(self, route: bytes, topic: bytes, batch: B, size: int) -> bytes | None:
        """Take one batch in.

        Args:
            route: the connection that it came from.
            topic: its first frame.
            batch: its second frame: bytes, or anything else with a buffer.
            size: bytes of the batch.

        Returns:
            The entry frame under which to publish it, or None if it is not to be published. What
            the publisher is told comes out of `take_acks` and `take_answers`.
        """
        link = self._routes.get(route)
        if link is None or size < HEADER_BYTES:
            return self._closer_look(route, link, topic, batch, size)
        prefix, ext_bytes, count, owner, number, first, created_us = _unpack(batch)
        if (
            number != link.expected
            or owner != link.owner
            or prefix != _PLAIN
            or not 0 < count <= self._count_max
            or size > self._fast_bytes
            or HEADER_BYTES + ext_bytes > size
            or first > SEQUENCE_MAX - count
            or created_us > TIME_US_MAX
        ):
            return self._closer_look(route, link, topic, batch, size)
        return self._take(link, topic, batch, size, first + count, count)

    def take_acks(self) -> list[Link]:
        """The links that are due an ack up to `committed`; some may have lost their connection."""
        if self._memory.gone + self._memory.kept >= self._backpressure.look_at:
            self.begin(self._now)
        if self._backpressure.near:
            return []
        links = self._acks
        if links:
            self._acks = []
            for link in links:
                link.owes_ack = False
        due = self._gate.release(links)
        for link in due:
            link.acked_at = self._now
        if self._sync_gate is not None:
            self._sync_gate.acknowledged(due)
        return due

    def take_answers(self) -> list[Effect]:
        """What else publishers are to be told since the last call."""
        answers = self._answers
        if answers:
            self._answers = []
        return answers

    def ack_later(self, link: Link) -> None:
        """The publisher does not read: acks add up, so a later one will say it all."""
        self._counters.acks_skipped += 1
        link.acked_at = self._now - ACK_SILENCE_SECONDS

    def probe(self) -> None:
        """Owe an ack to those links, out of a part of all, that have not had one for long."""
        self._probe_part = (self._probe_part + 1) % PROBE_PARTS
        for link in list(self._links)[self._probe_part :: PROBE_PARTS]:
            if link.route is not None and self._now - link.acked_at >= ACK_SILENCE_SECONDS:
                self._owe_ack(link)

    def look_who_waits(self) -> None:
        """Those who had no room and have gone leave nobody waiting."""
        if self._waits and not any(
            link.waits and not link.left and link.route is not None for link in self._links
        ):
            self._backpressure.nothing_waits()

    def tell_held(self) -> list[Effect]:
        """Tell the publishers that wait for their acks, or for room, why."""
        slowest = self._backpressure.slowest
        since = self._disk_stuck_since()
        if since is not None:
            waited = min(self._now - since, HELD_SECONDS_MAX)
            full = "" if self._uncommitted is None else self._uncommitted.why_full
            return [
                Send(link.route, (HELD, documents.encode(Held(
                    reader=b"", seconds=waited, most=0.0, disk=True, full=full,
                    accepted=link.expected - 1,
                ))))
                for link in self._links
                if link.route is not None and (
                    link.owes_ack or link.waits or link.committed < link.expected - 1
                )
            ]  # fmt: skip
        if self._backpressure.near and slowest is not None:
            held = Held(
                reader=slowest.name,
                seconds=min(max(slowest.waited, slowest.owes), HELD_SECONDS_MAX),
                most=self._backpressure.seconds,
                group=slowest.patient,
            )
        else:
            return []
        frames = (HELD, documents.encode(held))
        return [
            Send(link.route, frames)
            for link in self._links
            if link.route is not None and (link.owes_ack or link.waits)
        ]

    def _disk_stuck_since(self) -> float | None:
        """Since when publishers wait for the disk; None: they do not."""
        if self._uncommitted is None:
            return None
        committed = self._log.committed
        if committed != self._committed_seen or committed >= self._log.end:
            self._committed_seen, self._stuck_since = committed, None
        elif self._stuck_since is None:
            self._stuck_since = self._now  # a tick ago nothing was different: tell it at the next
            return self._uncommitted.waiting_since
        since = self._uncommitted.waiting_since
        return self._stuck_since if since is None else since

    def welcome(self, route: bytes) -> None:
        """The publisher has said Hello."""
        self._strangers.pop(route, None)

    def check(self) -> None:
        """Assert the invariants."""
        self._gate.check()
        if self._uncommitted is not None:
            self._uncommitted.check()
        if self._sync_gate is not None:
            self._sync_gate.check()
        assert len({id(link) for link in self._acks}) == len(self._acks)  # noqa: S101
        assert all(link.owes_ack for link in self._acks)  # noqa: S101
        assert len(self._strangers) <= STRANGERS_MAX  # noqa: S101

    def _take(
        self, link: Link, topic: bytes, batch: B, size: int, after: int, count: int
    ) -> bytes | None:
        hidden = topic == DELAYED_TOPIC
        if hidden and self._refuses(link, batch):
            return None
        stream = link.streams.get(topic)
        if stream is None:
            try:
                stream = self._publishers.new_stream(link, topic)
            except RemoteProtocolError as error:
                self._counters.malformed += 1
                self._refuse(link, batch, "malformed", str(error))
                return None
        if stream is not None and after - stream.next > SEQUENCE_JUMP_MAX:
            self._too_far(link, batch, stream.next, after)
            return None
        # With the table's own copy of the name, so that the log keeps each name once.
        frame = None if stream is None else self._log_append(stream.topic, batch, size)
        if stream is None or frame is None:
            if stream is not None:
                frame = self._publishers.append_spare(link, stream, batch, size)
            if stream is None or frame is None:
                self._refuse(link, batch, "topics", self._publishers.no_topic(link))
                return None
        if after > stream.next:  # noqa: PLR1730 - max() is a call, and this is the hot path
            stream.next = after
        if link.places is not None:
            link.places.add(link.expected, self._log.end - 1)
        link.expected += 1
        link.messages += count
        link.batches += 1
        link.bytes += size
        copies = self._copies(topic)
        counters = self._counters
        counters.messages_out += copies * count
        counters.bytes_out += copies * size
        if not link.owes_ack:
            link.owes_ack = True
            self._acks.append(link)
        if hidden:
            self._delayed.accept(self._log.end - 1)
            return None
        return frame

    def _closer_look(
        self, route: bytes, link: Link | None, topic: bytes, batch: B, size: int
    ) -> bytes | None:
        try:
            header = read_header(cast("bytes", batch))
        except RemoteProtocolError as error:
            self._unreadable(route, link, batch, size, error)
            return None
        if link is not None and link.left and header.publisher == link.publisher:
            self._moved(link, header.epoch)
        elif link is None or owner_of(header.publisher, header.epoch) != link.owner:
            self._stranger(route)
        elif header.link_number < link.expected:
            self._counters.duplicates += 1
            self._owe_ack(link)
        elif header.link_number > link.expected:
            self._gap(link, header.link_number)
        elif not self._has_room(link, size):
            pass
        elif self._acceptable(link, header, batch, size):
            count = 0 if header.kind == Kind.VOID else header.count
            return self._take(link, topic, batch, size, header.next_sequence, count)
        return None

    def _acceptable(self, link: Link, header: Header, batch: B, size: int) -> bool:
        if size > self._bytes_max:
            text = f"a batch has at most {self._bytes_max} bytes, not {size}"
            self._refuse(link, batch, "too_large", text)
        elif header.kind == Kind.DATA and header.count > self._count_max:
            text = f"a batch has at most {self._count_max} messages, not {header.count}"
            self._refuse(link, batch, "too_large", text)
        elif header.created_us > TIME_US_MAX and header.kind == Kind.DATA:
            self._counters.malformed += 1
            text = f"a batch cannot have been made {header.created_us} µs after 1970"
            self._refuse(link, batch, "malformed", text)
        elif header.kind not in {Kind.DATA, Kind.VOID}:
            self._counters.malformed += 1
            text = "markers and fences are the exchange's to write"
            self._refuse(link, batch, "malformed", text)
        else:
            return True
        return False

    def _unreadable(
        self, route: bytes, link: Link | None, batch: B, size: int, error: RemoteProtocolError
    ) -> None:
        self._counters.malformed += 1
        number = 0
        code = "malformed"
        if size >= HEADER_BYTES:
            prefix, _, _, owner, claimed, _, _ = _unpack(batch)
            if prefix[:2] == MAGIC and prefix[2] != WIRE_VERSION:
                code = "version"
            elif link is not None and owner == link.owner and claimed == link.expected:
                number = claimed
                self._await_replay(link)
        self._answers.append(refusal(route, code, str(error), number))

    def _moved(self, link: Link, epoch: int) -> None:
        """It publishes elsewhere by now; told once, however much was on its way."""
        if link.route is None or link.told:
            return
        link.told = True
        self._counters.refused_batches += 1
        text = f"epoch {epoch} has been passed by {link.epoch}"
        self._answers.append(refusal(link.route, "moved", text, addresses=link.addresses))

    def _stranger(self, route: bytes) -> None:
        """This peer has to say Hello on a new connection; told once a second."""
        self._counters.without_hello += 1
        if self._now - self._strangers.get(route, float("-inf")) < RESET_REPEAT_SECONDS:
            return
        if len(self._strangers) >= STRANGERS_MAX:
            self._strangers.clear()
        self._strangers[route] = self._now
        self._reset(route, 0, "say Hello first")

    def _has_room(self, link: Link, size: int) -> bool:
        """Whether the slowest reader leaves room for it, and the disk if there is one.

        If not, it is asked for again later.
        """
        if self._uncommitted is None:
            disk = not self._disk.retired
        else:
            disk = self._uncommitted.room(size, self._now)
        if disk and self._backpressure.room(size):
            link.waits = False
            return True
        if not link.waits:
            link.waits = self._waits = True
            self._counters.held_batches += 1
        if not disk:
            return False
        if not self._backpressure.near:
            self._backpressure.near = self._backpressure.end_due = True
            self._fast_bytes = self._backpressure.fast_bytes
        return False

    def _ask_again(self) -> None:
        """There is room again for what there was none for."""
        self._waits = False
        for link in self._links:
            if not link.waits:
                continue
            if link.route is None:
                link.waits = False
            elif (
                link.reset_for == link.expected and self._now - link.reset_at < RESET_ASK_SECONDS
            ):  # it was asked for the same a moment ago, and there was no room once more
                self._waits = True
            else:
                link.waits = False
                self._await_replay(link)
                self._reset(link.route, link.expected, "there is room again")
        self._ask_at = self._now + ASK_LOOK_SECONDS if self._waits else 0.0

    def _gap(self, link: Link, number: int) -> None:
        if link.waits:
            return
        # One gap is told once, or each batch behind it would have all of them sent again.
        told = link.reset_for == link.expected
        if link.route is None or (told and self._now - link.reset_at < RESET_REPEAT_SECONDS):
            return
        self._await_replay(link)
        self._reset(link.route, link.expected, f"batch {number} came before {link.expected}")

    def _reset(self, route: bytes, expected: int, text: str) -> None:
        self._counters.resets += 1
        document = documents.encode(Reset(expected=expected, text=text))
        self._answers.append(Send(route, (RESET, document)))

    def _refuse(self, link: Link, batch: B, code: str, text: str) -> None:
        if read_header(cast("bytes", batch)).kind == Kind.VOID:
            self._counters.voids_dropped += 1
            link.expected += 1
            self._owe_ack(link)
            return
        self._counters.refused_batches += 1
        self._await_replay(link)
        if link.route is not None:
            self._answers.append(refusal(link.route, code, text, link.expected))

    def _refuses(self, link: Link, batch: B) -> bool:
        """Whether these delayed messages are refused, which is told then."""
        refused = self._delayed.why_not(batch)
        if refused is not None:
            self._refuse(link, batch, *refused)
        return refused is not None

    def _too_far(self, link: Link, batch: B, last: int, after: int) -> None:
        """No publisher has sent so much elsewhere: readers would count all of it as lost."""
        self._counters.malformed += 1
        text = f"sequence {after - 1} is too far above {last}, the next one of this topic"
        self._refuse(link, batch, "malformed", text)

    def _owe_ack(self, link: Link) -> None:
        if not link.owes_ack:
            link.owes_ack = True
            self._acks.append(link)

    def _await_replay(self, link: Link) -> None:
        link.reset_for = link.expected
        link.reset_at = self._now
