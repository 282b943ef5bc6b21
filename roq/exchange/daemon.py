"""Sockets, clock and loop around the exchange core: reads bursts, sends what the core decides.

Frames are read one by one, and the frame of a large batch is what stays in the log. What goes out
is one frame (`roq.protocol.framing`). Nothing here waits for a peer.
"""

from __future__ import annotations

import logging
import os
import random
import time
from collections.abc import Callable
from math import inf
from typing import Final, cast

import zmq

from roq.errors import ConfigError, RoQError, Unavailable
from roq.exchange.backlogs import ANNOUNCE_ABOVE_BYTES, live_high_water_mark
from roq.exchange.connections import Connections
from roq.exchange.disk_log import DiskLog
from roq.exchange.events import (
    Effect,
    Event,
    Garbled,
    Passed,
    Publish,
    Received,
    Send,
    Stop,
    Subscribed,
    Tell,
    Unreachable,
    Unsubscribed,
    Woken,
)
from roq.exchange.intake import batch_bytes_max
from roq.exchange.kpi_report import CpuMeter, busiest_publishers, load_of, metrics_of
from roq.exchange.machine import ExchangeCore
from roq.exchange.monitor_finder import MonitorFinder
from roq.exchange.monitor_link import MonitorLink
from roq.exchange.reader_turns import Outcome, ReaderTurns
from roq.exchange.trouble_log import TroubleLog
from roq.machine import Tick
from roq.model import ExchangeInfo, Limits, endpoint_of
from roq.protocol.channel import ACK, CONTROL, NUMBER, SYNCED
from roq.protocol.control import ExchangeReport, OrderAsk, OrderTold
from roq.protocol.entry import announcement
from roq.protocol.framing import LETTER_BYTES, join_answer, join_large, join_live
from roq.protocol.reports import ChildInfo, ExchangeLoad
from roq.protocol.spec import ExchangeSpec
from roq.runtime import exits, sockets
from roq.runtime.manager import ManagedChild, ManagerLink
from roq.runtime.reactor import Reactor
from roq.runtime.signals import on_stop
from roq.timing import FETCH_GIVE_UP_SECONDS, HEARTBEAT_MS

BURST: Final = 50
"""Messages that are read from a socket before the others have their turn."""
COPY_BELOW_BYTES: Final = 8 * 1024
"""Smaller batches are copied out of the buffer in which they arrived, or they would pin it."""
DATA_SNDHWM: Final = 256
LIVE_BYTES_MAX: Final = 4 * 1024
"""Largest message that a subscriber may send: prefixes have 255 bytes at most."""
FRAMES_MAX: Final = 3
"""Frames of a control message that are kept; with more it is garbled anyway."""
STOP_SECONDS: Final = 1.0
QUIET_SECONDS: Final = 0.1
PROBLEMS_MAX: Final = 20
"""Lines about what of a log cannot be read."""
DISK_SECONDS: Final = 3.0
"""What is not on the disk by then stays unacknowledged: publishers have it still."""
LINGER_MS: Final = 200

_MORE: Final = int(zmq.MORE)
_CONTROL: Final = bytes((CONTROL,))
_EVENTS: Final = int(zmq.EVENTS)
_READABLE: Final = int(zmq.POLLIN)
_NOBLOCK: Final = int(zmq.NOBLOCK)
_NOBLOCK_MORE: Final = int(zmq.NOBLOCK | zmq.SNDMORE)

log = logging.getLogger(__name__)


def data_receive_mark(limits: Limits) -> int:
    """Messages of one publisher that may wait here: more than it ever sends unacknowledged.

    A socket that is full, whose peer dies, aborts the process at its next heartbeat (libzmq 4.3.5:
    `Assertion failed: !_io_error`). ZeroMQ counts what was read in steps of half the mark, and a
    publisher that moves sends as much again as its window.
    """
    return 4 * max(64, limits.window_batches) + 128


