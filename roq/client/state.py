"""How a publisher or subscriber stands, as its user is told. Pure."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class ClientState(StrEnum):
    """How a publisher or subscriber stands."""

    CONNECTING = "connecting"
    """It has never worked yet."""
    CONNECTED = "connected"
    """Messages flow, or would if there were any."""
    RECONNECTING = "reconnecting"
    """Something was lost a moment ago and is looked for again; nothing is to be done."""
    WAITING = "waiting"
    """Nothing flows though it should, for two seconds or more; the reason says why."""
    LOST_DATA = "lost_data"
    """Messages are lost for good. Only told: the state goes on as it was before."""
    CLOSED = "closed"
    """It is over: closed by its owner, or the queue was removed."""


class Cause(StrEnum):
    """Why it is not all well, for programs."""

    NONE = ""
    STARVED = "starved"
    """The client's background thread did not run."""
    NO_MANAGER = "no_manager"
    """No configuration manager answers."""
    NO_MONITOR = "no_monitor"
    """The queue's monitor is silent, or being looked for."""
    NO_EXCHANGE = "no_exchange"
    """The queue has no exchange, or none that can be reached."""
    NOT_ACKNOWLEDGED = "not_acknowledged"
    """The exchange takes batches and does not acknowledge them."""
    HELD = "held"
    """The exchange holds publishers back until a slow subscriber has read on."""
    LEFT_BEHIND = "left_behind"
    """The exchange does not wait any more for this subscriber, which was too slow for too long."""
    AWAY = "away"
    """An exchange of a durable queue does not serve; its log, with what is missing, comes back."""
    SILENT_EXCHANGE = "silent_exchange"
    """An exchange of the queue is not heard."""
    HOLE = "hole"
    """Messages have come that wait for older ones, which are being looked for."""
    NOT_TAKEN = "not_taken"
    """Messages are there, and the application does not take them."""
    QUEUE_STOPPED = "queue_stopped"
    QUEUE_REMOVED = "queue_removed"
    LOST = "lost"
    CLOSED = "closed"


class StateChange(msgspec.Struct, frozen=True, kw_only=True):
    """What `on_state` is called with."""

    state: ClientState
    cause: Cause = Cause.NONE
    reason: str = ""
    """Why, in a sentence; empty if all is well."""
    messages: int = 0
    """With `LOST_DATA`: how many are known to be lost; 0 if it is not known."""
