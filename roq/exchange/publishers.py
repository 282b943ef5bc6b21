"""Lets publishers in and out: Hello, Bye, Passed, what they find recorded, when they are forgotten.

A Hello is refused for another version, another queue, an epoch that has been passed, and when the
table is full. An accepted one leaves the log in a state from which every reader knows where each of
the publisher's streams stands: a MARKER, or a FENCE at the beginning of a new epoch, is appended
where the log does not show it yet.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Final, Generic, TypeVar, cast

import msgspec

from roq.errors import RemoteProtocolError
from roq.exchange.commit import CommitGate, LateLog, left_since
from roq.exchange.counters import Counters
from roq.exchange.events import Effect, Passed, Publish, Send
from roq.exchange.links import Link, LinkTable, Places
from roq.exchange.readers import refusal
from roq.exchange.snapshot import PublisherState
from roq.log.log import Log
from roq.log.moved_publishers import MovedPublishers
from roq.log.streams import Stream, StreamTable, few_of
from roq.model import PUBLISHER_ID_BYTES, TOPIC_BYTES_MAX, Limits, PublisherId
from roq.protocol import documents
from roq.protocol.batch import (
    HEADER_BYTES,
    SEQUENCE_MAX,
    Kind,
    pack_empty,
    pack_logs,
    read_header,
    read_logs,
)
from roq.protocol.channel import (
    ACK,
    CLAIM,
    CONTROL,
    EARLIER_IDS_MAX,
    READY,
    STREAMS_PER_HELLO_MAX,
    Bye,
    Claim,
    Claimed,
    Hello,
    Ready,
    Run,
    StreamState,
)
from roq.protocol.delayed import DELAYED_TOPIC
from roq.protocol.version import WIRE_VERSION, other_version

B = TypeVar("B")

RUNS_KEPT: Final = 1 << 14
"""Of places of batches stand in a snapshot, of all publishers; of each `RUNS_LEAST` in any case."""
RUNS_LEAST: Final = 4
EXPIRE_AT_ONCE: Final = 1_000
"""Publishers that are forgotten in one go at most."""
FENCED: Final = "another publisher of this name was opened later: this one is to end"
_U63: Final = (1 << 63) - 1


class RefusedHello(Exception):
    """A Hello that is not accepted; code and sentence go to the publisher."""

    def __init__(self, code: str, text: str, addresses: tuple[str, ...] = ()) -> None:
        super().__init__(text)
        self.code = code
        self.addresses = addresses


class Publishers(Generic[B]):
    """The publishing half of the exchange core, beside the hot path."""

    def __init__(
        self,
        ready: Ready,
        queue: bytes,
        limits: Limits,
        log: Log[B | bytes],
        gate: CommitGate[B | bytes],
        links: LinkTable,
        streams: StreamTable,
        counters: Counters,
        stays: MovedPublishers,
        late: LateLog[B | bytes] | None = None,
    ) -> None:
        self._ready = ready
        self._stays = stays
        self._queue = queue
        self._limits = limits
        self._log = log
        self._gate = gate
        self._links = links
        self._streams = streams
        self._counters = counters
        self._late = late
        self._few_topics = few_of(limits.topics)
        self.stopping = False
        """No Hello is accepted any more."""

    def snapshot(self) -> list[PublisherState]:
        """Links and streams as they stand, for `recover`."""
        streams = dict(self._streams)
        known = {link.publisher: link for link in self._links}
        runs = max(RUNS_LEAST, RUNS_KEPT // max(1, len(known)))
        return [
            _state(each, known.get(each), streams.get(each, {}), self._stays, runs)
            for each in streams | known
        ]

    def recover(
        self, now: float, publishers: Sequence[PublisherState] = (), since: int = 0
    ) -> None:
        """Learn what an earlier process has taken: links and streams as they stood.

        What stands neither in the snapshot nor in the log is not known any more: who published only
        there begins anew.

        Args:
            publishers: what `snapshot` gave; nothing: there is none.
            since: where the log ended at that time.

        Raises:
            RemoteProtocolError: the log holds what is no batch.
            LogRefused: it cannot be read at the moment.
        """
        for state in publishers:
            self._restore(state, now)
        for offset, record in left_since(self._log, since):
            if record is None:
                continue
            topic, _, batch, _ = record
            header = read_header(cast("bytes", batch))
            if not header.link_number and header.kind == Kind.DATA:  # of an exchange itself
                self._stands(header.publisher, topic.name, header.next_sequence)
                continue
            link = self._known(header.publisher, now)
            if header.kind > Kind.VOID:
                logs = read_logs(cast("bytes", batch)[HEADER_BYTES:])
                self._stays.came(header.publisher, header.epoch, logs)
            if header.epoch > link.epoch or (link.left and header.epoch == link.epoch):
                self._begin(link, header.epoch, offset)
            if header.link_number and header.epoch == link.epoch:
                link.expected = header.link_number + 1
                link.committed = header.link_number
                if link.places is None:
                    link.places = Places(self._limits.window_batches)
                link.places.add(header.link_number, offset)
            self._stands(header.publisher, topic.name, header.next_sequence)

    def _restore(self, state: PublisherState, now: float) -> None:
        """A link and its streams stand as they did."""
        publisher = PublisherId(state.publisher)
        present = 0 if state.left else max(0, state.epoch)
        self._stays.recover(publisher, state.before, state.ends, present)
        if state.epoch >= 0:
            link = self._known(publisher, now)
            link.begin(state.epoch)
            link.expected = state.expected
            link.committed = state.expected - 1
            link.incarnation = state.incarnation
            if state.places:  # whether it wants to know is told by its next Hello
                link.places = Places(self._limits.window_batches, state.places)
            if state.left:
                link.leave(state.epoch)
                link.addresses = state.addresses
        for name, following in state.streams:
            self._stands(publisher, name, following)

    def _known(self, publisher: PublisherId, now: float, but: Container[PublisherId] = ()) -> Link:
        link = self._links.get(publisher)
        if link is None:
            self._make_room(but)
            link = Link(publisher, {}, now)
            self._links.add(link)
        return link

    def _stands(self, publisher: PublisherId, topic: bytes, following: int) -> None:
        """A stream has come so far, and its publisher is not here."""
        stream = self._streams.of(publisher).get(topic)
        if stream is None:
            stream = self._streams.add(publisher, topic)
        if stream is not None:
            stream.next = max(stream.next, following)
        self._streams.left(publisher)

    def hello(self, route: bytes, document: bytes, now: float) -> list[Effect]:
        """A connection says who it is."""
        try:
            hello = self._read_hello(document)
            link, fresh = self._admit(hello, now)
        except RemoteProtocolError as error:
            self._counters.malformed += 1
            return [refusal(route, "malformed", str(error))]
        except RefusedHello as error:
            self._counters.refused_hellos += 1
            return [refusal(route, error.code, str(error), addresses=error.addresses)]
        other = self._links.routes.get(route)
        if other is not None and other is not link:
            self.disconnect(other)
        self._links.connect(link, route, now)
        passed = fresh and link.epoch >= 0
        if fresh:
            self._begin(link, hello.epoch, self._log.end)
        self._stays.came(link.publisher, hello.epoch, hello.logs)
        link.attempt = hello.attempt
        if hello.incarnation > link.incarnation:
            # It claimed the name where this exchange did not hear it: the log is to say so before
            # it says anything else of this publisher.
            link.incarnation = hello.incarnation
            link.claimed = 0 if self._late is None else self._late.want_snapshot()
        link.left = False
        link.addresses = ()
        link.reset_for = 0
        link.waits = False
        link.acked_at = now  # Ready says what has come
        link.streams = self._streams.of(link.publisher)
        if not hello.places:
            link.places = None
        elif link.places is None:
            link.places = Places(self._limits.window_batches)
        effects: list[Effect] = []
        for state in hello.streams:
            effects += self._show(link, state, fresh=fresh, passed=passed)
        expected = self._gate.reached(link) + 1
        ready = msgspec.structs.replace(
            self._ready, expected=expected, taken=link.expected - 1,
            places=_places(link, hello.places, expected - 1),
        )  # fmt: skip
        return [*effects, Send(route, (READY, documents.encode(ready)))]

    def claim(self, route: bytes, document: bytes, now: float) -> list[Effect]:
        """A named publisher was opened: earlier ones are to end, and it hears how far they came.

        Asked again it is told the same, and whether that is on the disk by now: how far its streams
        came, and that earlier ones are refused. What others publish meanwhile does not count.
        """
        try:
            claim = self._read_claim(document)
            names = [PublisherId(each) for each in (claim.publisher, *claim.earlier)]
            links = [self._claimed(each, now, names) for each in names]
        except RemoteProtocolError as error:
            self._counters.malformed += 1
            return [refusal(route, "malformed", str(error))]
        except RefusedHello as error:
            return [refusal(route, error.code, str(error))]
        effects: list[Effect] = []
        outdated = [link for link in links if claim.incarnation > link.incarnation]
        snapshot = self._late.want_snapshot() if outdated and self._late is not None else 0
        for link in outdated:
            if link.route is not None:
                effects.append(refusal(link.route, "fenced", FENCED))
                self.disconnect(link)
            link.incarnation = claim.incarnation
            link.claimed = snapshot
        claimed = Claimed(
            incarnation=max(link.incarnation for link in links),
            streams=self._ends(links[:1]),
            committed=self._late is None or self._late.told >= max(link.claimed for link in links),
            earlier=self._ends(links[1:]),
            log=self._stays.own,
        )
        for link in links:
            if link.route is None:
                self._streams.left(link.publisher)
        return [*effects, Send(route, (CLAIM, documents.encode(claimed)))]

    def _claimed(self, publisher: PublisherId, now: float, names: Container[PublisherId]) -> Link:
        """The link of one of these, which are claimed together: none makes room for another."""
        link = self._links.get(publisher)
        if link is None:
            link = self._known(publisher, now, but=names)
            link.begin(0)
        link.seen = now
        return link

    def _ends(self, links: Sequence[Link]) -> list[tuple[bytes, int]]:
        """Topic by topic, the sequence after the highest one of any of these publishers."""
        ends: dict[bytes, int] = {}
        for link in links:
            for stream in self._streams.of(link.publisher).values():
                ends[stream.topic] = max(stream.next, ends.get(stream.topic, 0))
        return list(ends.items())

    def bye(self, route: bytes, document: bytes, now: float) -> list[Effect]:
        """A publisher leaves; a Bye that does not fit its link is not acted upon."""
        try:
            bye = documents.decode(document, Bye)
        except RemoteProtocolError as error:
            self._counters.malformed += 1
            return [refusal(route, "malformed", str(error))]
        link = self._links.routes.get(route)
        if link is None or link.publisher != bye.publisher:
            self._counters.malformed += 1
            return [refusal(route, "malformed", "Bye without the Hello of this publisher")]
        # What it sent just before is acknowledged here: afterwards there is no connection to do so.
        last_ack = Send(route, (ACK, link.acknowledgement(self._gate.reached(link))))
        self.disconnect(link)
        link.seen = now
        if link.epoch < bye.epoch <= _U63:
            self._ended(link, self._log.end)
            link.leave(bye.epoch)
        return [last_ack]

    def passed(self, event: Passed) -> None:
        """The monitor says that a publisher has left; a lower or equal epoch is old news.

        Who is not known here has nothing to be refused.
        """
        link = self._links.get(event.publisher)
        if link is None or not link.epoch <= event.epoch <= _U63:
            return
        if link.epoch == event.epoch:
            if link.left:
                link.addresses = event.addresses
            return
        # The connection stays until the Bye, so that what it still carries can be refused.
        self._ended(link, self._log.end)
        link.leave(event.epoch)
        link.addresses = event.addresses

    def _begin(self, link: Link, epoch: int, end: int) -> None:
        """A publisher publishes here under this epoch, from this offset on."""
        self._ended(link, end)
        link.begin(epoch)
        self._stays.began(link.publisher, epoch, end)

    def _ended(self, link: Link, end: int) -> None:
        """Whatever a publisher has sent under its present epoch lies below this offset."""
        if link.epoch > 0 and not link.left:
            self._stays.ended(link.publisher, link.epoch, end)

    def disconnect(self, link: Link) -> None:
        """Its connection is gone; the publisher may come back within the time of a link."""
        self._links.disconnect(link)
        self._streams.left(link.publisher)

    def expire(self, now: float) -> None:
        """Forget who has been away for too long."""
        for link in self._links.expired(now, EXPIRE_AT_ONCE):
            self._forget(link)

    def new_stream(self, link: Link, topic: bytes) -> Stream | None:
        """A stream for a topic that this publisher has not used before; None if there is no room.

        Raises:
            RemoteProtocolError: no topic.
        """
        check_topic(topic)
        if not self._log.make_room(topic, spare=len(link.streams) < self._few_topics):
            return None
        return self._streams.add(link.publisher, topic)

    def append_spare(self, link: Link, stream: Stream, batch: B | bytes, size: int) -> bytes | None:
        """What the ring refused, on a topic of the part that is kept for publishers with few."""
        if len(link.streams) > self._few_topics:
            return None
        return self._log.append_spare(stream.topic, batch, size)

    def no_topic(self, link: Link) -> str:
        """Tells a publisher why its new topic is refused, and what to do."""
        text = f"this exchange remembers {self._limits.topics} topics at most"
        if len(link.streams) >= self._few_topics:
            text += (
                f", and keeps the last of them for publishers with fewer than {self._few_topics}, "
                f"while this one has {len(link.streams)}"
            )
        return f"{text}: use fewer topics, or a queue whose limit `topics` is higher"

    def _read_hello(self, document: bytes) -> Hello:
        raw = documents.decode_raw(document)
        if raw.get("version") != WIRE_VERSION:
            raise RefusedHello(
                "version", other_version("the publisher", raw.get("version"), "this exchange")
            )
        hello = documents.convert(raw, Hello)
        if len(hello.publisher) != PUBLISHER_ID_BYTES:
            raise RemoteProtocolError(f"a publisher id has {PUBLISHER_ID_BYTES} bytes")
        if not (0 <= hello.epoch <= _U63 and 0 <= hello.attempt <= _U63):
            raise RemoteProtocolError("epoch or attempt is out of range")
        if len(hello.streams) > STREAMS_PER_HELLO_MAX:
            raise RemoteProtocolError(f"a Hello names at most {STREAMS_PER_HELLO_MAX} streams")
        for state in hello.streams:
            check_topic(state.topic)
            if not 0 <= state.first <= SEQUENCE_MAX or state.idle_us < 0:
                raise RemoteProtocolError("position of a stream is out of range")
        return hello

    def _read_claim(self, document: bytes) -> Claim:
        claim = documents.decode(document, Claim)
        if any(len(each) != PUBLISHER_ID_BYTES for each in (claim.publisher, *claim.earlier)):
            raise RemoteProtocolError(f"a publisher id has {PUBLISHER_ID_BYTES} bytes")
        if len(claim.earlier) > EARLIER_IDS_MAX:
            raise RemoteProtocolError(f"a claim names at most {EARLIER_IDS_MAX} earlier ids")
        if claim.queue != self._queue:
            raise RefusedHello("foreign_queue", "this exchange serves another queue")
        return claim

    def _admit(self, hello: Hello, now: float) -> tuple[Link, bool]:
        """The link that this Hello gets, and whether its epoch is new here."""
        if hello.queue != self._queue:
            raise RefusedHello(
                "foreign_queue", "this exchange serves another queue: ask for the queue again"
            )
        publisher = PublisherId(hello.publisher)
        link = self._links.get(publisher)
        if link is not None and hello.incarnation < link.incarnation:
            raise RefusedHello("fenced", FENCED)
        if link is not None and hello.epoch < link.epoch:
            text = f"epoch {hello.epoch} has been passed by {link.epoch}"
            if link.left:
                raise RefusedHello("moved", text, link.addresses)
            raise RefusedHello("stale_epoch", text)
        if link is not None and hello.epoch == link.epoch and hello.attempt < link.attempt:
            raise RefusedHello("stale_epoch", "a newer connection of this publisher has the link")
        if 0 < hello.epoch <= self._stays.over(publisher):
            # Its link numbers would begin again under the same epoch, over what it has sent.
            raise RefusedHello(
                "forgotten", f"this exchange has forgotten epoch {hello.epoch}: ask for another one"
            )
        if self.stopping:
            raise RefusedHello("stopping", "this exchange is being stopped: ask for another one")
        if link is None:
            self._make_room()
            link = Link(publisher, {}, now)
            self._links.add(link)
            return link, True
        return link, hello.epoch > link.epoch or link.left

    def _make_room(self, but: Container[PublisherId] = ()) -> None:
        if not self._links.full():
            return
        oldest = self._links.longest_away(but)
        if oldest is None:
            raise RefusedHello(
                "full", f"{self._limits.publishers} publishers are here already: ask for another"
            )
        self._forget(oldest)

    def _forget(self, link: Link) -> None:
        self._ended(link, self._log.end)
        self.disconnect(link)
        self._links.forget(link)
        self._counters.messages += link.messages
        self._counters.bytes += link.payload_bytes

    def _show(self, link: Link, state: StreamState, *, fresh: bool, passed: bool) -> list[Effect]:
        """Append where this stream stands, unless the log shows it already."""
        stream = link.streams.get(state.topic)
        fence = fresh and (state.first > 0 or (passed and stream is not None))
        shown = state.first == 0 if stream is None else stream.next >= state.first
        if shown and not fence:
            return []
        if stream is None:
            stream = self.new_stream(link, state.topic)
        batch = pack_empty(
            Kind.FENCE if fence else Kind.MARKER,
            publisher=link.publisher, epoch=link.epoch, link_number=0,
            first_sequence=state.first, created_us=state.idle_us,
            extensions=pack_logs(self._stays.before(link.publisher, link.epoch)),
        )  # fmt: skip
        entry = None
        if stream is not None:
            entry = self._log.append(stream.topic, batch, len(batch))
            if entry is None:
                entry = self.append_spare(link, stream, batch, len(batch))
        if stream is None or entry is None:
            self._counters.markers_dropped += 1
            return []
        self._counters.own_entries += 1
        stream.next = max(stream.next, state.first)
        if stream.topic == DELAYED_TOPIC:
            return []
        return [Publish((stream.topic, entry, batch))]


def _state(
    publisher: PublisherId,
    link: Link | None,
    streams: dict[bytes, Stream],
    stays: MovedPublishers,
    runs: int,
) -> PublisherState:
    before, ends = stays.told(publisher)
    return PublisherState(
        publisher=publisher,
        epoch=-1 if link is None else link.epoch,
        expected=1 if link is None else link.expected,
        left=link is not None and link.left,
        addresses=() if link is None else link.addresses,
        streams=[(stream.topic, stream.next) for stream in streams.values()],
        incarnation=0 if link is None else link.incarnation,
        before=before,
        ends=ends,
        places=[] if link is None or link.places is None else link.places.latest(runs),
    )


def _places(link: Link, lowest: int, reached: int) -> list[Run]:
    """What Ready says about where batches lie, from a link number on; it is told then."""
    if link.places is None:
        return []
    link.places.told = reached
    return link.places.between(lowest - 1, reached)


def check_topic(topic: bytes) -> None:
    """Let a user topic pass.

    Raises:
        RemoteProtocolError: too long, not UTF-8, or a control topic.
    """
    if len(topic) > TOPIC_BYTES_MAX:
        raise RemoteProtocolError(f"a topic has at most {TOPIC_BYTES_MAX} bytes")
    if topic[:1] == bytes((CONTROL,)):
        raise RemoteProtocolError("a topic does not begin with the byte 0xFF")
    try:
        topic.decode()
    except UnicodeDecodeError:
        raise RemoteProtocolError("a topic is UTF-8") from None
