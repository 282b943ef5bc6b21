"""The policy in docs/elasticity.md, installed and used as the page says."""

import re
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from queue_model import QueueModel

from roq.policy.catalogue import POLICIES
from roq.policy.snapshot import Grow, Move
from roq.protocol.scaling_rules import PARTS
from roq.runtime import plugins

PAGE = Path(__file__).parents[3] / "docs" / "elasticity.md"


def block(language: str) -> str:
    """The first code block of the page in this language."""
    found = re.search(rf"```{language}\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert found is not None
    return found.group(1)


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Install the page's package; gives the name of its policy."""
    group, name, value = re.findall(r'"(roq\.policies)"\]\n(\w+) = "(.*)"', block("toml"))[0]
    (tmp_path / "gentle.py").write_text(block("python"))
    metadata = tmp_path / "gentle-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: gentle\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(f"[{group}]\n{name} = {value}\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield str(name)
    sys.modules.pop("gentle", None)


def test_the_page_s_policy_does_what_it_says(installed: str) -> None:
    consoles = re.findall(r"```console\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert any(f"--policy {installed}" in each for each in consoles)
    policy = plugins.policy(installed)
    model = QueueModel([0.4] * 6, [1] * 6, 1)
    told = [(round_, each) for round_ in range(200) for each in model.round(policy)]
    assert sum(isinstance(each, Grow) for _, each in told) == 2
    moves = [round_ for round_, each in told if isinstance(each, Move)]
    assert all(after - before >= 30 for before, after in pairwise(moves))
    assert max(model.loads().values()) <= 1.0


def test_the_page_names_every_policy_and_every_field_of_the_rules() -> None:
    page = PAGE.read_text()
    for name in POLICIES:
        assert f"`{name}`" in page
    for kind in PARTS.values():
        for field in kind.__struct_fields__:
            short = field.replace("AUTOSCALING_ROQ_XCHANGE", "…")
            assert field in page or short in page
