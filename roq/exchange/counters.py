"""What an exchange counts since its start: its work, and every abuse that it met."""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(slots=True)
class Counters:
    """Plain numbers that only grow."""

    messages: int = 0
    """Of publishers that have left; those of present ones stand in their links."""
    bytes: int = 0
    own_entries: int = 0
    """Markers and fences that the exchange has written itself."""
    messages_out: int = 0
    bytes_out: int = 0
    fetches: int = 0
    duplicates: int = 0
    resets: int = 0
    malformed: int = 0
    """Messages that could not be read."""
    refused_hellos: int = 0
    refused_batches: int = 0
    refused_requests: int = 0
    without_hello: int = 0
    """Batches of a connection that has not said Hello."""
    voids_dropped: int = 0
    """VOID batches of topics beyond the cap: acknowledged, not logged."""
    markers_dropped: int = 0
    bad_subscriptions: int = 0
    fetches_abandoned: int = 0
    acks_skipped: int = 0
    held_batches: int = 0
    """There was no room for them, as a slow reader had to be waited for; they came again."""

    def abuse(self) -> dict[str, int]:
        """The counters that stay 0 when every peer is well."""
        return {name: getattr(self, name) for name in ABUSE}


ABUSE = (
    "malformed",
    "refused_hellos",
    "refused_batches",
    "refused_requests",
    "without_hello",
    "voids_dropped",
    "markers_dropped",
    "bad_subscriptions",
    "fetches_abandoned",
)

assert set(ABUSE) <= {field.name for field in fields(Counters)}  # noqa: S101
