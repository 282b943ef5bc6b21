"""What people are told to install is this project, and they are told so with its brackets."""

from __future__ import annotations

import io
import re
import subprocess
from pathlib import Path

import pytest
from rich.console import Console

from roq.cli import output
from roq.cli.failures import BENCH, EXTRA, Failed, failed
from roq.errors import Unavailable

ROOT = Path(__file__).resolve().parents[2]
BARE = re.compile(r"pip3? install(?:\s+-[-\w=]+)*\s+[\"']?roq(?![\w./-])")
"""`pip install roq`, also in quotes or with `[extra]`: that project belongs to others."""
SUFFIXES = {".md", ".py", ".toml", ".cfg", ".yaml", ".yml", ".sh", ".service", ".txt", ""}


def texts() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=False
    ).stdout.decode()
    found = [ROOT / name for name in listed.split("\0") if name]
    if not found:  # a copy without its history
        found = [path for folder in ("roq", "docs", "examples", "scripts", "tests", "simulation")
                 for path in (ROOT / folder).rglob("*")]  # fmt: skip
    return [
        path
        for path in found
        if path.suffix in SUFFIXES and path.is_file() and path != Path(__file__).resolve()
    ]


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("pip install roq", True),
        ("pip install 'roq[spark]'", True),
        ("/opt/roq/bin/pip install --upgrade roq", True),
        ("pip install 'roq-cluster[spark]'", False),
        ("pip install roq-cluster", False),
        ("pip install /opt/roq", False),
        ("pip install ./roq", False),
    ],
)
def test_the_bare_name_is_seen(text: str, wrong: bool) -> None:
    assert (BARE.search(text) is not None) is wrong


def test_nobody_is_told_to_install_what_is_not_ours() -> None:
    told = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in texts()
        for number, line in enumerate(path.read_text(errors="ignore").splitlines(), start=1)
        if BARE.search(line)
    ]
    assert told == []


@pytest.mark.parametrize("text", [EXTRA, BENCH, "pip install 'roq-cluster[embedded]'"])
def test_the_command_line_prints_brackets_as_they_are(
    text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    output.console().print(f"Install it with {text}.")
    output.print_fields([("Reason", text)])
    output.print_table(["REASON"], [[text]], "")
    assert capsys.readouterr().out.count(text) == 3
    shown = failed(Unavailable(f"this needs something: {text}"))
    shown.show()
    Failed("this needs something", hint=f"Install it with {text}.").show()
    assert capsys.readouterr().err.count(text) == 2


def test_only_one_place_makes_consoles_and_takes_no_markup_from_texts() -> None:
    makers = [
        str(path.relative_to(ROOT))
        for path in texts()
        if path.suffix == ".py"
        and path.parts[len(ROOT.parts)] in {"roq", "simulation", "scripts"}
        and re.search(r"(?<!\w)(?:rich\.console\.)?Console\((?!self)", path.read_text())
    ]
    assert makers == ["roq/cli/output.py"]
    plain = Console(file=io.StringIO(), markup=False)
    assert plain.render_str("[extra]", markup=False).plain == "[extra]"
    assert "markup=False" in Path(output.__file__).read_text()
