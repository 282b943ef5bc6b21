"""The units of systemd are right, and say what the daemons do."""

from __future__ import annotations

import shutil
import subprocess
import sys
from configparser import ConfigParser
from pathlib import Path

import pytest
from click.testing import CliRunner

from roq.cli.commands import cli
from roq.hcm.config import Children
from roq.jobs.worker import GRACE_SECONDS, LOOK_SECONDS
from roq.runtime import exits
from roq.timing import CHILD_KILLED_SECONDS

UNITS = sorted((Path(__file__).resolve().parents[2] / "scripts" / "systemd").glob("*.service"))


def read(unit: Path) -> ConfigParser:
    parser = ConfigParser(interpolation=None, delimiters=("=",), comment_prefixes=("#",))
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read_string(unit.read_text())
    return parser


def test_there_is_one_for_each_daemon() -> None:
    assert [unit.name for unit in UNITS] == [
        "roq-gcm.service", "roq-host.service", "roq-jobs.service",
    ]  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_systemd_finds_nothing_wrong(unit: Path, tmp_path: Path) -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("systemd-analyze is not installed")
    copy = tmp_path / unit.name
    roq = Path(sys.executable).with_name("roq")
    copy.write_text(unit.read_text().replace("/opt/roq/bin/roq", str(roq)))
    done = subprocess.run(
        [analyze, "verify", copy], capture_output=True, text=True, check=False, timeout=30
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_the_command_is_one_of_ours(unit: Path) -> None:
    words = read(unit)["Service"]["ExecStart"].split()
    assert words[0] == "/opt/roq/bin/roq"
    result = CliRunner().invoke(cli, [words[1], "--help"])
    assert result.exit_code == 0
    assert words[2] in result.output


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)
def test_what_trying_again_cannot_mend_is_not_tried_again(unit: Path) -> None:
    codes = {int(code) for code in read(unit)["Service"]["RestartPreventExitStatus"].split()}
    assert codes == {exits.USAGE, exits.CONFIG}


def test_children_outlive_their_manager_and_are_stopped_by_it() -> None:
    service = read(UNITS[1])["Service"]
    assert service["KillMode"] == "process"
    assert service["OOMPolicy"] == "continue"
    children = Children()
    stop_seconds = children.drain_seconds + 2 * (children.stop_seconds + CHILD_KILLED_SECONDS)
    assert float(service["TimeoutStopSec"]) > stop_seconds


def test_an_instance_of_jobs_is_started_again_however_it_ends_and_stops_its_jobs_itself() -> None:
    service = read(UNITS[2])["Service"]
    assert service["Restart"] == "always"
    assert service["KillMode"] == "mixed"
    assert float(service["TimeoutStopSec"]) > GRACE_SECONDS + LOOK_SECONDS
