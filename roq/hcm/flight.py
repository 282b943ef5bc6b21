"""How a flight of a host manager is flown again."""

from __future__ import annotations

from typing import Final

from roq.hcm.events import Event
from roq.hcm.machine import HostMachine
from roq.hcm.settings import Settings
from roq.runtime.flight import Kind

KIND: Final = Kind("host", Settings, Event, HostMachine)
