"""Sockets, clock and loop around the exchange core: reads bursts, sends what the core decides.

What comes has two frames, topic and batch; what goes out is one frame (`roq.protocol.framing`).
Nothing here waits for a peer.
"""

from __future__ import annotations

import logging
import os
import random
import time
from functools import partial
from math import inf
from typing import Final

from roq.errors import ConfigError, RoQError, Unavailable
from roq.exchange.backlogs import ANNOUNCE_ABOVE_BYTES, live_high_water_mark
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
from roq.exchange.kpi_report import CpuMeter, busiest_publishers, load_of, memory_bytes, metrics_of
from roq.exchange.machine import ExchangeCore
from roq.exchange.monitor_finder import MonitorFinder
from roq.exchange.monitor_link import MonitorLink
from roq.exchange.reader_turns import ReaderTurns
from roq.exchange.trouble_log import TroubleLog
from roq.machine import Tick
from roq.model import ExchangeInfo, endpoint_of
from roq.protocol.channel import ACK, CONTROL, NUMBER, SYNCED, transfer_seconds
from roq.protocol.control import ExchangeReport, OrderAsk, OrderTold
from roq.protocol.defined_services import DefinedServices
from roq.protocol.entry import announcement
from roq.protocol.framing import (
    LARGE_BYTES,
    LETTER_BYTES,
    join_answer,
    join_large,
    join_live,
)
from roq.protocol.reports import ChildInfo, ExchangeLoad
from roq.protocol.spec import ExchangeSpec
from roq.runtime import exits, sockets
from roq.runtime.manager import ManagedChild, ManagerLink
from roq.runtime.reactor import Reactor
from roq.runtime.signals import on_stop
from roq.runtime.zmtp_server import FanOut, Heartbeats, Outcome, Router
from roq.timing import EXCHANGE_WRITES_SECONDS, FETCH_GIVE_UP_SECONDS, HEARTBEAT_TIMEOUT_MS

BURST: Final = 50
"""Messages that are read from a socket before the others have their turn."""
DATA_MARK: Final = 512
"""Pieces that may wait for one peer; a message has two."""
LIVE_BYTES_MAX: Final = 512
"""Largest message that a subscriber may send: prefixes have 255 bytes at most."""
STOP_SECONDS: Final = 1.0
QUIET_SECONDS: Final = 0.1
PROBLEMS_MAX: Final = 20
"""Lines about what of a log cannot be read."""
LINGER_SECONDS: Final = 0.2

_CONTROL: Final = bytes((CONTROL,))
_BATCH_FRAMES: Final = 2

