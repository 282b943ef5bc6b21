"""What a daemon tells those who watch machines: `/metrics`, `/healthz`, `/readyz` over HTTP.

The daemon's loop publishes a picture of itself once a second; the server's thread shows the last
picture, and never looks at anything else.

    /metrics   the figures, in the text format of Prometheus
    /healthz   200 while the loop turns, 503 when it has not for some seconds: start it again
    /readyz    200 if the daemon does all of its work, else 503; the body says what is missing
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Annotated, Final

import msgspec
from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.registry import Collector

from roq.protocol.control import Health
from roq.protocol.metrics import Metric, MetricKind, Sample, gauge
from roq.protocol.reports import Check
from roq.runtime.http import HttpServer, Response
from roq.runtime.interfaces import Timer
from roq.runtime.reactor import Reactor

LOOK_SECONDS: Final = 1.0
ALIVE_SECONDS: Final = 10.0
"""A loop that has published nothing for so long hangs."""
SAMPLES_MAX: Final = 100_000
"""What is above is left out: an answer must have an end."""
CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

INFO: Final = gauge("roq_info", "Always 1; the labels say what this is.", "role", "version")
READY: Final = gauge("roq_ready", "1 if the daemon does all of its work; as /readyz.")
CHECK: Final = gauge(
    "roq_check_ok", "1 if this check of `roq health` finds nothing wrong.", "check"
)
LONGEST_TURN: Final = gauge(
    "roq_loop_longest_turn_seconds",
    "The longest turn of the loop in the last second: so long no peer was heard.",
)
COMMON: Final = (INFO, READY, CHECK, LONGEST_TURN)
"""What every daemon tells."""

log = logging.getLogger(__name__)

Family = GaugeMetricFamily | CounterMetricFamily | HistogramMetricFamily
_FAMILIES: Final[dict[MetricKind, type[Family]]] = {
    MetricKind.GAUGE: GaugeMetricFamily,
    MetricKind.COUNTER: CounterMetricFamily,
    MetricKind.HISTOGRAM: HistogramMetricFamily,
}


class MetricsSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The section `[metrics]` of a daemon's configuration."""

    bind: Annotated[str, msgspec.Meta(min_length=1)] = "127.0.0.1"
    port: Annotated[int, msgspec.Meta(ge=0, le=65_535)] = 0
    """0: no HTTP at all."""


@dataclass(frozen=True, slots=True)
class Picture:
    """A daemon at one moment.

    Attributes:
        at: when, on the monotonic clock.
        samples: its figures.
        health: how it is.
    """

    at: float
    samples: tuple[Sample, ...]
    health: Health


class Telemetry:
    """Looks at a daemon each second, and publishes what it sees if it is to listen.

    Args:
        reactor: the daemon's loop.
        settings: where to listen, if at all.
        metrics: what the daemon tells beside `COMMON`.
        measure: called in the loop each second, whether it listens or not; gives what it has found
            out about this process, of which the log tells when it turns bad and good again.
        look: called after that if it listens; gives the figures and the health of this moment.

    Raises:
        ConfigError: the port is in use, or the address is not of this machine.
    """

    def __init__(
        self,
        reactor: Reactor,
        settings: MetricsSettings,
        metrics: Sequence[Metric],
        *,
        measure: Callable[[], Iterable[Check]],
        look: Callable[[], tuple[Iterable[Sample], Health]],
    ) -> None:
        self._reactor = reactor
        self._measure = measure
        self._look = look
        self._timer: Timer | None = None
        self._warned: set[str] = set()
        self._page = Page((*COMMON, *metrics))
        # Of the program that runs. Looked for once: later there may be another one on the disk, or
        # no descriptor to look with.
        self._version = version("roq-cluster")
        self._server = (
            HttpServer(settings.bind, settings.port, self._page.respond) if settings.port else None
        )

    @property
    def port(self) -> int:
        """Where it listens; 0: nowhere."""
        return self._server.port if self._server is not None else 0

    def start(self) -> None:
        """Look now, and from now on. Loop thread only."""
        self._observe()
        if self._server is not None:
            self._server.start()

    def close(self) -> None:
        """Look no more. Loop thread only."""
        if self._timer is not None:
            self._timer.cancel()
        if self._server is not None:
            self._server.close()

    def _observe(self) -> None:
        self._timer = self._reactor.call_later(LOOK_SECONDS, self._observe)
        self._warn(self._measure())
        if self._server is not None:
            longest = self._reactor.take_longest_turn()
            samples, health = self._look()
            told = (*_common(health, longest, self._version), *samples)
            self._page.show(Picture(self._reactor.now(), told, health))

    def _warn(self, checks: Iterable[Check]) -> None:
        for check in checks:
            if not check.ok and check.name not in self._warned:
                self._warned.add(check.name)
                log.warning("%s: %s", check.name, check.detail, extra={"event": "check_failed"})
            elif check.ok and check.name in self._warned:
                self._warned.discard(check.name)
                log.info("%s: %s", check.name, check.detail, extra={"event": "check_ok"})


