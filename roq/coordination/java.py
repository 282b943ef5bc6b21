"""Where the Java runtime is that the embedded ZooKeeper runs on."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from roq.errors import Unavailable

INSTALL = (
    "install one (Debian, Ubuntu: `apt-get install openjdk-17-jre-headless`; others: any Java 11 "
    "or newer), or set JAVA_HOME, or name a running ZooKeeper instead"
)
_USUAL_PLACES = (Path("/usr/lib/jvm"), Path("/opt/java"))


def find_java(environ: Mapping[str, str], usual_places: tuple[Path, ...] = _USUAL_PLACES) -> Path:
    """Give the `java` of JAVA_HOME, else of the PATH, else of where systems install it.

    Raises:
        Unavailable: there is none, or JAVA_HOME points to none; the text says what to install.
    """
    home = environ.get("JAVA_HOME", "").strip()
    if home:
        java = Path(home) / "bin" / "java"
        if not _runs(java):
            raise Unavailable(f"JAVA_HOME is {home}, but {java} is no program: correct or unset it")
        return java
    found = shutil.which("java", path=environ.get("PATH", os.defpath))
    if found is not None:
        return Path(found)
    for place in usual_places:
        for java in sorted(place.glob("*/bin/java"), reverse=True):
            if _runs(java):
                return java
    raise Unavailable(f"the embedded ZooKeeper needs a Java runtime: {INSTALL}")


def _runs(program: Path) -> bool:
    return program.is_file() and os.access(program, os.X_OK)
