"""The documents tell the truth about the code."""

import re
import runpy
from pathlib import Path

import pytest

from roq.gcm.interfaces.metrics import METRICS as OF_MANAGER
from roq.hcm.metrics import METRICS as OF_HOST
from roq.runtime.metrics import COMMON

ROOT = Path(__file__).resolve().parents[2]


def test_the_protocol_reference_is_up_to_date() -> None:
    module = runpy.run_path(str(ROOT / "scripts" / "protocol_reference.py"))
    document = (ROOT / "docs" / "protocol.md").read_text()
    for part, text in module["generated"]().items():
        assert text in document, f"{part} changed: run python scripts/protocol_reference.py"


def test_the_tables_of_metrics_are_up_to_date() -> None:
    module = runpy.run_path(str(ROOT / "scripts" / "metrics_reference.py"))
    document = (ROOT / "docs" / "operations.md").read_text()
    assert module["generated"]() in document, "run python scripts/metrics_reference.py"


@pytest.mark.parametrize("name", ["cli", "api", "states"])
def test_the_references_are_up_to_date(name: str) -> None:
    module = runpy.run_path(str(ROOT / "scripts" / f"{name}_reference.py"))
    written = (ROOT / "docs" / f"{name}.md").read_text()
    assert module["generated"]() == written, "the code has changed: run `make docs`"


def test_alerts_and_documents_name_metrics_that_there_are() -> None:
    there = {metric.name for metric in (*COMMON, *OF_MANAGER, *OF_HOST)}
    for path in (
        *(ROOT / "docs").glob("*.md"),
        *(ROOT / "examples").glob("prometheus*.yml"),
    ):
        named = set(
            re.findall(
                r"\broq_(?:gcm|host|child|exchange|monitor|check|loop)_\w+", path.read_text()
            )
        )
        assert named <= there, f"{path.name} names metrics that nobody tells"


def test_links_between_documents_lead_somewhere() -> None:

    broken = [
        f"{page.relative_to(ROOT)}: {target}"
        for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text())
        if not (page.parent / target).exists()
    ]
    assert broken == []


def test_python_in_the_documents_can_be_compiled() -> None:
    pages = {ROOT / "README.md", *(ROOT / "docs").glob("*.md")} - {ROOT / "docs" / "api.md"}
    for page in sorted(pages):
        blocks = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
        for number, code in enumerate(blocks, start=1):
            compile(code.replace("…", "..."), f"{page.name}, block {number}", "exec")


def test_the_words_of_the_architecture_stand_where_it_says() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text().partition("## Glossary")[2]
    places = re.findall(r"(?:`(\w+)` in )?`(roq/[\w/]+\.py)`", text)
    assert len(places) > 25
    for name, path in places:
        assert (ROOT / path).is_file(), path
        if name:
            pattern = rf"^(class {name}\b|{name}\b.* = )"
            assert re.search(pattern, (ROOT / path).read_text(), re.MULTILINE), (name, path)
