"""Policies and a provider that do everything wrong, offered as packages do; no test in here."""

from __future__ import annotations

import threading
from pathlib import Path

import msgspec

from roq.policy.snapshot import Grow, Move
from roq.provider.port import ProvidedHost

ENTRY_POINTS = """\
[roq.policies]
raises = bad_plugins:Raises
loops = bad_plugins:Loops
confused = bad_plugins:Confused
[roq.providers]
moody = bad_plugins:Moody
"""


def install(folder: Path) -> str:
    """Offer them; gives the value of PYTHONPATH under which other processes find them."""
    info = folder / "bad_plugins-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: bad-plugins\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(ENTRY_POINTS)
    return f"{folder}:{Path(__file__).parent}"


class Raises:
    def decide(self, view, memory):  # type: ignore[no-untyped-def]
        raise SystemExit(3)


class Loops:
    def decide(self, view, memory):  # type: ignore[no-untyped-def]
        number = 0
        while True:
            number += 1


class Confused:
    def decide(self, view, memory):  # type: ignore[no-untyped-def]
        return [Move(b"nobody", 7, -7, "\ud800"), Grow(""), Grow(""), None], "no memory"


class MoodyOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    mood: str
    """Path of a file with the mood in it."""


class Moody:
    """A provider that `fails`, `hangs`, `exits`, talks `nonsense` or makes hosts of `paper`."""

    Options = MoodyOptions

    def __init__(self, options: MoodyOptions) -> None:
        self._mood = Path(options.mood)
        self._hosts: dict[str, ProvidedHost] = {}

    def create(self, request):  # type: ignore[no-untyped-def]
        match self._mood.read_text():
            case "fails":
                raise OSError("no room in the rack")
            case "hangs":
                threading.Event().wait()
            case "exits":
                raise SystemExit(3)
            case "nonsense":
                return {"host": request.name}
        host = ProvidedHost(name=request.name, host="127.0.9.9", handle=request.name)
        return self._hosts.setdefault(request.name, host)

    def list(self, cluster):  # type: ignore[no-untyped-def]
        return list(self._hosts.values())

    def remove(self, handle):  # type: ignore[no-untyped-def]
        return self._hosts.pop(handle)

    def close(self) -> None:
        raise ValueError("not today")
