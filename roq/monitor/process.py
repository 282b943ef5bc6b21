"""A process with the monitors of several queues: what they share, and how they come and go.

The host manager says through a pipe which monitors there are. The first one tells where the host
manager is. When the last one is gone the process ends.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Final

import msgspec
from msgspec.structs import replace

from roq.errors import ConfigError, InvalidName, InvalidRequest, Unavailable
from roq.model import check_name
from roq.monitor.daemon import Monitor, child_info
from roq.monitor.policy_timeout import PolicyTimeout
from roq.number_ranges import UNREADABLE
from roq.protocol.control import ChildReport
from roq.protocol.reports import ChildInfo
from roq.protocol.spec import COMMAND_BYTES_MAX, End, MonitorSpec, Serve, decode_command
from roq.runtime import sockets, structured_logs
from roq.runtime.flight import save
from roq.runtime.leader_client import LeaderClient
from roq.runtime.manager import ManagerLink
from roq.runtime.reactor import Reactor
from roq.runtime.signals import on_flight_wanted, on_stop

FIRST_SECONDS: Final = 10.0
"""A process that nobody has given a monitor by then ends."""
SUFFIX: Final = ".monitor"

log = logging.getLogger(__name__)


class MonitorProcess:
    """All monitors of this process. Construct, `run()`, `close()`.

    Args:
        pipe: where commands come from; specs are in the same folder.

    Raises:
        OSError: there is no such pipe.
    """

    def __init__(self, pipe: Path) -> None:
        self._folder = pipe.parent
        # Open for writing, too: it does not end when the host manager does.
        self._pipe = os.open(pipe, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        self._unread = b""
        self._reactor = Reactor()
        self._context = sockets.new_context()
        self._policies = PolicyTimeout(self._reactor.now)
        self._monitors: dict[str, Monitor] = {}
        self._untold = 0
        """Ends that the host manager has not noted yet."""
        self._link: ManagerLink | None = None
        self._leader: LeaderClient | None = None
        self._reactor.add(self._pipe, self._read)
        self._reactor.call_later(FIRST_SECONDS, self._stop_if_unused)

    def run(self) -> None:
        """Serve until the last monitor is gone."""
        try:
            self._reactor.run()
        except Exception:
            self._save_flights(crashed=True)
            raise

    def watch_signals(self) -> None:
        """Have all monitors stop in an orderly way at SIGTERM and SIGINT. Main thread only."""
        on_stop(self._reactor, self._terminated)
        on_flight_wanted(self._reactor, self._save_flights)

    def close(self) -> None:
        """Give everything back."""
        if self._link is not None:
            self._link.close()
        if self._leader is not None:
            self._leader.close()
        os.close(self._pipe)
        self._context.term()
        self._reactor.close()

    def _save_flights(self, *, crashed: bool = False) -> None:
        recorders = [each.recorder for each in self._monitors.values()]
        save("monitors", recorders, crashed=crashed)

    def _terminated(self) -> None:
        for monitor in list(self._monitors.values()):
            monitor.ask_to_stop()
        self._stop_if_unused()

    def _stop_if_unused(self) -> None:
        # A monitor that comes while the last one goes has been announced before its end was noted.
        self._read()
        if not self._monitors and not self._untold:
            self._reactor.stop()

    # --- commands ---------------------------------------------------------------------------------

    def _read(self) -> None:
        try:
            data = os.read(self._pipe, 65_536)
        except BlockingIOError:
            return
        *lines, self._unread = (self._unread + data).split(b"\n")
        if len(self._unread) > COMMAND_BYTES_MAX:
            log.warning("a command without an end", extra={"event": "malformed_command"})
            self._unread = b""
        for line in lines:
            try:
                self._obey(line)
            except InvalidRequest as error:
                log.warning("%s", error, extra={"event": "malformed_command"})

    def _obey(self, line: bytes) -> None:
        match decode_command(line):
            case Serve(child=child):
                self._serve(self._read_spec(child))
            case End(child=child, epoch=epoch):
                monitor = self._monitors.get(child)
                if monitor is not None and monitor.spec.epoch == epoch:
                    monitor.ask_to_stop()

    def _read_spec(self, child: str) -> MonitorSpec:
        try:
            check_name(child.removesuffix(SUFFIX))
            data = (self._folder / f"{child}.json").read_bytes()
            spec = msgspec.json.decode(data, type=MonitorSpec)
        except (OSError, InvalidName, *UNREADABLE) as error:
            raise InvalidRequest(f"{child[:200]!r} cannot be served: {error}") from None
        if spec.child != child or child != f"{spec.queue}{SUFFIX}":
            raise InvalidRequest(f"{child[:200]!r} cannot be served: its spec is of another one")
        return spec

    # --- monitors ---------------------------------------------------------------------------------

    def _serve(self, spec: MonitorSpec) -> None:
        former = self._monitors.get(spec.child)
        if former is not None and former.spec.epoch >= spec.epoch:
            return
        if former is not None:
            former.end("a newer one has its place")
        link, leader = self._shared(spec)
        try:
            self._monitors[spec.child] = Monitor(
                spec, reactor=self._reactor, context=self._context, link=link, leader=leader,
                policy_named=self._policies.policy_named, on_end=self._ended,
            )  # fmt: skip
        except (ConfigError, Unavailable) as error:
            log.error("cannot start: %s", error, extra={"event": "start_failed"})  # noqa: TRY400
            self._tell_ended(link, child_info(spec), f"it cannot start: {error}")
            return

    def _shared(self, spec: MonitorSpec) -> tuple[ManagerLink, LeaderClient]:
        """The connections of all monitors; made as the first spec says."""
        if self._link is None or self._leader is None:
            structured_logs.configure(spec.log_level, spec.log_format, process="monitors")
            self._link = ManagerLink(
                self._reactor, self._context, spec.manager, orphan_seconds=spec.orphan_seconds
            )
            self._leader = LeaderClient(self._reactor, self._context, spec.managers)
        return self._link, self._leader

    def _ended(self, monitor: Monitor, reason: str) -> None:
        if self._monitors.get(monitor.spec.child) is monitor:
            del self._monitors[monitor.spec.child]
        if self._link is not None:
            self._tell_ended(self._link, monitor.child(), reason)

    def _tell_ended(self, link: ManagerLink, child: ChildInfo, reason: str) -> None:
        """The host manager cannot see that a monitor is no more, while others go on."""

        def noted() -> None:
            self._untold -= 1
            self._stop_if_unused()

        self._untold += 1
        link.tell(ChildReport(child=replace(child, state="ended", reason=reason)), noted)
