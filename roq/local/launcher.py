"""Starts the processes of a local cluster all at once, waits for all of them, stops them in order.

Nothing here waits: everything is a callback in a reactor, so the configuration managers, the
host managers and ZooKeeper's Java, if that is wanted, come up side by side and one deadline holds
for all. What ends
unasked afterwards is started again, with the same addresses and data.

    start()  -> on_ready(Addresses)         every part serves
             -> on_failed(StartFailed)      one has ended or the time is up; the rest is stopped
    stop()   -> on_stopped()                nothing of the cluster runs any more
                on_failed(StartFailed)      a part has ended too often; the rest is stopped
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from enum import StrEnum
from functools import partial
from typing import Final

from roq.errors import RoQError
from roq.hcm.crash_history import CrashHistory, CrashLimits
from roq.local.folder import Folder
from roq.local.part import Part
from roq.local.plan import GCM, HOST, Addresses, Plan, Planned, host_folder
from roq.local.settings import ZOOKEEPER, LocalSettings
from roq.runtime import exits
from roq.runtime.interfaces import Timer
from roq.runtime.reactor import Reactor

STOP_SECONDS: Final = 10.0
"""Grace for each step of a stop; then the step's processes are killed."""
DEATHS: Final = CrashLimits(most=5, window_seconds=60.0, first_seconds=0.5, longest_seconds=4.0)
"""How often a part may end unasked, and how long it rests before it is started again."""


class StartFailed(RoQError):
    """A part of the cluster did not start, or ended too often.

    Attributes:
        exit_code: 69 a dependency was away, 70 it crashed, 78 a configuration is wrong.
    """

    def __init__(self, text: str, exit_code: int) -> None:
        super().__init__(text)
        self.exit_code = exit_code


class PartState(StrEnum):
    """Where a launcher is."""

    NEW = "new"
    STARTING = "starting"
    READY = "ready"
    STOPPING = "stopping"
    STOPPED = "stopped"


