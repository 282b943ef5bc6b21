"""What a daemon shows to those who watch machines."""

from __future__ import annotations

import json
import resource

import pytest
from prometheus_client.parser import text_string_to_metric_families

from roq.protocol.control import Health
from roq.protocol.metrics import Sample, counter, gauge
from roq.protocol.reports import Check
from roq.runtime.metrics import ALIVE_SECONDS, Page, Picture, Telemetry, exposition
from roq.runtime.metrics import MetricsSettings as Settings
from roq.runtime.reactor import Reactor

FILL = gauge("roq_test_fill_bytes", "How full.", "queue", "exchange")
TAKEN = counter("roq_test_taken_total", "What was taken.")
UNUSED = gauge("roq_test_unused", "Nothing tells this.")
METRICS = (FILL, TAKEN, UNUSED)
WELL = Health(role="gcm", name="a", ready=True, state="leading", checks=[Check(name="x", ok=True)])
UNWELL = Health(
    role="gcm",
    name="a",
    ready=False,
    state="following",
    checks=[Check(name="registry", ok=False, detail="ZooKeeper is away")],
)


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def shown(health: Health = WELL, *samples: Sample) -> tuple[Page, Clock]:
    clock = Clock()
    page = Page(METRICS, clock)
    page.show(Picture(clock.now, samples, health))
    return page, clock


def test_figures_have_names_labels_and_help() -> None:
    text = exposition(METRICS, [Sample(FILL, 5, ("a", "x1")), Sample(TAKEN, 7)]).decode()
    assert text.splitlines() == [
        "# HELP roq_test_fill_bytes How full.",
        "# TYPE roq_test_fill_bytes gauge",
        'roq_test_fill_bytes{exchange="x1",queue="a"} 5.0',
        "# HELP roq_test_taken_total What was taken.",
        "# TYPE roq_test_taken_total counter",
        "roq_test_taken_total 7.0",
    ]


def test_labels_of_strangers_cannot_break_the_format() -> None:
    text = exposition(METRICS, [Sample(FILL, 1, ('a"b\\c\nd', "x"))]).decode()
    (family,) = text_string_to_metric_families(text)
    assert family.samples[0].labels["queue"] == 'a"b\\c\nd'


def test_metrics_have_the_figures_and_those_of_the_process() -> None:
    page, _ = shown(WELL, Sample(TAKEN, 7))
    response = page.respond("/metrics")
    assert response.status == 200
    names = {each.name for each in text_string_to_metric_families(response.body.decode())}
    assert {"roq_test_taken", "process_open_fds", "process_cpu_seconds"} <= names


def test_before_the_first_picture_a_daemon_is_alive_and_not_ready() -> None:
    page = Page(METRICS)
    statuses = [page.respond(path).status for path in ("/healthz", "/readyz", "/metrics", "/")]
    assert statuses == [200, 503, 503, 404]


def test_readiness_names_what_is_missing() -> None:
    assert shown(WELL)[0].respond("/readyz").status == 200
    response = shown(UNWELL)[0].respond("/readyz")
    assert response.status == 503
    document = json.loads(response.body)
    assert document["state"] == "following"
    assert document["checks"][0]["detail"] == "ZooKeeper is away"
    assert shown(UNWELL)[0].respond("/healthz").status == 200


def test_a_loop_that_hangs_is_neither_alive_nor_ready() -> None:
    page, clock = shown(WELL)
    clock.now += ALIVE_SECONDS + 1
    response = page.respond("/healthz")
    assert response.status == 503
    assert json.loads(response.body) == {"alive": False, "seconds": ALIVE_SECONDS + 1}
    assert page.respond("/readyz").status == 503


@pytest.mark.parametrize("listens", [True, False])
def test_a_daemon_is_measured_always_and_drawn_if_somebody_may_ask(listens: bool) -> None:
    reactor = Reactor()
    seen: list[str] = []

    def look() -> tuple[list[Sample], Health]:
        seen.append("looked")
        return [], WELL

    def measure() -> list[Check]:
        seen.append("measured")
        return []

    settings = Settings(port=_free_port() if listens else 0)
    telemetry = Telemetry(reactor, settings, (), measure=measure, look=look)
    telemetry.start()
    telemetry.close()
    reactor.close()
    assert seen == (["measured", "looked"] if listens else ["measured"])


def test_a_daemon_without_descriptors_is_drawn_all_the_same() -> None:
    reactor = Reactor()
    settings = Settings(port=_free_port())
    telemetry = Telemetry(reactor, settings, (), measure=list, look=lambda: ([], WELL))
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))
    try:
        telemetry.start()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    telemetry.close()
    reactor.close()


def test_what_turns_bad_and_good_again_is_a_line_in_the_log_each(
    caplog: pytest.LogCaptureFixture,
) -> None:
    reactor = Reactor()
    found = [True, False, False, True]

    def measure() -> list[Check]:
        ok = found.pop(0)
        if not found:
            reactor.stop()
        return [Check(name="disk", ok=ok, detail="free" if ok else "full")]

    telemetry = Telemetry(reactor, Settings(), (), measure=measure, look=lambda: ([], WELL))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("roq.runtime.metrics.LOOK_SECONDS", 0.01)
        caplog.set_level("INFO")
        telemetry.start()
        reactor.run()
    telemetry.close()
    reactor.close()
    assert [(each.levelname, each.message) for each in caplog.records] == [
        ("WARNING", "disk: full"),
        ("INFO", "disk: free"),
    ]


def _free_port() -> int:
    import socket  # noqa: PLC0415

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
