"""The consumers of one exchange: lets members in and out, hands them batches, confirms. Pure.

What a member says is answered when what it has changed is kept: at once where nothing outlives the
process, else when the log has written it (`take_changes`, `kept`). Groups take turns, and within a
group its members; a connection that is full holds up its own members alone.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Final, Generic, TypeVar

from roq.errors import RemoteProtocolError
from roq.exchange.backpressure import Backpressure
from roq.exchange.commit import check_owed
from roq.exchange.consumer_peers import (
    BlockedDeliveries,
    Delivery,
    Owed,
    Peer,
    check_same,
    check_seek,
    delivery_of,
    ends_of,
    extended,
    made_by,
    reader_of,
    renewed,
    settled,
    taken_over,
)
from roq.exchange.counters import Counters
from roq.exchange.events import Effect, Send
from roq.exchange.order_questions import OrderAsker
from roq.exchange.readers import (
    RefusedRequest,
    answer_or_refuse,
    check_queue,
    checked_prefixes,
    refusal,
    tagged,
)
from roq.exchange.requests import Request
from roq.exchange.services import Services
from roq.log.group_changes import GroupDelta, decode_deltas, encode_deltas
from roq.log.group_filter import Lifetimes
from roq.log.groups import ConsumerGroup
from roq.log.leases import Member, NumberedLeases
from roq.log.log import Log, NotAtHand
from roq.log.moved_publishers import MovedPublishers
from roq.log.service_group import ServiceGroup
from roq.model import PUBLISHER_ID_BYTES
from roq.protocol import consuming, documents
from roq.protocol.channel import REFUSED, Refused
from roq.protocol.consuming import (
    CREDIT,
    DELETED,
    DONE,
    EXTEND,
    GROUP_ORDER,
    GROUPS,
    GROUPS_PER_ANSWER_MAX,
    JOIN,
    LEAVE,
    MEMBERS_PER_ANSWER_MAX,
    Credit,
    Done,
    GroupOrder,
    Groups,
    GroupSettings,
    GroupsRequest,
    Join,
    Joined,
    LeaveGroup,
    Ordered,
)
from roq.protocol.requesting import WANT

B = TypeVar("B")

GROUPS_MAX: Final = 4_096
MEMBERS_MAX: Final = 10_000
"""Of all groups together."""


class Consumers(Generic[B]):
    """All consumer groups of one exchange.

    Args:
        queue: queue id.
        log: what they read.
        epoch: of this process.
        late: the log commits later than it accepts, and is given what changes.
        frame_bytes: the largest frame that its socket takes.
        stays: where publishers were before they came to this log.
        numbers: of leases; no earlier process has given these.
        counters, backpressure: of the exchange.
    """

    def __init__(
        self,
        queue: bytes,
        log: Log[B],
        epoch: int,
        counters: Counters,
        backpressure: Backpressure[B],
        *,
        late: bool,
        frame_bytes: int,
        stays: MovedPublishers,
        numbers: NumberedLeases,
    ) -> None:
        self._queue, self._log, self._epoch = queue, log, epoch
        self.lifetimes = Lifetimes()
        self._counters, self._backpressure = counters, backpressure
        self._late, self._frame_bytes = late, frame_bytes
        self._now = 0.0
        self._groups: dict[str, ConsumerGroup[B]] = {}
        self._peers: dict[tuple[bytes, bytes], Peer[B]] = {}
        """By route and tag."""
        self._routes: dict[bytes, set[bytes]] = {}
        self._by_member: dict[tuple[str, bytes], Peer[B]] = {}
        self._numbers = numbers
        self._awake: OrderedDict[str, ConsumerGroup[B]] = OrderedDict()
        """Groups that may have something to hand out, in the order of their turns."""
        self._reading: dict[str, ConsumerGroup[B]] = {}
        """Groups that wait for the disk."""
        self._seen = log.committed
        self._blocked: BlockedDeliveries[B] = BlockedDeliveries()
        self._touched: dict[str, None] = {}
        """Groups whose changes are to be written."""
        self._deleted: dict[str, int] = {}
        """Groups whose end is to be written; of a service, where that was."""
        self._due: Owed[B] = Owed()
        """What is to be told when what has changed until now is kept."""
        self._writing: Owed[B] | None = None
        """Likewise, and that is being written; None: nothing is."""
        self._later: dict[Peer[B], None] = {}
        """Who is told with what it is sent next that something is kept."""
        self._answers: list[Effect] = []
        self.services: Services[B] = Services(
            queue, log, self._groups, lambda: self._due.requesters, self._open_group, self._after
        )
        self.order_questions: OrderAsker[B] = OrderAsker(
            queue, epoch, log, self._groups, stays, self._after
        )
        self._handlers: Final[dict[bytes, Callable[[Request], list[Effect]]]] = {
            JOIN: self._join,
            GROUPS: self._list,
            GROUP_ORDER: self._order,
            **self.services.handlers,
        }
        self._short: Final[dict[bytes, Callable[[Peer[B], bytes], None]]] = {
            CREDIT: lambda peer, document: self._grant(peer, consuming.decode(document, Credit)),
            DONE: self._done,
            LEAVE: self._leave,
            EXTEND: lambda peer, document: self._answers.append(extended(peer, document)),
            **self.services.words,
        }

    def __len__(self) -> int:
        """Members that are connected."""
        return len(self._peers)

    @property
    def groups(self) -> list[ConsumerGroup[B]]:
        """All groups."""
        return list(self._groups.values())

    @property
    def behind(self) -> int:
        """Groups that have not done everything that is there."""
        return sum(group.base < self._log.committed for group in self._groups.values())

    def begin(self, now: float) -> None:
        """What follows happens at this time."""
        self._now = self.services.now = now

    # --- what members say -------------------------------------------------------------------------

    def serves(self, letter: bytes) -> bool:
        """Whether this first frame is a request that waits for its turn."""
        return letter in self._handlers

    def handle(self, request: Request) -> list[Effect]:
        """Answer one request."""
        return answer_or_refuse(request, self._handlers[request.letter], self._counters)

    def hears(self, letter: bytes) -> bool:
        """Whether this first frame is a member's, and is taken in at once."""
        return letter in self._short or letter == WANT

    def hear(self, route: bytes, letter: bytes, tag: bytes, document: bytes) -> list[Effect]:
        """Take in what one of them says; what it is answered comes out of `take_answers`."""
        if letter == WANT:
            asked = Request(route, letter, document, tag)
            return answer_or_refuse(asked, self.services.want, self._counters)
        peer = self._peers.get((route, tag))
        if peer is None or (peer.member.silent and letter != LEAVE):
            # It was silent for too long, or another process was here before.
            return [] if letter == LEAVE else [Send(route, (LEAVE + tag, b""))]
        peer.group.heard(peer.member)
        try:
            self._short[letter](peer, document)
        except RemoteProtocolError as error:
            self._counters.malformed += 1
            asked = Request(route, letter, document, tag)
            return [tagged(refusal(route, "malformed", str(error)), asked)]
        return []

    def gone(self, route: bytes) -> None:
        """This connection has ended: what its members were sent is tried again."""
        self.services.gone(route)
        for tag in self._routes.pop(route, ()):
            peer = self._peers.pop((route, tag))
            self._blocked.recall(peer)
            self._forget(peer)
            self._due.done.pop(peer, None)
            peer.group.gone(peer.member.id)
            self._after(peer.group)

    def tick(self) -> None:
        """Time has passed; call it about twice a second."""
        for group in self._groups.values():
            for member in group.tick(self._now):
                peer = self._by_member.get((group.name, member.id))
                if peer is not None:
                    self._answers.append(peer.send(LEAVE, b""))
                    self._unlink(peer)
            self._wake(group)
            self._touch(group)
            self._report(group)
        self.services.tick()
        for peer in self._later:
            if self._peers.get((peer.route, peer.tag)) is peer:
                self._answers += peer.confirmed()
        self._later.clear()

    def take_answers(self) -> list[Effect]:
        """What members and requesters are to be told since the last call."""
        if self.services:
            for group, member, letter, told in self.services.told():
                peer = self._by_member.get((group.name, member))
                if peer is not None:
                    self._answers.append(peer.send(letter, told))
        if not self._late:
            for name in self._touched:
                self._groups[name].drop_changes()
            self._touched = {}
            self._deleted = {}
        # Also what nobody was owed for is in what is told next, and is not kept yet.
        if not (self._touched or self._deleted) and self._writing is None:
            self._due.requesters += self.services.take()
            if self._due:
                self._confirm(self._due)
                self._due = Owed()
        answers, self._answers = self._answers, []
        return answers

    # --- handing out ------------------------------------------------------------------------------

    def runnable(self) -> bool:
        """Whether there may be something to hand out now."""
        if self._log.committed != self._seen:
            self._seen = self._log.committed
            if self._peers:
                for name, group in self._groups.items():
                    if len(group):
                        self._awake[name] = group
        if not self._awake and (blocked := self._blocked.next_at) is not None:
            return blocked <= self._now
        return bool(self._awake)

    def next_deadline(self) -> float | None:
        """When the first connection that is full is to be tried again."""
        return self._blocked.next_at

    def next_delivery(self) -> Delivery[B] | None:
        """What to send now, if there is anything; answer with `sent` or `blocked`, or `gone`.

        Raises:
            NotAtHand: it has to be read from the disk; call `go_on` when it is there.
        """
        while (delivery := self._blocked.take(self._now)) is not None:
            self._wake(delivery.peer.group)
            delivery = renewed(delivery)
            if delivery is not None:
                return delivery
        if not self._awake:
            return None  # who was waited for has gone
        name, group = next(iter(self._awake.items()))
        try:
            found = group.next_lease(self._numbers)
        except NotAtHand:
            del self._awake[name]
            self._reading[name] = group
            raise
        if group.changed:
            self._touched[name] = None
        self.order_questions.looked(group)
        del self._awake[name]
        if found is None:
            if group.busy:
                self._awake[name] = group
            return None
        self._wake(group)
        lease, record = found
        return delivery_of(self._by_member[name, lease.member.id], lease, record)

    def go_on(self) -> None:
        """Something was read from the disk."""
        self._awake.update(self._reading)
        self._reading.clear()

    def sent(self, delivery: Delivery[B]) -> None:
        """It is on its way."""
        self._answers += delivery.peer.sent(self._now)

    def blocked(self, delivery: Delivery[B]) -> None:
        """The connection is full: the same again a little later, and nothing else meanwhile."""
        self._blocked.add(delivery, self._now)

    # --- what outlives the process ----------------------------------------------------------------

    def take_changes(self) -> bytes:
        """What is to be written into the log now; empty: nothing has changed."""
        touched, self._touched = self._touched, {}
        deltas, self._deleted = ends_of(self._deleted) if self._deleted else [], {}
        for name in touched:
            group = self._groups.get(name)
            delta = None if group is None else group.take_changes()
            if delta is not None:
                deltas.append(delta)
        if not deltas:
            return b""  # so nothing is waited for
        # Not before: what ends while the disk is busy is told together, once.
        self._due.requesters += self.services.take()
        self._writing, self._due = self._due, Owed()
        return encode_deltas(deltas)

    def kept(self) -> None:
        """What was taken last is on the disk."""
        kept, self._writing = self._writing, None
        self._confirm(kept or Owed())

    def snapshot(self) -> list[GroupDelta]:
        """All groups, as they stand, behind services that were deleted."""
        return [*ends_of(self.services.ends), *(each.snapshot() for each in self._groups.values())]

    def recover(self, groups: list[GroupDelta], changes: Iterable[bytes]) -> None:
        """Go on with the groups of an earlier process.

        Args:
            groups: those of the newest snapshot.
            changes: what was written behind it, in order.

        Raises:
            RemoteProtocolError: that are no changes of groups.
        """
        for delta in groups:
            self._apply(delta)
        for data in changes:
            for delta in decode_deltas(data):
                self._apply(delta)
        for group in self._groups.values():
            group.hold()
            self._touch(group)
        self.services.recovered()

    def check(self) -> None:
        """Assert the invariants."""
        assert len(self._peers) == len(self._by_member) <= MEMBERS_MAX  # noqa: S101
        assert sum(map(len, self._routes.values())) == len(self._peers)  # noqa: S101
        assert sum(map(len, self._groups.values())) == len(self._peers)  # noqa: S101
        assert len(self._groups) <= GROUPS_MAX  # noqa: S101
        self._blocked.check(set(self._by_member.values()))
        self.services.check()
        for group in self._groups.values():
            group.check()

    # --- inside -----------------------------------------------------------------------------------

    def _join(self, asked: Request) -> list[Effect]:
        join = documents.decode(asked.document, Join)
        check_queue(join.queue, self._queue)
        if not checked_prefixes(join.settings.prefixes):
            raise RefusedRequest(
                "invalid_request", "a group has at least one topic, if only an empty one"
            )
        if len(join.member) != PUBLISHER_ID_BYTES:
            raise RemoteProtocolError("a member has an id of 16 bytes")
        held = consuming.read_runs(join.holds) if join.generation == self._log.generation else []
        if (group := self._groups.get(join.group)) is None:
            group = self._make(join)
        else:
            check_same(join, group.settings)
        if isinstance(group, ServiceGroup) and join.settings.service is not None:
            self.services.choose(group, join.settings.service)
        before = self._by_member.get((join.group, join.member))
        if before is not None and before.attempt > join.attempt:
            raise RefusedRequest("stale_epoch", "a newer connection of this consumer is here")
        if before is None and max(len(self._peers), len(self._due.done) // 2) >= MEMBERS_MAX:
            raise RefusedRequest("full", f"{MEMBERS_MAX} consumers are here already")
        if before is not None:
            self._unlink(before)
        if (other := self._peers.get((asked.route, asked.reader))) is not None:
            self._unlink(other)
            other.group.leave(other.member.id)
        if (member := group.join(join.member, join.name)) is None:
            raise RefusedRequest("full", f"group {join.group} has as many members as may be")
        peer = Peer(asked.route, asked.reader, group, member, join.attempt)
        self._peers[asked.route, asked.reader] = peer
        self._routes.setdefault(asked.route, set()).add(asked.reader)
        self._by_member[join.group, join.member] = peer
        leases, done = group.resume(member, held, self._numbers)
        self.order_questions.looked(group)
        self._touch(group)
        answer = Joined(
            id=join.id, generation=self._log.generation, epoch=self._epoch, settings=group.settings,
            created_us=group.created_us, done=done, frame_bytes=self._frame_bytes,
            again=[(each.number, each.offset, each.first, each.length) for each in leases],
        )  # fmt: skip
        self._due.joined[peer] = peer.send(JOIN, documents.encode(answer))
        return []

    def _make(self, join: Join) -> ConsumerGroup[B]:
        if not join.make:
            raise RefusedRequest("no_group", f"there is no group {join.group} here yet")
        log = self._log
        if join.settings.service is not None:
            return self.services.open(join.group, join.settings)
        if join.start_end:
            start = log.committed
        else:
            start = min(log.seek(int(join.start_us)), log.committed)
        return self._open_group(join.group, join.settings, start)

    def _open_group(self, name: str, settings: GroupSettings, start: int) -> ConsumerGroup[B]:
        if len(self._groups) >= GROUPS_MAX:
            raise RefusedRequest("full", f"{GROUPS_MAX} groups are here already: delete some")
        group = self._new(name, settings, self._log.time_us, start)
        self._groups[name] = group
        self.services.add(group)
        self._touch(group)
        self._report(group)
        return group

    def _new(
        self, name: str, settings: GroupSettings, created_us: int, start: int
    ) -> ConsumerGroup[B]:
        group = self.order_questions.group(name, settings, created_us, start, self._now)
        if settings.service is None:  # requests have a time of their own
            group.lifetimes = self.lifetimes
        return group

    def _grant(self, peer: Peer[B], credit: Credit) -> None:
        member = peer.member
        member.granted, member.granted_bytes = credit.messages, credit.bytes
        member.window = credit.window
        if not peer.takes:
            self._answers += peer.confirmed()
        self._wake(peer.group)

    def _done(self, peer: Peer[B], document: bytes) -> None:
        done = consuming.decode(document, Done)
        group, member = peer.group, peer.member
        self._due.note(peer, done.serial, settled(group, member, done))
        if done.returned:
            self._blocked.recall(peer)
            self._wake(group)
        if done.credit is not None:
            self._grant(peer, done.credit)
        self._touch(group)
        if self._backpressure.near:
            self._report(group)

    def _leave(self, peer: Peer[B], document: bytes) -> None:
        if consuming.decode(document, LeaveGroup).member != peer.member.id:
            raise RemoteProtocolError("LeaveGroup of another consumer")
        self._unlink(peer)
        peer.group.leave(peer.member.id)
        self._wake(peer.group)

    def _list(self, asked: Request) -> list[Effect]:
        request = documents.decode(asked.document, GroupsRequest)
        check_queue(request.queue, self._queue)
        some = self.groups[:GROUPS_PER_ANSWER_MAX]
        found = [self._find(request.group)] if request.group else some
        states = [
            group.state(who=bool(request.group), most=MEMBERS_PER_ANSWER_MAX) for group in found
        ]
        answer = Groups(id=request.id, generation=self._log.generation, groups=states)
        return [Send(asked.route, (GROUPS + asked.reader, documents.encode(answer)))]

    def _order(self, asked: Request) -> list[Effect]:
        order = documents.decode(asked.document, GroupOrder)
        check_queue(order.queue, self._queue)
        check_owed(len(self._due.answers))
        if (begins := made_by(order, self._log)) is not None and order.group not in self._groups:
            self._open_group(order.group, *begins)
        group = self._find(order.group)
        told, effects, position = list[str](), list[Effect](), b""
        match order.order:
            case "flag" | "unflag" | "drain" | "retry":
                told, effects = self.services.order(group, order)
            case "pause" | "resume":
                group.pause(paused=order.order == "pause")
                self._wake(group)
            case "take" | "move":
                position = taken_over(group, order, self._log)
            case "seek":
                check_seek(group)
                end = self._log.committed
                to = end if order.to_end else min(self._log.seek(order.time_us), end)
                self._dismiss(group.seek(to), group)
            case _:
                self._dismiss(group.seek(self._log.committed), group, deleted=True)
                del self._groups[group.name]
                self.services.deleted(group)
                self._awake.pop(group.name, None)
                self._reading.pop(group.name, None)
                self._touched.pop(group.name, None)
                self._deleted[group.name] = self.services.ends.get(group.name, 0)
                self._backpressure.leave(reader_of(group.name))
        self._touch(group)
        if order.order != "delete":
            self._report(group)
        answer = Ordered(
            id=order.id, generation=self._log.generation, base=group.base, told=told,
            position=position,
        )  # fmt: skip
        parts = (GROUP_ORDER + asked.reader, documents.encode(answer))
        self._due.answers.append(Send(asked.route, parts))
        return effects

    def _dismiss(
        self, members: list[Member], group: ConsumerGroup[B], *, deleted: bool = False
    ) -> None:
        """Their leases are over: they have to join again, unless there is no group any more."""
        for member in members:
            peer = self._by_member.get((group.name, member.id))
            if peer is not None:
                if deleted:
                    refused = Refused(code=DELETED, text=f"group {group.name} was deleted")
                    self._answers.append(peer.send(REFUSED, documents.encode(refused)))
                else:
                    self._answers.append(peer.send(LEAVE, b""))
                self._unlink(peer)

    def _find(self, name: str) -> ConsumerGroup[B]:
        group = self._groups.get(name)
        if group is None:
            raise RefusedRequest("no_group", f"there is no group {name!r:.140} at this exchange")
        return group

    def _confirm(self, owed: Owed[B]) -> None:
        self._answers += [*owed.joined.values(), *owed.answers, *owed.requesters]
        for peer, (serial, refused) in owed.done.items():
            peer.later = serial
            if refused is not None or not peer.takes:
                self._answers += peer.confirmed(refused)
            else:
                self._later[peer] = None

    def _apply(self, delta: GroupDelta) -> None:
        if delta.deleted:
            self._groups.pop(delta.name, None)
            if delta.base:
                self.services.end(delta.name, delta.base)
            return
        group = self._groups.get(delta.name)
        if group is None:
            if delta.settings is None or len(self._groups) >= GROUPS_MAX:
                return  # a change of one that was deleted behind it
            group = self._groups[delta.name] = self._new(
                delta.name, delta.settings, delta.created_us, delta.base
            )
        group.apply(delta)

    def _wake(self, group: ConsumerGroup[B]) -> None:
        if len(group) and group.more:  # nothing is looked at for nobody
            self._awake[group.name] = group

    def _after(self, group: ConsumerGroup[B]) -> None:
        """Something has happened to a group."""
        self._touch(group)
        self._wake(group)

    def _touch(self, group: ConsumerGroup[B]) -> None:
        if group.changed and group.name in self._groups:
            self._touched[group.name] = None

    def _report(self, group: ConsumerGroup[B]) -> None:
        """Publishers wait for the group, as far as the log is in memory alone."""
        if not self._late:
            self._backpressure.report(
                reader_of(group.name), group.name.encode()[:PUBLISHER_ID_BYTES], group.base,
                patient=True,
            )  # fmt: skip

    def _unlink(self, peer: Peer[B]) -> None:
        """The member is not here any more; the group knows by itself, or is told."""
        if self._peers.pop((peer.route, peer.tag), None) is None:
            return
        tags = self._routes[peer.route]
        tags.discard(peer.tag)
        if not tags:
            del self._routes[peer.route]
        self._forget(peer)

    def _forget(self, peer: Peer[B]) -> None:
        self._by_member.pop((peer.group.name, peer.member.id), None)
        self._blocked.forget(peer)
        for owed in filter(None, (self._due, self._writing)):
            owed.joined.pop(peer, None)  # it asks again, for as long as the log writes nothing
