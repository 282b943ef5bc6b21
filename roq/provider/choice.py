"""Which provider a cluster has: one of RoQ's own, or one of an installed package.

[provider]
use = "docker"

[provider.docker]
image = "roq-host:latest"
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Final, cast

import msgspec

from roq.errors import ConfigError, RoQError
from roq.provider.port import ENTRY_POINTS, Provider
from roq.runtime import plugins
from roq.runtime.config import OtherSections, convert

OWN: Final = {
    "docker": "roq.provider.docker:DockerProvider",
    "local": "roq.provider.local:LocalProvider",
}
"""RoQ's own by name, imported when they are wanted; nobody else can take these names."""
_METHODS: Final = ("create", "list", "remove", "close")


class Choice(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The section `[provider]` of `gcm.toml`."""

    use: str = ""
    """Name of the provider; empty: none, the cluster has the hosts that it has."""
    options: OtherSections = msgspec.field(default_factory=dict)
    """The sections `[provider.<name>]` by name; only the one that is used is looked at."""


def open_provider(choice: Choice, *, source: str = "gcm.toml") -> Provider | None:
    """The provider that was chosen, None if there is none.

    Args:
        source: where the choice stands, for the errors.

    Raises:
        ConfigError: there is no such provider, it cannot be used here, or its options are wrong;
            the text lists all problems.
    """
    if not choice.use:
        return None
    section = f"provider.{choice.use}"
    found = _find(choice.use)
    options = getattr(found, "Options", None)
    if not (isinstance(options, type) and issubclass(options, msgspec.Struct)):
        raise ConfigError(f"provider {choice.use!r} has no `Options`, a msgspec.Struct: mend it")
    values = convert(options, choice.options.get(choice.use, {}), source=source, section=section)
    return _make(choice.use, found, values, f"{source}: {section}")


def _find(name: str) -> object:
    if name not in OWN:
        return plugins.load(ENTRY_POINTS, name)
    module, _, kind = OWN[name].partition(":")
    found: object = getattr(import_module(module), kind)
    return found


def _make(name: str, found: object, options: msgspec.Struct, where: str) -> Provider:
    make = cast("Callable[[msgspec.Struct], object]", found)
    try:
        provider = make(options)
    except RoQError as error:
        raise ConfigError(f"{where}: {error}") from error
    except (Exception, SystemExit) as error:
        raise ConfigError(f"provider {name!r} cannot be made: {error!r}") from error
    missing = [each for each in _METHODS if not callable(getattr(provider, each, None))]
    if missing:
        raise ConfigError(f"provider {name!r} has no {', '.join(missing)}: mend it")
    return cast("Provider", provider)


def known() -> Mapping[str, str]:
    """All providers that can be chosen here: name → where it comes from."""
    others = {
        name: points[0].value
        for name, points in plugins.offered(ENTRY_POINTS).items()
        if name not in OWN
    }
    return {**others, **OWN}
