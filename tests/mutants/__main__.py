"""`python -m tests.mutants`: make each mistake in a copy of the tree, and see whether tests notice.

A mutant that survives is a rule that no test holds. One whose text is gone is `stale`: the module
has changed, and the list wants a new line.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from tests.mutants.cases import MUTANTS, Mutant

ROOT: Final = Path(__file__).resolve().parents[2]
FOLDERS: Final = ("roq", "simulation", "tests", "pyspark_roq")
FILES: Final = ("setup.cfg", "pyproject.toml")
SECONDS_MAX: Final = 120.0
"""Tests that take longer have noticed: something goes round and round."""

KILLED, SURVIVED, STALE = "killed", "SURVIVED", "stale"


def copy(folder: Path) -> Path:
    """The tree, without what belongs to git or was built."""
    skip = shutil.ignore_patterns("__pycache__", "results", ".hypothesis")
    for name in FOLDERS:
        shutil.copytree(ROOT / name, folder / name, symlinks=True, ignore=skip)
    for name in FILES:
        shutil.copy(ROOT / name, folder / name)
    return folder


def passes(tree: Path, tests: tuple[str, ...]) -> bool:
    """Whether the tests find nothing wrong with this tree."""
    command = [
        sys.executable, "-B", "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests,
    ]  # fmt: skip
    try:
        done = subprocess.run(
            command, cwd=tree, capture_output=True, timeout=SECONDS_MAX, check=False
        )
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


def outcome(tree: Path, mutant: Mutant) -> str:
    """What becomes of it; the tree is as before afterwards."""
    path = tree / mutant.file
    text = path.read_text()
    if text.count(mutant.old) != 1:
        return STALE
    path.write_text(text.replace(mutant.old, mutant.new))
    try:
        return SURVIVED if passes(tree, mutant.tests) else KILLED
    finally:
        path.write_text(text)


def own_code(tree: Path) -> bool:
    """Whether tests in this tree test this tree, and no installed package."""
    done = subprocess.run(
        [sys.executable, "-c", "import roq; print(roq.__file__)"],
        cwd=tree, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return Path(done.stdout.strip()).is_relative_to(tree)


def say(line: str) -> None:
    """A line for people, at once."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main() -> int:
    """Exit code 1 unless every mutant was killed."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--only", default="", help="those whose name holds this text")
    parser.add_argument("--jobs", type=int, default=2, help="how many at once")
    options = parser.parse_args()
    chosen = [each for each in MUTANTS if options.only in each.name]
    found: dict[str, int] = dict.fromkeys((KILLED, SURVIVED, STALE), 0)
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        trees = [copy(Path(folder).resolve() / str(job)) for job in range(options.jobs)]
        if not own_code(trees[0]):
            say("the tests of the copy would test another tree: run this in a source tree")
            return 2
        shares = [chosen[job :: options.jobs] for job in range(options.jobs)]

        def work(tree: Path, share: list[Mutant]) -> None:
            for mutant in share:
                became = outcome(tree, mutant)
                found[became] += 1
                say(f"{became:8}  {mutant.name}")

        with ThreadPoolExecutor(options.jobs) as pool:
            list(pool.map(work, trees, shares))
    say(", ".join(f"{count} {name.lower()}" for name, count in found.items()))
    return 0 if found[KILLED] == len(chosen) else 1


if __name__ == "__main__":
    raise SystemExit(main())
