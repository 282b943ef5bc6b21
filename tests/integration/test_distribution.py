"""What is built and installed elsewhere works without the source: wheel and source distribution."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest
from commands import DEADLINE_SECONDS, read_line

pytestmark = [pytest.mark.integration, pytest.mark.long]

ROOT = Path(__file__).resolve().parents[2]
BUILD_SECONDS = 240
LEFT_OUT = shutil.ignore_patterns(
    ".venv", ".git", "runs", "roq-data", "build", "dist", "*.egg-info", "__pycache__", ".*_cache"
)
NO_NETWORK = ("Temporary failure", "Connection", "No matching distribution", "timed out")


def run(*command: str | Path, cwd: Path, seconds: float = BUILD_SECONDS) -> str:
    """Run a command to its end in an environment that knows nothing of this source."""
    env = {
        name: value
        for name, value in os.environ.items()
        if name not in {"PYTHONPATH", "VIRTUAL_ENV"} and not name.startswith("ROQ_")
    }
    done = subprocess.run(
        command, cwd=cwd, env=env, capture_output=True, timeout=seconds, check=False, text=True
    )
    if done.returncode:
        raise RuntimeError(done.stdout + done.stderr)
    return done.stdout


def wheel_of(source: Path, folder: Path) -> Path:
    """Build a wheel; the test is skipped if the build tools cannot be fetched."""
    wheel = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", folder, source]
    try:
        run(*wheel, cwd=folder)
    except RuntimeError as error:
        if any(reason in str(error) for reason in NO_NETWORK):
            pytest.skip(f"the build tools cannot be fetched: {str(error)[-300:]}")
        raise
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("distribution")


@pytest.fixture(scope="module")
def source(folder: Path) -> Path:
    """A copy, so that nothing is left in the real one."""
    return Path(shutil.copytree(ROOT, folder / "source", symlinks=True, ignore=LEFT_OUT))


@pytest.fixture(scope="module")
def wheel(folder: Path, source: Path) -> Path:
    built = folder / "wheel"
    built.mkdir()
    return wheel_of(source, built)


@pytest.fixture(scope="module")
def installed(folder: Path, wheel: Path) -> Path:
    """The programs of an environment that has the wheel, and beside it what it depends on."""
    place = folder / "environment"
    venv.create(place, with_pip=False, symlinks=True)
    python = place / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet"]
    run(*pip, "--no-deps", "--no-index", wheel, cwd=folder)
    (site,) = (place / "lib").glob("python*/site-packages")
    # Not its .pth files: by these the source would be found after all.
    (site / "dependencies.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    return place / "bin"


def names(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def test_a_wheel_takes_no_names_but_its_own(wheel: Path) -> None:
    assert wheel.name.startswith("roq_cluster-")
    top = {name.partition("/")[0] for name in names(wheel)}
    assert {each for each in top if not each.endswith(".dist-info")} == {"roq", "pyspark_roq"}
    assert "roq/py.typed" in names(wheel), "type checkers of users look for this"


def test_the_source_distribution_makes_the_same_wheel(
    folder: Path, source: Path, wheel: Path
) -> None:
    if importlib.util.find_spec("setuptools") is None:
        pytest.skip("setuptools is not installed beside the tests, as with Python 3.12")
    build = "from setuptools import build_meta; build_meta.build_sdist('../sdist')"
    run(sys.executable, "-c", build, cwd=source)
    (packed,) = (folder / "sdist").glob("*.tar.gz")
    with tarfile.open(packed) as archive:
        top = {name.split("/")[1] for name in archive.getnames() if name.count("/") == 1}
    assert not {"tests", "benchmarks"} & top
    rebuilt = folder / "rebuilt"
    rebuilt.mkdir()
    assert names(wheel_of(packed, rebuilt)) == names(wheel)


def test_its_programs_do_without_the_source(folder: Path, installed: Path) -> None:
    where = run(installed / "python", "-c", "import roq; print(roq.__file__)", cwd=folder)
    assert str(installed.parent) in where
    assert "roq 0." in run(installed / "roq", "--version", cwd=folder)
    assert "eqs-2011" in run(installed / "roq", "sim", "list", cwd=folder)
    assert "--compare" in run(installed / "roq", "bench", "--help", cwd=folder)
    modules = (
        "import roq.simulation.experiments.survival, roq.benchmarks.plan, roq.aio, roq.testing"
    )
    run(installed / "python", "-c", modules, cwd=folder)


def test_a_cluster_starts_and_stops_from_there(folder: Path, installed: Path) -> None:
    command = [installed / "roq", "up", "--port-base", "0"]
    with subprocess.Popen(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    ) as process:
        try:
            ready = read_line(process.stdout)
            assert ready.startswith(b"ready {"), (ready, process.stderr and process.stderr.read())
            process.send_signal(signal.SIGINT)
            assert process.wait(DEADLINE_SECONDS) == 0
        finally:
            if process.poll() is None:
                process.kill()
