"""The root filesystem of a host: the Python that runs this, its libraries, RoQ, and nothing else.

It is put together from the files of this machine, so it needs no registry and no network, and a
host in a container runs exactly what its configuration manager runs.

    <where it is here>   the interpreter, its standard library, the system libraries it loads
    /opt/roq             RoQ and the packages it needs; PYTHONPATH of the image
    /etc/roq             the settings, put there before a container starts
    /var/lib/roq         what a host writes; belongs to the user of the image
"""

from __future__ import annotations

import hashlib
import io
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import IO, Final

from roq.errors import ConfigError

PACKAGES: Final = "/opt/roq"
SETTINGS: Final = "/etc/roq"
DATA: Final = "/var/lib/roq"
USER: Final = 1000
TAG_CHARACTERS: Final = 12
PROGRAMS: Final = ("roq.hcm", "roq.monitor", "roq.exchange")
"""What runs in it."""

_TEXTS: Final = {
    "/etc/passwd": f"root:x:0:0::/:/none\nroq:x:{USER}:{USER}::{DATA}:/none\n",
    "/etc/group": f"root:x:0:\nroq:x:{USER}:\n",
    "/etc/nsswitch.conf": "hosts: files dns\n",
}
_FOLDERS: Final = {SETTINGS: 0o755, "/tmp": 0o1777}  # noqa: S108 - that of the image
_LEFT_OUT: Final = frozenset(
    {"test", "tests", "idlelib", "tkinter", "turtledemo", "ensurepip", "lib2to3", "site-packages",
     "dist-packages"}
)  # fmt: skip
"""Folders of the standard library that no host needs."""
_STATIC: Final = re.compile(r"config-.*|.*\.a")
_LIBRARY: Final = re.compile(r"(?:=> )?(/\S+) \(0x")
_REQUIREMENT: Final = re.compile(r"[A-Za-z0-9._-]+")
_SHARED: Final = re.compile(r".*\.so(\.[0-9.]+)?")

Files = dict[str, Path]
"""Path in the image → file here."""


def collect(extra: Iterable[str] = ()) -> Files:
    """Everything that goes into the image.

    Args:
        extra: further installed packages, such as one that offers policies.

    Raises:
        ConfigError: a package is not installed, a host cannot run with what goes into the image,
            or the system libraries cannot be found.
    """
    packages = {
        **_roq_itself(),
        **{
            path: file
            for name in sorted(_needed({"roq-cluster", *extra}) - {"roq-cluster"})
            for path, file in _package(name)
        },
    }
    _refuse_missing(packages)
    python = _python()
    shared = [file for file in (*python.values(), *packages.values()) if _is_shared(file)]
    return {**_libraries([interpreter(), *shared], packages.values()), **python, **packages}


def interpreter() -> Path:
    """The Python of the image, at the same place as here."""
    return Path(getattr(sys, "_base_executable", sys.executable)).resolve()


def content_tag(files: Mapping[str, Path]) -> str:
    """A tag that says what is inside: the same files give the same tag."""
    digest = hashlib.sha256()
    for path, file in sorted(files.items()):
        if not path.endswith(".pyc"):
            digest.update(f"{path}\0".encode())
            digest.update(hashlib.sha256(file.read_bytes()).digest())
    return f"{_version()}-{digest.hexdigest()[:TAG_CHARACTERS]}"


def changes(tag: str) -> list[str]:
    """What the engine is to note about the image."""
    return [
        f'ENTRYPOINT ["{interpreter()}", "-P"]',
        f"ENV PYTHONPATH={PACKAGES} PYTHONUTF8=1 HOME={DATA}",
        f"USER {USER}:{USER}",
        f"WORKDIR {DATA}",
        f"LABEL roq.version={_version()} roq.content={tag}",
    ]


def write(stream: IO[bytes], files: Mapping[str, Path]) -> None:
    """Write the root filesystem as a tar archive."""
    with tarfile.open(fileobj=stream, mode="w") as archive:
        for folder in sorted({str(each) for path in files for each in Path(path).parents}):
            _add_folder(archive, folder, 0o755)
        for folder, mode in _FOLDERS.items():
            _add_folder(archive, folder, mode)
        _add_folder(archive, DATA, 0o755, user=USER)
        for path, text in _TEXTS.items():
            entry = tarfile.TarInfo(path[1:])
            entry.size = len(text)
            archive.addfile(entry, io.BytesIO(text.encode()))
        for path, file in sorted(files.items()):
            _add_file(archive, path, file)


