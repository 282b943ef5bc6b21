"""The documents tell the truth about the code."""

import re
import runpy
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_the_protocol_reference_is_up_to_date() -> None:
    module = runpy.run_path(str(ROOT / "scripts" / "protocol_reference.py"))
    document = (ROOT / "docs" / "protocol.md").read_text()
    for part, text in module["generated"]().items():
        assert text in document, f"{part} changed: run python scripts/protocol_reference.py"


def test_links_between_documents_lead_somewhere() -> None:

    broken = [
        f"{page.relative_to(ROOT)}: {target}"
        for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text())
        if not (page.parent / target).exists()
    ]
    assert broken == []
