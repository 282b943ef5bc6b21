"""The list of mistakes made by hand keeps up with the code."""

import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def test_the_text_of_each_mistake_stands_once_in_its_module(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(ROOT)
    mutants = importlib.import_module("tests.mutants.cases").MUTANTS
    assert len(mutants) > 400
    counts = [(each.name, (ROOT / each.file).read_text().count(each.old)) for each in mutants]
    assert [(name, count) for name, count in counts if count != 1] == []