def _common(health: Health, longest_turn: float, installed: str) -> Iterator[Sample]:
    yield Sample(INFO, 1, (health.role, installed))
    yield Sample(READY, health.ready)
    for check in health.checks:
        yield Sample(CHECK, check.ok, (check.name,))
    yield Sample(LONGEST_TURN, longest_turn)


class Page:
    """Shows the last picture. `show` comes from the daemon's loop, `respond` from the server.

    Args:
        metrics: what there is to tell.
        now: the clock of the pictures.
    """

    def __init__(
        self, metrics: Sequence[Metric], now: Callable[[], float] = time.monotonic
    ) -> None:
        self._metrics = metrics
        self._now = now
        self._picture: Picture | None = None
        self._shown: tuple[Picture, bytes] | None = None
        # Of this process alone: a registry of one's own, so that nothing is global.
        self._process = CollectorRegistry()
        ProcessCollector(registry=self._process)

    def show(self, picture: Picture) -> None:
        """This is how the daemon is from now on."""
        self._picture = picture  # one reference: the other thread sees the old or the new one

    def respond(self, path: str) -> Response:
        """The answer for a path."""
        picture = self._picture
        match path:
            case "/metrics" if picture is not None:
                return Response(200, self._exposition(picture), CONTENT_TYPE)
            case "/healthz":
                return self._alive(picture)
            case "/readyz":
                return self._ready(picture)
            case "/metrics":
                return Response(503, b"nothing is known yet\n")
            case _:
                return Response(404, b"there are /metrics, /healthz and /readyz\n")

    def _alive(self, picture: Picture | None) -> Response:
        age = self._now() - picture.at if picture is not None else 0.0
        alive = age < ALIVE_SECONDS
        return _json(alive, {"alive": alive, "seconds": round(age, 1)})

    def _ready(self, picture: Picture | None) -> Response:
        if picture is None:
            return _json(False, {"ready": False, "state": "starting", "checks": []})
        hangs = self._now() - picture.at >= ALIVE_SECONDS
        health = picture.health
        ready = health.ready and not hangs
        told = {
            "ready": ready,
            "role": health.role,
            "name": health.name,
            "state": "hangs" if hangs else health.state,
            "checks": health.checks,
        }
        return _json(ready, told)

    def _exposition(self, picture: Picture) -> bytes:
        if self._shown is None or self._shown[0] is not picture:
            self._shown = (picture, exposition(self._metrics, picture.samples))
        return self._shown[1] + generate_latest(self._process)


class _Figures(Collector):
    def __init__(self, families: Iterable[Family]) -> None:
        self._families = list(families)

    def collect(self) -> Iterator[Family]:
        return iter(self._families)


def exposition(metrics: Sequence[Metric], samples: Iterable[Sample]) -> bytes:
    """The text that Prometheus reads; a metric without samples is left out."""
    families: dict[Metric, Family] = {metric: _family(metric) for metric in metrics}
    told: set[Metric] = set()
    for _, sample in zip(range(SAMPLES_MAX), samples, strict=False):
        family = families[sample.metric]
        if isinstance(family, HistogramMetricFamily):
            family.add_metric(sample.labels, sample.buckets, sample.value)
        else:
            family.add_metric(sample.labels, sample.value)
        told.add(sample.metric)
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Figures(families[metric] for metric in metrics if metric in told))
    return generate_latest(registry)


def _family(metric: Metric) -> Family:
    return _FAMILIES[metric.kind](metric.name, metric.help, labels=metric.labels)


def _json(well: bool, document: dict[str, object]) -> Response:
    body = msgspec.json.encode(document) + b"\n"
    return Response(200 if well else 503, body, "application/json")
