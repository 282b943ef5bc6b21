"""No well-formed document, whatever its numbers, raises anything but the declared errors."""

from __future__ import annotations

import re
from pathlib import Path

import fuzz
import pytest

ROOT = Path(__file__).resolve().parents[2] / "roq"
ROUNDS = 60
FEWER = {"peers": 15}
"""Of these a round is a long history."""
OWN_WORDS = (
    "benchmarks/", "simulation/", "demo/", "testing/history", "testing/faults",
    "client/subscribe/log_connection", "coordination/session_locks",
    "jobs/", "cli/queues", "cli/requests",
)  # fmt: skip
"""Read what they, their children, their database, the kernel or their own user have written."""
DECODES = re.compile(
    r"msgspec\.(?:json|msgpack)\.(?:decode|Decoder)\(|msgspec\.convert\(|bson\.decode\(|"
    r"documents\.(?:decode|convert)\(|\b_?unpack(?:_from)?\("
)


@pytest.mark.parametrize("target", sorted(fuzz.TARGETS))
def test_numbers_from_the_edges_end_nothing(target: str) -> None:
    for seed in range(FEWER.get(target, ROUNDS)):
        fuzz.one_round(target, seed)


def test_every_module_that_decodes_is_named_by_a_target() -> None:
    named = {module for modules in fuzz.DECODERS.values() for module in modules}
    found = {
        path.relative_to(ROOT).with_suffix("").as_posix()
        for path in ROOT.rglob("*.py")
        if DECODES.search(path.read_text())
    }
    missing = {each for each in found - named if not each.startswith(OWN_WORDS)}
    assert not missing
    assert all((ROOT / f"{module}.py").is_file() for module in named)
    assert fuzz.DECODERS.keys() == fuzz.TARGETS.keys()
