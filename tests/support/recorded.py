"""Records every machine that a test makes, by whatever driver; no test in here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial, wraps
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from roq.gcm import daemon as of_manager
from roq.gcm.machine import GcmMachine
from roq.hcm import daemon as of_host
from roq.hcm.machine import HostMachine
from roq.monitor import daemon as of_monitor
from roq.monitor.machine import MonitorMachine
from roq.runtime.flight import MAGIC, Flight, FlightKind, Recorder, decode, encode

KILOBYTES = 1 << 16
BIRTHS: dict[type, tuple[FlightKind, Callable[..., object]]] = {
    GcmMachine: (of_manager.KIND, of_manager.birth),
    HostMachine: (of_host.KIND, lambda settings: settings),
    MonitorMachine: (
        of_monitor.KIND,
        lambda policy_named=None, control="", **given: of_monitor.Birth(control=control, **given),
    ),
}


@contextmanager
def recorded(kilobytes: int = KILOBYTES) -> Iterator[list[Recorder[Any, Any]]]:
    """The recorders of all machines that are made in here."""
    found: list[Recorder[Any, Any]] = []

    def recording(machine: type) -> Callable[..., None]:
        kind, birth = BIRTHS[machine]
        make = machine.__init__  # type: ignore[misc]

        @wraps(make)
        def init(self: Any, *args: Any, **kwargs: Any) -> None:
            make(self, *args, **kwargs)
            decides: Any = SimpleNamespace(handle=self.handle)
            recorder: Recorder[Any, Any] = Recorder(
                kind, kind.name, partial(birth, *args, **kwargs), decides, kilobytes
            )
            self.handle = recorder.handle
            found.append(recorder)

        return init

    with ExitStack() as stack:
        for machine in BIRTHS:
            stack.enter_context(patch.object(machine, "__init__", recording(machine)))
        yield found


def data_of(recorders: list[Recorder[Any, Any]]) -> bytes:
    """A file with the flights of all of them."""
    return MAGIC + encode([each.flight() for each in recorders])


def flights_of(recorders: list[Recorder[Any, Any]]) -> list[Flight]:
    """What is read when it was written."""
    return decode(data_of(recorders))