log = logging.getLogger(__name__)


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
        self._backlogs = self.core.backlogs
        self._data = self._router()
        self._live = self._fan_out()
        try:
            port = self._data.bind(spec.bind, spec.ports, spec.avoid_ports)
            self.data = endpoint_of(spec.advertise, port)
            port = self._live.bind(spec.bind, spec.ports, spec.avoid_ports)
            self.live = endpoint_of(spec.advertise, port)
        except (Unavailable, ConfigError):
            self._close_sockets()
            raise
        self._readers = ReaderTurns(
            self.reactor, self.core, self._send, self._perform, self._settle,
            None if self._disk is None else self._disk.at_hand,
        )  # fmt: skip
        self._stopping_since = 0.0
        self._last_read = 0.0
        self._troubles = TroubleLog(self.core.counters, self._backlogs)
        self._cpu = CpuMeter(self.reactor.now())
        self._load = ExchangeLoad()
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
            number=spec.number, epoch=spec.epoch, generation=self.core.log.generation,
            pid=os.getpid(), data=self.data, live=self.live,
            state="stopping" if self._stopping_since else "running",
        )  # fmt: skip

    def report(self) -> ExchangeReport:
        """How this exchange is, for its monitor."""
        cpu_percent = self._cpu.read(self.reactor.now())
        self._load = load_of(
            self.core, cpu_percent, self.reactor.take_longest_turn(), memory_bytes()
        )
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
            groups=self.core.groups_digest,
            group_names=self.core.group_names,
            held=self.core.held,
        )

    # --- what the monitor says --------------------------------------------------------------------

    def passed(self, event: Passed) -> None:
        """A publisher has gone elsewhere."""
        self._handle(event)

    def ordered(self, message: OrderAsk | OrderTold) -> None:
        """Another exchange asks how far groups are here, or answers."""
        self._handle(message)
        self._readers.look()

    def acknowledged(self, hold_seconds: int | None, *, retire: bool, same_groups: bool) -> None:
        """The monitor counts on this exchange, or has it accept nothing more."""
        self.core.disk.retire(retired=retire)
        self.core.same_groups(self.reactor.now(), same=same_groups)
        if self._disk is None and hold_seconds is not None:
            self.core.backpressure.rule(hold_seconds)
        self._finder.reset()
        if self._manager is not None:
            self._manager.confirmed()

    def defined(self, services: DefinedServices) -> None:
        """What the definition of the queue says of its services."""
        self.core.begin(self.reactor.now(), time.time_ns() // 1_000)
        self.core.consumers.services.define(services)
        self._settle()
        self._readers.look()

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
        self._close_sockets(LINGER_SECONDS)

    # --- set-up ---------------------------------------------------------------------------------

    def _make_core(self) -> ExchangeCore[bytes]:
        spec = self._spec
        if not spec.log:
            return ExchangeCore(spec.queue_id, spec.number, spec.epoch, spec.limits)
        time_us = time.time_ns() // 1_000
        disk = self._disk = DiskLog(
            spec, time_us, self.reactor, self._disk_written, self._disk_failed
        )
        try:
            core: ExchangeCore[bytes] = ExchangeCore(
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
            if core.delayed.unread:
                log.error(
                    "%d batches of its log are damaged: delayed messages in them are lost, and "
                    "some may be published twice",
                    core.delayed.unread, extra={"event": "delayed_lost"},
                )  # fmt: skip
        except RoQError:
            disk.close()
            raise
        return core

    def _router(self) -> Router:
        largest = batch_bytes_max(self._spec.limits)
        # A batch that is on its way is a sign of life only when its last byte has come.
        patience_ms = HEARTBEAT_TIMEOUT_MS + int(1_000 * transfer_seconds(largest))
        return Router(
            self.reactor, largest=largest, mark=DATA_MARK, on_readable=self._data_readable,
            on_ended=self._data_ended, heartbeats=Heartbeats(patience_ms, self._is_calm),
        )  # fmt: skip

    def _is_calm(self, route: bytes) -> bool:
        return route not in self.core.links.routes  # publishers are in a hurry

    def _fan_out(self) -> FanOut:
        # Without heartbeats, as a libzmq that is full must not answer one (docs/decisions/0009).
        return FanOut(
            self.reactor, largest=LIVE_BYTES_MAX,
            mark=2 * live_high_water_mark(self._spec.limits), on_readable=self._live_readable,
            untaken_ms=int(1_000 * FETCH_GIVE_UP_SECONDS),
        )  # fmt: skip

    def _close_sockets(self, linger_seconds: float = 0.0) -> None:
        self._live.close(linger_seconds)
        self._data.close(linger_seconds)
        self._context.term()
        if self._disk is not None:
            self._disk.close()
        self.reactor.close()

    # --- data socket ------------------------------------------------------------------------------

    def _data_readable(self) -> None:
        now = time.monotonic()
        self.core.begin(now, time.time_ns() // 1_000)
        read = self._read_burst(now)
        self._last_read = now
        self._live.flush()
        if self._acknowledge() and read < BURST:
            self._data.hold()
            self._readers.hand_out()
            self._data.flush()
        self._tell()
        if self._backlogs.due:
            self._look_who_is_slow()
        if read == BURST:
            self._readers.burst(time.monotonic() - now)
        self._readers.look()

    def _data_ended(self, routes: list[bytes]) -> None:
        """Connections have ended, and all that came by them was heard: what their members held goes
        to others. Nothing else tells of that, so what a member had done before it died is done."""
        self.core.begin(self.reactor.now(), time.time_ns() // 1_000)
        for route in routes:
            self._handle(Unreachable(route))
        self._settle()
        self._readers.look()

    def _read_burst(self, now: float) -> int:
        """Read up to `BURST` messages; gives how many there were."""
        append, wants, publish = self.core.append, self.core.subscriptions.wants, self._publish
        read = 0
        for route, frames in self._data.receive(BURST):
            read += 1
            topic = frames[0]
            if topic[:1] == _CONTROL:
                self._perform(self.core.handle(Received(route, tuple(frames)), now))
            elif len(frames) != _BATCH_FRAMES:
                self._handle(Garbled(route))
            else:
                batch = frames[1]
                entry = append(route, topic, batch, len(batch))
                if entry is not None and wants(topic):
                    publish(topic, entry, batch)
        return read

    def _publish(self, topic: bytes, entry: bytes, batch: bytes = b"") -> None:
        """Send an entry to all who have subscribed; with its batch, if that is not too large."""
        if len(batch) > ANNOUNCE_ABOVE_BYTES:
            entry, batch = announcement(entry), b""
        self._live.publish(topic, join_live(topic, entry), batch)

    def _settle(self) -> None:
        """Send what everybody has earned: acks leave before the rest."""
        self._acknowledge()
        self._tell()

    def _acknowledge(self) -> bool:
        """Send the acks that batches have earned; whether there were any."""
        self._data.hold()
        links = self.core.take_acks()
        for link in links:
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
        self._data.flush()
        return bool(links)

    def _tell(self) -> None:
        """Send answers and refusals; and have written what is to be."""
        answers = self.core.take_answers()
        if answers:
            self._data.hold()
            self._perform(answers)
            self._data.flush()
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
            if route is not None:
                self._send(route, (SYNCED, NUMBER.pack(number)))

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
        self._live.hold()
        if not self.core.subscriptions.anybody:
            self.core.pass_committed()
        for topic, entry, batch, _ in self.core.take_committed(BURST):
            if self.core.subscriptions.wants(topic.name):
                self._publish(topic.name, entry, batch)
        self._live.flush()
        if self._backlogs.due:
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

    def _send(self, route: bytes, parts: tuple[bytes, ...], batch: bytes | None = None) -> Outcome:
        """Send to one peer without waiting. A large batch is a message of its own."""
        if batch is None or len(batch) < LARGE_BYTES:
            return self._data.send(route, join_answer(parts, batch or b""))
        return self._data.send(route, join_large(parts), batch)

    # --- live socket ------------------------------------------------------------------------------

    def _live_readable(self) -> None:
        self.core.begin(self.reactor.now(), time.time_ns() // 1_000)
        for subscribed, prefix in self._live.receive(BURST):
            self._handle(Subscribed(prefix) if subscribed else Unsubscribed(prefix))

    def _look_who_is_slow(self) -> None:
        self._live.flush()
        waiting = {peer: (peer.taken, peer.size) for peer in self._live.peers if peer.out}
        for peer in self._backlogs.look(waiting):
            self._live.end(peer)

    # --- events and effects -----------------------------------------------------------------------

    def _handle(self, event: Event) -> None:
        self._perform(self.core.handle(event, self.reactor.now()))

    def _perform(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Publish(parts):
                    self._publish(*parts)
                case Send(route, parts):
                    outcome = self._send(route, parts)
                    if outcome is Outcome.BLOCKED and len(parts[0]) > LETTER_BYTES:
                        # For a reader or a consumer, which would wait for it; publishers ask again.
                        self.core.fetches.answer_later(route, parts)
                # The loop looks at the sockets that these need, while it sleeps.
                case Tell(message):
                    self.reactor.call_soon(partial(self._monitor.say, message))
                case Woken():
                    self.reactor.call_soon(self._wake)

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
        if self._disk is not None:
            self._disk.look()
            if self.core.disk.is_to_be_tried(now):
                self._give_up("another process is to try whether its log can be written")
        self._troubles.look(now, self.core.disk_full, self.core.delayed.lost, self.core.unread)
        at = self.reactor.beat_after(self.core.next_deadline())
        self._timer = self.reactor.call_at(at, self._tick)

    def _stop_when_quiet(self) -> None:
        now = self.reactor.now()
        quiet_since = max(self._stopping_since, self._last_read)
        stopping = now - self._stopping_since
        settled = self._disk is None or (self._disk.settled and self.core.all_shown)
        written = settled or stopping >= EXCHANGE_WRITES_SECONDS
        if written and (now - quiet_since >= QUIET_SECONDS or stopping >= STOP_SECONDS):
            self.reactor.stop()
        else:
            self.reactor.call_later(QUIET_SECONDS / 2, self._stop_when_quiet)
