"""Whether a target was reached, and on what it was measured."""

from pathlib import Path

import msgspec
import pytest

from roq.benchmarks.results import LIBRARIES, Verdict, _output, environment, write_document


@pytest.mark.parametrize(
    ("at_least", "measured", "reached"),
    [
        (True, 0.8, True), (True, 0.7, False),
        (False, 0.8, True), (False, 0.9, False),
        (True, None, None),
    ],
)  # fmt: skip
def test_a_goal_is_the_least_or_the_most(
    *, at_least: bool, measured: float | None, reached: bool | None
) -> None:
    assert Verdict("x", 0.8, at_least, measured).reached is reached


def test_what_is_not_there_has_no_version() -> None:
    assert _output("no-such-server", "--version") == ""
    here = environment()
    assert set(here.libraries) == set(LIBRARIES)
    assert here.libraries["pyzmq"]
    assert here.cores > 0


def test_a_document_is_readable_and_ends_with_a_line(tmp_path: Path) -> None:
    path = tmp_path / "new" / "x.json"
    verdict = Verdict("fast", 1.0, True, 2.0)
    write_document(verdict, path)
    text = path.read_bytes()
    assert text.endswith(b"}\n")
    assert text.count(b"\n") > 5
    assert msgspec.json.decode(text, type=Verdict) == verdict
