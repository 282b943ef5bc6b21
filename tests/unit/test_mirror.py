"""A test file for every module of `roq`, and a module for every test file; the rest is named here.

What stands in the two lists is an exception. A test file for every module is wanted, and that is
missed by the first list, which may only become shorter: a test fails for one more, and for one that
is none any more. Simulations have tests of their own, as have the programs that are started
by their `__main__.py`.
"""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TESTS = ROOT / "tests" / "unit"
SIMULATION = {path.name for path in (ROOT / "simulation").rglob("*") if path.is_dir()}

TESTED_ELSEWHERE = set(
    """
aio/listening
aio/publisher
benchmarks/arrow_source
benchmarks/contender
benchmarks/contenders/bare_hops
benchmarks/contenders/nats_core
benchmarks/contenders/nats_requests
benchmarks/contenders/procrastinate_jobs
benchmarks/contenders/rabbitmq_requests
benchmarks/contenders/roq
benchmarks/contenders/roq_aio
benchmarks/contenders/roq_groups
benchmarks/contenders/roq_jobs
benchmarks/contenders/roq_requests
benchmarks/contenders/zmq_clients
benchmarks/request_party
benchmarks/spark
benchmarks/worker
client/cluster
client/request/commands
client/publish/events
client/publish/publisher
client/session/events
client/session/shell
client/subscribe/subscriber
demo/lane
demo/run
demo/worker
""".split()  # noqa: SIM905 - one a line, so that a change of the list is a line
)
"""Modules that other tests run: those of the part that they belong to, in `tests/unit`,
`tests/property` and `tests/integration`. Some hold nothing to be tested: protocols, events,
records."""
TESTED_ELSEWHERE_MAX = 41
"""With a test file for one of them it falls."""

OF_SEVERAL = set(
    """
aio/test_parity
exchange/test_late_consumers
exchange/test_late_log
exchange/test_late_requests
exchange/test_late_services
exchange/test_recovery
exchange/test_service_settings
gcm/change/test_half_done
gcm/persistence/test_hostile_registry
gcm/test_durable
gcm/test_scaling
hcm/test_adoption
hcm/test_draining
hcm/test_durable
monitor/test_takeover
policy/test_own_policy
provider/test_document
runtime/test_zmtp_fan_out
test_architecture
test_docs
test_mirror
test_mutants
test_names
test_shipping
test_stuck_workers
test_systemd
""".split()  # noqa: SIM905
)
"""Tests of what several modules do together, or of documents and scripts."""


def modules() -> set[str]:
    found = (path.relative_to(ROOT / "roq") for path in (ROOT / "roq").rglob("*.py"))
    return {
        str(path.with_suffix(""))
        for path in found
        if path.parts[0] != "simulation" and path.name not in {"__init__.py", "__main__.py"}
    }


def mirrored() -> set[str]:
    """The modules that test files are named after."""
    found = (path.relative_to(TESTS) for path in TESTS.rglob("test_*.py"))
    return {
        str(path.with_name(path.stem.removeprefix("test_")))
        for path in found
        if path.parts[0] not in SIMULATION
    }


def of_several() -> set[str]:
    return {str(Path(name).with_name(Path(name).name.removeprefix("test_"))) for name in OF_SEVERAL}


def test_every_module_has_its_test_file() -> None:
    assert sorted(modules() - mirrored() - TESTED_ELSEWHERE) == []


def test_every_test_file_has_its_module() -> None:
    assert sorted(mirrored() - modules() - of_several()) == []


def test_no_exception_is_left_that_is_none_any_more() -> None:
    assert sorted(TESTED_ELSEWHERE & mirrored()) == []
    assert sorted(TESTED_ELSEWHERE - modules()) == []
    assert sorted(of_several() - mirrored()) == []
    assert sorted(of_several() & modules()) == []


def test_exceptions_become_fewer() -> None:
    assert len(TESTED_ELSEWHERE) <= TESTED_ELSEWHERE_MAX