class Launcher:
    """One local cluster, driven by the loop of its owner.

    Args:
        reactor: its loop; the thread that runs it must live as long as the cluster does.
        settings: what is wanted.
        on_ready: every part serves.
        on_failed: the start did not work, or a part has ended too often; everything is stopped.
        on_part_ended: a part has ended unasked after the start.
        on_note: a sentence on what has happened to a part since, for people.

    Attributes:
        state: where it is.
        folder: configuration, logs and data; None before the start.
    """

    def __init__(
        self,
        reactor: Reactor,
        settings: LocalSettings,
        *,
        on_ready: Callable[[Addresses], None],
        on_failed: Callable[[StartFailed], None],
        on_part_ended: Callable[[Part], None] | None = None,
        on_note: Callable[[str], None] | None = None,
    ) -> None:
        self.state = PartState.NEW
        self.folder: Folder | None = None
        self._reactor = reactor
        self._settings = settings
        self._on_ready = on_ready
        self._on_failed = on_failed
        self._on_part_ended = on_part_ended
        self._on_note = on_note
        self._on_stopped: list[Callable[[], None]] = []
        self._planned: dict[str, Planned] = {}
        self._addresses: Addresses | None = None
        self._parts: dict[str, Part] = {}
        self._deaths: dict[str, CrashHistory] = {}
        self._steps: list[list[Part]] = []
        self._failure: StartFailed | None = None
        self._timer: Timer | None = None

    @property
    def parts(self) -> dict[str, Part]:
        """The processes by name (`gcm`, `host 127.0.0.1`, `zookeeper`, …)."""
        return dict(self._parts)

    def start(self) -> None:
        """Start everything.

        Raises:
            ConfigError: a port is in use, or the data directory cannot be used; nothing runs.
            Unavailable: no Java for the embedded ZooKeeper, or no free ports; nothing runs.
        """
        plan = Plan(self._settings)
        self._planned = {planned.name: planned for planned in plan.parts}
        self.folder = Folder(self._settings.data_dir)
        self._addresses = plan.addresses_in(self.folder)
        self.state = PartState.STARTING
        try:
            plan.check_folder(self.folder)
            for planned in plan.parts:
                self._spawn(planned, self.folder)
        except OSError as error:
            self._fail(f"a process cannot be started: {error}", exits.CRASHED)
            return
        except BaseException:
            self.kill()
            raise
        self._timer = self._reactor.call_later(self._settings.start_seconds, self._too_late)

    def stop(self, on_stopped: Callable[[], None]) -> None:
        """Stop everything: hosts, then the configuration managers, then ZooKeeper if there is.

        Host managers stop their monitors and exchanges first, and each may say goodbye to those
        that are stopped after it.
        """
        if self.state in {PartState.NEW, PartState.STOPPED}:
            self._reactor.call_soon(on_stopped)
            return
        self._on_stopped.append(on_stopped)
        if self.state is not PartState.STOPPING:
            self._begin_stop()

    def kill(self) -> None:
        """End everything at once, without goodbyes and callbacks; idempotent."""
        for part in self._parts.values():
            if part.running:
                part.kill()
        if self.folder is not None:
            self.folder.close()

    # --- starting ---------------------------------------------------------------------------------

    def _spawn(self, planned: Planned, folder: Folder) -> None:
        part = Part(
            self._reactor,
            planned.name,
            planned.command(folder),
            log_path=folder.log(planned.name),
            on_ready=self._part_ready,
            on_end=self._part_ended,
            # When everything ends there is no other host that could take what runs on one.
            ending=signal.SIGINT if planned.kind == HOST else signal.SIGTERM,
        )
        if not planned.tells:
            part.ready = {}
        self._parts[planned.name] = part

    def _part_ready(self, part: Part) -> None:
        if self.state is PartState.READY:
            self._note(f"{part.name} serves again")
        elif self.state is PartState.STARTING and all(
            each.ready is not None for each in self._parts.values()
        ):
            self._cancel_timer()
            self.state = PartState.READY
            assert self._addresses is not None  # noqa: S101 - known since the start
            self._on_ready(self._addresses)

    def _too_late(self) -> None:
        missing = [part for part in self._parts.values() if part.ready is None]
        names = ", ".join(part.name for part in missing)
        text = f"{names} did not get ready within {self._settings.start_seconds:g} s"
        self._fail("\n".join([text, *map(_words, missing)]), exits.UNAVAILABLE)

    def _fail(self, text: str, code: int) -> None:
        self._failure = StartFailed(text, code)
        self._begin_stop()

    # --- ends -------------------------------------------------------------------------------------

    def _part_ended(self, part: Part) -> None:
        match self.state:
            case PartState.STARTING:
                self._part_failed(part)
            case PartState.READY:
                if self._on_part_ended is not None:
                    self._on_part_ended(part)
                if self._settings.restart:
                    self._revive(part)
            case PartState.STOPPING:
                self._next_step()
            case PartState.NEW | PartState.STOPPED:
                pass

    def _part_failed(self, part: Part) -> None:
        code = part.code if part.code in {exits.UNAVAILABLE, exits.CONFIG} else exits.CRASHED
        text = f"{part.name} {part.end_text()} while the cluster was starting{_words(part)}"
        self._fail(text, code)

    def _revive(self, part: Part) -> None:
        deaths = self._deaths.setdefault(part.name, CrashHistory(DEATHS))
        delay = deaths.crashed(self._reactor.now())
        if delay is None:
            text = (
                f"{part.name} {part.end_text()} and has ended {DEATHS.most} times within "
                f"{DEATHS.window_seconds:g} s: giving up. Its log is {part.log_path}"
            )
            if self.folder is not None:
                self.folder.keep()
            self._fail(f"{text}{_words(part)}", exits.CRASHED)
            return
        when = f"in {delay:g} s" if delay else "now"
        self._note(
            f"{part.name} {part.end_text()}; it is started again {when} (its log: {part.log_path})"
        )
        self._reactor.call_later(delay, partial(self._start_again, part))

    def _start_again(self, part: Part) -> None:
        if self.state is not PartState.READY or self.folder is None:
            return  # everything ends meanwhile
        try:
            self._spawn(self._planned[part.name], self.folder)
        except (OSError, RoQError) as error:
            self._fail(f"{part.name} cannot be started again: {error}", exits.CRASHED)

    def _note(self, text: str) -> None:
        if self._on_note is not None:
            self._on_note(text)

    def _begin_stop(self) -> None:
        self.state = PartState.STOPPING
        self._ask_the_forsaken()
        kinds = {kind: list[Part]() for kind in (HOST, GCM, ZOOKEEPER)}
        for name, part in self._parts.items():
            kinds[self._planned[name].kind].append(part)
        self._steps = [parts for parts in kinds.values() if parts]
        # Later, so that its cause (a part's end, a failed start) has been dealt with first.
        self._reactor.call_soon(self._open_step)

    def _ask_the_forsaken(self) -> None:
        """Have those stop whom no part stops: hosts of a provider, children of a dead manager."""
        if self.folder is None:
            return
        self.folder.stop_provided_hosts()
        for host in self._settings.host_names:
            part = self._parts.get(f"{HOST} {host}")
            if part is not None and not part.running:
                self.folder.stop_children(host_folder(host))

    def _open_step(self) -> None:
        self._cancel_timer()
        if not self._steps:
            self._stopped()
            return
        for part in self._steps[0]:
            part.end()
        self._timer = self._reactor.call_later(STOP_SECONDS, self._kill_step)
        self._next_step()

    def _next_step(self) -> None:
        if self._steps and not any(part.running for part in self._steps[0]):
            del self._steps[0]
            self._open_step()

    def _kill_step(self) -> None:
        for part in self._steps[0]:
            if part.running:
                self._note(f"{part.name} has not stopped within {STOP_SECONDS:g} s and is killed")
                part.kill()

    def _stopped(self) -> None:
        if self.folder is not None:
            self.folder.close()
        self.state = PartState.STOPPED
        if self._failure is not None:
            self._on_failed(self._failure)
        callbacks, self._on_stopped = self._on_stopped, []
        for callback in callbacks:
            callback()

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _words(part: Part) -> str:
    words = part.last_words()
    return f"\nthe end of its log:\n{words}" if words else ""