def _add_folder(archive: tarfile.TarFile, path: str, mode: int, user: int = 0) -> None:
    entry = tarfile.TarInfo(path.strip("/") or ".")
    entry.type, entry.mode, entry.uid, entry.gid = tarfile.DIRTYPE, mode, user, user
    archive.addfile(entry)


def _add_file(archive: tarfile.TarFile, path: str, file: Path) -> None:
    status = file.stat()
    entry = tarfile.TarInfo(path[1:])
    # The time tells Python whether its compiled files are up to date.
    entry.size, entry.mtime = status.st_size, int(status.st_mtime)
    entry.mode = 0o755 if status.st_mode & 0o100 else 0o644
    with file.open("rb") as content:
        archive.addfile(entry, content)


# --- what belongs to it ---------------------------------------------------------------------------


def _python() -> Files:
    """The standard library, at the same places as here."""
    roots = {sysconfig.get_path("stdlib")}
    extensions = sysconfig.get_config_var("DESTSHARED")
    if extensions:
        roots.add(extensions)
    found = [file for root in sorted(roots) for file in _walk(Path(root))]
    return {str(file): file for file in found}


def _version() -> str:
    return distribution("roq-cluster").version


def _roq_itself() -> Files:
    home = Path(__file__).resolve().parents[1]
    return {f"{PACKAGES}/roq/{file.relative_to(home)}": file for file in _walk(home)}


def _package(name: str) -> Iterator[tuple[str, Path]]:
    """The files of an installed package, but its commands."""
    for each in distribution(name).files or []:
        file = Path(str(each.locate()))
        if ".." not in each.parts and file.is_file():
            yield f"{PACKAGES}/{each}", file


def _needed(names: set[str]) -> set[str]:
    """These packages and whatever they need; what is not installed is not needed on this system."""
    found: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        try:
            requires = distribution(name).requires or []
        except PackageNotFoundError:
            if name in names:
                raise ConfigError(f"the package {name} is not installed here") from None
            continue
        found.add(name)
        plain = [each for each in requires if "extra ==" not in each.replace("'", '"')]
        waiting += [_REQUIREMENT.match(each.strip())[0].lower() for each in plain]  # type: ignore[index]
    return found


def _refuse_missing(packages: Files) -> None:
    """What RoQ needs stands where it was installed, perhaps before it came to need more."""
    programs = ", ".join(f"{each}.__main__" for each in PROGRAMS)
    with tempfile.TemporaryDirectory(prefix="roq-image-") as folder:
        for path, file in packages.items():
            link = Path(folder + path)
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(file.resolve())
        told = subprocess.run(
            [sys.executable, "-S", "-P", "-c", f"import {programs}"],
            env={**os.environ, "PYTHONPATH": folder + PACKAGES},
            capture_output=True, text=True, check=False, timeout=120,
        )  # fmt: skip
    if told.returncode:
        words = told.stderr.strip().rpartition("\n")[2]
        raise ConfigError(
            f"a host cannot run with what the installed RoQ says to need: {words}: install RoQ "
            "again, or take the package along by --with"
        )


def _walk(root: Path) -> Iterator[Path]:
    """The files below a folder that an image needs."""
    for path in sorted(root.iterdir()):
        if path.name in _LEFT_OUT or _STATIC.fullmatch(path.name):
            continue
        if path.is_dir():
            yield from _walk(path)
        elif not (path.suffix == ".pyc" and sys.implementation.cache_tag + ".pyc" not in path.name):
            yield path


def _is_shared(file: Path) -> bool:
    return _SHARED.fullmatch(file.name) is not None


def _libraries(binaries: Iterable[Path], own: Iterable[Path]) -> Files:
    """The binaries' interpreter and system libraries, but those that packages bring along."""
    program = shutil.which("ldd")
    if program is None:
        raise ConfigError("there is no ldd here, so the system libraries cannot be found")
    told = subprocess.run(
        [program, *map(str, binaries)], capture_output=True, text=True, check=False, timeout=120
    )
    if told.returncode not in {0, 1}:  # 1: one of them needs no libraries
        raise ConfigError(f"the system libraries cannot be found: {told.stderr.strip()}")
    if "not found" in told.stdout:
        missing = sorted(set(re.findall(r"(\S+) => not found", told.stdout)))
        raise ConfigError(f"system libraries are missing here: {', '.join(missing)}")
    bundled = {file.resolve() for file in own}
    found = {interpreter(), *map(Path, _LIBRARY.findall(told.stdout))}
    return {str(path): path for path in sorted(found) if path.resolve() not in bundled}
