"""Feeds an exchange with what is valid and strange: all that peers may say, in the wrong states.

Publishers, members of groups of all kinds, instances, requesters, producers and operators speak in
turn, with numbers of leases, offsets and ids that are there, or from the edges. The disk is stuck
now and then, connections end, clocks jump, and another process goes on with what was kept. All
invariants are looked at after each step (`ExchangeCore.check`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec
from exchange_driver import EPOCH, NUMBER, QUEUE, Exchange, Publisher, exchange
from fuzz_documents import NUMBERS, U64, Maker, for_bson

from roq.errors import RemoteProtocolError
from roq.exchange.events import Received, Unreachable
from roq.exchange.machine import ExchangeCore
from roq.log.disk_groups import Group, perform
from roq.log.leases import runs_of
from roq.log.recovery import LogSettings, open_log
from roq.log.segments import SegmentLog
from roq.machine import Tick
from roq.model import Limits
from roq.protocol import channel, consuming, control, delayed, documents, requesting, transaction
from roq.protocol.attributes import Attributes, pack_attributes
from roq.protocol.batch import pack
from roq.protocol.columns import KEY_GROUPS, LIFETIME, PRIORITIES, TAGS, pack_column
from roq.protocol.consuming import LEASED, Run, pack_runs, read_lease
from roq.protocol.defined_services import DefinedServices
from roq.protocol.requesting import DELAYED_FROM, ENVELOPE, ONCE
from roq.protocol.version import WIRE_VERSION
from roq.simulation.virtual.lossy_files import LossyFiles

HISTORY: Final = 120
GROUPS: Final = ("shared", "keyed", "exclusive", "priority", "s")
TOPICS: Final = (b"t", b"s/do", b"s/other", b"u")
IDS: Final = (
    b"12345678", b"\x20" + b"\0" * 6 + b"\1", DELAYED_FROM.to_bytes(8, "big"), b"\xff" * 8, bytes(8)
)  # fmt: skip
LONG: Final = {
    consuming.JOIN: consuming.Join, consuming.GROUPS: consuming.GroupsRequest,
    consuming.GROUP_ORDER: consuming.GroupOrder, requesting.ATTEND: requesting.Attend,
    requesting.REQUESTS: requesting.RequestsQuery, delayed.DELAYED: delayed.DelayedRequest,
    delayed.CANCEL_DELAYED: delayed.CancelDelayed, transaction.ENROLL: transaction.Enroll,
    transaction.SETTLE: transaction.Settle, transaction.TRANSACTIONS: transaction.TransactionsQuery,
    channel.FETCH: channel.FetchRequest, channel.HEADS: channel.HeadsRequest,
    channel.STREAMS: channel.StreamsRequest, channel.SEEK: channel.SeekRequest,
    channel.FIND: channel.FindRequest, channel.POSITION: channel.Position,
    channel.HELLO: channel.Hello, channel.CLAIM: channel.Claim, channel.BYE: channel.Bye,
}  # fmt: skip
SHORT: Final = {
    requesting.WANT: requesting.Want, requesting.FIGURES: requesting.Figures,
    consuming.CREDIT: consuming.Credit, consuming.DONE: consuming.Done,
    consuming.LEAVE: consuming.LeaveGroup, consuming.EXTEND: consuming.Extend,
}  # fmt: skip
UNTAGGED: Final = {channel.HELLO, channel.CLAIM, channel.BYE}


class Strangers:
    """All peers of one exchange."""

    def __init__(self, maker: Maker) -> None:
        self.maker = maker
        self.pick: Callable = maker.random.choice  # type: ignore[type-arg]
        self.limits = {
            "topics": self.pick([3, 10]), "publishers": 2,
            "ring_bytes": self.pick([2_000, 1 << 20]),
        }  # fmt: skip
        self.time_us, self.now = 1_000, 0.0
        self.files, self.epoch = LossyFiles(), EPOCH
        self.written: Group[bytes] | None = None
        self.late: SegmentLog[bytes] | None = None
        self.capacity = self.pick([20_000, 1 << 20])
        self.there = self.durable() if maker.chance(0.6) else exchange(**self.limits)
        self.leases: dict[tuple[bytes, bytes], list[tuple[int, int, int]]] = {}
        """What was leased to whom, by connection and tag: number, and a run of the messages."""
        self.publishers = [Publisher(self.there, name) for name in ("p", "q")]
        for each in self.publishers:
            each.hello()
        self.steps: list[tuple[float, Callable[[], None]]] = [
            (0.3, self.publish), (0.1, self.publish_later), (0.9, self.say), (0.7, self.serve),
            (0.5, self.hand_out), (0.15, self.pass_time), (0.2, self.write), (0.03, self.end),
            (0.02, self.restart), (0.03, self.monitor), (0.05, self.hello_again),
        ]  # fmt: skip

    def step(self) -> None:
        for chance, action in self.steps:
            if self.maker.chance(chance):
                action()
                self.settle()

    # --- publishers -------------------------------------------------------------------------------

    def publish(self) -> None:
        """A batch with any columns, perhaps out of turn."""
        one, pick, count = self.pick(self.publishers), self.pick, self.pick([1, 2, 5])
        topic = pick(TOPICS)
        area = b"".join(
            pack_column(kind, bytes(pick([0, 1, 9, 10, 255]) for _ in range(count)))
            for kind in (KEY_GROUPS, PRIORITIES, TAGS, LIFETIME)
            if self.maker.chance(0.4)
        )
        payloads = [ENVELOPE.pack(1, pick([0, ONCE, 2, 255]), 0)[: pick([0, 99])] + b"x"] * count
        if self.maker.chance(0.1):
            data = one.void(topic, pick([1, 500]), pick([one.number + 1, *U64[:5]]))
        else:
            data = one.batch(topic, count, pick([None] * 9 + [0]), area=area, payloads=payloads)
        self.there.append(one.route, topic, data)

    def publish_later(self) -> None:
        """Delayed and half messages, among them such that name themselves an exchange's."""
        one, pick = self.pick(self.publishers), self.pick
        made = []
        for _ in range(pick([1, 3])):
            half = transaction.Half(
                pick(["g", "h"]), [(pick(TOPICS), b"1")] * pick([1, 3]),
                check_seconds=pick([1.0, 60.0]), attempts=pick([1, 5]),
                patience_seconds=pick([1.0, 60.0]), otherwise=pick(["keep", "commit", "rollback"]),
            )  # fmt: skip
            is_half = self.maker.chance(0.3)
            made.append(delayed.encode_delayed(delayed.Delayed(
                transaction.OPEN_US if is_half else pick([0, 5_000_000, self.time_us + 10]),
                pick(TOPICS), transaction.encode_half(half) if is_half else b"x", pick(IDS),
                pick([b"", b"p" * 16]), pick([0, 7]),
            )))  # fmt: skip
        area = pick([b"", delayed.pack_settled([(0, 0), (1, 2)])])
        one.number += 1
        first = one.sequences.get(delayed.DELAYED_TOPIC, 0)
        one.sequences[delayed.DELAYED_TOPIC] = first + len(made)
        given = {0: Attributes(key=pick([None, "k"]), priority=pick([0, 9]))}
        data = pack(
            made, publisher=one.id, epoch=one.epoch, link_number=one.number, first_sequence=first,
            created_us=7, extensions=area, attributes=pick([None, pack_attributes(given)]),
        )  # fmt: skip
        self.there.append(one.route, delayed.DELAYED_TOPIC, data)

    def hello_again(self) -> None:
        """A publisher whose connection was cut."""
        one = self.pick(self.publishers)
        self.there.tell(Unreachable(one.route))
        one.exchange = self.there
        answer = one.hello()
        if isinstance(answer, channel.Ready):
            one.number = answer.expected - 1

    # --- everybody else ---------------------------------------------------------------------------

    def say(self) -> None:
        """Any message of any peer, to which most of it means something."""
        pick, maker, log = self.pick, self.maker, self.there.core.log
        offsets = [*range(max(log.floor, log.end - 4), log.end + 1), pick(NUMBERS[3:-2])]
        place = [pick(offsets), pick([0, 1, 4])]
        often = (consuming.JOIN, consuming.DONE, consuming.DONE, requesting.ATTEND)
        letter = pick([*LONG, *SHORT, *often, *often, *often])
        route, tag = pick([b"a", b"b", b"c", self.publishers[1].route]), pick([b"one!", b"two!"])
        if letter in SHORT and self.leases and maker.chance(0.9):
            route, tag = pick([*self.leases])
        some = self.leases if maker.chance(0.9) else {(route, tag): [(1, 0, 1)]}
        lease, first, length = pick(some.get((route, tag), [(1, 0, 1)])[-4:])
        late = [DELAYED_FROM + 1, 0]
        held = [
            Run(each, pick([0, 1]), pick([1, 2, 1 << 20])) for each in offsets if each < 1 << 62
        ]
        group = pick(GROUPS)
        maker.known = {
            "queue": [QUEUE], "generation": [log.generation], "group": [group],
            "service": ["s", "s", "t"],
            "member": [b"m" * 16, b"n" * 16], "prefixes": [[b""], [b"s/"], [b"t", b"u"]],
            "make": [True], "mode": [group if group != "s" else "shared"], "tags": [[]],
            "version": [WIRE_VERSION],
            "messages": [0, 1, 50, 1 << 60], "bytes": [1 << 20], "window": [1, 50],
            "lease_seconds": [2.0, 30.0], "retry_seconds": [0.0, 1.0], "retry_seconds_max": [60.0],
            "attempts": [0, 16], "name": ["n"], "start_us": [0], "delay": [0.0, 1.0],
            "holds": [b"", pack_runs(held)], "reason": ["no"], "serial": [1, 2, 3],
            "attempt": [1, 2, 3], "lease": [lease, 1], "first": [first, 0, 1],
            "length": [length, 1], "index": [first, 0, 1], "whole": [[lease], [lease, 7]],
            "parts": [[[lease, first, length], [lease, 0, 1]]], "wanted": [[place, late], [place]],
            "cancelled": [[place], [late], []], "late": [[place], []], "fetched": [[[*place, 3]]],
            "state": ["done", "failed", "discarded", "late"], "offset": offsets,
            "order": [
                "pause", "resume", "seek", "delete", "flag", "drain", "retry", "take", "move",
            ],
            "publisher": [b"", self.publishers[0].id, b"e" * 16], "message": [*IDS],
            "transaction": [*IDS], "ends": [[[each, pick(["commit", "rollback", "unknown"])]
                                             for each in (pick(IDS), pick(IDS))]],
            "most": [0, 10], "endpoints": [[]], "settings": [pick([None, {}])],
            "id": [1, 2],
        }  # fmt: skip
        if group == "s" or maker.chance(0.1):
            maker.known["service"] = ["s"]
        kind = LONG.get(letter)
        if letter == consuming.JOIN and maker.chance(0.8):
            settings: dict[str, object] = {"mode": group, "prefixes": [b""], "lease_seconds": 9.0}
            if group == "s":
                settings |= {"mode": "shared", "prefixes": [b"s/"], "service": {}}
            maker.known["settings"] = [settings]
            del maker.known["service"]
        elif letter == requesting.ATTEND:
            maker.known["settings"] = [
                {},
                {"store_bytes": 1_024, "send_attempts": 1, "chosen": True},
            ]
        else:
            del maker.known["settings"]
        if kind is not None:
            made = for_bson(maker.document(kind))
            assert isinstance(made, dict)
            body = documents.encode_raw(made)
        else:
            body = msgspec.msgpack.encode(for_bson(maker.array(SHORT[letter])))
        tag = b"" if letter in UNTAGGED else tag
        self.there.tell(Received(route, (letter + tag, body)))
        if letter == consuming.JOIN and maker.chance(0.8):
            self.settle()
            self.serve()
            credit = consuming.encode(
                consuming.Credit(pick([1, 9, 1 << 60]), 1 << 20, pick([1, 9]))
            )
            self.there.tell(Received(route, (consuming.CREDIT + tag, credit)))
            self.hand_out()

    def serve(self) -> None:
        """Readers have their turn; some of what they fetch is sent."""
        self.there.serve()
        fetches = self.there.core.fetches
        for _ in range(self.pick([0, 5])):
            if not fetches.runnable(self.there.now):
                break
            piece = fetches.next_piece()
            if piece is None:
                fetches.wait()
            elif self.maker.chance(0.8):
                fetches.sent(piece)
            else:
                fetches.blocked(self.there.now)

    def hand_out(self) -> None:
        """What there is to hand out is sent, unless a connection is full."""
        served = self.there.core.consumers
        served.begin(self.there.now)
        for _ in range(20):
            if not served.runnable():
                break
            delivery = served.next_delivery()
            if delivery is None:
                continue
            assert delivery.parts[0][:2] == LEASED
            number, first, _, _, bits = read_lease(delivery.parts[1])
            mine = self.leases.setdefault((delivery.route, delivery.parts[0][2:]), [])
            del mine[:-20]
            mine += [(number, first + at, count) for at, count in runs_of(bits)]
            if self.maker.chance(0.8):
                served.sent(delivery)
            else:
                served.blocked(delivery)
            self.there.core.check()

    def end(self) -> None:
        """A connection ends."""
        route = self.pick([b"a", b"b", b"c"])
        self.there.tell(Unreachable(route))
        for tag in (b"one!", b"two!"):
            self.leases.pop((route, tag), None)

    def monitor(self) -> None:
        """What the monitor passes on, and says."""
        kind = self.pick([control.OrderAsk, control.OrderTold])
        made = for_bson(self.maker.document(kind))
        assert isinstance(made, dict)
        try:
            event = documents.convert(made, kind)
        except RemoteProtocolError:
            return
        self.there.tell(event)
        self.there.core.consumers.services.define(
            self.pick([None, DefinedServices()]) or DefinedServices()
        )

    # --- time and the disk ------------------------------------------------------------------------

    def pass_time(self) -> None:
        """The clock of the machine goes on, and the other one jumps."""
        self.there.now += self.pick([0.0, 0.1, 0.6, 0.6, 0.6, 3.0, 3.0, 40.0, 100_000.0])
        self.time_us += self.pick([0, 600_000, 600_000, 6_000_000, 86_400_000_000, -3_000_000])
        self.time_us = max(1, self.time_us)
        self.there.core.begin(self.there.now, self.time_us)
        self.there.tell(Tick())

    def write(self) -> None:
        """The disk begins to write, or has written."""
        if self.late is None:
            return
        core, group = self.there.core, self.written
        if group is None:
            self.written = self.late.gather(core.snapshot, core.consumers.take_changes)
            return
        perform(self.files, group)
        self.late.commit(group.end)
        if group.changes is not None or group.anew:
            core.consumers.kept()
        self.written = None
        self.there.publish()

    def durable(self) -> Exchange:
        """A process goes on with what the disk has."""
        settings = LogSettings(
            queue=QUEUE, exchange=NUMBER, epoch=self.epoch, cluster="c", host="h",
            ring_bytes=4_000, topics_max=10, topics_spare=2, capacity_bytes=self.capacity,
            keep_us=1 << 50, now_us=self.time_us, segment_bytes=3_000, segment_entries=30,
        )  # fmt: skip
        self.late = open_log(self.files, settings)
        limits = Limits(**{**self.limits, "ring_bytes": 4_000, "log_bytes": self.capacity})
        core: ExchangeCore[bytes] = ExchangeCore(
            QUEUE, NUMBER, self.epoch, limits, late=self.late, place="here"
        )
        core.begin(self.now, self.time_us)
        found = self.late.recovered
        core.recover(self.now, found.snapshot, found.since, found.changes)
        core.check()
        return Exchange(core, limits, self.now)

    def restart(self) -> None:
        """The process is killed, perhaps while the disk writes, and another one goes on."""
        if self.late is None:
            return
        if self.written is not None and self.maker.chance(0.5):
            perform(self.files, self.written)
        self.written = None
        self.epoch += 1
        self.now = self.there.now
        self.there = self.durable()
        for each in self.publishers:
            each.exchange = self.there
            answer = each.hello()
            if isinstance(answer, channel.Ready):
                each.number = answer.expected - 1

    def settle(self) -> None:
        """What all have earned is sent."""
        self.there.settle()
        self.there.sent.clear()
        self.there.live.clear()
        self.there.told.clear()


def fuzz_peers(maker: Maker) -> None:
    """All that peers may say to an exchange, in any state."""
    strangers = Strangers(maker)
    for _ in range(HISTORY):
        strangers.step()
