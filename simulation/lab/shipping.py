"""RoQ's own code on its way to Spark's executors, and what is said where it is missing."""

from __future__ import annotations

import re
import zipfile
from pathlib import Path

from roq.errors import ConfigError


def packed(folder: Path) -> Path:
    """RoQ's package as one zip file, for executors."""
    simulation = Path(__file__).parents[1]
    package = simulation.parent
    target = folder / "roq_packages.zip"
    # In a checkout the simulation is a link, which rglob does not follow.
    found = {*package.rglob("*.py"), *simulation.rglob("*.py")}
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(found):
            archive.write(path, path.relative_to(package.parent))
    return target


def missing(error: Exception) -> ConfigError | None:
    """What a person wants to know if that is why Spark has failed; None: something else is."""
    text = str(error)
    if "ModuleNotFoundError" not in text:
        return None
    found = re.search(r"No module named \\?['\"]?([\w.]+)", text)
    return ConfigError(
        f"executors cannot import {found[1] if found else 'a package'!r}: install RoQ where they "
        "run, or use --ship, which sends RoQ's own code (msgspec, pyzmq and what else it needs has "
        "to be there)"
    )
