"""Feeds whatever decodes with well-formed documents that hold numbers from the edges.

    python tests/support/fuzz.py exchange --seconds 600 --seed 11

A round is a short history. What a target raises beside the declared errors is a find; so is what a
machine wants to send and cannot be encoded.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace as replace_in
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
if __name__ == "__main__":
    sys.path[:0] = [str(ROOT), str(Path(__file__).parent)]

import msgspec  # noqa: E402
import xxhash  # noqa: E402
from exchange_driver import EPOCH, QUEUE, Publisher, exchange  # noqa: E402
from fuzz_documents import NUMBERS, STEPS, TEXTS, U64, Maker, as_json, for_bson  # noqa: E402
from fuzz_peers import fuzz_peers  # noqa: E402, F401 - a target
from fuzz_wire import fuzz_wire  # noqa: E402, F401 - a target
from gcm_script import PaperHost, Script  # noqa: E402
from hcm_host import Host  # noqa: E402
from memory_files import MemoryFiles  # noqa: E402
from monitor_driver import QUEUE_ID, Driver, peer_of  # noqa: E402
from recorded import data_of, recorded  # noqa: E402

from roq.cli.replay import replay, story  # noqa: E402
from roq.client.consume.machine import ConsumerMachine  # noqa: E402
from roq.client.consume.seat import Membership  # noqa: E402
from roq.client.publish.events import Assignment  # noqa: E402
from roq.client.publish.events import Received as LinkReceived  # noqa: E402
from roq.client.publish.links import Links  # noqa: E402
from roq.client.publish.resume import read_answer  # noqa: E402
from roq.client.session import events as session_events  # noqa: E402
from roq.client.session.machine import SessionMachine  # noqa: E402
from roq.client.subscribe.resequencer import Resequencer  # noqa: E402
from roq.client.transact.machine import ProducerMachine  # noqa: E402
from roq.errors import ConfigError, RemoteProtocolError, RequestError, Unavailable  # noqa: E402
from roq.exchange.events import Garbled, Passed, Received, Subscribed, Unreachable  # noqa: E402
from roq.exchange.snapshot import decode_snapshot, encode_snapshot  # noqa: E402
from roq.gcm import events as gcm_events  # noqa: E402
from roq.gcm.change.scaling_rules import elastic_of  # noqa: E402
from roq.gcm.config import GcmConfig  # noqa: E402
from roq.gcm.state import records  # noqa: E402
from roq.hcm.config import HcmConfig  # noqa: E402
from roq.log import snapshot  # noqa: E402
from roq.log.disk_groups import perform  # noqa: E402
from roq.log.files import INDEX_SUFFIX, SEGMENT_SUFFIX, LogRefused  # noqa: E402
from roq.log.group_changes import decode_deltas  # noqa: E402
from roq.log.records import RecordKind, pack_record  # noqa: E402
from roq.log.recovery import LogSettings, open_log  # noqa: E402
from roq.log.segments import SegmentLog  # noqa: E402
from roq.log.timing_wheel import TimingWheel  # noqa: E402
from roq.machine import Tick  # noqa: E402
from roq.model import ExchangeInfo, Limits, PublisherId  # noqa: E402
from roq.monitor import events as monitor_events  # noqa: E402
from roq.number_ranges import NUMBER_MAX  # noqa: E402
from roq.protocol import (  # noqa: E402
    broadcast,
    channel,
    consuming,
    control,
    delayed,
    documents,
    kpi,
    public,
    requesting,
    transaction,
)
from roq.protocol import spec as specs  # noqa: E402
from roq.protocol.batch import HEADER, MAGIC, pack  # noqa: E402
from roq.protocol.columns import KEY_GROUPS, KEYS, LIFETIME, PRIORITIES, TAGS  # noqa: E402
from roq.protocol.entry import EntryKind, pack_entry, read_entry  # noqa: E402
from roq.protocol.framing import join_answer, split_answer  # noqa: E402
from roq.protocol.public_answers import HostSummary, QueueDescription, QueueSummary  # noqa: E402
from roq.protocol.version import WIRE_VERSION  # noqa: E402
from roq.read.events import Answered, Ask, DataUp, Start  # noqa: E402
from roq.read.reader import Reader  # noqa: E402
from roq.runtime import config, flight  # noqa: E402
from roq.runtime.rpc import read_request  # noqa: E402
from roq.spark.offsets import read_offsets  # noqa: E402
from roq.spark.options import read_options  # noqa: E402

LOG = LogSettings(
    queue=QUEUE, exchange=3, epoch=5, cluster="c", host="h", ring_bytes=1 << 16, topics_max=10,
    topics_spare=0, capacity_bytes=1 << 30, keep_us=1 << 60, now_us=1, segment_entries=3,
)  # fmt: skip
DECLARED = (RemoteProtocolError, RequestError, ConfigError)
TOPICS = (b"t", b"a", b"", b"\xff", b"\xfe", b"x" * 255, b"x" * 256, "é".encode())
BODIES = (
    b"\x92\x91\xc4\x01x\xc0", b"\x92\x90\xc0", b"", b"\x92\x91\xc4\x01x" + b"\x91" * 5_000,
    b"\x92\xdd\xff\xff\xff\xff", b"\x92\x91\xc4\x01x\x91\xa2\xff\xff", b"\x01\x08short",
    b"\x92\x91\xc4\x01x\xc4\x08\x81\x00\x93\xa1k\x91\xa1t\x80",
    b"\x92\x91\xc4\x01x\xc4\x05\x81\x00\x93\xa1k",
    b"\x92\x91\xc4\x01x\xc4\xff" + b"\x91" * 255,
)  # fmt: skip


def _raw(maker: Maker, kind: object) -> bytes:
    made = for_bson(maker.document(kind))
    assert isinstance(made, dict)
    return documents.encode_raw(made)


def _batch(maker: Maker, publisher: bytes | None = None) -> bytes:
    pick = maker.random.choice
    body = pick(BODIES)
    checksum = xxhash.xxh3_64_intdigest(body) & 0xFFFFFFFF
    return HEADER.pack(
        MAGIC, WIRE_VERSION,
        pick([0, 0, 0, 1, 2, 3, 9]), pick([0, 0, 0, 1]), 0, pick([0, 0, 5, 65_535]),
        pick([0, 1, 1, 1, 2, 500, 1 << 20, (1 << 32) - 1]), checksum,
        publisher or pick([b"e" * 16, b"p" * 16]), pick([1, *U64]), pick([1, 2, 3, *U64]),
        pick(U64), pick(U64),
    ) + body  # fmt: skip


def fuzz_exchange(maker: Maker) -> None:
    """The channel of an exchange: Hellos, batches, questions of readers."""
    pick = maker.random.choice
    maker.known = {
        "queue": [QUEUE],
        "epoch": [EPOCH, 1, 2],
        "generation": [EPOCH, 1],
        "version": [WIRE_VERSION],
        "wire": [WIRE_VERSION],
    }
    there = exchange(
        topics=pick([2, 5, 100]), publishers=pick([1, 3]), ring_bytes=pick([2_000, 1 << 20])
    )
    Publisher(there).hello()
    requests = {
        channel.HELLO: channel.Hello, channel.BYE: channel.Bye, channel.FETCH: channel.FetchRequest,
        channel.HEADS: channel.HeadsRequest, channel.STREAMS: channel.StreamsRequest,
        channel.SEEK: channel.SeekRequest, channel.FIND: channel.FindRequest,
    }  # fmt: skip
    routes = [b"evil", b"other", b"p/1"]
    for _ in range(STEPS):
        what = maker.random.random()
        if what < 0.5:
            letter = pick(list(requests))
            tag = pick([b"", b"one!", b"two!", b"odd"])
            frames = (letter + tag, _raw(maker, requests[letter]))
            there.tell(Received(pick(routes), frames))
            there.serve()
            for _ in range(50):
                if not there.core.fetches.runnable(there.now):
                    break
                there.core.fetches.sent(there.core.fetches.next_piece())
        elif what < 0.8:
            there.append(pick(routes), pick(TOPICS), _batch(maker))
        elif what < 0.9:
            there.tell(pick([Garbled(b"evil"), Subscribed(pick(TOPICS)), Unreachable(b"evil")]))
            there.tell(Passed(PublisherId(pick([b"p" * 16, b"e" * 16])), pick(NUMBERS), ()))
        else:
            there.now += pick([0.0, 0.6, 1_000.0])
            there.core.begin(there.now, int(there.now * 1e6))
            there.tell(Tick())
        there.settle()


def fuzz_publisher(maker: Maker) -> None:
    """What exchanges tell a publisher."""
    pick = maker.random.choice
    info = ExchangeInfo(
        number=1, epoch=7, generation=7, host="h", data="tcp://h:1", live="tcp://h:2"
    )
    maker.known = {"exchange": [1], "generation": [7], "expected": [0, 1, 2]}
    machine = Links(PublisherId(b"p" * 16), Limits(), delivery_seconds=30.0)
    now = 100.0
    machine.handle(Assignment(QUEUE, info, 1, Limits()), now)
    kinds = {
        channel.READY: channel.Ready, channel.RESET: channel.Reset, channel.REFUSED: channel.Refused
    }  # fmt: skip
    for _ in range(STEPS):
        letter = pick([*kinds, channel.ACK, channel.SYNCED])
        body = channel.NUMBER.pack(pick(U64)) if letter not in kinds else _raw(maker, kinds[letter])
        with suppress(Unavailable):
            read_answer(channel.CLAIM + _raw(maker, channel.Claimed))
        number = machine.all[-1].number if machine.all else 1
        with suppress(RemoteProtocolError):
            machine.handle(LinkReceived(number, [letter, body]), now)
        if maker.chance(0.2):
            now += pick([0.1, 1.0, 10.0])
            machine.handle(Tick(), now)
        if maker.chance(0.1):
            machine.handle(Assignment(QUEUE, info, pick([1, 2, 3, (1 << 63) - 1]), Limits()), now)
        machine.check()


def fuzz_subscriber(maker: Maker) -> None:
    """What logs bring to a subscriber, and what it makes of it."""
    pick = maker.random.choice
    info = ExchangeInfo(number=3, epoch=12, generation=9, host="h", data="d", live="l")
    maker.known = {"generation": [9], "id": [1, 2, 3, 4]}
    reader = Reader(info, QUEUE, [b"t"], Start(), nonce=b"n" * 16, streams=True, now=1.0)
    merge = Resequencer(0.0, held_bytes_max=pick([500, 1 << 20]), streams_max=pick([2, 1_000]))
    merge.tables_complete(0.0)
    source, now = (3, 9), 1.0
    reader.handle(DataUp(), now)
    answers = {
        channel.HEADS: channel.Heads, channel.STREAMS: channel.Streams, channel.SEEK: channel.Seek,
        channel.FETCH: channel.Fetched, channel.REFUSED: channel.Refused,
    }  # fmt: skip
    for step in range(STEPS):
        frame = pack_entry(pick(list(EntryKind)), 3, QUEUE, 9, pick(U64), pick(U64), pick(U64))
        batch = _batch(maker)
        what = maker.random.random()
        if what < 0.3:
            topic = pick([b"t", channel.END_TOPIC, reader.presence_topic])
            reader.live([topic, frame, batch] if maker.chance(0.7) else [topic, frame], now)
        elif what < 0.6:
            letter = pick(list(answers))
            with suppress(RemoteProtocolError):
                reader.handle(Answered([letter, _raw(maker, answers[letter])]), now)
        elif what < 0.7:
            number = channel.NUMBER.pack(pick(U64))
            frames = [channel.FETCHED_ENTRY, number, b"t", frame, batch]
            with suppress(RemoteProtocolError):
                reader.handle(Answered(frames), now)
        merge.add(source, pick([b"t", b"u"]), step, batch, now)
        merge.settle(now, {source: now - pick([0, 1])})
        now += pick([0.0, 0.1, 3.0])
        for effect in reader.handle(Tick(), now):
            if isinstance(effect, Ask):
                documents.decode_raw(effect.frames[1])
        for delivered in merge.out:
            with suppress(RemoteProtocolError):
                _ = [(each.key, each.tags, each.properties) for each in delivered.messages()]
        merge.out.clear()
        reader.check()
        merge.check()
    documents.encode(
        control.Alive(
            queue_id=QUEUE, client=b"c", role="subscriber",
            received=merge.counts.delivered, lost=merge.counts.lost,
        )
    )  # fmt: skip
    with suppress(RemoteProtocolError):
        read_entry(frame)


def _encodable(effects: list[object]) -> None:
    for effect in effects:
        message = getattr(effect, "message", None)
        if isinstance(message, control.Control):
            documents.encode(message)


def fuzz_session(maker: Maker) -> None:
    """What managers and monitors tell a client."""
    pick = maker.random.choice
    maker.known = {"queue_id": [QUEUE], "publisher": [b"c" * 16], "monitor": ["tcp://m:1"]}
    session = SessionMachine(
        queue="orders", client=b"c" * 16, role=pick(["publisher", "subscriber"]),
        managers=("tcp://a:1",), jitter=lambda: 0.5,
    )  # fmt: skip
    now, serial = 1.0, 0
    effects: list[object] = [*session.handle(session_events.Start(), now)]
    for _ in range(STEPS):
        serial = max([serial, *(getattr(effect, "serial", 0) for effect in effects)])
        try:
            answer: control.Answer = documents.decode(_raw(maker, control.Answer), control.Answer)  # type: ignore[arg-type]
        except RemoteProtocolError:
            continue
        event = pick(
            [
                session_events.ManagerAnswered(answer),
                session_events.MonitorAnswered(serial, answer),
                session_events.Pushed(answer),
                Tick(),
            ]
        )
        now += pick([0.0, 0.5, 5.0])
        effects = [*session.handle(event, now)]
        _encodable(effects)
        session.check()


def fuzz_monitor(maker: Maker) -> None:
    """What exchanges, clients and managers tell a monitor."""
    pick = maker.random.choice
    maker.known = {"queue_id": [QUEUE_ID], "number": [1, 2], "epoch": [1, 2]}
    monitor = Driver(restarted=maker.chance(0.3))
    for _ in range(STEPS):
        if maker.chance(0.8):
            request = read_request(_raw(maker, control.MonitorRequest), control.MonitorRequest)  # type: ignore[arg-type, var-annotated]
            if isinstance(request, control.Failure):
                documents.encode(request)
                continue
            _encodable([*monitor.handle(monitor_events.Received(peer_of("any"), request))])
        elif maker.chance(0.5):
            monitor.now += pick([0.1, 1.0, 11.0])
            _encodable([*monitor.handle(Tick())])
        elif monitor.questions():
            try:
                answer = documents.decode(_raw(maker, control.Elasticity), control.Elasticity)
            except RemoteProtocolError:
                continue
            _encodable([*monitor.leader(answer)])


def fuzz_manager(maker: Maker) -> None:
    """Both request ports of a configuration manager."""
    maker.known = {"QName": ["orders", "q2"], "queue": ["orders"], "Host": ["h1"], "host": ["h1"]}
    script = Script(PaperHost("h1"), PaperHost("h2"))
    for peer in range(STEPS):
        if maker.chance(0.5):
            frame = _raw(maker, public.ManagementRequest)
            script.feed(gcm_events.ManagementFrame(("m", peer), frame, QUEUE, 1.0))
        else:
            frame = _raw(maker, public.GcmRequest)
            script.feed(gcm_events.ClientFrame(("c", peer), frame))
        script.now += maker.random.choice([0.0, 0.2, 3.0])
        script.feed(Tick())


def fuzz_host(maker: Maker) -> None:
    """What managers and children tell a host manager."""
    maker.known = {
        "queue": ["orders"], "queue_id": [QUEUE], "number": [1, 2, 0], "leader_epoch": [1, 2],
        "child": ["orders.x1", "orders.monitor"], "cluster": [""],
    }  # fmt: skip
    host = Host()
    for _ in range(STEPS):
        request = read_request(_raw(maker, control.HcmRequest), control.HcmRequest)  # type: ignore[arg-type, var-annotated]
        if isinstance(request, control.Failure):
            continue
        for answer in host.ask("any", request):
            documents.encode(answer)  # type: ignore[arg-type]
        if maker.chance(0.2):
            host.advance(maker.random.choice([0.1, 1.0, 12.0]))


def fuzz_broadcast(maker: Maker) -> None:
    """The configuration broadcast."""
    made = [
        {"CMD": 1500, "Version": maker.integer()},
        {"Queues": [{"Name": maker.pick(TEXTS), "Host": maker.pick(TEXTS), "State": True}]},
        {"Hosts": [maker.pick(TEXTS)]},
    ]
    frames = [documents.encode_raw(for_bson(each)) for each in made]  # type: ignore[arg-type]
    broadcast.encode(broadcast.decode(frames[: maker.random.choice([1, 3, 3, 3])]))


def fuzz_registry(maker: Maker) -> None:
    """What stands in the registry, and a leader that reads it."""
    maker.known = {
        "name": ["orders"],
        "state": ["running", "creating"],
        "durability": ["none", "flush"],
    }
    script = Script(PaperHost("h1"), leads=False)
    for path, kind in (
        (records.queue_path("orders"), records.QueueRecord),
        (records.rules_path("orders"), public.SetRules),
        (records.HOSTS_PATH, None),
    ):
        made = (
            {"h1": maker.document(records.Mark, json=True)}
            if kind is None
            else maker.document(kind, json=True)
        )
        script.registry[path] = as_json(made)
    script.registry[records.transactions_path("orders")] = as_json(
        [["t", maker.integer()], ["u", maker.integer()]]
    )
    script.registry[records.LOGS_PATH] = as_json([maker.document(records.RemovedLog, json=True)])
    snapshot = script.snapshot()
    for record in snapshot.queues:
        records.encode(record)
    script.elect()
    script.pass_time(3.0)
    manager = records.decode_manager(as_json(maker.document(records.Manager, json=True)))
    assert manager is None or manager.client


def fuzz_rules(maker: Maker) -> None:
    """Scaling rules, as they are set and as they are in force."""
    maker.known = {"QName": ["orders"], "AUTOSCALING_NAME": ["r"]}
    for _ in range(STEPS):
        found = public.parse_management(_raw(maker, public.SetRules))
        if isinstance(found, public.SetRules):
            elastic_of(found, Limits())
        elif isinstance(found, public.Bad):
            documents.decode_raw(found.answer())


def fuzz_spark(maker: Maker) -> None:
    """Checkpoints and options of Spark queries."""
    keys = ["1:65537", ":", "x", "-1:1", "٣:1", "9" * 40 + ":1"]
    logs = {maker.random.choice(keys): maker.integer() for _ in range(3)}
    options = {
        "cluster": "h", "queue": "orders", "startingOffsets": json.dumps(logs),
        "maxBatchesPerTrigger": str(maker.integer()),
        "timeoutSeconds": maker.random.choice(["nan", "inf", "-1", "1e999", "5", ""]),
    }  # fmt: skip
    for name in ("maxBatchesPerTrigger", "timeoutSeconds"):
        if maker.chance(0.5):
            del options[name]
    _declared(lambda: read_options(options, streaming=True))
    time_given = maker.random.choice(["0001-01-01", "9999-12-31T23:59:59+00:00", "x", "1e9"])
    del options["startingOffsets"]
    _declared(lambda: read_options({**options, "startingTime": time_given}, streaming=True))
    document = {"format": maker.random.choice([1, 2, None]), "queue": "id", "logs": logs}
    _declared(lambda: read_offsets(document, "id"))


def fuzz_files(maker: Maker) -> None:
    """Configuration files, and the specs of children."""
    for kind in (GcmConfig, HcmConfig):
        table = maker.document(kind)
        with suppress(ConfigError):
            config.convert(kind, table, source="f", section="s")
    line = json.dumps(maker.document(specs.Serve | specs.End, json=True), default=repr)
    _declared(lambda: specs.decode_command(line.encode()))
    made = maker.document(specs.Spec, json=True)
    try:
        spec = documents.convert(made, specs.Spec)  # type: ignore[arg-type, var-annotated]
    except RemoteProtocolError:
        return
    specs.encode_spec(spec)


def fuzz_answers(maker: Maker) -> None:
    """What a configuration manager answers a client."""
    for kind in (QueueDescription, HostSummary, QueueSummary):
        made = maker.document(kind)
        with suppress(RemoteProtocolError):
            documents.convert(made, kind)
    _declared(lambda: documents.decode(_raw(maker, control.Answer), control.Answer))  # type: ignore[arg-type]


def fuzz_statistics(maker: Maker) -> None:
    """The statistics stream of a queue."""
    kind = maker.random.choice([kpi.NumericDocument, kpi.OldDocument])
    frame = _raw(maker, kind)
    _declared(lambda: kpi.decode([frame] * maker.random.choice([1, 3, 5])))
    document = kpi.decode_numeric([kpi.NUMERIC_TOPIC, frame])
    kpi.numeric_frames(document)


def fuzz_flight(maker: Maker) -> None:
    """Files with what daemons did, of which somebody has changed a few values."""
    with recorded() as recorders:
        _declared(lambda: maker.random.choice([fuzz_monitor, fuzz_host, fuzz_manager])(maker))
    flights = msgspec.msgpack.decode(data_of(recorders)[len(flight.MAGIC) :])
    for _ in range(maker.random.randint(0, 3)):
        _change(maker, flights)
    data = bytearray(flight.MAGIC + msgspec.msgpack.encode(flights))
    for _ in range(maker.random.choice([0, 0, 0, 1, 3])):
        data[maker.random.randrange(len(data))] = maker.random.randrange(256)
    for each in flight.decode(bytes(data[: maker.random.choice([None, None, len(data) // 2])])):
        list(story(each))
        replay(each)


def fuzz_log(maker: Maker) -> None:
    """A log on disk of which somebody has changed a few bytes, and made the sums fit."""
    files = MemoryFiles()
    log = open_log(files, LOG)
    frame = pack_entry(
        maker.random.choice([0, 2, 3, 9]), 3, QUEUE, 5, maker.random.choice(U64), 0, 0
    )
    body = _raw(maker, snapshot.LogSnapshot)
    for _ in range(maker.random.randint(1, 12)):
        keyed = pack([b"x"], publisher=PublisherId(QUEUE), epoch=1, link_number=1, first_sequence=0,
                     created_us=7, extensions=_area(maker, 1), attributes=b"\x80")  # fmt: skip
        held = maker.random.choice([body, keyed])
        log.append(maker.random.choice(TOPICS[:3]), held, len(held))
        group = log.gather(lambda: encode_snapshot([]))
        assert group is not None
        perform(files, group)
        log.commit(group.end)
    kind = maker.random.choice(list(RecordKind))
    before, behind = pack_record(kind, b"t", frame, body, len(body), maker.random.choice(U64))
    last = max(name for name in files.names() if name.endswith(SEGMENT_SUFFIX))
    files.write(last, files.size(last), [before, body, behind])
    for name in files.names():
        if name.endswith(INDEX_SUFFIX) and maker.chance(0.5):
            data = bytearray(files.read(name, 0, files.size(name)))
            data[maker.random.randrange(len(data))] = maker.random.randrange(256)
            data[24:32] = xxhash.xxh3_64_digest(
                data[32:], seed=xxhash.xxh3_64_intdigest(data[:24])
            )[::-1]
            files.contents[name] = data
    with suppress(LogRefused):
        after = open_log(files, replace_in(LOG, epoch=6))
        for offset in range(after.floor, after.end):
            after.record(offset)
            after.next_of(b"t", offset)
        _look_for_keys(maker, files, after)
    _declared(lambda: snapshot.decode_snapshot(body))
    _declared(lambda: decode_snapshot(body))


def _look_for_keys(maker: Maker, files: MemoryFiles, log: SegmentLog[bytes]) -> None:
    """Over indexes of which somebody has changed a few bytes, and made the sums fit."""
    while (due := log.keys.due(lambda: None)) is not None:
        data = due.load()
        if isinstance(data, bytes):
            changed = bytearray(data)
            changed[maker.random.randrange(len(data))] = maker.random.randrange(256)
            changed[24:32] = xxhash.xxh3_64_digest(
                changed[32:], seed=xxhash.xxh3_64_intdigest(changed[:24])
            )[::-1]
            due.keep(bytes(changed))
    group = log.gather(bytes)
    if group is not None:
        perform(files, group)
        log.commit(group.end)
    for _ in range(5):
        log.find(maker.random.choice([0, 7, (1 << 32) - 1]), maker.random.choice(U64))


def _short(maker: Maker, kind: object) -> bytes:
    """One of the short messages of consumers: an array."""
    data = msgspec.msgpack.encode(for_bson(maker.array(kind)))
    return data[: maker.random.randrange(len(data) + 1)] if maker.chance(0.05) else data


def _area(maker: Maker, count: int) -> bytes:
    """What a batch may say of its messages, sometimes cut off or of other lengths."""
    column = maker.random.randbytes(maker.random.choice([1, count, count + 1, 255]))
    kinds = (KEY_GROUPS, PRIORITIES, TAGS, LIFETIME, KEYS, 99)
    records = [bytes((kind, len(column))) + column for kind in kinds if maker.chance(0.5)]
    area = b"".join(records)
    return area[: maker.random.randrange(len(area) + 1)] if maker.chance(0.2) else area


def fuzz_consumers(maker: Maker) -> None:
    """Members of groups: what an exchange is told by them, and what they are told by exchanges."""
    pick = maker.random.choice
    maker.known = {
        "queue": [QUEUE], "generation": [EPOCH], "group": ["g", "h"], "member": [b"p" * 16],
        "prefixes": [[b""], [b"t"]], "make": [True], "lease": [1, 2, 3],
        "mode": [pick(consuming.MODES)], "tags": [pick([(), ("a", "b")])],
        "messages": [1, 50, NUMBER_MAX], "bytes": [1 << 20], "window": [1, 50],
        "lease_seconds": [2.0, 30.0], "retry_seconds": [0.0, 1.0], "retry_seconds_max": [60.0],
        "attempts": [0, 16], "name": ["n"], "start_us": [0], "held": [[]], "delay": [0.0],
        "first": [0, 1], "length": [1, 2], "reason": ["no"], "serial": [1, 2, 3],
        "service": ["g", "s"], "offset": [0, 1, 2, -1], "index": [0, 1], "at": [0, 1],
        "whole": [[1, 2], [3]], "order": ["pause", "resume", "seek", "delete"],
    }  # fmt: skip
    there = exchange(topics=5, publishers=1, ring_bytes=pick([2_000, 1 << 20]))
    one = Publisher(there)
    one.hello()
    documents_of = {
        consuming.JOIN: consuming.Join, consuming.GROUPS: consuming.GroupsRequest,
        consuming.GROUP_ORDER: consuming.GroupOrder,
        requesting.ATTEND: requesting.Attend, requesting.REQUESTS: requesting.RequestsQuery,
    }  # fmt: skip
    short = {
        requesting.WANT: requesting.Want, requesting.FIGURES: requesting.Figures,
        consuming.CREDIT: consuming.Credit, consuming.DONE: consuming.Done,
        consuming.LEAVE: consuming.LeaveGroup, consuming.EXTEND: consuming.Extend,
    }  # fmt: skip
    machine = ConsumerMachine(
        Membership(
            id=b"p" * 16, name="n", group="g", settings=consuming.GroupSettings(), latest=False,
            start_us=0, prefetch=10, prefetch_bytes=1 << 20,
        )
    )  # fmt: skip
    info = ExchangeInfo(number=1, epoch=EPOCH, generation=EPOCH, host="h", data="d", live="l")
    machine.open(info, QUEUE)
    machine.up(info.log, 0.0)
    consumers = there.core.consumers
    for _ in range(STEPS):
        if maker.chance(0.3):
            count = pick([1, 3])
            area = pick([b"", _area(maker, count)])
            there.append(one.route, b"t", one.batch(b"t", count, area=area))
        letter = pick([*documents_of, *short])
        body = _raw(maker, documents_of[letter]) if letter in documents_of else (
            _short(maker, short[letter])
        )  # fmt: skip
        there.tell(Received(pick([b"evil", b"other"]), (letter + pick([b"", b"one!"]), body)))
        there.serve()
        for _ in range(9):
            if consumers.runnable():
                delivery = consumers.next_delivery()
                if delivery is not None and maker.chance(0.5):
                    consumers.sent(delivery)
                    parts = split_answer(join_answer(delivery.parts, delivery.batch), 0)
                    with suppress(RemoteProtocolError):
                        machine.take(info.log, parts, there.now)
                elif delivery is not None:
                    consumers.blocked(delivery)
        if maker.chance(0.1):
            there.tell(Unreachable(b"evil"))
        if maker.chance(0.2):
            there.now += pick([0.1, 0.6, 40.0])
            there.core.begin(there.now, 1_000)
            there.tell(Tick())
        there.settle()
        told = pick([
            [consuming.JOIN, _raw(maker, consuming.Joined)],
            [consuming.DONE, _short(maker, consuming.DoneConfirmed)],
            [consuming.EXTEND, _short(maker, consuming.Extended)],
            [consuming.LEASED,
             consuming.LEASE.pack(1, 0, pick([1, 4_000_000_000]), 1, pick([0, 1])) + b"\x01",
             pick(TOPICS), pack_entry(EntryKind.ENTRY, 1, QUEUE, EPOCH, 1, 0, 0), _batch(maker)],
            [consuming.LEAVE, b""], [channel.REFUSED, _raw(maker, channel.Refused)],
        ])  # fmt: skip
        with suppress(RemoteProtocolError):
            machine.take(info.log, told, there.now)
        for holding in machine.arrived[:1]:
            run = consuming.Run(holding.offset, holding.first, 1)
            machine.extend(holding, run, there.now + 9.0, pick([1, 2]), there.now)
        machine.tick(there.now)
        with suppress(RemoteProtocolError):
            decode_deltas(maker.random.choice(BODIES))


def _change(maker: Maker, value: object) -> None:
    """Put something else in the place of a value somewhere below."""
    while isinstance(value, list | dict) and value:
        key = maker.random.choice(list(value) if isinstance(value, dict) else range(len(value)))
        inner = value[key]
        if not (isinstance(inner, list | dict) and inner) or maker.chance(0.05):
            value[key] = maker.random.choice([*NUMBERS, *TEXTS, None, [], {}, b"", True])
            return
        value = inner


def _declared(action: Callable[[], object]) -> None:
    with suppress(*DECLARED):
        action()


def fuzz_later(maker: Maker) -> None:
    """Delayed messages and transactions: what publishers put under the hidden topic, and what is
    asked and said of them."""
    pick = maker.random.choice
    maker.known = {
        "queue": [QUEUE], "due_us": [0, 1_000, 5_000_000, NUMBER_MAX], "topic": [b"t", b"eu.be"],
        "payload": [b"x", transaction.encode_half(transaction.Half("g", [(b"t", b"1")]))],
        "id": [b"12345678"], "message": [b"12345678"], "most": [0, 10], "group": ["g"],
        "transaction": [b"12345678"],
        "publisher": [b"", b"p" * 16], "published_us": [0, 7],
    }  # fmt: skip
    there = exchange(topics=5, publishers=1, ring_bytes=pick([2_000, 1 << 20]))
    one = Publisher(there)
    one.hello()
    asks = {
        delayed.DELAYED: delayed.DelayedRequest, delayed.CANCEL_DELAYED: delayed.CancelDelayed,
        transaction.ENROLL: transaction.Enroll, transaction.SETTLE: transaction.Settle,
        transaction.TRANSACTIONS: transaction.TransactionsQuery,
    }  # fmt: skip
    answers = {
        transaction.ENROLL: transaction.Enrolled, transaction.SETTLE: transaction.Settled,
        transaction.CHECK: transaction.CheckHead, channel.REFUSED: channel.Refused,
    }  # fmt: skip
    info = ExchangeInfo(number=1, epoch=1, generation=1, host="h", data="d", live="l")
    producer = ProducerMachine("g", b"")
    producer.open(info, QUEUE)
    producer.up(info.log, 0.0)
    time_us = 1_000
    for _ in range(STEPS):
        if maker.chance(0.5):
            payloads = [_short(maker, delayed.Delayed) for _ in range(pick([1, 3]))]
            area = pick([b"", delayed.pack_settled([(0, 0), (1, 2)])])
            data = one.batch(delayed.DELAYED_TOPIC, len(payloads), area=area, payloads=payloads)
            there.append(one.route, delayed.DELAYED_TOPIC, data)
        if maker.chance(0.3):
            there.append(one.route, b"t", one.batch(b"t", pick([1, 3])))
        letter = pick([*asks])
        there.tell(Received(b"evil", (letter + b"one!", _raw(maker, asks[letter]))))
        there.serve()
        there.now += pick([0.0, 0.6, 40.0])
        time_us += pick([0, 600_000, 86_400_000_000])
        there.core.begin(there.now, time_us)
        there.tell(Tick())
        there.settle()
        with suppress(RemoteProtocolError):
            TimingWheel().unpack(maker.random.choice(BODIES), time_us)
        with suppress(RemoteProtocolError):
            transaction.decode_half(_short(maker, transaction.Half))
        told = pick([*answers])
        rest = pick([b"", _short(maker, transaction.Half)])
        with suppress(RemoteProtocolError):
            producer.take(info.log, [told, _raw(maker, answers[told]) + rest], there.now)
        producer.decide(info.log, b"12345678", pick([*transaction.Decision]), there.now)


TARGETS: dict[str, Callable[[Maker], None]] = {
    name.removeprefix("fuzz_"): target
    for name, target in list(globals().items())
    if name.startswith("fuzz_") and callable(target)
}


DECODERS: dict[str, tuple[str, ...]] = {
    "exchange": (
        "exchange/intake", "exchange/publishers", "exchange/readers", "log/ring", "protocol/batch",
        "protocol/documents",
    ), "publisher": (
        "client/publish/link", "client/publish/resume", "protocol/channel",
    ), "subscriber":
    ("client/subscribe/resequencer", "read/reader", "read/range_reader", "protocol/entry",
     "protocol/attributes"),
    "session": ("runtime/rpc",), "monitor": ("runtime/rpc",),
    "manager": ("protocol/public", "protocol/defined_services"),
    "host": (), "peers": (), "wire": ("protocol/zmtp",),
     "broadcast": ("protocol/broadcast", "cli/no_answer"),
    "registry": ("coordination/registration", "gcm/state/records"),
    "rules": ("gcm/change/scaling_rules", "client/admin/rules"),
    "spark": (),
    "files": (
        "exchange/config", "monitor/process", "protocol/spec", "hcm/records", "provider/record",
        "runtime/config",
        "testing/provider_kit",
    ), "answers": ("client/admin/management", "client/admin/views", "gcm/provision/calls",
    "provider/engine"), "statistics": ("protocol/kpi",),
    "flight": ("cli/replay", "runtime/flight"),
    "consumers": (
        "client/consume/consumer", "client/consume/groups", "client/consume/machine",
        "client/consume/extensions", "exchange/consumers", "exchange/services",
        "log/delayed_requests", "log/service_group", "protocol/requesting",
        "client/request/handling", "client/request/machine", "client/request/requester",
        "client/request/service", "log/group_changes", "log/group_filter", "log/groups",
        "log/ordered_group", "protocol/consuming",
    ),
    "later": (
        "client/consume/delayed", "exchange/delayed_message", "exchange/delayed_messages",
        "log/timing_wheel", "protocol/delayed", "exchange/transactions", "protocol/transaction",
        "client/transact/machine", "client/transact/commands",
    ),
    "log": (
        "exchange/snapshot", "log/index", "log/key_index", "log/meta", "log/records",
        "log/recovery", "log/snapshot", "protocol/columns",
    ),
}  # fmt: skip
"""Target → the modules of roq whose decoding it goes through, or that decode in the same way."""


def one_round(name: str, seed: int) -> None:
    """One history; raises what is not declared."""
    _declared(lambda: TARGETS[name](Maker(seed)))


def main() -> int:
    """Run one target for a while, and say what was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("decoder", choices=sorted(TARGETS))
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=11)
    given = parser.parse_args()
    found: Counter[str] = Counter()
    rounds, end = 0, time.monotonic() + given.seconds
    while time.monotonic() < end:
        try:
            one_round(given.decoder, given.seed * 1_000_003 + rounds)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is a find
            frames = traceback.extract_tb(error.__traceback__)
            places = [f"{Path(f.filename).name}:{f.lineno}" for f in frames[-3:]]
            found[f"{type(error).__name__}: {str(error)[:80]} at {' < '.join(places)}"] += 1
        rounds += 1
    lines = [f"{given.decoder}: {rounds} rounds, {sum(found.values())} finds"]
    lines += [f"  {count} × {text}" for text, count in found.most_common(20)]
    sys.stdout.write("\n".join(lines) + "\n")
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main())
