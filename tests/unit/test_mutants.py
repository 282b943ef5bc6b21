"""The list of mistakes made by hand keeps up with the code."""

import runpy
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MUTANTS = runpy.run_path(str(ROOT / "tests" / "mutants" / "cases.py"))["MUTANTS"]


def test_the_text_of_each_mistake_stands_once_in_its_module() -> None:
    counts = [(each.name, (ROOT / each.file).read_text().count(each.old)) for each in MUTANTS]
    assert [(name, count) for name, count in counts if count != 1] == []


def test_each_mistake_is_left_to_tests_that_are_there() -> None:
    assert [path for each in MUTANTS for path in each.tests if not (ROOT / path).exists()] == []
