"""A test file for every module of `roq`, and a module for every test file but those named here.

Simulations have tests of their own, as have the programs that are started by their `__main__.py`.
"""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TESTS = ROOT / "tests" / "unit"
SIMULATION = {path.name for path in (ROOT / "simulation").rglob("*") if path.is_dir()}

OF_SEVERAL = set(
    """
aio/test_parity
exchange/test_late_consumers
exchange/test_late_log
exchange/test_late_requests
exchange/test_late_services
exchange/test_orphaned_answers
exchange/test_recovery
exchange/test_request_lives
exchange/test_service_settings
gcm/change/test_half_done
gcm/persistence/test_hostile_registry
gcm/test_durable
gcm/test_missing_disks
gcm/test_refused_logs
gcm/test_scaling
hcm/test_adoption
hcm/test_draining
hcm/test_durable
log/test_orphaned_answers
log/test_service_priorities
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
    assert sorted(modules() - mirrored()) == []


def test_every_test_file_has_its_module() -> None:
    assert sorted(mirrored() - modules() - of_several()) == []


def test_no_exception_is_left_that_is_none_any_more() -> None:
    assert sorted(of_several() - mirrored()) == []
    assert sorted(of_several() & modules()) == []
