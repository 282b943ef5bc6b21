"""What other packages add to RoQ: objects that they offer under an entry point group.

Loading one runs the code of another author. Whatever goes wrong there is told as a ConfigError that
says which package offered it, so that a wrong plugin is a sentence in a log and not a crash.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from roq.errors import ConfigError
from roq.policy.catalogue import ENTRY_POINTS, POLICIES, as_policy
from roq.policy.snapshot import Policy

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint


def offered(group: str) -> dict[str, list[EntryPoint]]:
    """What the installed packages offer in a group, by name."""
    # Not before it is needed: it is large, and most processes never need it.
    from importlib.metadata import entry_points  # noqa: PLC0415

    found: dict[str, list[EntryPoint]] = {}
    for point in entry_points(group=group):
        found.setdefault(point.name, []).append(point)
    return found


def load(group: str, name: str) -> object:
    """The object that is offered under this name.

    Raises:
        ConfigError: nobody offers it, several packages do, or it cannot be imported.
    """
    found = offered(group)
    points = found.get(name, [])
    if not points:
        known = ", ".join(sorted(found)) or "nothing"
        raise ConfigError(f"no installed package offers {name!r} in {group} (there is {known})")
    if len({point.value for point in points}) > 1:
        packages = ", ".join(sorted(_package(point) for point in points))
        raise ConfigError(f"{name!r} in {group} is offered by several packages: {packages}")
    try:
        loaded: object = points[0].load()
    except (Exception, SystemExit) as error:
        raise ConfigError(
            f"{name!r} in {group}, offered by {_package(points[0])}, cannot be loaded: {error!r}"
        ) from error
    return loaded


def policy(name: str) -> Policy:
    """The policy of this name: RoQ's own, or one of an installed package.

    RoQ's own names cannot be taken by others.

    Raises:
        ConfigError: there is none, or it cannot be used; the text says why.
    """
    own = POLICIES.get(name)
    return own if own is not None else as_policy(load(ENTRY_POINTS, name), name)


def policies() -> frozenset[str]:
    """The names of the policies that there are: RoQ's own and those of installed packages."""
    return frozenset((*POLICIES, *offered(ENTRY_POINTS)))


def _package(point: EntryPoint) -> str:
    return point.dist.name if point.dist is not None else point.value
