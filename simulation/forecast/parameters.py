"""Everything that the model assumes: delays, costs of work, sizes of hosts."""

from __future__ import annotations

from typing import Annotated, TypeAlias

import msgspec
from msgspec import Meta

from roq.timing import EXCHANGE_LOST_SECONDS, EXCHANGE_OPENING_SECONDS

Seconds: TypeAlias = Annotated[float, Meta(ge=0, le=86_400)]
Share: TypeAlias = Annotated[float, Meta(ge=0, le=1)]
Cost: TypeAlias = Annotated[float, Meta(ge=0, le=1_000_000)]


class Parameters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The assumptions; docs/simulation.md says where the defaults come from.

    Attributes:
        kpi_seconds: how often exchanges report.
        report_seconds: how long a report is on its way on average; at most twice as long.
        move_least, move_most: decision → the publisher is elsewhere; evenly drawn.
        move_failures: share of moves that lead nowhere.
        serve_least, serve_most: decision → the new exchange has reported; evenly drawn.
        opening_seconds: its first report → publishers may be moved there.
        reading_seconds: no publisher is at an exchange → everything in it is read.
        stop_seconds: an emptied exchange is to be stopped → it is.
        reconnect_seconds: an exchange dies → its publishers ask for another one.
        heal_seconds: a process dies with its host → it serves elsewhere.
        host_cores: of each host.
        host_slots: exchanges that a host may have; 0: any number.
        exchange_mb: memory of an exchange.
        turn_us: processor time of an exchange each time that it looks what has come, microseconds:
            what came while it waited for a core or was at work is taken in one turn.
        batch_us: for one batch.
        batch_out_us: for one batch that goes out to one subscriber.
        message_us: for one message.
        byte_in_ns: for one payload byte that comes in, nanoseconds.
        byte_out_ns: for one that goes out to one subscriber.
        batch_bytes: payload of a batch at most.
        linger_ms: what a publisher brings in this time travels in one batch.
        latency_base_ms: latency without load.
        client_us: processor time of all clients of a message, on the host of its exchange.
        others_cores: of each host, that something else keeps busy.
        slice_ms: for so long a process has a core to itself when others wait for it.
        host_failures_per_hour: of one host.
        host_repair_seconds: until a host that died is back, empty.
        spread: how different publishers of a group are: sigma of a log-normal; 0: all alike.
        noise: standard deviation of what is reported, as a part of it; 0: exact reports.
        step_seconds: what changes all the time (ramps, waves, traces) changes in such steps, and in
            twelve per phase at least.
        stagger_seconds: queues are so far apart in the course of the load at most.
        samples: rows of the series.
    """

    kpi_seconds: Annotated[float, Meta(ge=0.1, le=60)] = 1.0
    report_seconds: Seconds = 0.005
    move_least: Seconds = 0.02
    move_most: Seconds = 0.25
    move_failures: Share = 0.0
    serve_least: Seconds = 0.3
    serve_most: Seconds = 1.2
    opening_seconds: Annotated[float, Meta(ge=0, le=EXCHANGE_OPENING_SECONDS)] = 0.3
    reading_seconds: Seconds = 1.0
    stop_seconds: Seconds = 0.3
    reconnect_seconds: Seconds = 1.0
    heal_seconds: Seconds = EXCHANGE_LOST_SECONDS + 1.5
    host_cores: Annotated[float, Meta(gt=0, le=1_024)] = 4.0
    host_slots: Annotated[int, Meta(ge=0, le=10_000)] = 8
    exchange_mb: Cost = 192.0
    turn_us: Cost = 300.0
    batch_us: Cost = 8.0
    batch_out_us: Cost = 8.0
    message_us: Cost = 0.06
    byte_in_ns: Cost = 0.5
    byte_out_ns: Cost = 0.5
    batch_bytes: Annotated[int, Meta(ge=1)] = 65_536
    linger_ms: Cost = 1.0
    latency_base_ms: Cost = 0.2
    client_us: Cost = 0.0
    others_cores: Annotated[float, Meta(ge=0, le=1_024)] = 0.0
    slice_ms: Cost = 3.25
    host_failures_per_hour: Annotated[float, Meta(ge=0, le=60)] = 0.0
    host_repair_seconds: Annotated[float, Meta(gt=0, le=31_536_000)] = 600.0
    spread: Annotated[float, Meta(ge=0, le=3)] = 0.0
    noise: Share = 0.0
    step_seconds: Annotated[float, Meta(gt=0, le=86_400)] = 300.0
    stagger_seconds: Annotated[float, Meta(ge=0)] = 0.0
    samples: Annotated[int, Meta(ge=1, le=100_000)] = 120

    def __post_init__(self) -> None:
        for least, most in (("move_least", "move_most"), ("serve_least", "serve_most")):
            if getattr(self, least) > getattr(self, most):
                raise ValueError(f"`{least}` is not above `{most}`")