class ExchangeServer:
    """One exchange process, or one exchange in a test. Construct (binds), `run()`, `close()`.

    Args:
        spec: `manager` and `monitor` may be empty for an exchange that stands alone.

    Raises:
        Unavailable: no port of the range is free.
        ConfigError: this machine does not have the address to bind to.
        LogRefused: it has a log on disk, which cannot be gone on with.
        RemoteProtocolError: that log holds what is none of an exchange.
    """

    def __init__(self, spec: ExchangeSpec) -> None:
        self._spec = spec
        self.exit_code = exits.STOPPED
        self.reactor = Reactor()
        self._disk: DiskLog | None = None
        self._publishing = False
        """Whether `_publish_committed` is about to be called."""
        try:
            self.core = self._make_core()
        except RoQError:
            self.reactor.close()
            raise
        self._context = sockets.new_context()
        self._data = sockets.router(self._context, maximum_bytes=batch_bytes_max(spec.limits))
        self._live = sockets.publisher(self._context, maximum_bytes=LIVE_BYTES_MAX)
        self._backlogs = self.core.backlogs
        self._listening = Connections(
            self._context, self._live, self._backlogs.accepted, self._backlogs.ended
        )
        try:
            self._bind()
        except (Unavailable, ConfigError):
            self._close_sockets()
            raise
        # The methods of the base class: the subclass only adds a Python call to each frame.
        self._recv = super(zmq.Socket, self._data).recv
        self._events = cast("Callable[[int], int]", super(zmq.Socket, self._data).get)
        self._publish = super(zmq.Socket, self._live).send
        self._send_data = super(zmq.Socket, self._data).send
        self._last_burst = 0
        self._readers = ReaderTurns(
            self.reactor, self.core, self._send, self._perform, self._unreachable, self._settle,
            None if self._disk is None else self._disk.at_hand,
        )  # fmt: skip
        self._stopping_since = 0.0
        self._last_read = 0.0
        self._troubles = TroubleLog(self.core.counters, self._backlogs)
        self._cpu = CpuMeter(self.reactor.now())
        self._load = ExchangeLoad()
        self.reactor.add(self._data, self._data_readable)
        self.reactor.add(self._live, self._live_readable)
        self._timer = self._due_timer = self.reactor.call_later(0, self._tick)
        self._due_at = inf
        self._monitor = MonitorLink(
            self.reactor, self._context, spec.monitor,
            queue=spec.queue_id, kpi_seconds=spec.kpi_seconds, shell=self,
        )  # fmt: skip
        self._finder = MonitorFinder(
            self.reactor, self._context, spec.managers, spec.queue, spec.queue_id,
            found=self._monitor.move, gone=self._disowned, jitter=random.Random().random,  # noqa: S311 - spreads retries
        )  # fmt: skip
        self._link: ManagerLink | None = None
        self._manager: ManagedChild | None = None
        if spec.manager:
            self._link = ManagerLink(
                self.reactor, self._context, spec.manager, orphan_seconds=spec.orphan_seconds
            )
            self._manager = self._link.add(
                self.child, on_keep=lambda ack: self._monitor.told(ack.monitor), on_stop=self.stop,
                metrics=lambda: metrics_of(self._load), idle=lambda: self.core.idle,
            )  # fmt: skip

    @property
    def info(self) -> ExchangeInfo:
        """Where publishers and subscribers find this exchange."""
        return ExchangeInfo(
            number=self._spec.number, epoch=self._spec.epoch, generation=self.core.log.generation,
            host=self._spec.host, data=self.data, live=self.live,
        )  # fmt: skip

    def child(self) -> ChildInfo:
        """How this process presents itself to its host manager."""
        spec = self._spec
        return ChildInfo(
            child=spec.child, role="exchange", queue=spec.queue, queue_id=spec.queue_id,
            number=spec.number, epoch=spec.epoch, pid=os.getpid(), data=self.data, live=self.live,
            state="stopping" if self._stopping_since else "running",
        )  # fmt: skip

    def report(self) -> ExchangeReport:
        """How this exchange is, for its monitor."""
        cpu_percent = self._cpu.read(self.reactor.now())
        self._load = load_of(self.core, cpu_percent, self.reactor.take_longest_turn())
        return ExchangeReport(
            queue_id=self._spec.queue_id,
            exchange=self.info,
            load=self._load,
            top=busiest_publishers(self.core),
            disk_full=self.core.disk_full,
            unread=self.core.unread,
            retired=self.core.retired,
            stopping=bool(self._stopping_since),
            idle=self.core.idle,
        )

    # --- what the monitor says --------------------------------------------------------------------

    def passed(self, event: Passed) -> None:
        """A publisher has gone elsewhere."""
        self._handle(event)

    def ordered(self, message: OrderAsk | OrderTold) -> None:
        """Another exchange asks how far groups are here, or answers."""
        self._handle(message)
        self._readers.look()

    def acknowledged(self, hold_seconds: int | None, *, retire: bool) -> None:
        """The monitor counts on this exchange, or has it accept nothing more."""
        self.core.disk.retire(retired=retire)
        if self._disk is None and hold_seconds is not None:
            self.core.backpressure.rule(hold_seconds)
        self._finder.reset()
        if self._manager is not None:
            self._manager.confirmed()

    def unheard(self) -> None:
        """The monitor says nothing: perhaps it is elsewhere by now."""
        self._finder.look()

    def superseded(self) -> None:
        """A newer process has this number: whatever comes now belongs there. End at once."""
        log.warning("a newer process has taken this exchange over", extra={"event": "superseded"})
        if self._manager is not None:
            self._manager.superseded()
        self.reactor.stop()

    def dismissed(self) -> None:
        """The queue does not have this exchange any more; its publishers are served to the end."""
        if self._manager is not None:
            self._manager.superseded()  # so that nobody starts it again
        self.stop("removed")

    def _disowned(self) -> None:
        if self._manager is not None:
            self._manager.disowned()

    # --- its life ---------------------------------------------------------------------------------

    def watch_signals(self) -> None:
        """Stop in an orderly way at SIGTERM and SIGINT. Main thread only."""
        on_stop(self.reactor, lambda: self.stop("told by a signal"))

    def run(self) -> None:
        """Serve until the host manager, a signal or `stop` ends it."""
        log.info(
            "serves queue %s at %s, live at %s", self._spec.queue, self.data, self.live,
            extra={"event": "started", "epoch": self._spec.epoch},
        )  # fmt: skip
        self.reactor.run()
        self._perform(self.core.handle(Stop(), self.reactor.now()))
        self._settle()
        self._troubles.tell()
        if self._disk is not None and self._disk.failure:
            # The last line of the log is what the host manager tells of the end.
            log.error("ended: %s", self._disk.failure, extra={"event": "stopped"})
        else:
            log.info("stopped", extra={"event": "stopped"})

    def stop(self, reason: str = "") -> None:
        """Take no more publishers, let those who are sending finish, end. Loop thread only."""
        if self._stopping_since:
            return
        log.info("stopping: %s", reason or "not wanted any more", extra={"event": "stopping"})
        self._stopping_since = self.reactor.now()
        self._perform(self.core.handle(Stop(), self._stopping_since))
        if self._manager is not None:
            self._manager.report_now()
        self._monitor.report_now()
        self._stop_when_quiet()

    def close(self) -> None:
        """Give the sockets back; what is under way has a moment to leave."""
        if self._link is not None:
            self._link.close()
        self._monitor.close()
        self._finder.close()
        self.reactor.remove(self._data)
        self.reactor.remove(self._live)
        self._data.setsockopt(zmq.LINGER, LINGER_MS)
        self._live.setsockopt(zmq.LINGER, LINGER_MS)
        self._close_sockets()

    # --- set-up ---------------------------------------------------------------------------------

    def _make_core(self) -> ExchangeCore[bytes | zmq.Frame]:
        spec = self._spec
        if not spec.log:
            return ExchangeCore(spec.queue_id, spec.number, spec.epoch, spec.limits)
        time_us = time.time_ns() // 1_000
        disk = self._disk = DiskLog(
            spec, time_us, self.reactor, self._disk_written, self._disk_failed
        )
        try:
            core: ExchangeCore[bytes | zmq.Frame] = ExchangeCore(
                spec.queue_id, spec.number, spec.epoch, spec.limits, late=disk.log,
                ahead=spec.ahead, place=f"{spec.log} of host {spec.host}",
            )  # fmt: skip
            now = self.reactor.now()
            core.begin(now, time_us)
            # Who reads slowly reads from the disk in the end: nobody waits for that.
            core.backpressure.rule(0)
            disk.measured = core.disk.measured
            disk.look_now()
            recovered = disk.log.recovered
            disk.changes_kept = core.consumers.kept
            core.recover(now, recovered.snapshot, recovered.since, recovered.changes)
            for problem in recovered.problems[:PROBLEMS_MAX]:
                log.warning("its log: %s", problem, extra={"event": "log_damaged"})
            if core.later.unread:
                log.error(
                    "%d batches of its log are damaged: delayed messages in them are lost, and "
                    "some may be published twice",
                    core.later.unread, extra={"event": "delayed_lost"},
                )  # fmt: skip
        except RoQError:
            disk.close()
            raise
        return core

    def _bind(self) -> None:
        spec = self._spec
        self._data.setsockopt(zmq.SNDHWM, DATA_SNDHWM)
        self._data.setsockopt(zmq.RCVHWM, data_receive_mark(spec.limits))
        # Subscribers send none of their own, and what publishers may send does not fill it.
        self._data.setsockopt(zmq.HEARTBEAT_IVL, HEARTBEAT_MS)
        sockets.expect_large(self._data, batch_bytes_max(spec.limits), sends=True, receives=True)
        # A subscriber that reads slowly is full: if its connection breaks, to answer a heartbeat
        # that came before ends its process (docs/decisions/0009). The system finds who takes
        # nothing.
        sockets.without_heartbeats(self._live)
        self._live.setsockopt(zmq.TCP_MAXRT, int(1_000 * FETCH_GIVE_UP_SECONDS))
        self._live.setsockopt(zmq.SNDHWM, live_high_water_mark(spec.limits))
        self._live.setsockopt(zmq.XPUB_VERBOSER, 1)
        port = sockets.bind(self._data, spec.bind, spec.ports, spec.avoid_ports)
        self.data = endpoint_of(spec.advertise, port)
        port = sockets.bind(self._live, spec.bind, spec.ports, spec.avoid_ports)
        self.live = endpoint_of(spec.advertise, port)
        self._live_port = port

    def _close_sockets(self) -> None:
        self._listening.close()
        self._data.close()
        self._live.close()
        self._context.term()
        if self._disk is not None:
            self._disk.close()
        self.reactor.close()

    # --- data socket ------------------------------------------------------------------------------

    def _data_readable(self) -> None:
        now = time.monotonic()
        self.core.begin(now, time.time_ns() // 1_000)
        self._last_burst = self._read_burst(self._last_burst, now)
        self._last_read = now
        self._settle()
        if self.core.memory.gone >= self._backlogs.look_at:
            self._look_who_is_slow()
        if self._last_burst == BURST:
            self._readers.burst(time.monotonic() - now)
        self._readers.look()

    def _read_burst(self, expected: int, now: float) -> int:
        """Read up to `BURST` messages; gives how many there were.

        To ask whether there is a message is cheaper than to be told that there is none, and dearer
        than to get one: so it asks only from as many on as there were the last time, `expected`.
        All frames of a message are there when its first one is, so nothing here can block or be
        cut in two; what is left of a message with too many frames is read and dropped.
        """
        recv, publish, append = self._recv, self._publish, self.core.append
        wants = self.core.subscriptions.wants
        batch: bytes | zmq.Frame
        for taken in range(BURST):
            if taken >= expected and taken and not self._events(_EVENTS) & _READABLE:
                return taken
            try:
                route = recv(_NOBLOCK)
            except zmq.Again:
                return taken
            first = recv(_NOBLOCK, False)
            if not first.get(_MORE):
                self._handle(Garbled(route))
                continue
            topic = first.bytes
            if topic[:1] == _CONTROL:
                self._read_control(route, topic, now)
                continue
            frame = recv(_NOBLOCK, False)
            if frame.get(_MORE):
                self._drop_rest()
                self._handle(Garbled(route))
                continue
            size = len(frame)
            batch = frame.bytes if size < COPY_BELOW_BYTES else frame
            entry = append(route, topic, batch, size)
            if entry is None or not wants(topic):
                continue
            if size <= ANNOUNCE_ABOVE_BYTES:
                publish(join_live(topic, entry, frame.buffer), _NOBLOCK)
            else:
                publish(join_live(topic, announcement(entry)), _NOBLOCK)
        return BURST

    def _read_control(self, route: bytes, letter: bytes, now: float) -> None:
        frames = [letter]
        more = True
        while more:
            frame = self._data.recv(_NOBLOCK, copy=False)
            more = bool(frame.get(_MORE))
            if len(frames) < FRAMES_MAX:
                frames.append(frame.bytes)
        self._perform(self.core.handle(Received(route, tuple(frames)), now))

    def _drop_rest(self) -> None:
        while self._data.recv(_NOBLOCK, copy=False).get(_MORE):
            continue

    def _settle(self) -> None:
        """Send the acks and refusals that the batches have earned."""
        for link in self.core.take_acks():
            route = link.route
            if route is None:
                continue
            outcome = self._send(route, (ACK, link.acknowledgement(link.committed)))
            if outcome is Outcome.SENT:
                link.seen = link.acked_at
                if link.places is not None:
                    link.places.told = link.committed
            elif outcome is Outcome.BLOCKED:
                self.core.intake.ack_later(link)
            else:
                self._handle(Unreachable(route))
        answers = self.core.take_answers()
        if answers:
            self._perform(answers)
        if self._disk is not None:
            self._tell_synced()
            self._disk.write_on(self.core.snapshot, self.core.consumers.take_changes)
        due = self.core.due
        if due is not None and due < self._due_at:
            self._due_timer.cancel()
            self._due_at = due
            self._due_timer = self.reactor.call_at(due, self._look_what_is_due)

    def _look_what_is_due(self) -> None:
        """A delayed message is due, or to be read; or others are to be asked."""
        self._due_at = inf
        self.core.begin(self.reactor.now(), time.time_ns() // 1_000)
        self._settle()
        self._readers.look()

    def _tell_synced(self) -> None:
        """What does not arrive is made good by the next one."""
        for link, number in self.core.take_synced().items():
            route = link.route
            if route is not None and self._send(route, (SYNCED, NUMBER.pack(number))) is (
                Outcome.GONE
            ):
                self._handle(Unreachable(route))

    def _disk_written(self) -> None:
        """The disk has come further: publishers are told, and everybody is shown that."""
        self.core.begin(self.reactor.now(), time.time_ns() // 1_000)
        self._settle()
        self._readers.look()
        if not self._publishing:
            self._publish_committed()

    def _publish_committed(self) -> None:
        """Publish what is committed, a burst in each turn: more would fill what subscribers have
        room for before they had a chance to take any of it. If nobody has subscribed, it is passed
        over."""
        if not self.core.subscriptions.anybody:
            self.core.pass_committed()
        for topic, entry, batch, size in self.core.take_committed(BURST):
            if not self.core.subscriptions.wants(topic.name):
                continue
            if size <= ANNOUNCE_ABOVE_BYTES:
                buffer = batch.buffer if isinstance(batch, zmq.Frame) else batch
                self._publish(join_live(topic.name, entry, buffer), _NOBLOCK)
            else:
                self._publish(join_live(topic.name, announcement(entry)), _NOBLOCK)
        if self.core.memory.gone >= self._backlogs.look_at:
            self._look_who_is_slow()
        self._publishing = not self.core.all_shown
        if self._publishing:
            self.reactor.call_soon(self._publish_committed)

    def _disk_failed(self, why: str) -> None:
        """Nothing can be kept any more: publishers are to go elsewhere, readers may read on."""
        log.error("%s", why, extra={"event": "disk_failed"})
        if self._disk is not None and self._disk.readable:
            self.core.disk.seal(why, self.reactor.now())
            self._monitor.report_now()
        else:
            self._give_up("nothing can be read any more")

    def _give_up(self, reason: str) -> None:
        self.exit_code = exits.DISK
        self.stop(reason)

    def _send(
        self, route: bytes, parts: tuple[bytes, ...], batch: bytes | zmq.Frame | None = None
    ) -> Outcome:
        """Send to one peer without waiting. A large batch is a message of its own, and not copied.

        What was blocked between the two is sent again as a whole: a reader drops the first half.
        """
        send = self._send_data
        try:
            send(route, _NOBLOCK_MORE)
            if not isinstance(batch, zmq.Frame):
                send(join_answer(parts, batch or b""), _NOBLOCK)
                return Outcome.SENT
            send(join_large(parts), _NOBLOCK)
            send(route, _NOBLOCK_MORE)
            send(batch, _NOBLOCK, False)
        except zmq.Again:
            return Outcome.BLOCKED
        except zmq.ZMQError as error:
            if error.errno == zmq.EHOSTUNREACH:
                return Outcome.GONE
            raise
        return Outcome.SENT

    # --- live socket ------------------------------------------------------------------------------

    def _live_readable(self) -> None:
        self.core.begin(self.reactor.now(), time.time_ns() // 1_000)
        for _ in range(BURST):
            try:
                frames = self._live.recv_multipart(_NOBLOCK)
            except zmq.Again:
                return
            kind, prefix = frames[0][:1], frames[0][1:]
            if len(frames) == 1 and kind == b"\x01":
                self._handle(Subscribed(prefix))
            elif len(frames) == 1 and kind == b"\x00":
                self._handle(Unsubscribed(prefix))
            else:
                self.core.counters.bad_subscriptions += 1

    def _look_who_is_slow(self) -> None:
        self._listening.read()
        for number in self._backlogs.look(self._listening.free()):
            if not self._listening.cut(number, self._live_port):
                self._backlogs.ended(number)

    # --- events and effects -----------------------------------------------------------------------

    def _unreachable(self, route: bytes) -> None:
        self._handle(Unreachable(route))

    def _handle(self, event: Event) -> None:
        self._perform(self.core.handle(event, self.reactor.now()))

    def _perform(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Publish(parts):
                    if len(parts) == 3 and len(parts[2]) > ANNOUNCE_ABOVE_BYTES:
                        parts = parts[0], announcement(parts[1])
                    self._live.send(join_live(*parts), _NOBLOCK)
                case Send(route, parts):
                    outcome = self._send(route, parts)
                    if outcome is Outcome.GONE:
                        self._handle(Unreachable(route))
                    elif outcome is Outcome.BLOCKED and len(parts[0]) > LETTER_BYTES:
                        # For a reader or a consumer, which would wait for it; publishers ask again.
                        self.core.fetches.answer_later(route, parts)
                case Tell(message):
                    self._monitor.say(message)
                case Woken():
                    self._wake()

    def _wake(self) -> None:
        self._monitor.report_on()
        if self._link is not None:
            self._link.report_on()
        self._timer.cancel()
        self._tick()

    def _tick(self) -> None:
        now = self.reactor.now()
        self.core.begin(now, time.time_ns() // 1_000)
        self._perform(self.core.handle(Tick(), now))
        self._settle()
        self._readers.look()
        self._listening.read()
        if self._disk is not None:
            self._disk.look()
            if self.core.disk.is_to_be_tried(now):
                self._give_up("another process is to try whether its log can be written")
        self._troubles.look(now, self.core.disk_full, self.core.later.lost, self.core.unread)
        at = self.reactor.beat_after(self.core.next_deadline())
        self._timer = self.reactor.call_at(at, self._tick)

    def _stop_when_quiet(self) -> None:
        now = self.reactor.now()
        quiet_since = max(self._stopping_since, self._last_read)
        stopping = now - self._stopping_since
        settled = self._disk is None or (self._disk.settled and self.core.all_shown)
        written = settled or stopping >= DISK_SECONDS
        if written and (now - quiet_since >= QUIET_SECONDS or stopping >= STOP_SECONDS):
            self.reactor.stop()
        else:
            self.reactor.call_later(QUIET_SECONDS / 2, self._stop_when_quiet)
