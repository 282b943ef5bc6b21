"""The shape of the tree: contracts on imports, module sizes, test files beside modules."""

import configparser
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LINES_MAX = 600
"""A file for a noun is better than two halves of one."""


def modules() -> list[Path]:
    return sorted(path for top in ("roq", "simulation") for path in (ROOT / top).rglob("*.py"))


def test_imports_point_one_way() -> None:
    lint_imports = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run(
        [lint_imports, "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout


def test_the_document_shows_the_layers_that_the_contracts_hold() -> None:
    contracts = configparser.ConfigParser()
    contracts.read(ROOT / "setup.cfg")
    shown = " ".join((ROOT / "docs/architecture.md").read_text().split())
    chains = {
        name: " > ".join(contract["layers"].strip().splitlines()).replace(" |", ",")
        for name, contract in contracts.items()
        if name.startswith("importlinter:contract:") and contract["type"] == "layers"
    }
    assert len(chains) == 5
    assert {name: chain for name, chain in chains.items() if chain not in shown} == {}


def test_no_module_outgrows_one_job() -> None:
    sizes = {path: len(path.read_text().splitlines()) for path in modules()}
    assert {str(p.relative_to(ROOT)): n for p, n in sizes.items() if n > LINES_MAX} == {}


def test_an_exchange_is_started_without_the_weight_of_clients_and_control() -> None:
    code = (
        "import sys, roq.exchange.daemon;"
        "heavy = ('asyncio', 'kazoo', 'click', 'psutil', 'roq.client');"
        "print([name for name in heavy if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert done.stdout.strip() == "[]"
