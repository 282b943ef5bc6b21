"""The publishers of one exchange: who may send what next, and over which connection.

A link is one publisher's stay under one epoch. Its newest connection owns it; batches carry the
link numbers 1, 2, 3… without a gap. The table is bounded and forgets who has been away for long.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Iterable, Iterator
from itertools import islice
from typing import Final

from roq.log.streams import Stream
from roq.model import PublisherId
from roq.protocol.batch import HEADER_BYTES
from roq.protocol.channel import NUMBER, Run, pack_runs

LINK_SECONDS: Final = 15 * 60.0
"""A publisher that was away for so long is forgotten."""


def owner_of(publisher: PublisherId, epoch: int) -> bytes:
    """The 24 bytes that each batch of this link has in its header."""
    return publisher + epoch.to_bytes(8, "little")


class Places:
    """Where the batches of a publisher lie that wants to know it: runs, bounded.

    Args:
        most: so many runs are remembered; a publisher has no more batches unacknowledged.
        runs: those that are known, in order.
    """

    __slots__ = ("_runs", "told")

    def __init__(self, most: int, runs: Iterable[Run] = ()) -> None:
        self.told = 0
        """The link number up to which the publisher has been told."""
        self._runs: deque[Run] = deque(runs, max(1, most))

    def add(self, number: int, offset: int) -> None:
        """The next batch lies here."""
        if self._runs:
            first, at, count = self._runs[-1]
            if first + count == number and at + count == offset:
                self._runs[-1] = first, at, count + 1
                return
        self._runs.append((number, offset, 1))

    def latest(self, most: int) -> list[Run]:
        """So many runs at the end."""
        return list(self._runs)[-most:]

    def between(self, told: int, number: int) -> list[Run]:
        """The runs of batches above the link number `told`, up to `number`, in order."""
        found: list[Run] = []
        for first, at, count in reversed(self._runs):
            if first + count - 1 <= told:
                break
            begin, behind = max(first, told + 1), min(first + count, number + 1)
            if begin < behind:
                found.append((begin, at + begin - first, behind - begin))
        return found[::-1]

    def clear(self) -> None:
        """Link numbers start again."""
        self.told = 0
        self._runs.clear()


class Link:
    """One publisher as this exchange knows it."""

    __slots__ = (
        "acked_at",
        "addresses",
        "attempt",
        "batches",
        "bytes",
        "claimed",
        "committed",
        "epoch",
        "expected",
        "incarnation",
        "left",
        "messages",
        "owes_ack",
        "owner",
        "places",
        "publisher",
        "reported_bytes",
        "reset_at",
        "reset_for",
        "route",
        "seen",
        "stay",
        "streams",
        "told",
        "waits",
    )

    def __init__(self, publisher: PublisherId, streams: dict[bytes, Stream], now: float) -> None:
        self.publisher = publisher
        self.streams = streams
        self.epoch = -1
        self.owner = b""
        self.attempt = -1
        self.route: bytes | None = None
        """Its present connection."""
        self.expected = 1
        """The link number that comes next; everything below is in the log."""
        self.committed = 0
        """The link number up to which everything is committed and may be acknowledged, as the last
        look has found."""
        self.stay = 0
        """Rises each time that link numbers start again."""
        self.left = False
        """It publishes elsewhere under this epoch: it said Bye, or the monitor said so."""
        self.addresses: tuple[str, ...] = ()
        """Where it publishes since it has left, as far as that is known."""
        self.told = False
        """Whether batches that came after it had left were refused already."""
        self.owes_ack = False
        self.waits = False
        """There was no room for a batch: it will be asked for again."""
        self.acked_at = now
        self.seen = now
        """When it was known to be there for the last time."""
        self.reset_for = 0
        """The link number that it was asked to replay from, and when."""
        self.reset_at = 0.0
        self.incarnation = 0
        """Of a named publisher: lower ones are refused; 0: it is none."""
        self.claimed = 0
        """The snapshot of the log that tells of it, as `LateLog.want_snapshot` counts them."""
        self.places: Places | None = None
        """Where its batches lie; None: it does not want to know."""
        self.messages = 0
        self.batches = 0
        self.bytes = 0
        """Of batches, headers included."""
        self.reported_bytes = 0

    @property
    def payload_bytes(self) -> int:
        """Bytes of the bodies."""
        return self.bytes - self.batches * HEADER_BYTES

    def begin(self, epoch: int) -> None:
        """A new epoch: link numbers start again."""
        self.epoch = epoch
        self.owner = owner_of(self.publisher, epoch)
        self.attempt = -1
        self.expected = 1
        self.committed = 0
        self.stay += 1
        self.left = False
        self.addresses = ()
        self.reset_for = 0
        if self.places is not None:
            self.places.clear()

    def acknowledgement(self, number: int) -> bytes:
        """The body of the ACK up to this link number."""
        body = NUMBER.pack(number)
        if self.places is None:
            return body
        return body + pack_runs(self.places.between(self.places.told, number))

    def leave(self, epoch: int) -> None:
        """It publishes elsewhere under this epoch: everything below is refused from now on.

        What was taken before can still be acknowledged; only a Hello begins anew.
        """
        self.epoch = epoch
        self.owner = b""
        self.attempt = -1
        self.left = True
        self.told = False


class LinkTable:
    """All links, by publisher and by connection."""

    def __init__(self, publishers_max: int) -> None:
        self._max = publishers_max
        self._links: dict[PublisherId, Link] = {}
        self.routes: dict[bytes, Link] = {}
        """The hot path looks here; do not change from outside."""

    def __len__(self) -> int:
        return len(self._links)

    def __iter__(self) -> Iterator[Link]:
        return iter(self._links.values())

    def get(self, publisher: PublisherId) -> Link | None:
        """The publisher's link, if it is known."""
        return self._links.get(publisher)

    def route_of(self, publisher: bytes) -> bytes | None:
        """The publisher's present connection; None: it has none."""
        link = self._links.get(PublisherId(publisher))
        return None if link is None else link.route

    def full(self) -> bool:
        """Whether a new publisher needs another one to be forgotten."""
        return len(self._links) >= self._max

    def longest_away(self, but: Container[PublisherId] = ()) -> Link | None:
        """The one without a connection that was seen longest ago.

        Args:
            but: none of these.
        """
        away = (
            link
            for link in self._links.values()
            if link.route is None and link.publisher not in but
        )
        return min(away, key=lambda link: link.seen, default=None)

    def add(self, link: Link) -> None:
        """Take in a new publisher."""
        self._links[link.publisher] = link

    def forget(self, link: Link) -> None:
        """Drop all that is known of a publisher."""
        self.disconnect(link)
        del self._links[link.publisher]

    def connect(self, link: Link, route: bytes, now: float) -> None:
        """This connection owns the link from now on, and carries no other."""
        other = self.routes.get(route)
        if other is not None and other is not link:
            self.disconnect(other)
        self.disconnect(link)
        link.route = route
        link.seen = now
        self.routes[route] = link

    def disconnect(self, link: Link) -> None:
        """The link has no connection now."""
        if link.route is not None:
            del self.routes[link.route]
            link.route = None

    def expired(self, now: float, most: int) -> list[Link]:
        """Up to `most` links whose publisher has been away for too long.

        Named ones stay while there is room: an earlier publisher of the name may come back.
        """
        horizon = now - LINK_SECONDS
        old = (
            link
            for link in self
            if link.route is None and link.seen <= horizon and not link.incarnation
        )
        return list(islice(old, most))

    def check(self) -> None:
        """Assert the invariants."""
        assert len(self._links) <= self._max  # noqa: S101
        for link in self:
            assert link.route is None or self.routes[link.route] is link  # noqa: S101
            assert 0 <= link.committed < link.expected  # noqa: S101
            owner = b"" if link.left else owner_of(link.publisher, link.epoch)
            assert link.owner == owner  # noqa: S101
        for route, link in self.routes.items():
            assert link.route == route  # noqa: S101
            assert self._links[link.publisher] is link  # noqa: S101
