"""RoQ's own code on its way to Spark's executors, and what is said where it is missing."""

from __future__ import annotations

import re
import zipfile
from pathlib import Path
from typing import Final

from roq.errors import ConfigError

PACKAGES: Final = ("roq", "simulation")


def packed(folder: Path) -> Path:
    """RoQ's packages as one zip file, for executors."""
    root = Path(__file__).parents[1]
    target = folder / "roq_packages.zip"
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for package in PACKAGES:
            for path in sorted((root / package).rglob("*.py")):
                archive.write(path, path.relative_to(root))
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
